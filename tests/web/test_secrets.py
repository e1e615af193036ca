"""Secrets are planted in every setting that may hold one, and everything that answers is a parrot: it repeats what it
was asked, with every header. After a full run nothing that anybody can see holds any of them."""

from __future__ import annotations

import base64
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import httpx
import pytest
import sqlalchemy as sa

from dalsegno.sources.demo_server import DemoServer
from dalsegno.store.open import open_store
from tests.cli.tool import Process
from tests.helpers import wait_until
from tests.web.test_serving import address

MARK = "x7Qz"
"""In every planted secret, so that one look finds them all."""
NAMES = ("auth_token", "X-Plex-Token", "client_secret", "access_key", "passkey", "X-Amz-Signature")
"""Parameters of an address."""
MOST_PAGES = 300


class Plants:
    """Secrets by what they are for, each with characters that get written differently in URLs, JSON and HTML."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}

    def __call__(self, name: str, more: str = '&"</é') -> str:
        return self.made.setdefault(name, f"{name}-{MARK}{more}")

    def plain(self, name: str) -> str:
        """For what stands in a URL as it is."""
        return self(name, "")

    def found_in(self, text: str) -> list[str]:
        """In any of the ways it may be written."""
        if MARK in text:
            at = text.index(MARK)
            return [text[max(0, at - 200) : at + 100]]
        return [name for name, secret in self.made.items() if any(form in text for form in _forms(secret))]


def _forms(secret: str) -> Iterator[str]:
    raw = secret.encode()
    yield raw.hex()
    yield base64.b64encode(raw).decode().rstrip("=")
    yield base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Parrot(BaseHTTPRequestHandler):
    """Refuses, and says in full what it was asked."""

    protocol_version = "HTTP/1.1"
    asked: set[str] = set()  # noqa: RUF012 - of a subclass made for each test

    def _answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.asked.add(self.path.split("/")[1].partition("?")[0])
        said = f"{self.command} {self.path} {dict(self.headers)} {sent[:1000].decode('utf-8', 'replace')}"
        status, kind, body = 500, "text/plain", said
        if self.path.startswith("/rest/"):
            error = {"status": "failed", "error": {"code": 40, "message": f"Wrong: {said}"}}
            status, kind, body = 200, "application/json", json.dumps({"subsonic-response": error})
        elif self.path.startswith("/lists/"):
            login = base64.b64decode(self.headers.get("authorization", "").partition(" ")[2]).decode()
            lines = [f"#EXTINF:10,Song {n}\nhttp://{login}@{self.headers['host']}/media/{n}.mp3?{self.path.partition('?')[2]}"
                     for n in range(2)]  # fmt: skip
            status, kind, body = 200, "audio/x-mpegurl", "#EXTM3U\n" + "\n".join(lines)
        elif self.path.startswith("/bucket"):
            kind, body = "application/xml", f"<Error><Code>AccessDenied</Code><Message>{quote(said)}</Message></Error>"
            status = 403
        raw = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("X-Said", quote(said)[:2000])
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


BRIDGE = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "hello":
        print("starting with", asked["params"], file=sys.stderr, flush=True)
        answer = {"item": {"protocol": 1, "version": "1", "verbs": ["pools"]}, "done": True}
        known = asked["params"]
    else:
        mine = {key: value for key, value in os.environ.items() if "x7Qz" in value}
        answer = {"error": {"code": "broken", "message": f"cannot with {known} {mine}"}}
    print(json.dumps({"id": asked["id"], **answer}), flush=True)
"""


