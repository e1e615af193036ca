"""Databases that change their place: restored from a backup, or moved from SQLite to PostgreSQL and back."""
