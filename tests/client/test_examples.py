"""The programs that the documentation shows, as they are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.requests.schema import parse_requests
from tests.helpers import every
from tests.requests.shelf import Shelf
from tests.requests.upstream import kodik
from tests.web.conftest import Desk

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples" / "client"


def run(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    return done


def test_the_consumer_goes_on_where_it_was(desk: Desk, shelf: Shelf, tmp_path: Path) -> None:
    def consume() -> list[int]:
        done = run(str(EXAMPLES / "consume.py"), desk.url, str(tmp_path / "cursor.txt"))
        return [json.loads(line)["id"] for line in done.stdout.splitlines()]

    ids = shelf.fill(3)
    assert consume() == ids
    assert consume() == []
    shelf.change([ids[1]], title="new")
    assert consume() == [ids[1]]


def test_discovery_submits_each_work_of_a_list_once(store: Store, consoles: Callable[..., Desk]) -> None:
    with kodik() as upstream:
        upstream.page = 2
        upstream.serial(episodes=1, translations=3)
        upstream.film("Film", brand_new="field")
        upstream.results += [{"id": "nothing-else"}]
        desk = consoles(store, **upstream.settings)
        first = run(str(EXAMPLES / "discover.py"), desk.url, "--types", "anime-serial")
        again = run(str(EXAMPLES / "discover.py"), desk.url)
    assert (first.stdout, again.stdout) == ("2 new requests\n", "0 new requests\n")
    assert "brand_new" in first.stderr
    rows = every(store, sa.select(parse_requests).order_by(parse_requests.c.job_id))
    assert [row["body"] for row in rows] == [
        {"shikimoriId": "20", "kinopoiskId": "283290", "imdbId": "tt0409591", "decodeLinks": True},
        {"title": "Film", "decodeLinks": True},
    ]
    assert {row["created_by"] for row in rows} == {"discovery"}


def test_discovery_says_why_it_could_not(desk: Desk) -> None:
    assert "KODIK_URL" in run(str(EXAMPLES / "discover.py"), desk.url, status=1).stderr


@pytest.mark.parametrize("place", ["docs/client.md", "src/dalsegno/client/__init__.py"])
def test_what_can_be_pasted_works(place: str, desk: Desk, shelf: Shelf, tmp_path: Path) -> None:
    """The first example of the documentation, with another address."""
    shelf.fill(2)
    text = (ROOT / place).read_text()
    found = re.search(r"(?m)^( *)from dalsegno\.client import ParseClient\n(?:\1.*\n|\n)+", text)
    assert found is not None
    lines = [line.removeprefix(found[1]) for line in found[0].partition("```")[0].splitlines()]
    example = "\n".join(lines)
    assert "http://127.0.0.1:8765" in example
    program = tmp_path / "example.py"
    program.write_text(example.replace("http://127.0.0.1:8765", desk.url))
    said = run(str(program)).stdout
    assert len(said.splitlines()) == 2
    assert "serial-1" in said
    assert len(desk.get("/api/v1/parse/requests?status=PENDING")) == 2  # its own beside the shelf's
