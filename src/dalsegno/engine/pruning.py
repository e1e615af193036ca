"""What is over and need not be kept goes, a small transaction at a time.

Any step may be the last one of its process: what is left is found again. A job goes whole or not at all. One that is
too large for a step is put down in `prunings` first; from then on nobody can retry it (engine/rows.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dalsegno.engine.marks import Mark, mark_of, set_mark
from dalsegno.model.retention import Rule, cutoff
from dalsegno.store.schema import GOES_WITH_ITEM, artifacts, items, jobs, metadata, prunings, stages

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

LOCK = 4_770_520
"""PostgreSQL advisory lock of a step: one process prunes at a time, also through PgBouncer in transaction mode."""
LEAST, MOST = 1_000, 5_000
"""Rows in a step."""
QUICK, SLOW = 0.02, 0.08
"""Seconds: a step that takes less may grow, one that takes more is too large."""
PAGE = 100
"""Jobs that are looked at together."""
AGAIN = timedelta(days=7)
"""Jobs that were kept because something in them could be retried are looked at again after so long."""

Taken = Counter[str]


def sure_now(tx: Tx) -> datetime:
    """What is old is old by both clocks, where there are two: what one takes away that is ahead would be gone."""
    return min(tx.now, tx.hot.common_now(tx))


class Elsewhere(Exception):
    """Another process prunes at this moment."""


class Pace:
    """How many rows a step takes, so that nobody waits for it for long."""

    def __init__(self) -> None:
        self.rows = LEAST
        self.seconds = 0.0
        """What the last step took, without what it waited for its turn."""

    def step(self, store: Store, work: Callable[[Tx], Any]) -> Any:
        found, self.seconds = store.write("prune", lambda tx: _timed(_alone(tx), work))
        if self.seconds < QUICK:
            self.rows = min(MOST, self.rows * 2)
        elif self.seconds > SLOW:
            self.rows = max(LEAST, self.rows // 2)
        return found


def _timed(tx: Tx, work: Callable[[Tx], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return work(tx), time.monotonic() - began


def _alone(tx: Tx) -> Tx:
    if tx.shared:
        locked = tx.conn.execute(sa.select(sa.func.pg_try_advisory_xact_lock(LOCK))).scalar_one()
        if not locked:
            raise Elsewhere
    return tx


class Place(NamedTuple):
    """In the order in which jobs of a lane finished."""

    at: datetime
    id: int


@dataclass(frozen=True, slots=True)
class Candidate:
    id: int
    finished_at: datetime
    items: int
    retriable: int
    """Items that failed or were interrupted."""

    @property
    def place(self) -> Place:
        return Place(self.finished_at, self.id)


def prune_jobs(store: Store, pace: Pace, lane: str, rule: Rule, *, again: bool = False) -> Iterator[Taken]:
    """Finished jobs of a lane that leave nothing to retry. `again`: also those that were looked at of late."""
    before = cutoff(store.read(sure_now), rule.jobs)
    if before is None:
        return
    after = None if again else store.read(lambda tx: _begin(tx, lane))
    while found := store.read(_following(lane, Place(before, 0), after)):
        while found:
            some = _handful([each for each in found if not each.retriable], pace.rows)
            upto = _upto(found, some)

            def work(tx: Tx, some: Sequence[Candidate] = some, upto: Place = upto) -> Taken:
                taken = _take(tx, some, pace.rows, failed=False)
                if not taken["unfinished"]:
                    set_mark(tx, lane, "jobs", removed=taken["jobs"], mark=_marked(tx, lane, upto))
                return taken

            taken = pace.step(store, work)
            yield taken
            if taken["unfinished"]:
                continue
            after = upto
            found = [each for each in found if each.place > upto]


def prune_failed(store: Store, pace: Pace, lane: str, rule: Rule) -> Iterator[Taken]:
    """Jobs that could still be retried: by a rule for them alone."""
    bound = store.read(lambda tx: failed_bound(tx, lane, rule))
    after: Place | None = None
    while bound and (found := store.read(_following(lane, bound, after, troubled=True))):
        some = _handful([each for each in found if each.retriable], pace.rows)
        if not some:
            after = found[-1].place
            continue

        def work(tx: Tx, some: Sequence[Candidate] = some) -> Taken:
            taken = _take(tx, some, pace.rows, failed=True)
            set_mark(tx, lane, "failed", removed=taken["jobs"])
            return taken

        taken = pace.step(store, work)
        yield taken
        if not taken["unfinished"]:
            after = some[-1].place


def candidates(
    tx: Tx, lane: str, before: Place, after: Place | None, *, troubled: bool = False, limit: int = PAGE
) -> list[Candidate]:
    """Finished jobs of a lane, oldest first, up to the newest of all: numbers that were given are not given again."""
    order = sa.tuple_(jobs.c.finished_at, jobs.c.id)
    query = sa.select(jobs.c.id, jobs.c.finished_at).where(
        jobs.c.lane == lane, jobs.c.finished_at.is_not(None), order < _value(before)
    )
    if troubled:
        query = query.where(sa.text("jobs.status <> 'completed'"))
    if after is not None:
        query = query.where(order > _value(after))
    rows = tx.rows(query.order_by(jobs.c.finished_at, jobs.c.id).limit(limit))
    if not rows:
        return []
    counted = sa.select(
        stages.c.job_id, sa.func.sum(stages.c.total), sa.func.sum(stages.c.failed + stages.c.interrupted)
    ).where(stages.c.job_id.in_([row["id"] for row in rows]))
    sums = {job: (int(total), int(bad)) for job, total, bad in tx.conn.execute(counted.group_by(stages.c.job_id))}
    newest = _newest(tx)
    found = []
    for row in rows:
        if row["id"] in newest:
            break
        found.append(Candidate(row["id"], row["finished_at"], *sums.get(row["id"], (0, 0))))
    return found


def _following(
    lane: str, before: Place, after: Place | None, *, troubled: bool = False
) -> Callable[[Tx], list[Candidate]]:
    return lambda tx: candidates(tx, lane, before, after, troubled=troubled)


def failed_bound(tx: Tx, lane: str, rule: Rule) -> Place | None:
    """Jobs with something to retry that are older than this go; None: none ever does."""
    bounds = []
    now = sure_now(tx)
    by_age = cutoff(now, rule.failed)
    if by_age is not None:
        bounds.append(Place(by_age, 0))
    by_jobs = cutoff(now, rule.jobs)
    if rule.failed_last and by_jobs is not None:
        beyond = _last_failed(tx, lane, rule.failed_last)
        if beyond is not None:
            bounds.append(min(Place(by_jobs, 0), beyond))
    return max(bounds, default=None)


def _last_failed(tx: Tx, lane: str, keep: int) -> Place | None:
    """The oldest job that is needed to have so many items that failed; None: there are not so many."""
    bad = stages.c.failed + stages.c.interrupted
    query = (
        sa.select(jobs.c.finished_at, jobs.c.id, bad.label("bad"))
        .join(stages, stages.c.job_id == jobs.c.id)
        .where(jobs.c.lane == lane, jobs.c.finished_at.is_not(None), sa.text("jobs.status <> 'completed'"), bad > 0)
        .order_by(jobs.c.finished_at.desc(), jobs.c.id.desc())
        .limit(keep)
    )
    kept = 0
    for row in tx.rows(query):
        kept += row["bad"]
        if kept >= keep:
            return Place(row["finished_at"], row["id"])
    return None


def _take(tx: Tx, chosen: Sequence[Candidate], rows: int, *, failed: bool) -> Taken:
    """Of jobs that are still as they were found, so many rows; `unfinished`: the first of them is not done."""
    taken: Taken = Counter()
    numbers = sorted(each.id for each in chosen)
    if not numbers:
        return taken
    locked = sa.select(jobs.c.id, jobs.c.finished_at).where(jobs.c.id.in_(numbers)).order_by(jobs.c.id)
    ended = {row["id"]: row["finished_at"] for row in tx.rows(locked.with_for_update())}
    own = sa.select(stages.c.id, stages.c.job_id, stages.c.failed, stages.c.interrupted).where(
        stages.c.job_id.in_(numbers)
    )
    by_job: dict[int, list[sa.RowMapping]] = {}
    for row in tx.rows(own.order_by(stages.c.job_id, stages.c.id).with_for_update()):
        by_job.setdefault(row["job_id"], []).append(row)
    over: list[Candidate] = []
    for each in chosen:
        if ended.get(each.id) != each.finished_at:
            continue  # somebody opened it again
        if failed or not any(part["failed"] or part["interrupted"] for part in by_job.get(each.id, [])):
            over.append(each)
    parts = [part["id"] for each in over for part in by_job.get(each.id, [])]
    if len(over) == 1 and over[0].items > rows and not _empty(tx, over[0].id, parts, rows, taken):
        tx.insert_new(prunings, {"job_id": over[0].id, "since": tx.now})
        taken["unfinished"] += 1
        return taken
    _remove(tx, [each.id for each in over], parts, taken)
    return taken


def _remove(tx: Tx, job_ids: Sequence[int], stage_ids: Sequence[int], taken: Taken) -> None:
    """Small jobs, whole."""
    if not job_ids:
        return
    taken["items"] += _items(tx, items.c.stage_id.in_(stage_ids))
    taken["artifacts"] += tx.conn.execute(sa.delete(artifacts).where(artifacts.c.job_id.in_(job_ids))).rowcount
    tx.conn.execute(sa.delete(stages).where(stages.c.job_id.in_(job_ids)))
    taken["jobs"] += tx.conn.execute(sa.delete(jobs).where(jobs.c.id.in_(job_ids))).rowcount
    tx.conn.execute(sa.delete(prunings).where(prunings.c.job_id.in_(job_ids)))


def _empty(tx: Tx, job_id: int, stage_ids: Iterable[int], rows: int, taken: Taken) -> bool:
    """Take a job's items and artifacts, at most so many; whether none is left."""
    for stage_id in stage_ids:
        some = sa.select(items.c.id).where(items.c.stage_id == stage_id).order_by(items.c.seq).limit(rows)
        gone = _items(tx, items.c.id.in_(some))
        taken["items"] += gone
        rows -= gone
        if rows <= 0:
            return False
    some = sa.select(artifacts.c.id).where(artifacts.c.job_id == job_id).limit(rows)
    gone = tx.conn.execute(sa.delete(artifacts).where(artifacts.c.id.in_(some))).rowcount
    taken["artifacts"] += gone
    return gone < rows


