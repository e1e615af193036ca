"""The settings file as a document with a past: looked at, changed, checked, kept as revisions, and gone back to."""
