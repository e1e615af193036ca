"""The programs that the documentation shows, as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.requests.shelf import Shelf
from tests.web.conftest import Desk

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "client"


def test_the_consumer_goes_on_where_it_was(desk: Desk, shelf: Shelf, tmp_path: Path) -> None:
    def consume() -> list[int]:
        command = [sys.executable, str(EXAMPLES / "consume.py"), desk.url, str(tmp_path / "cursor.txt")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return [json.loads(line)["id"] for line in done.stdout.splitlines()]

    ids = shelf.fill(3)
    assert consume() == ids
    assert consume() == []
    shelf.change([ids[1]], title="new")
    assert consume() == [ids[1]]
