"""Ask: a request becomes a job, in one transaction, or is found to be there already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.engine.submit import active_twin, submit
from dalsegno.errors import TooManyRequests
from dalsegno.requests.schema import parse_requests
from dalsegno.requests.workflow import ITEM, PARSE, prepare_lane, set_tries
from dalsegno.store.hot import Event

if TYPE_CHECKING:
    from datetime import datetime

    from dalsegno.requests.body import ParseBody
    from dalsegno.settings import Settings
    from dalsegno.store.store import Store, Tx

AGAIN = "job_submitted_again"
"""The event of a request that was there already."""
LOCK = 4_770_520
"""PostgreSQL advisory lock, with a number of the client: two requests must not both take its last place."""
PATIENCE = 15
"""Seconds after which a client with too many requests may try again."""


@dataclass(frozen=True, slots=True)
class Asked:
    id: int
    at: datetime
    created: bool
    """False: the same was asked for before, and is not finished yet."""


def ask(
    store: Store, settings: Settings, body: ParseBody, *, created_by: str | None = None, requested_by: str | None = None
) -> Asked:
    """`created_by` is whom the request is for and counts towards; `requested_by` where it came from."""
    return store.write("ask", lambda tx: ask_in(tx, settings, body, created_by=created_by, requested_by=requested_by))


def ask_in(
    tx: Tx, settings: Settings, body: ParseBody, *, created_by: str | None = None, requested_by: str | None = None
) -> Asked:
    """The same in a transaction of one's own."""
    key = key_of(body.hash)
    cap = settings.requests_per_client_max
    if cap and active_twin(tx, key) is None:
        _check_cap(tx, created_by, cap)
    items: dict[str, list[str]] = {"search": [ITEM]}
    if not body.decode_links:
        items["decode"] = []  # said now, so that nobody has to plan it
    job_id, created = submit(
        tx, PARSE, items=items, scope=body.stored(), requested_by=requested_by or created_by, dedupe=key
    )
    if not created:
        tx.conn.execute(_HIT, {"job": job_id})
        tx.hot.insert_events(tx, [Event(AGAIN, requested_by or created_by or "submit", job_id)])
        return Asked(job_id, tx.now, False)
    row = {"hash": body.hash, "body": body.stored(), "created_by": created_by, "created_at": tx.now}
    tx.conn.execute(sa.insert(parse_requests), {"job_id": job_id, **row})
    prepare_lane(tx, settings)
    set_tries(tx, job_id, settings.requests_max_retries)
    return Asked(job_id, tx.now, True)


def key_of(digest: str) -> str:
    """The dedupe key of requests with this hash."""
    return f"parse:{digest}"


def twin_of(tx: Tx, body: ParseBody) -> int | None:
    """The unfinished request that asks for the same, if there is one."""
    return active_twin(tx, key_of(body.hash))


_HIT = (
    sa.update(parse_requests)
    .where(parse_requests.c.job_id == sa.bindparam("job"))
    .values(hits=parse_requests.c.hits + 1)
)
_ACTIVE = sa.or_(parse_requests.c.state == sa.literal_column("'PENDING'"),
                 parse_requests.c.state == sa.literal_column("'RUNNING'"))  # fmt: skip


def _check_cap(tx: Tx, created_by: str | None, cap: int) -> None:
    if tx.shared:
        tx.conn.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK, sa.func.hashtext(created_by or ""))))
    own = parse_requests.c.created_by.is_(None) if created_by is None else parse_requests.c.created_by == created_by
    some = sa.select(parse_requests.c.job_id).where(own, _ACTIVE).limit(cap).subquery()
    count = tx.conn.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()
    if count >= cap:
        who = "Whoever does not say X-Created-By" if created_by is None else f'"{created_by}"'
        raise TooManyRequests(who=who, count=count, wait=PATIENCE)