def _items(tx: Tx, chosen: sa.ColumnElement[bool]) -> int:
    """These, and what other rooms keep about them."""
    for table in metadata.tables.values():
        if table.info == GOES_WITH_ITEM:
            tx.conn.execute(sa.delete(table).where(table.c.item_id.in_(sa.select(items.c.id).where(chosen))))
    return tx.conn.execute(sa.delete(items).where(chosen)).rowcount


def _newest(tx: Tx) -> set[int]:
    """Jobs with the highest numbers of all: SQLite would give them to the next."""
    tops = [sa.select(jobs.c.id).order_by(jobs.c.id.desc()).limit(1)]
    if not tx.shared:
        tops.append(sa.select(stages.c.job_id).order_by(stages.c.id.desc()).limit(1))
        tops.append(sa.select(items.c.job_id).order_by(items.c.id.desc()).limit(1))
    return {found for top in tops if (found := tx.conn.execute(top).scalar()) is not None}


# --- how far it has come ----------------------------------------------------------------------------


def _begin(tx: Tx, lane: str) -> Place | None:
    """Where the last walk along a lane came to; from the beginning when that is long ago."""
    mark = mark_of(tx, lane, "jobs")
    if mark is None or _long_ago(tx, mark):
        return None
    return Place(datetime.fromisoformat(mark["at"]), mark["id"])


