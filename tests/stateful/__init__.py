"""The engine's transitions under random operation: a model test of one history at a time, and one of many at once."""
