"""Consoles as processes, and a real browser to look at them with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from dalsegno.sources.demo_catalog import Fault
from dalsegno.sources.demo_server import DemoServer
from tests.browser.nas import Nas
from tests.web.conftest import chromium

__all__ = ["chromium"]

expect.set_options(timeout=60_000)  # a busy machine takes its time
FAULTS = {3: Fault.GONE, 7: Fault.FORBIDDEN}


@pytest.fixture(scope="module")
def nases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Nas]]:
    """`nases(songs=12, …)`: a console on a new folder, started, with a small catalog."""
    with ExitStack() as stack:

        def make(
            *,
            songs: int = 16,
            playlists: int = 3,
            pace: float = 0.0,
            faults: Any = FAULTS,
            library: Path | None = None,
            more: str = "",
        ) -> Nas:
            catalog = stack.enter_context(
                DemoServer(songs=songs, playlists=playlists, pace=pace, faults=faults, mirrored=())
            )
            nas = Nas(tmp_path_factory.mktemp("nas"), catalog, library=library, more=more)
            stack.callback(nas.close)
            nas.start()
            return nas

        yield make


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "small"
    root.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(root)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield root
    subprocess.run(["umount", "-l", str(root)], check=True)