def _marked(tx: Tx, lane: str, place: Place) -> Mark:
    known = mark_of(tx, lane, "jobs")
    since = tx.now.isoformat() if known is None or _long_ago(tx, known) else known["since"]
    return {"at": place.at.isoformat(), "id": place.id, "since": since}


def _long_ago(tx: Tx, mark: Mark) -> bool:
    """Also when it was written by a clock that was ahead."""
    return abs(tx.now - datetime.fromisoformat(mark["since"])) > AGAIN


def _handful(found: Sequence[Candidate], rows: int) -> list[Candidate]:
    """As many jobs as fit into a step, and one at least."""
    some: list[Candidate] = []
    for each in found:
        if some and sum(one.items + 1 for one in some) + each.items > rows:
            break
        some.append(each)
    return some


def _upto(found: Sequence[Candidate], some: Sequence[Candidate]) -> Place:
    """Everything up to here has been looked at once these are gone."""
    last = some[-1].place if some else found[-1].place
    behind = [each.place for each in found if each.place > last]
    kept = [each.place for each in found if each.place > last and each.retriable]
    return found[-1].place if behind and len(kept) == len(behind) else last


def _value(place: Place) -> Any:
    return sa.tuple_(sa.literal(place.at, jobs.c.finished_at.type), sa.literal(place.id, jobs.c.id.type))
