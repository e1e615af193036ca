"""Errors alike end up in one group: told apart by what matters, counted when items settle."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from dalsegno import EngineOptions, Fail, Item, Retry, Store, service
from dalsegno.clock import ManualClock
from dalsegno.engine.grouping import KEPT_HOURS, fingerprint, note_errors, template_of, tidy
from dalsegno.engine.rescuer import rescue
from dalsegno.insight.finding import ITEMS, find_items
from dalsegno.insight.groups import GROUPS, GroupLine, find_groups, get_group
from dalsegno.insight.query import parse
from dalsegno.store.hot import Settled
from dalsegno.store.schema import error_groups, error_hours
from tests.helpers import begin, claim, command, every, item_of, one_step, register, run_job, submitted


@pytest.mark.parametrize(
    ("message", "template"),
    [
        ("no answer from https://a.test/x?y=1 after 30 s", "no answer from <url> after <n> s"),
        ("HTTP 429 from kuwo for song 12", "HTTP 429 from kuwo for song <n>"),
        ("status 503, attempt 2", "status 503, attempt <n>"),
        ("[Errno 28] No space left on device: '/mnt/a/b.mp3'", "[Errno 28] No space left on device: '…'"),
        ("KeyError: 'title' (at /srv/app/parts/read.py:33)", "KeyError: '…' (at read.py)"),
        ("cannot open /mnt/media/song.mp3", "cannot open <path>"),
        ('playlist "夜曲 1" is gone', "playlist '…' is gone"),
        ("is 9f86d081884c7d65, not 60303ae22b998861", "is <id>, not <id>"),
        ("it's and/or don't", "it's and/or don't"),
        ("downloading Some One - A Song: It broke off after 12 bytes", "downloading …: It broke off after <n> bytes"),
        ("finding 夜曲: no source has it", "finding …: no source has it"),
        ("Some One - 夜曲: gone from demo", "…: gone from demo"),
        ("ValueError: 3 - 2: no", "ValueError: <n> - <n>: no"),
        ("two\n  lines", "two lines"),
        ("", ""),
    ],
)
def test_a_template_is_what_stays_the_same(message: str, template: str) -> None:
    assert template_of(message) == template


def test_what_matters_tells_groups_apart() -> None:
    same = {fingerprint("download", "timeout", f"took longer than {n} seconds") for n in (1, 2, 30)}
    assert len(same) == 1
    assert fingerprint("upload", "timeout", "took longer than 1 seconds") not in same
    assert fingerprint("download", "other", "took longer than 1 seconds") not in same
    assert fingerprint("download", "http", "HTTP 429") != fingerprint("download", "http", "HTTP 503")


def groups(store: Store, text: str = "") -> list[GroupLine]:
    return store.read(lambda tx: find_groups(tx, parse(text, GROUPS))).lines


def test_failures_and_retries_are_counted_under_their_group(store: Store) -> None:
    @service("work")
    def work(item: Item) -> None:
        number = int(item.key[1:])
        if number <= 4:
            raise ValueError(f"wheel {number} came off")
        if number == 5:
            return Fail("HTTP 404 for thing 5", code="gone")  # type: ignore[return-value]
        if number == 6 and item.attempt == 0:
            return Retry("HTTP 503 for thing 6", code="busy")  # type: ignore[return-value]
        return None

    job = submitted(store, one_step(max_attempts=2), items=8)
    assert run_job(store, [work], job.job_id) == "completed_with_errors"
    found = {line.group.code: line for line in groups(store)}
    assert {code: (line.group.count, line.items, line.more) for code, line in found.items()} == {
        "ValueError": (8, 4, False),
        "gone": (1, 1, False),
        "busy": (1, 0, False),
    }
    wheel = found["ValueError"]
    assert wheel.group.template.startswith("ValueError: wheel <n> came off (at test_grouping.py)")
    assert "raise ValueError" in (wheel.group.sample_trace or "")
    assert wheel.trend == [0] * 23 + [8]
    page = store.read(lambda tx: find_items(tx, parse(wheel.query, ITEMS)))
    assert [line.item.key for line in page.lines] == ["k00004", "k00003", "k00002", "k00001"]
    assert get_group_of(store, wheel.group.fingerprint) == wheel
    assert [line.group.code for line in groups(store, "service:work code:gone")] == ["gone"]
    assert [line.group.code for line in groups(store, "wheel count:>5 -code:gone age:<1h")] == ["ValueError"]

    command(store, "retry_item", item_id=item_of(store, 1, "k00001")["id"])
    assert get_group_of(store, wheel.group.fingerprint).items == 3
    assert item_of(store, 1, "k00001")["fingerprint"] is None


def get_group_of(store: Store, name: str) -> GroupLine:
    return store.read(lambda tx: get_group(tx, name))


def test_a_secret_in_a_traceback_is_masked(store: Store) -> None:
    @service("work")
    def work(item: Item) -> None:
        password = "planted-secret"
        raise ValueError(f"no entry with {password}")

    job = submitted(store, one_step(max_attempts=1), items=1)
    run_job(store, [work], job.job_id, options=EngineOptions(secrets=("planted-secret",)))
    (line,) = groups(store)
    assert "planted-secret" not in repr(line)
    assert "***" in line.group.sample_error


def test_what_a_dead_process_held_is_counted_too(store: Store) -> None:
    process = register(store)
    submitted(store, items=3)
    held = claim(store, process, 3)
    begin(store, held[:2])
    rescue(store, process)
    (line,) = groups(store)
    assert (line.group.code, line.group.count, line.items) == ("worker_lost", 2, 0)


def test_pages_of_groups_follow_each_other(still: Store, clock: ManualClock) -> None:
    for number in range(5):
        row = Settled(
            number, 1, 1, 1, "failed", error_code=f"code{number}", error_message="no", fingerprint=f"{number:012x}"
        )
        still.write("test", lambda tx, row=row: note_errors(tx, [("work", row)]))  # type: ignore[misc]
        if number % 2:
            clock.advance(1)
    seen: list[str] = []
    cursor = None
    while True:
        page = still.read(lambda tx, at=cursor: find_groups(tx, parse("", GROUPS), cursor=at, limit=2))  # type: ignore[misc]
        seen += [line.group.code for line in page.lines]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == ["code4", "code3", "code2", "code1", "code0"]


def test_old_hours_and_too_many_groups_go(still: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.engine.grouping.MOST_GROUPS", 2)
    for number in range(4):
        row = Settled(number, 1, 1, 1, "failed", error_code="c", error_message="no", fingerprint=f"{number:012x}")
        still.write("test", lambda tx, row=row: note_errors(tx, [("work", row)]))  # type: ignore[misc]
        clock.advance(60)
    still.write("test", tidy)
    assert [row["fingerprint"] for row in every(still, sa.select(error_groups).order_by("fingerprint"))] == [
        f"{number:012x}" for number in (2, 3)
    ]
    assert len(every(still, sa.select(error_hours))) == 4
    clock.advance(3600 * (KEPT_HOURS + 2))
    still.write("test", tidy)
    assert every(still, sa.select(error_hours)) == []
