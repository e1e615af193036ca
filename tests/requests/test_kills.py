"""Requests whose workers die, fall silent or come back from the dead."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Store
from dalsegno.engine.rescuer import rescue
from dalsegno.requests.ask import ask
from dalsegno.requests.body import body_of
from dalsegno.requests.schema import variants
from dalsegno.requests.services import request_services
from dalsegno.settings import KEYS, Settings
from dalsegno.store.schema import items, processes
from tests.helpers import SWIFT, assert_sound, every, statuses_of, wait_until
from tests.requests.conftest import Studio
from tests.requests.upstream import TOKEN, Kodik

WORKERS = 4
"""As many as decode at once, unless the settings say otherwise."""
KEPT = sa.select(variants.c.link).where(variants.c.mp4_link.is_not(None))
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def agents(database_url: str, upstream: Kodik, tmp_path: Path) -> Iterator[Start]:
    """`dalsegno agent`, as an operator starts it; whatever was started is gone after the test."""
    started: list[subprocess.Popen[bytes]] = []
    env = {name: value for name, value in os.environ.items() if name not in KEYS}
    env |= {
        "DATABASE_URL": database_url, "KODIK_URL": upstream.url, "KODIK_TOKEN": TOKEN, "REQUESTS_DECODERS": "direct",
        "BACKOFF_BASE_SEC": "0.05",
    }  # fmt: skip

    def start(**more: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "agent.log").open("ab") as log:
            command = [sys.executable, "-m", "dalsegno", "agent"]
            own = {**env, **more}
            started.append(
                subprocess.Popen(command, env=own, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
            )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_killed_in_the_middle_nothing_is_lost_and_nothing_is_decoded_again(
    database_url: str, stores: Callable[..., Store], upstream: Kodik, agents: Start
) -> None:
    """What a decoder has answered is kept before its worker does anything else. So at any moment there is at most one
    variant for each worker that was asked for and is not kept, and only those are asked for again."""
    upstream.serial(episodes=220, translations=5)
    settings = Settings(_env_file=None, **upstream.settings)
    store = stores(database_url)
    job = ask(store, settings, body_of({"shikimoriId": "20", "decodeLinks": True})).id
    store.close()
    before: dict[str, int] = {}
    in_hand: Counter[str] = Counter()
    for enough in (300, 700):
        agent = agents()
        wait_until(lambda enough=enough: len(upstream.decoded()) >= enough, f"{enough} variants", 120)  # type: ignore[misc]
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
        wait_until(lambda: not upstream.connections, "the last words of the dead")
        store = stores(database_url)
        done, tries = kept(store, upstream), upstream.decoded()
        store.close()
        assert done.issuperset(before), "what was decoded stays decoded"
        assert len(done) >= enough - WORKERS, "it was in the middle"
        assert all(tries[path] == count for path, count in before.items()), "what was kept was decoded again"
        before = {path: tries[path] for path in done}
        lost = tries.keys() - done
        assert len(lost) <= WORKERS, "only what its workers waited for is not kept"
        in_hand.update(lost)
    agents()
    store = stores(database_url)
    view = Studio(store, settings).finished(job, timeout=180)
    assert (view.status, view.decoded, view.total, view.failed) == ("DONE", 1100, 1100, 0)
    tries = upstream.decoded()
    assert len(tries) == 1100
    again = {path: count - 1 for path, count in tries.items() if count > 1}
    assert all(count <= in_hand[path] for path, count in again.items()), "only what was in hand was decoded again"
    assert_sound(store, job)


@pytest.mark.parametrize(("edge", "again"), [("after", 0), ("before", 1)])
def test_an_answer_that_was_kept_is_not_asked_for_again_though_its_item_was_not_settled(
    database_url: str, stores: Callable[..., Store], upstream: Kodik, agents: Start, edge: str, again: int
) -> None:
    """One worker, killed at the commit of its third answer: after it everything is asked for once; before it, that one
    is not known of, and nothing else is lost."""
    upstream.serial(episodes=6, translations=1)
    settings = Settings(_env_file=None, **upstream.settings)
    store = stores(database_url)
    job = ask(store, settings, body_of({"shikimoriId": "20", "decodeLinks": True})).id
    store.close()
    fatal = agents(DALSEGNO_FAULT=f"decoded.commit.{edge}:3", REQUESTS_DECODE_WORKERS="1")
    assert fatal.wait(60) == -signal.SIGKILL
    assert len(upstream.decoded()) == 3
    agents(REQUESTS_DECODE_WORKERS="1")
    store = stores(database_url)
    view = Studio(store, settings).finished(job, timeout=100)
    assert (view.status, view.decoded, view.failed) == ("DONE", 6, 0)
    assert len(upstream.decoded()) == 6
    assert sum(upstream.decoded().values()) == 6 + again
    assert_sound(store, job)


def kept(store: Store, upstream: Kodik) -> set[str]:
    """The files of the variants whose links are written down."""
    return {str(row["link"]).removeprefix(upstream.url) for row in every(store, KEPT)}


def test_a_decode_that_is_silent_for_longer_than_its_lease_is_not_run_twice(
    postgres_url: str, stores: Callable[..., Store], upstream: Kodik
) -> None:
    """The heart beats by itself: whoever decodes need not say anything."""
    upstream.film("Film")
    upstream.open.clear()
    studio = Studio(stores(postgres_url), Settings(_env_file=None, **upstream.settings))
    other = Studio(stores(postgres_url), studio.settings)
    brief = replace(SWIFT, lease_seconds=1.0)
    job = studio.ask(title="film", decodeLinks=True)
    beats = sa.select(processes.c.heartbeat_at).order_by(processes.c.id)
    seen = set()
    with studio.engine(brief), other.engine(replace(brief, node="other")):
        assert upstream.waiting.acquire(timeout=30)
        begun = wait_until(lambda: studio.view(job).heartbeat_at, "a heartbeat")

        def silent_for_long() -> bool:
            seen.update(row["heartbeat_at"] for row in every(studio.store, beats))
            return (max(seen) - begun).total_seconds() > 3 * brief.lease_seconds

        wait_until(silent_for_long, "three leases to pass")
        assert studio.view(job).phase == "DECODING"
        upstream.open.set()
        view = studio.finished(job)
    assert (view.status, view.decoded, view.retry_count) == ("DONE", 1, 0)
    assert set(upstream.decoded().values()) == {1}
    assert_sound(studio.store, job)


SLOW_THE_FIRST_TIME = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "decode":
        runs = folder / "runs"
        number = len(runs.read_text()) + 1 if runs.exists() else 1
        runs.write_text("x" * number)
        while number == 1 and not (folder / "go").exists():
            time.sleep(0.01)
        item = {"url": f"https://files.example/{number}.mp4"}
    else:
        item = {"protocol": 1}
    print(json.dumps({"id": asked["id"], "item": item, "done": True}), flush=True)
"""


