"""What items are about, of the catalog and of parse requests: `variant:17` is an episode in one voice."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.catalog import subjects
from dalsegno.requests.parts import names_of_variants
from dalsegno.store.store import Tx


def names_of(tx: Tx, keys: Iterable[str]) -> dict[str, str]:
    """Those that are known."""
    wanted = set(keys)
    return {**subjects.names_of(tx, wanted), **names_of_variants(tx, wanted)}
