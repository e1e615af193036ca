"""Limits, breakers, and what waits for them."""
