"""What a change of the file means for jobs: those that are there keep what they were made with."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.config.current import Current
from dalsegno.config.model import Diff, Impact, KeptJobs
from dalsegno.store.schema import config_revisions, jobs
from dalsegno.store.store import Tx

WORDS = {"pause_requested": "pausing"}


def impact_of(tx: Tx, current: Current, diff: Diff, revision_id: int | None = None) -> Impact:
    """Without a revision yet, the number it will most likely get."""
    number = revision_id or (tx.conn.execute(sa.select(sa.func.max(config_revisions.c.id))).scalar() or 0) + 1
    group = (jobs.c.config_revision_id, jobs.c.status)
    counted = sa.select(*group, sa.func.count().label("jobs")).where(jobs.c.finished_at.is_(None)).group_by(*group)
    kept = [KeptJobs(row["config_revision_id"], row["status"], row["jobs"]) for row in tx.rows(counted)]
    kept.sort(key=lambda each: (-(each.revision_id or 0), each.status))
    origins = current.loaded.origins
    restart = tuple(change.key for change in diff.keys if change.restart_needed)
    overridden = tuple(
        change.key for change in diff.keys if origins.get(change.key, ("", None))[0] in ("environment", "option")
    )
    says = (*(_kept(each) for each in kept), *([] if diff.same else _new(number, restart, overridden)))
    return Impact(number, tuple(kept), restart, overridden, says)


def _kept(each: KeptJobs) -> str:
    one = each.jobs == 1
    what = f"{each.jobs} {WORDS.get(each.status, each.status)} {'job' if one else 'jobs'} {'keeps' if one else 'keep'}"
    which = (
        f"snapshot #{each.revision_id}" if each.revision_id else f"the settings {'it' if one else 'they'} began with"
    )
    return f"{what} {which}."


def _new(number: int, restart: tuple[str, ...], overridden: tuple[str, ...]) -> list[str]:
    says = [f"New jobs use #{number}."]
    if restart:
        says.append(f"{', '.join(restart)}: from the next start on.")
    if overridden:
        says.append(f"{', '.join(overridden)}: no effect, because the environment or an option goes before the file.")
    return says
