"""Whether anybody is there to carry requests out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.requests.workflow import SEARCH
from dalsegno.store.schema import UtcTime, processes, workers

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

_SOMEBODY = sa.select(
    sa.exists(
        sa.select(workers.c.id)
        .join(processes, processes.c.id == workers.c.process_id)
        .where(workers.c.service == SEARCH, processes.c.lease_until > sa.bindparam("now", type_=UtcTime))
    )
)


def is_attended(tx: Tx) -> bool:
    """Some live process searches, here or elsewhere."""
    return bool(tx.conn.execute(_SOMEBODY, {"now": tx.now}).scalar_one())
