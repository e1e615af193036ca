"""Requests as people look for them: by state, title, ids, hash, and whom they are for; newest first."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from dalsegno.insight.grammar import Condition, Key, age, containing, grammar, like, number, word
from dalsegno.insight.query import Query, Value, only
from dalsegno.insight.walk import SECONDS, TEXT_SECONDS, Page, Walk, begin, page_of, place_of, walk
from dalsegno.requests.body import TEXTS
from dalsegno.requests.schema import STATES, parse_requests
from dalsegno.requests.view import RequestView, views_of
from dalsegno.store.store import Tx

WHOLE = 64
"""Letters of a hash that is not cut short."""


def _in_state(value: Value, _now: datetime) -> Condition:
    return parse_requests.c.state == sa.literal_column(f"'{value.text.upper()}'")


def _hashed(value: Value, _now: datetime) -> Condition:
    text = value.text.lower()
    if len(text) == WHOLE:
        return parse_requests.c.hash == text
    return parse_requests.c.hash.like(f"{like(text)}%", escape="\\")


REQUESTS = grammar(
    "requests",
    containing(*(parse_requests.c.body[name].as_string() for name in TEXTS), parse_requests.c.created_by),
    Key("state", "How it stands.", _in_state, values=tuple(state.lower() for state in STATES)),
    Key("request", "Its number.", number(parse_requests.c.job_id), kind="number"),
    Key("by", "Whom it is for.", word(parse_requests.c.created_by)),
    Key("hash", "Its hash, or how that begins.", _hashed),
    Key("hits", "How often it was asked for again.", number(parse_requests.c.hits), kind="number"),
    Key("retries", "How often it was begun again.", number(parse_requests.c.retry_count), kind="number"),
    Key("age", "Since it was submitted.", age(parse_requests.c.created_at), kind="age"),
)


def find_requests(tx: Tx, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page[RequestView]:
    """A page of the requests that a query finds."""
    key = _indexed(query)
    along = [] if key is None else [REQUESTS.condition(query.of(key)[0], tx.now)]
    rest = REQUESTS.where(query, tx.now, but=() if key is None else (key,))
    path = Walk(sa.select(parse_requests.c.job_id), (parse_requests.c.job_id,), along, rest)
    budget = begin(tx, TEXT_SECONDS if query.of("") else SECONDS)
    found = walk(tx, path, after=place_of(cursor, 1), limit=limit + 1, budget=budget)
    lines = views_of(tx, [row["job_id"] for row in found.rows])
    return page_of(lines, found, limit, lambda line: (line.id,))


def newest_with(tx: Tx, digest: str) -> RequestView | None:
    """The last request with this hash, finished or not."""
    query = sa.select(parse_requests.c.job_id).where(parse_requests.c.hash == digest)
    found = tx.row(query.order_by(parse_requests.c.job_id.desc()).limit(1))
    return None if found is None else views_of(tx, [found["job_id"]])[0]


def _indexed(query: Query) -> str | None:
    """The key that an index answers: a hash, or a state."""
    for key in ("hash", "state"):
        named = only(query, key) if len(query.of(key)) == 1 else None
        if named is not None and (key == "state" or len(named) == WHOLE):
            return key
    return None