def test_the_late_write_of_a_zombie_is_refused(
    postgres_url: str, stores: Callable[..., Store], upstream: Kodik, tmp_path: Path
) -> None:
    """A node that slept: while it was away, its leases were taken and the variant was decoded by somebody else."""
    upstream.film("Film")
    program = tmp_path / "decoder.py"
    program.write_text(SLOW_THE_FIRST_TIME)
    command = shlex.join([sys.executable, str(program), str(tmp_path)])
    settings = {**upstream.settings, "requests_decoders": ("slow",), "external_decoders": {"slow": command}}
    studio = Studio(stores(postgres_url), Settings(_env_file=None, **settings))
    job = studio.ask(title="film", decodeLinks=True)
    asleep = Engine(studio.store, request_services(studio.store, studio.settings), SWIFT)
    with asleep:
        wait_until((tmp_path / "runs").exists, "the first to decode")
        asleep._settler.wake()
        wait_until(lambda: statuses_of(studio.store, job, "decode")["running"], "the begin to be written")
        rescue(studio.store, asleep._heart.process_id)
        awake = Studio(stores(postgres_url), studio.settings)
        with awake.engine(replace(SWIFT, node="awake")):
            view = awake.finished(job)
            assert (view.status, view.decoded) == ("DONE", 1)
            assert view.retry_count >= 1
        (made,) = studio.variants()
        moment = studio.contents()[0]["updated_at"]
        (tmp_path / "go").touch()
        last = sa.select(items.c.lease).where(items.c.job_id == job, items.c.key.like("variant:%"))
        lease = every(studio.store, last)[0]["lease"]
    assert made["mp4_link"] != "https://files.example/1.mp4"
    (after,) = studio.variants()
    assert after == made, "what came too late changed nothing"
    assert studio.contents()[0]["updated_at"] == moment
    assert every(studio.store, last)[0]["lease"] == lease
    assert_sound(studio.store, job)
