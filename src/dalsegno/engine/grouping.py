"""Errors alike: one group for a thousand items that fail for the same reason.

Alike are errors of the same service with the same code whose messages differ only in numbers, names and places. Groups
are kept when items settle, so nobody has to look through a million of them to say what goes wrong most.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dalsegno.store.hot import Settled
from dalsegno.store.schema import error_groups, error_hours

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

LONGEST = 300
MOST_GROUPS = 5_000
"""Groups that are kept, those seen last."""
KEPT_HOURS = 72
"""Hours for which a group's trend is kept."""

# A number that says what kind of error it is, as in HTTP 429, status 503 or errno 28, stays.
_TELLING = "".join(
    f"(?<!{before})" for before in ("http", "http ", r"http/1\.1 ", "status ", "status: ", "code ", "errno ")
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]+", "<url>"),
        # What it was about when it broke: `downloading Artist - Title: …`, `Artist - Title: …`.
        (r"^(\w+ing) (?:(?!: )[^\n]){1,300}: ", r"\1 …: "),
        (r"^(?:(?!: )[^\n]){1,200} - (?:(?!: )[^\n]){1,200}: ", "…: "),
        (r"\(at (?:[^()\n]*[/\\])?([^/\\()\n]+):\d+\)", r"(at \1)"),  # the file says where, the line moves
        (r"(?<!\w)'[^'\n]{0,400}'(?!\w)|\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|「[^」\n]{0,400}」", "'…'"),
        (r"(?<![\w<])(?:[A-Za-z]:)?(?:[/\\][^\s/\\:,;'\"()<>]+){2,}[/\\]?", "<path>"),
        (r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "<id>"),
        (r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{8,}\b", "<id>"),
        (rf"(?i){_TELLING}(?<![\w.])[-+]?\d(?:[\d.,:_]*\d)?(?:e[-+]?\d+)?", "<n>"),
        (r"\s+", " "),
    )
)


def template_of(message: str) -> str:
    """A message without what differs from one time to the next."""
    text = message[: LONGEST * 4]
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text.strip()[:LONGEST]


@lru_cache(2_000)
def fingerprint(service: str, code: str, message: str) -> str:
    told = "\0".join((service, code, template_of(message)))
    return hashlib.blake2b(told.encode("utf-8", "replace"), digest_size=6).hexdigest()


def note_errors(tx: Tx, errors: Sequence[tuple[str, Settled]]) -> None:
    """Count errors, each with its service, under their groups. Last in a transaction: rows of groups are shared."""
    groups: dict[str, dict[str, Any]] = {}
    for service, row in errors:
        if row.fingerprint is None or row.error_code is None:
            continue
        message = row.error_message or ""
        known = groups.get(row.fingerprint)
        groups[row.fingerprint] = {
            "fingerprint": row.fingerprint,
            "service": service,
            "code": row.error_code,
            "template": known["template"] if known else template_of(message),
            "count": known["count"] + 1 if known else 1,
            "first_at": tx.now,
            "last_at": tx.now,
            "sample_item_id": row.id,
            "sample_error": message,
            "sample_trace": row.trace,
        }
    if groups:
        hour = int(tx.now.timestamp()) // 3600
        in_order = [groups[name] for name in sorted(groups)]
        add_group, add_hour = _statements(tx.conn.dialect.name)
        tx.conn.execute(add_group, in_order)
        hours = [{"fingerprint": row["fingerprint"], "hour": hour, "count": row["count"]} for row in in_order]
        tx.conn.execute(add_hour, hours)


@cache
def _statements(dialect: str) -> tuple[sa.Insert, sa.Insert]:
    insert = (sqlite if dialect == "sqlite" else postgresql).insert
    group, hour = insert(error_groups), insert(error_hours)
    new = group.excluded
    return (
        group.on_conflict_do_update(
            index_elements=["fingerprint"],
            set_={
                "count": error_groups.c.count + new.count,
                "last_at": new.last_at,
                "sample_item_id": new.sample_item_id,
                "sample_error": new.sample_error,
                "sample_trace": sa.func.coalesce(new.sample_trace, error_groups.c.sample_trace),
            },
        ),
        hour.on_conflict_do_update(
            index_elements=["fingerprint", "hour"], set_={"count": error_hours.c.count + hour.excluded.count}
        ),
    )


def tidy(tx: Tx) -> None:
    """Let go of old hours, and of groups that nobody has met for longest where there are too many."""
    since = int((tx.now - timedelta(hours=KEPT_HOURS)).timestamp()) // 3600
    tx.conn.execute(sa.delete(error_hours).where(error_hours.c.hour < since))
    newest_first = sa.select(error_groups.c.last_at).order_by(error_groups.c.last_at.desc())
    oldest = tx.conn.execute(newest_first.limit(1).offset(MOST_GROUPS)).scalar()
    if oldest is not None:
        tx.conn.execute(sa.delete(error_groups).where(error_groups.c.last_at <= oldest))
