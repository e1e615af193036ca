"""Every table there is: the engine's, and those that each room adds to them."""

from dalsegno.catalog import schema as _catalog
from dalsegno.requests import schema as _requests
from dalsegno.store.schema import metadata

__all__ = ["metadata"]

assert _catalog.metadata is _requests.metadata is metadata
