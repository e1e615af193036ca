"""Workflows that come with the package."""
