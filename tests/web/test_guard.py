"""Who may ask, from where, and what never leaves the house."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno import Engine, Store
from dalsegno.engine.item import Item
from dalsegno.engine.service import service
from dalsegno.errors import SettingInvalid
from dalsegno.model.outcome import Fail
from dalsegno.web.guard import PREVIEWS
from dalsegno.web.server import bind
from tests.helpers import SWIFT
from tests.web.conftest import Desk
from tests.web.test_jobs import problem


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    """The guard does not depend on the database."""
    return stores(sqlite_url)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_its_own_names_are_answered_on_any_port(desk: Desk, host: str) -> None:
    assert desk.http.get("/healthz", headers={"host": f"{host}:9999"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "192.168.1.5", "[", ""])
def test_another_name_is_refused_everywhere(desk: Desk, host: str) -> None:
    for path in ("/healthz", "/", "/api/jobs", "/static/console.css"):
        problem(desk.http.get(path, headers={"host": host}), 421, "host_refused")


def test_an_open_console_answers_to_addresses_but_not_to_strange_names(
    store: Store, consoles: Callable[..., Desk]
) -> None:
    desk = consoles(store, host="0.0.0.0")
    assert desk.http.get("/healthz", headers={"host": "192.168.1.5:8765"}).status_code == 200
    problem(desk.http.get("/healthz", headers={"host": "evil.example"}), 421, "host_refused")


@pytest.mark.parametrize(
    "host", ["evil.example@127.0.0.1", "127.0.0.1/evil", "127.0.0.1:x", "localhost.", "127.0.0.1 x"]
)
def test_a_name_with_something_hidden_in_it_is_refused(desk: Desk, host: str) -> None:
    assert raw(desk, f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n") in (421, 400)


@pytest.mark.parametrize(
    ("method", "path", "takes"),
    [
        ("DELETE", "/api/jobs", "GET, HEAD, POST"),
        ("PATCH", "/api/config/env", "GET, HEAD, PUT"),
        ("OPTIONS", "/api/jobs/1/pause", "POST"),
        ("HEAD", "/api/events/stream", "GET"),
    ],
)
def test_a_method_that_an_address_does_not_take_is_answered_with_all_that_it_takes(
    desk: Desk, method: str, path: str, takes: str
) -> None:
    answer = desk.http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, takes)
    if method != "HEAD":
        assert problem(answer, 405, "method_not_allowed")["detail"] == f"This address takes {takes}, not {method}."


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/api/jobs", "/static/console.css", "/openapi.json"])
def test_the_head_of_an_answer_may_be_asked_for_alone(desk: Desk, path: str) -> None:
    whole, head = desk.http.get(path), desk.http.head(path)
    assert (head.status_code, head.headers["content-type"]) == (whole.status_code, whole.headers["content-type"])
    assert head.content == b""


def test_the_head_of_the_stream_is_refused_at_once(desk: Desk) -> None:
    assert desk.http.head("/api/events/stream").status_code == 405


def test_tools_find_the_description_of_the_api_where_they_look_first(desk: Desk) -> None:
    assert desk.http.get("/openapi.json").json() == desk.http.get("/api/openapi.json").json()


def test_exactly_one_name_is_taken(desk: Desk) -> None:
    assert raw(desk, "GET /api/jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n") == 421
    assert raw(desk, "GET /api/jobs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n") in (421, 400)
    assert raw(desk, "GET /api/jobs HTTP/1.1\r\n\r\n") in (421, 400)
    assert raw(desk, "GET /api/jobs HTTP/1.0\r\n\r\n") in (421, 400)
    assert raw(desk, "GET http://localhost/api/jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n") == 421
    assert raw(desk, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200


def test_further_names_are_those_of_console_hosts(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, console_hosts=("Music.example.org", "nas.local:8443", "[fd00::5]"))
    for host in ("music.example.org", "music.example.org:444", "NAS.local:8443", "[FD00::5]:80", "localhost"):
        assert desk.http.get("/healthz", headers={"host": host}).status_code == 200, host
    for host in ("example.org", "x.music.example.org", "nas.local", "nas.local:80", "[fd00::6]"):
        problem(desk.http.get("/healthz", headers={"host": host}), 421, "host_refused")


@pytest.mark.parametrize(
    ("host", "origin", "ours"),
    [
        ("localhost:8765", "http://localhost:8765", True),
        ("localhost:8765", "http://LOCALHOST:8765", True),
        ("LocalHost:8765", "http://localhost:8765", True),
        ("[::1]:8765", "http://[::1]:8765", True),
        ("localhost:80", "http://localhost", True),
        ("localhost", "http://localhost:80", True),
        ("localhost", "https://localhost", True),  # a proxy speaks TLS for us
        ("127.0.0.1:8765", "https://music.example.org", True),  # and does not pass the name on
        ("127.0.0.1:8765", "https://music.example.org:9999", False),
        ("127.0.0.1:8765", "https://x.music.example.org", False),
        ("localhost:8765", "http://127.0.0.1:8765", False),
        ("localhost:8765", "http://localhost:8766", False),
        ("localhost:8765", "http://localhost", False),
        ("localhost:8765", "http://localhost:8765.evil.example", False),
        ("localhost:8765", "http://evil.example@localhost:8765", False),
        ("localhost:8765", "file://localhost:8765", False),
        ("localhost:8765", "http://[::1", False),
        ("localhost:8765", "null", False),
        ("localhost:8765", "", False),
    ],
)
def test_whose_page_it_is(
    store: Store, consoles: Callable[..., Desk], host: str, origin: str, ours: bool
) -> None:  # fmt: skip
    desk = consoles(store, console_hosts=("music.example.org",))
    for header in ("origin", "referer"):
        if header == "referer" and origin in ("null", ""):
            continue
        given = {"host": host, header: origin + ("/page?x" if header == "referer" and origin else "")}
        answer = desk.http.post("/api/jobs", json={"template": "full"}, headers=given)
        assert answer.status_code == (201 if ours else 403), (header, answer.text)
    assert len(desk.get("/api/jobs")["jobs"]) == (2 if ours else 0)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "something-new"])
def test_a_browser_that_says_it_is_another_site_is_believed(desk: Desk, site: str) -> None:
    given = {"origin": desk.url, "sec-fetch-site": site}
    problem(desk.http.post("/api/jobs", json={"template": "full"}, headers=given), 403, "origin_refused")
    embedded = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
    problem(desk.http.get("/api/jobs", headers=embedded), 403, "origin_refused")
    framed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    problem(desk.http.get("/", headers=framed), 403, "origin_refused")
    linked = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert desk.http.get("/", headers=linked).status_code == 200


def test_a_console_that_only_shows_changes_nothing(store: Store, consoles: Callable[..., Desk]) -> None:
    job_id = consoles(store).start()["id"]
    desk = consoles(store, console_read_only=True)
    schema = desk.get("/api/openapi.json")
    tried = 0
    for path, operations in schema["paths"].items():
        for method in operations.keys() - {"get", "head", "options"}:
            if path in PREVIEWS:
                continue
            answer = desk.http.request(method.upper(), re.sub(r"\{\w+\}", str(job_id), path), json={})
            assert "--read-only" in problem(answer, 403, "read_only")["detail"], path
            tried += 1
    assert tried >= 3
    problem(desk.http.post("/jobs", data={"template": "full"}), 403, "read_only")
    assert [job["id"] for job in desk.get("/api/jobs")["jobs"]] == [job_id]


def test_a_console_that_only_shows_still_says_what_would_be(
    store: Store, consoles: Callable[..., Desk], tmp_path: Path
) -> None:
    file = tmp_path / "dalsegno.env"
    file.write_text("LIBRARY_ROOT=/music\nCONSOLE_READ_ONLY=true\n")
    desk = consoles(store, env_file=file)
    assert desk.post("/api/plan", {"template": "full"}, 200)["stages"]
    assert desk.post("/api/bulk/preview", {"action": "retry", "q": "state:failed"}, 200)["eligible"] == 0
    checked = desk.post("/api/config/env/check", {"content": "LANGUAGE=fr\n"}, 200)
    assert [fault["key"] for fault in checked["errors"]] == ["LANGUAGE"]
    assert "LANGUAGE" in desk.http.post("/config/check", data={"content": "LANGUAGE=fr\n"}).text
    problem(desk.http.post("/api/config/env/check", json={}, headers={"origin": "null"}), 403, "origin_refused")
    assert file.read_text() == "LIBRARY_ROOT=/music\nCONSOLE_READ_ONLY=true\n"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"])
def test_a_page_of_another_origin_changes_nothing(desk: Desk, origin: str) -> None:
    headers = {"origin": origin}
    problem(desk.http.post("/api/jobs", json={"template": "full"}, headers=headers), 403, "origin_refused")
    problem(desk.http.post("/jobs", data={"template": "full"}, headers=headers), 403, "origin_refused")
    assert desk.get("/api/jobs")["jobs"] == []
    assert desk.http.get("/api/jobs", headers=headers).status_code == 200, "reading is not for them either: no CORS"
    assert "access-control-allow-origin" not in desk.http.get("/api/jobs", headers=headers).headers


def test_our_own_origin_and_none_at_all_may_write(desk: Desk) -> None:
    assert desk.http.post("/api/jobs", json={"template": "full"}, headers={"origin": desk.url}).status_code == 201
    assert desk.http.post("/api/jobs", json={"template": "full"}).status_code == 201
    cross = {"sec-fetch-site": "cross-site"}
    problem(desk.http.post("/api/jobs", json={"template": "full"}, headers=cross), 403, "origin_refused")


def test_a_form_of_another_kind_is_no_json(desk: Desk) -> None:
    """What a foreign page may send without asking first."""
    answer = desk.http.post("/api/jobs", content=b'{"template": "full"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 422


def raw(desk: Desk, text: str) -> int:
    """The status of the answer to these very bytes."""
    host, _, port = desk.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(text.encode())
        return int(connection.recv(65536).split()[1])


def test_every_answer_tells_the_browser_what_to_refuse(desk: Desk) -> None:
    for path in ("/", "/healthz", "/api/jobs", "/api/jobs/77", "/static/console.js", "/nothing"):
        headers = desk.http.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert "server" not in headers


def test_what_changes_is_never_kept_and_what_does_not_is_asked_for_by_its_tag(desk: Desk) -> None:
    for path in ("/", "/?fragment=active", "/api/jobs"):
        assert desk.http.get(path).headers["cache-control"] == "no-store"
    first = desk.http.get("/static/console.css")
    assert first.headers["cache-control"] == "no-cache"
    again = desk.http.get("/static/console.css", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304


def test_a_body_too_large_is_refused_with_and_without_its_length(desk: Desk) -> None:
    problem(desk.http.post("/api/jobs", content=b" " * 2_000_001), 413, "payload_too_large")

    def chunks() -> Iterator[bytes]:
        for _ in range(30):
            yield b" " * 100_000

    answer = desk.http.post("/login", content=chunks())
    problem(answer, 413, "payload_too_large")


def test_what_nobody_expected_is_a_problem_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(_: Any) -> Any:
        raise ZeroDivisionError("hunter2")

    monkeypatch.setattr(desk.store, "read", break_down)
    answer = desk.http.get("/api/jobs")
    assert "hunter2" not in problem(answer, 500, "internal_error")["detail"]
    assert "content-security-policy" in answer.headers


def test_a_database_that_is_away_is_a_503(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from dalsegno.errors import DatabaseUnavailable

    def away(_: Any) -> Any:
        raise DatabaseUnavailable(problem="connection refused")

    monkeypatch.setattr(desk.store, "read", away)
    answer = desk.http.get("/api/jobs")
    problem(answer, 503, "database_unavailable")
    assert answer.headers["retry-after"] == "2"
    assert desk.get("/healthz") == {"status": "ok"}


def test_no_secret_is_in_any_answer(store: Store, consoles: Callable[..., Desk]) -> None:
    secret = 'hunter2&"<x>'
    desk = consoles(store, subsonic_password=secret)

    @service("download")
    def leaky(item: Item) -> Any:
        item.progress(0.5, f"with {secret}")
        return Fail(f"GET http://nas/rest?p={secret} answered 403", code="forbidden")

    @leaky.plan
    def plan(_: Any) -> Iterator[str]:
        yield secret

    with Engine(store, [leaky], SWIFT):  # an engine that was not told, so that it is all in the database
        job_id = desk.start(options={"said": secret}, requested_by=secret)["id"]
        desk.until(job_id, "completed_with_errors")
    for path in (
        "/",
        "/?fragment=active",
        f"/api/jobs/{job_id}",
        "/api/jobs",
        f"/api/jobs/{job_id}/items",
        "/api/workers",
    ):
        text = desk.http.get(path).text
        assert "hunter2" not in text, path
    assert "***" in desk.http.get("/").text
    refused = desk.http.post("/api/jobs", json={"template": secret})
    assert "hunter2" not in refused.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "nas.example"])
def test_only_loopback_is_listened_on_unless_said_otherwise(host: str) -> None:
    with pytest.raises(SettingInvalid, match=r"CONSOLE_HOST.*--insecure"):
        bind(host, 0)


def test_a_guarded_one_may_listen_anywhere() -> None:
    with bind("0.0.0.0", 0, guarded=True) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


def test_an_address_that_is_not_ours_is_said_so() -> None:
    with pytest.raises(SettingInvalid, match=r'cannot listen on "192\.0\.2\.1"'):
        bind("192.0.2.1", 0, guarded=True)