@pytest.fixture
def parrot() -> Iterator[tuple[int, set[str]]]:
    """Its port, and what it was asked about."""
    asked: set[str] = set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Parrot", (Parrot,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Links(HTMLParser):
    """Every address in a page: links, forms, pictures, and what scripts fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for _, value in attrs if value and value.startswith(("/", "?"))]


def crawl(http: httpx.Client, paths: list[str]) -> Iterator[tuple[str, str]]:
    """Every page that links lead to from these: of addresses that differ only in numbers, two."""
    waiting, seen, shapes = list(paths), set(paths), {}
    visited = 0
    while waiting and visited < MOST_PAGES:
        path = waiting.pop(0)
        answer = http.get(path, headers={"accept": "text/html,*/*"}, follow_redirects=True)
        visited += 1
        assert answer.status_code < 500 or path == "/readyz", (path, answer.text)
        yield path, answer.text + repr(answer.headers)
        if "text/html" not in answer.headers["content-type"]:
            continue
        for link in Links(answer.text).found:
            target = urlsplit(urljoin(path, link))
            where = target.path + (f"?{target.query}" if target.query else "")
            if target.netloc or where in seen or target.path == "/api/events/stream":
                continue
            seen.add(where)
            shape = re.sub(r"\d+", "0", where)
            shapes[shape] = shapes.get(shape, 0) + 1
            if shapes[shape] <= 2:
                waiting.append(where)


def operations(http: httpx.Client) -> Iterator[str]:
    """Every GET of the API, with small numbers, and names that exist, where it wants them."""
    paths = http.get("/api/openapi.json").json()["paths"]
    names = ["1", "2", "full", "download", "demo", "source:demo", "service:download"]
    for path, known in paths.items():
        if "get" not in known or path.endswith("/stream"):
            continue
        for name in names if "{" in path else [""]:
            yield re.sub(r"\{\w+\}", quote(name, safe=""), path)


def dump(url: str) -> Iterator[tuple[str, str]]:
    """Every row of every table, whoever made it."""
    store = open_store(url)
    try:
        metadata = sa.MetaData()
        store.read(lambda tx: metadata.reflect(tx.conn))
        assert len(metadata.tables) > 20
        for table in metadata.tables.values():
            for row in store.read(lambda tx, table=table: tx.rows(sa.select(table))):
                yield table.name, repr({k: v.hex() if isinstance(v, bytes) else v for k, v in row.items()})
    finally:
        store.close()


@pytest.mark.timeout(300)
def test_no_planted_secret_comes_out_anywhere(
    backend: str, fresh_database: Callable[..., str], tmp_path: Path, parrot: tuple[int, set[str]]
) -> None:
    plant, (port, asked) = Plants(), parrot
    database = fresh_database(backend)
    if backend == "postgres":
        database = re.sub(r"//(\w+)(:[^@]*)?@", rf"//\1:{plant.plain('database')}@", database)
        assert MARK in database
    (tmp_path / "bridge.py").write_text(BRIDGE)
    (tmp_path / "library").mkdir()
    password = plant("console")
    with DemoServer(songs=24, playlists=3, pace=0) as demo:
        settings = {
            "DATABASE_URL": database,
            "LISTEN_DATABASE_URL": database if backend == "postgres" else "",
            "LIBRARY_ROOT": str(tmp_path / "library"),
            "MIN_FREE_SPACE": "1MB",
            "SOURCES": "demo,subsonic,feed,playlist-file,bridge",
            "DEMO_URL": demo.url,
            "SUBSONIC_URL": f"http://proxy:{plant.plain('proxy')}@127.0.0.1:{port}/",
            "SUBSONIC_USER": "listener",
            "SUBSONIC_PASSWORD": plant("subsonic"),
            "SUBSONIC_API_KEY": plant("apikey"),
            "FEED_URLS": ",".join([
                f"http://feeds:{plant.plain('feed')}@127.0.0.1:{port}/feed/rss.xml?token={plant.plain('feedtoken')}",
                f"http://{plant.plain('alone')}@127.0.0.1:{port}/feed/b.xml;token={plant.plain('matrix')}",
                f"http://127.0.0.1:{port}/feed/c.xml?" + "&".join(f"{key}={plant.plain(key)}" for key in NAMES),
                f"http://coded:{quote(plant('coded'), safe='')}@127.0.0.1:{port}/feed/d.xml",
            ]),
            "PLAYLIST_FILES": f"http://lists:{plant.plain('list')}@127.0.0.1:{port}/lists/a.m3u?key={plant.plain('listkey')}",
            "EXTERNAL_SOURCES": f"bridge=python3 {tmp_path}/bridge.py",
            "SOURCE_BRIDGE_TOKEN": plant("bridge"),
            "OBJECT_STORE": "s3://bucket/songs",
            "S3_ENDPOINT": f"http://127.0.0.1:{port}",
            "S3_ACCESS_KEY": plant.plain("accesskey"),
            "KODIK_URL": f"http://kodik:{plant.plain('kodiklogin')}@127.0.0.1:{port}/kodik",
            "KODIK_TOKEN": plant("kodik"),
            "REQUESTS_API_KEY": plant("requestskey"),
            "CONSOLE_PASSWORD": password,
            "BACKOFF_BASE_SEC": "0.01",
            "BACKOFF_CAP_SEC": "0.02",
        }  # fmt: skip
        lines = [f"{key}='{value}'" for key, value in settings.items() if value]
        (tmp_path / "dalsegno.env").write_text("\n".join(lines) + "\n")
        serving = Process(tmp_path, "serve", "--port", 0, S3_SECRET_KEY=plant("secretkey"))
        try:
            seen = dict(work_and_look(address(serving), password, plant, asked))
            serving.signal(signal.SIGTERM)
            ended = serving.end()
        finally:
            serving.kill()
    leaks = {where: found for where, text in seen.items() if (found := plant.found_in(text))}
    rows = list(dump(database))
    assert any("***" in text for _, text in rows), "the parrots were not heard"
    for where, text in rows:
        if found := plant.found_in(text):
            leaks.setdefault(f"table {where}", []).extend(found[: 3 - len(leaks.get(f"table {where}", []))])
    for name, text in (("stdout", ended.out), ("stderr", ended.err)):
        if found := plant.found_in(text):
            leaks[name] = found
    for path in (tmp_path / "library").rglob("*"):
        if path.is_file() and MARK.encode() in path.read_bytes() + str(path).encode():
            leaks[str(path)] = [path.name]
    assert not leaks, json.dumps(leaks, indent=1, ensure_ascii=False)
    assert len(seen) > 30


def _without_links(text: str, plant: Plants) -> str:
    """A page may lead back to the very question it was asked."""
    for secret in plant.made.values():
        for times in (2, 1):
            coded = secret
            for _ in range(times):
                coded = quote(coded, safe="")
            text = text.replace(coded, "") if coded != secret else text
    return text


def _as_shown(http: httpx.Client, note: str = "") -> dict[str, Any]:
    """The settings file as the console shows it, with its secrets masked, and a comment more: to be saved again."""
    shown = http.get("/api/config/env").json()
    return {"content": shown["content"] + f"# {note}\n", "note": note, "base_revision": shown["base_revision"]}


def work_and_look(url: str, password: str, plant: Plants, asked: set[str]) -> Iterator[tuple[str, str]]:
    """A full run in which nearly everything fails; then every page and every answer there is."""
    with httpx.Client(base_url=url, timeout=60.0) as http:
        assert http.post("/login", data={"password": password, "name": "keeper"}).status_code == 303
        made = http.post("/api/jobs", json={"template": "full"})
        assert made.status_code == 201, made.text
        job = made.json()["id"]
        request = http.post("/api/v1/parse/requests", json={"title": "anything"})
        assert request.status_code == 201, request.text

        def worked() -> bool:
            counts = http.get(f"/api/jobs/{job}").json()["counts"]
            return counts["failed"] > 0 and counts["succeeded"] > 10 and asked >= {
                "rest", "feed", "lists", "bucket", "kodik",
            }  # fmt: skip

        wait_until(worked, f"everybody to be asked and to refuse; so far {asked}", 90)
        http.post(f"/api/jobs/{job}/cancel")
        saved = http.put("/api/config/env", json=_as_shown(http, "planted"))
        assert saved.is_success, saved.text
        yield "a saved revision", saved.text
        wrong = http.put(
            "/api/config/env", json={**_as_shown(http), "content": "SUBSONIC_PASSWRD=" + plant.made["subsonic"]}
        )
        assert wrong.status_code == 422
        yield "a refused revision", wrong.text
        yield "the upstream's own list", http.get("/api/v1/kodik/list").text
        yield "a refused key", http.get("/api/v1/parse/requests", headers={"X-API-KEY": "wrong"}).text
        yield from crawl(http, ["/", *operations(http)])
        everything = " ".join(plant.made.values())
        for path in ("/api/jobs", "/api/logs", "/api/events", "/api/search", "/", "/jobs", "/songs", "/logs"):
            answer = http.get(path, params={"q": everything}, headers={"accept": "text/html,*/*"})
            yield f"{path} asked for them", _without_links(answer.text, plant)
        refused = http.post("/api/jobs", json={"template": everything, "scope": {"playlists": [everything]}})
        yield "a job called like them", refused.text
        told = http.stream("GET", "/api/events/stream", params={"events": "full", "last_event_id": "0"})
        with told as stream:
            text = ""
            for piece in stream.iter_text():
                text += piece
                if "item_failed" in text or len(text) > 1_000_000:
                    break
        yield "the event stream", text
