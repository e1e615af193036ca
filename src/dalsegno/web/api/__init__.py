"""The JSON API, one noun a module."""
