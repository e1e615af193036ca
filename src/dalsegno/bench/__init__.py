"""Measurements anyone can repeat: `dalsegno bench engine`, `claim`, `limits` and `pools`."""
