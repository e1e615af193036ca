"""What items are about: see `catalog.subjects`."""

from dalsegno.catalog.subjects import keys_of, names_of

__all__ = ["keys_of", "names_of"]
