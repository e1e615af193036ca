"""The engine's transitions under random operation: one history at a time, and many at once."""
