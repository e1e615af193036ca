"""One SeaweedFS and one JuiceFS gateway for all tests here; each test has a prefix of its own."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dalsegno.objects.model import Capabilities
from dalsegno.objects.s3 import S3Store
from tests.s3 import S3Server, juicefs, seaweedfs

SERVERS = ("seaweedfs", "juicefs")
MIB = 1024 * 1024


class Song(NamedTuple):
    path: Path
    sha256: str
    size: int


@pytest.fixture
def song(tmp_path: Path) -> Callable[..., Song]:
    numbers = itertools.count()

    def make(size: int, seed: int = 0) -> Song:
        content = random.Random(seed).randbytes(size)
        path = tmp_path / f"song-{next(numbers)}.flac"
        path.write_bytes(content)
        return Song(path, hashlib.sha256(content).hexdigest(), size)

    return make


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def juice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with juicefs(tmp_path_factory.mktemp("juicefs")) as server:
        yield server


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue("weed" if request.param == "seaweedfs" else "juice")
    return found


_prefixes = itertools.count()
_known: dict[str, Capabilities] = {}


def store_on(server: S3Server, prefix: str | None = None, **options: object) -> S3Store:
    """Parts as small as S3 allows, so that a few megabytes make several."""
    defaults: dict[str, object] = {
        "endpoint": server.endpoint,
        "access_key": server.access_key,
        "secret_key": server.secret_key,
        "small": MIB,
        "part_size": 5 * MIB,
    }
    arguments = defaults | options
    prefix = f"test {next(_prefixes)}" if prefix is None else prefix
    return S3Store(server.bucket, prefix, **arguments)  # type: ignore[arg-type]


@pytest.fixture
def store(server: S3Server) -> Iterator[S3Store]:
    made = store_on(server, capabilities=_known.get(server.endpoint))
    _known[server.endpoint] = made.capabilities
    yield made
    made.close()
