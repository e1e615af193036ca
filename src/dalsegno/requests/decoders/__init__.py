"""Decoders: from the page that plays a variant to the file that is played."""
