"""kill -9 of an engine in the middle of streams, with an operator who goes on asking for things."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import submit
from dalsegno.model.states import ITEM_LEASED, ITEM_SATISFIED, JOB_FINISHED
from dalsegno.store.schema import commands, events
from tests.crash.harness import Child, Harness, Kill, eventually
from tests.crash.streaming_program import FOLLOWS, Wishes, fails_for_good, workflow
from tests.helpers import ask
from tests.stateful.audit import Picture, check, look
from tests.stateful.streaming import Tally, check_verdicts, followed, lonely

PROGRAM = Path(__file__).with_name("streaming_program.py")
KEYS = [f"k{number}" for number in range(18)]


@dataclass
class Death:
    """What was true when a process had just died."""

    journal: int
    last_event: int
    leased: set[tuple[int, int]]
    done: set[int]


@dataclass
class Streams(Harness):
    """An engine to kill, and an operator who sends commands, whether it lives or not."""

    deaths: list[Death] = field(default_factory=list)
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def wishes(self) -> Wishes:
        return Wishes(self.folder / "wishes")

    def submit(self) -> int:
        with self.store() as store:
            return submit(store, workflow(), items={"a": KEYS}).job_id

    def start(self, *_: object, **__: object) -> Child:
        command = [sys.executable, str(PROGRAM), self.url, str(self.journal_path), str(self.folder / "wishes")]
        paths = [str(PROGRAM.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]  # it imports from tests
        environment = {"PYTHONPATH": os.pathsep.join(paths)}
        child = Child(command, environment, self.folder / "log")
        self.children.append(child)
        return child

    def note_kill(self) -> Kill:
        kill = super().note_kill()
        picture = self.look()
        check_verdicts(picture, set())
        with self.store() as store:
            last = store.read(lambda tx: tx.conn.execute(sa.select(sa.func.max(events.c.id))).scalar())
        leased = {(key, item["lease"]) for key, item in picture.items.items() if item["status"] in ITEM_LEASED}
        done = {key for key, item in picture.items.items() if item["status"] in ITEM_SATISFIED}
        self.deaths.append(Death(kill.journal, last or 0, leased, done))
        return kill

    # --- the operator -------------------------------------------------------------------------

    def ask_something(self, rng: random.Random, job_id: int, most: int = 4) -> None:
        """Without caring whether it makes sense at the moment: what does not is refused."""
        kind = rng.choice(("pause", "resume", "retry", "again", "again", "again"))
        with self.store() as store:
            if kind in ("pause", "resume"):
                ask(store, kind, job_id=job_id)
            if kind == "pause" and rng.random() < 0.7:
                ask(store, "resume", job_id=job_id)
            picture = look(store)
            wanted = {"again": ITEM_SATISFIED, "retry": {"failed", "interrupted"}}.get(kind, set())
            some = [item for item in picture.items.values() if item["status"] in wanted]
            for item in rng.sample(some, min(len(some), rng.randint(1, most))):
                if rng.random() < 0.5:
                    self.wish(kind, picture.stages[item["stage_id"]]["key"], item["key"])
                ask(store, "force_retry_item" if kind == "again" else "retry_item", item_id=item["id"])

    def wish(self, kind: str, step: str, key: str) -> None:
        if kind == "again":
            self.changes[step, key] += 1
            self.wishes.change(step, key)
        else:
            self.wishes.mend(step, key)

    def rest(self, job_id: int) -> None:
        """Until every command was heard and the job is finished; a pause is ended on the way."""
        with self.store() as store:

            def finished() -> bool:
                waiting = sa.select(commands.c.id).where(commands.c.status == "pending").limit(1)
                if store.read(lambda tx: tx.conn.execute(waiting).scalar()) is not None:
                    return False
                status = look(store).jobs[job_id]["status"]
                if status in ("paused", "pause_requested"):
                    ask(store, "resume", job_id=job_id)
                return status in JOB_FINISHED

            eventually("the job finishes", finished)

    # --- the verdict --------------------------------------------------------------------------

    def judge_streams(self) -> None:
        tally = Tally()
        with self.store() as store:
            picture = look(store)
            tally.replay(store)
            told = store.read(lambda tx: tx.rows(sa.select(events.c.id, events.c.type, events.c.item_id)))
        check(picture)
        tally.check(picture)
        check_verdicts(picture, set())
        assert {job["status"] for job in picture.jobs.values()} <= JOB_FINISHED
        assert not picture.leases
        assert not picture.processes
        assert not lonely(picture), "something was done and has no follower"
        assert not self.places("missing"), "a follower found nothing to work on"
        self.judge_results(picture, tally)
        for key in picture.items:
            self.judge_runs(picture, tally, key)
        for death in self.deaths:
            asked = {
                event["item_id"]
                for event in told
                if event["id"] > death.last_event and event["type"] in ("item_force_retried", "item_reset")
            }
            again = self.places("begin", death.journal) & {self.place(picture, key) for key in death.done - asked}
            assert not again, f"ran again after its success was committed: {again}"

    def judge_results(self, picture: Picture, tally: Tally) -> None:
        """Whatever is done was made from what its parent is now, and knows it."""
        hashes: dict[str, str] = {}
        for item, parent in followed(picture):
            place = self.place(picture, item["id"])
            assert tally.was_done(parent["id"]) < tally.began(item["id"]), f"{place} began before its parent was done"
            assert parent["status"] in ITEM_SATISFIED, place  # what was done once is never broken afterwards
            text = json.dumps(parent["result"], sort_keys=True)
            assert hashes.setdefault(text, item["input_hash"]) == item["input_hash"], place
            if item["status"] in ITEM_SATISFIED:
                assert item["result"]["of"] == parent["result"], f"{place} was made from something else"
        assert len(set(hashes.values())) == len(hashes)
        for key, item in picture.items.items():
            _, step, name = self.place(picture, key).split("/")
            if not fails_for_good(step, name):
                assert item["status"] in ITEM_SATISFIED, item
            elif not self.wishes.is_mended(step, name):
                assert item["status"] == "failed", item

    def judge_runs(self, picture: Picture, tally: Tally, key: int) -> None:
        """How often something ran is how often somebody asked for it, and once for each death in its hands."""
        place = self.place(picture, key)
        _, step, name = place.split("/")
        forced, resets = tally.seen[key, "item_force_retried"], tally.seen[key, "item_reset"]
        above, changed = FOLLOWS[step], 0
        while above is not None:
            changed += self.changes[above, name]
            above = FOLLOWS[above]
        assert resets <= changed, f"{place} started over {resets} times for {changed} changes"
        assert tally.successes(key) <= 1 + forced + resets, f"{place} succeeded unasked"
        died = len({pair for death in self.deaths for pair in death.leased if pair[0] == key})
        ended = sum(line[:2] == ["end", place] for line in self.journal())
        began = sum(line[:2] == ["begin", place] for line in self.journal())
        assert tally.successes(key) <= ended, f"{place} succeeded without having run"
        assert ended <= tally.successes(key) + died + resets, f"{place} was done {ended} times"
        assert began <= tally.seen[key, "item_claimed"], f"{place} ran without a lease"

    def places(self, word: str, after: int = 0) -> set[str]:
        return {line[1] for line in self.journal()[after:] if line[0] == word}


@pytest.fixture
def streams(database_url: str, tmp_path: Path) -> Iterator[Streams]:
    made = Streams(database_url, tmp_path)
    try:
        yield made
    finally:
        made.end_all()


def kill_and_ask(streams: Streams, rng: random.Random, kills: int) -> dict[str, Any]:
    job_id = streams.submit()
    for _ in range(kills):
        child = streams.start()
        eventually("it starts", lambda child=child: streams.said("started", child.pid))  # type: ignore[misc]
        for _ in range(rng.randint(1, 4)):
            streams.ask_something(rng, job_id)
            time.sleep(rng.uniform(0, 0.12))
        child.kill()
        streams.note_kill()
        for _ in range(rng.randint(0, 2)):
            streams.ask_something(rng, job_id)
    child = streams.start()
    streams.rest(job_id)
    for _ in range(2):  # now that everything is finished, any of these opens the job again
        streams.ask_something(rng, job_id, most=2)
        streams.rest(job_id)
    child.terminate()
    assert child.wait() == 0, child.said()
    streams.judge_streams()
    return streams.look().jobs[job_id]


def test_streams_hold_through_kills_and_commands(streams: Streams) -> None:
    kill_and_ask(streams, random.Random(5), 4)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("round_", range(10))
def test_streams_hold_through_many_kills_and_commands(streams: Streams, round_: int) -> None:
    kill_and_ask(streams, random.Random(), 20)
