"""PostgreSQL's own programs: found, not older than the server, and run without a secret on their command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from dalsegno.errors import ToolFailed, ToolMissing
from dalsegno.store.line import words_of

DISTRIBUTIONS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
PROGRAMS = ("pg_dump", "pg_restore", "psql")
SECRETS = ("password", "sslpassword")
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs of one installation."""

    folder: Path
    version: int

    @contextmanager
    def running(
        self, program: str, *words: str, url: sa.URL | None = None, stdin: int | None = None, stdout: int | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Runs until the block ends; killed where the block did not get to its end, an error where it failed."""
        command, environment = [str(self.folder / program), *words], {**os.environ, "LC_ALL": "C"}
        if url is not None:
            address, secret = _address(url)
            command.append(f"--dbname={address}")
            environment |= {"PGAPPNAME": f"dalsegno {program}", **({"PGPASSWORD": secret} if secret else {})}
        process = subprocess.Popen(
            command, env=environment, stdin=stdin or subprocess.DEVNULL, stdout=stdout or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        finally:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()

    def check(self, program: str, process: subprocess.Popen[bytes], said: bytes) -> None:
        """That it ended well; `said` is what it wrote to stderr."""
        if process.wait() != 0:
            lines = said.decode(errors="replace").strip().splitlines()
            problem = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "")
            raise ToolFailed(tool=program, problem=problem or f"it ended with {process.returncode}")


def find_tools(server: int, folder: Path | None = None) -> Tools:
    """Those in `folder`, else the oldest installation on this machine that is not older than the server."""
    places = [folder] if folder is not None else _places()
    found = sorted(
        (version, index) for index, place in enumerate(places) if (version := _version(place / "pg_dump")) is not None
    )
    fitting = [place for place in found if place[0] >= server]
    if not fitting:
        where = f"in {folder}" if folder is not None else "on this machine"
        problem = f"and there is none {where}."
        if found:
            problem = f"and the one {where} is of version {found[-1][0]}, older than the server ({server})."
        raise ToolMissing(tool="pg_dump", problem=problem, wanted=server)
    version, index = fitting[0]
    for program in PROGRAMS:
        if not (places[index] / program).exists():
            raise ToolMissing(tool=program, problem=f"and it is not in {places[index]}.", wanted=server)
    return Tools(places[index], version)


def _places() -> list[Path]:
    on_path = shutil.which("pg_dump")
    known = [path for pattern in DISTRIBUTIONS for path in Path("/").glob(pattern.removeprefix("/"))]
    return [*([Path(on_path).parent] if on_path else []), *sorted(known)]


def _version(program: Path) -> int | None:
    try:
        done = subprocess.run([str(program), "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    number = re.search(r"(\d+)(?:\.\d+|devel|beta\d+|rc\d+)", done.stdout)
    return int(number[1]) if number and done.returncode == 0 else None


def _address(url: sa.URL) -> tuple[str, str]:
    """Where libpq connects to, without secrets; and the password, for the environment."""
    query = {key: value for key, value in url.query.items() if key not in SECRETS}
    password = url.password or url.query.get("password") or ""
    plain = sa.URL.create(
        "postgresql", username=url.username, host=url.host, port=url.port, database=url.database, query=query
    )
    return words_of(plain), str(password)
