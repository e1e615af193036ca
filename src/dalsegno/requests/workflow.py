"""The workflow of a request: one search, then one item for each variant that needs decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.engine.submit import ensure_lane
from dalsegno.model.workflow import Lane, Step, Workflow
from dalsegno.store.schema import stages

if TYPE_CHECKING:
    from dalsegno.settings import Settings
    from dalsegno.store.store import Tx

SEARCH = "parse-search"
DECODE = "parse-decode"
"""The services, by name."""
ITEM = "request"
"""The key of the search's only item."""
TRIES = 3
PARSE = Workflow(
    name="parse",
    lane=Lane(name="parse", recovery="continue"),
    steps=(
        Step(key="search", service=SEARCH, on_failure="stop", max_attempts=TRIES, max_interruptions=TRIES),
        Step(
            key="decode", service=DECODE, depends_on=("search",), max_attempts=TRIES, max_interruptions=TRIES
        ),
    ),
)  # fmt: skip
"""A stored version never changes, so what an operator may set is set on the lane, and on the stages of each job."""


def prepare_lane(tx: Tx, settings: Settings) -> None:
    """As many requests at once as the settings say."""
    ensure_lane(tx, Lane(name=PARSE.lane.name, max_active=settings.requests_active_max, recovery="continue"))


def set_tries(tx: Tx, job_id: int, tries: int) -> None:
    """How often an item of this job may fail, and how often in a row its worker may die."""
    if tries != TRIES:
        values = {"max_attempts": tries, "max_interruptions": tries}
        tx.conn.execute(sa.update(stages).where(stages.c.job_id == job_id).values(**values))
