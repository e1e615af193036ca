"""Everything that is kept: the schema, its migrations, and one Store for SQLite and PostgreSQL."""

from dalsegno.store.open import open_store
from dalsegno.store.store import Store, Tx

__all__ = ["Store", "Tx", "open_store"]
