"""Measurements anyone can repeat: `dalsegno bench engine`, `claim` and `pools`."""
