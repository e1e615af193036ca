"""After a crash thousands of items come back, and each is written down as begun before it runs: not one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from dalsegno import Engine, Item, Store, faults, service
from dalsegno.engine.claimer import _stage_infos
from tests.helpers import SWIFT, assert_sound, claim, register, settle, statuses_of, submitted, wait_until

pytestmark = pytest.mark.xdist_group("storms")

WORKERS = 8


@service("work")
def work(item: Item) -> None:
    """Never called: the workers of this test are threads of its own."""


def test_one_worker_writes_for_all_who_wait_in_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[str] = []
    monkeypatch.setattr(faults, "point", lambda name: commits.append(name) if name == "begin.commit.after" else None)
    settler = Engine(store, [work], SWIFT)._settler
    job = submitted(store, items=WORKERS).job_id
    rows = claim(store, register(store), WORKERS)
    infos = store.read(lambda tx: _stage_infos(tx, {row.stage_id for row in rows}))
    taken = [Item(row, infos[row.stage_id]) for row in rows]
    for item in taken:
        item.started_at, item.worker = store.clock.now(), "work-1"
    line = settler.beginning
    begun = _begin_all(line.begin, line.lock, line._line, taken)
    assert begun == [True] * WORKERS
    assert len(commits) == 1, "as many commits as workers"
    assert statuses_of(store, job) == {"running": WORKERS}
    settle(store, rows)
    assert_sound(store, job)


def _begin_all(
    begin: Callable[[Sequence[Item]], bool], lock: threading.Lock, line: object, items: list[Item]
) -> list[bool]:
    """From a thread each, all of which are in line before the first may write."""
    found: list[bool] = []
    threads = [threading.Thread(target=lambda item=item: found.append(begin([item]))) for item in items]
    with lock:
        for thread in threads:
            thread.start()
        wait_until(lambda: len(line) == len(items), "all to stand in line")  # type: ignore[arg-type]
    for thread in threads:
        thread.join()
    return found
