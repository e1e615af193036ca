"""Measurements anyone can repeat: `dalsegno bench engine` and `dalsegno bench claim`."""
