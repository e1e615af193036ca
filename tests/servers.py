"""Servers nobody here wrote, started on loopback for as long as a test needs them, and audio to put on them."""

from __future__ import annotations

import array
import math
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import wave
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

BIN = Path(sys.prefix) / "bin"
SUBSONIC = Path(sys.prefix) / "subsonic" / "bin"
RATE = 8000
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free there for a server's data."""


def quick_place() -> Path | None:
    """Where the data of a server lies whose disk may forget: in memory where there is room, else in the usual place.

    A PostgreSQL database is some hundred small files, copied for every test: 0.02 s there, 0.2 to 0.7 s on a disk.
    """
    return MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM else None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def caddy(root: Path) -> Iterator[str]:
    """Files under `root` over HTTP, with Range, strong ETags and If-Range; yields the address without a slash."""
    with tempfile.TemporaryDirectory(prefix="caddy-") as home:
        port = free_port()
        command = [str(BIN / "caddy"), "file-server", "--listen", f"127.0.0.1:{port}", "--root", str(root)]
        url = f"http://127.0.0.1:{port}"
        with serving(
            command, f"{url}/", Path(home), env={"HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}
        ):
            yield url


@contextmanager
def caddy_tls(root: Path) -> Iterator[tuple[str, Path]]:
    """The same over HTTPS, for the name localhost; yields the address and the certificate of its own authority."""
    with tempfile.TemporaryDirectory(prefix="caddy-") as home:
        port, http = free_port(), free_port()
        (Path(home) / "Caddyfile").write_text(
            f"{{\n admin off\n skip_install_trust\n http_port {http}\n auto_https disable_redirects\n}}\n"
            f"https://localhost:{port} {{\n bind 127.0.0.1\n tls internal\n root * {root}\n file_server\n}}\n"
            f"http://127.0.0.1:{http} {{\n respond ready\n}}\n"
        )
        command = [str(BIN / "caddy"), "run", "--config", "Caddyfile", "--adapter", "caddyfile"]
        env = {"HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}
        with serving(command, f"http://127.0.0.1:{http}/", Path(home), env=env):
            authority = Path(home) / "caddy" / "pki" / "authorities" / "local" / "root.crt"
            _await_tls(port, authority)
            yield f"https://localhost:{port}", authority


@contextmanager
def supysonic(
    library: Path, user: str = "admin", password: str = "open sesame ü&=", *, home: Path | None = None
) -> Iterator[tuple[str, str, str]]:
    """A Subsonic server that has scanned `library`; yields its address, a user and the password.

    It speaks 1.12 without salted tokens, API keys or OpenSubsonic. `home` is where it keeps its own files.
    """
    home = home or Path(tempfile.mkdtemp(prefix="supysonic-"))
    try:
        (home / "supysonic.conf").write_text(
            f"[base]\ndatabase_uri = sqlite:///{home}/s.db\n"
            f"[webapp]\ncache_dir = {home}/cache\nlog_file = {home}/web.log\n"
            f"[daemon]\nsocket = {home}/daemon.sock\nrun_watcher = off\n"
        )
        for words in (
            ("user", "add", user, "-p", password),
            ("user", "setroles", "-A", user),
            ("folder", "add", "Music", str(library)),
        ):
            _run([str(SUBSONIC / "supysonic-cli"), *words], home)
        rescan(home)
        port = free_port()
        command = [str(SUBSONIC / "supysonic-server"), "-S", "waitress", "-h", "127.0.0.1", "-p", str(port)]
        url = f"http://127.0.0.1:{port}"
        with serving(command, f"{url}/rest/ping.view", home):
            yield url, user, password
    finally:
        shutil.rmtree(home, ignore_errors=True)


def rescan(home: Path) -> None:
    """Lets a running supysonic see what has changed in its library."""
    _run([str(SUBSONIC / "supysonic-cli"), "folder", "scan", "--foreground", "Music"], home)


@contextmanager
def serving(
    command: Sequence[str], ready: str, cwd: Path, env: Mapping[str, str] | None = None, patience: float = 60
) -> Iterator[int]:
    """Runs a server until the block ends; entered once `ready` answers anything at all. Yields its process id."""
    log = cwd / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=cwd, env={**os.environ, **(env or {})}, stdout=output, stderr=output)
    try:
        _await(ready, process, log, patience)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(url: str, process: subprocess.Popen[bytes], log: Path, patience: float) -> None:
    until = time.monotonic() + patience
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError as answer:
            answer.close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} did not come up:\n{log.read_text(errors='replace')[-2000:]}")


def _await_tls(port: int, authority: Path) -> None:
    """Its certificate is made after it has begun to listen."""
    until = time.monotonic() + 60
    while True:
        try:
            context = ssl.create_default_context(cafile=str(authority))
            with (
                socket.create_connection(("127.0.0.1", port)) as sock,
                context.wrap_socket(sock, server_hostname="localhost"),
            ):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _run(command: Sequence[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{command!r} failed:\n{done.stdout}{done.stderr}")


def wav(path: Path, seconds: float = 0.5, *, tone: float = 440.0, **tags: str | int) -> Path:
    """Writes a real sound: 16-bit mono at 8 kHz. Another `tone` makes other bytes.

    `tags`: title, artist, album, year, track_no, disc_no, albumartist; they become an ID3 chunk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    step = 2 * math.pi * tone / RATE
    samples = array.array("h", (int(12000 * math.sin(step * n)) for n in range(round(seconds * RATE))))
    if sys.byteorder == "big":
        samples.byteswap()
    with path.open("wb") as file, wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        sound.writeframes(samples.tobytes())
    if tags:
        _append_id3(path, tags)
    return path


FRAMES = {
    "title": b"TIT2", "artist": b"TPE1", "album": b"TALB", "year": b"TDRC",
    "track_no": b"TRCK", "disc_no": b"TPOS", "albumartist": b"TPE2",
}  # fmt: skip


def _append_id3(path: Path, tags: Mapping[str, str | int]) -> None:
    frames = b""
    for name, value in tags.items():
        text = b"\x03" + str(value).encode()
        frames += FRAMES[name] + _syncsafe(len(text)) + b"\0\0" + text
    tag = b"ID3\x04\0\0" + _syncsafe(len(frames)) + frames
    chunk = b"id3 " + struct.pack("<I", len(tag)) + tag + b"\0" * (len(tag) % 2)
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(chunk)
        size = file.tell() - 8
        file.seek(4)
        file.write(struct.pack("<I", size))


def _syncsafe(number: int) -> bytes:
    return bytes(number >> shift & 0x7F for shift in (21, 14, 7, 0))
