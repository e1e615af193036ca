"""Whatever is sent as a parse request: it is one, or it is refused with a reason and nothing is stored."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given
from hypothesis import settings as tries
from hypothesis import strategies as st

from dalsegno import Store
from dalsegno.requests.body import DECODE, TEXTS
from dalsegno.requests.schema import parse_requests
from dalsegno.store.schema import jobs
from dalsegno.web.api import parse_body
from tests.helpers import every
from tests.web.conftest import Desk
from tests.web.test_parse_api import PATH, ask, problem


def stored(store: Store) -> list[Any]:
    return [*every(store, sa.select(jobs.c.id)), *every(store, sa.select(parse_requests.c.job_id))]


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[]", b"null", b"5", b'"x"', b"{}", b'{"title": ""}', b'{"title": 5}', b'{"title": {"a": [1]}}',
        b'{"title": "x", "decodeLinks": "true"}', b'{"title": "a\\u0000b"}', b'{"title": "\\u0007"}',
        b'{"title": "\\ud800"}', b'{"title": "\xff"}', b'{"title": "x", "title": "y"}', b'{"title": "x", "extra": 1}',
        b"[" * 60_000, b'{"title":' * 6000, b'{"title": ' + b"9" * 60_000 + b"}", b'{"title": NaN}',
        b'{"title": "' + b"x" * 60_000 + b'"}', b"\x00" * 100, b"\xff\xfe{\x00}\x00",
    ],
)  # fmt: skip
def test_a_body_that_is_none_is_refused_and_nothing_is_stored(desk: Desk, raw: bytes) -> None:
    answer = desk.http.post(PATH, content=raw, headers={"Content-Type": "application/json"})
    problem(answer, 400, "request_invalid")
    assert stored(desk.store) == []


@pytest.mark.parametrize("size", [65 * 1024, 1_900_000, 10_000_000])
@pytest.mark.parametrize("known", [True, False], ids=["with length", "in pieces"])
def test_a_body_that_is_too_long_is_refused(desk: Desk, size: int, known: bool) -> None:
    raw = json.dumps({"title": "x" * size}).encode()
    content: Any = raw if known else (raw[at : at + 60_000] for at in range(0, len(raw), 60_000))
    problem(desk.http.post(PATH, content=content), 413, "payload_too_large")
    assert stored(desk.store) == []
    ask(desk, title="x")  # and the connection is as good as before


def spoken(desk: Desk, *words: bytes, end: bool = True) -> bytes:
    """What is answered to these bytes, as they are; `end`: nothing more is said."""
    with socket.create_connection(("127.0.0.1", httpx.URL(desk.url).port or 0), timeout=30) as line:
        for word in words:
            line.sendall(word)
        if end:
            line.shutdown(socket.SHUT_WR)
        heard = b""
        while part := line.recv(65_536):
            heard += part
        return heard


HEAD = b"POST /api/v1/parse/requests HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"


def test_a_body_that_does_not_come_is_not_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_body, "PATIENCE", 0.2)
    for rest in (b"Content-Length: 20\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
        heard = spoken(desk, HEAD + rest, end=False)
        assert heard.startswith(b"HTTP/1.1 400")
        assert b"did not come within 0.2 seconds" in heard
    assert stored(desk.store) == []


def test_a_sender_that_goes_away_leaves_nothing_behind(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for rest in (b"Content-Length: 20\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
        spoken(desk, HEAD + rest)
    ask(desk, title="x")  # somebody is still there
    assert len(stored(desk.store)) == 2
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("application/json; charset=utf-16", '{"title": "x"}'.encode("utf-16")),
        ("application/json; charset=windows-1251", '{"title": "Наруто"}'.encode("cp1251")),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="title"\r\n\r\nx\r\n--x--'),
        ("application/x-www-form-urlencoded", b"title=x"),
    ],
)
def test_what_is_no_json_in_utf_8_is_refused_whatever_it_is_called(desk: Desk, kind: str, raw: bytes) -> None:
    problem(desk.http.post(PATH, content=raw, headers={"Content-Type": kind}), 400, "request_invalid")
    assert stored(desk.store) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
BODIES = st.dictionaries(st.sampled_from([*TEXTS, DECODE, "Title", "x"]), VALUES, max_size=5).map(json.dumps)


@tries(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=BODIES.map(str.encode) | st.binary(max_size=300))
def test_anything_at_all_is_a_request_or_refused(desk: Desk, raw: bytes) -> None:
    before = len(stored(desk.store))
    answer = desk.http.post(PATH, content=raw, headers={"Content-Type": "application/json"})
    if answer.status_code in (200, 201):
        assert any(str(json.loads(raw).get(name) or "").strip() for name in TEXTS)
    else:
        problem(answer, 400, "request_invalid")
        assert len(stored(desk.store)) == before
