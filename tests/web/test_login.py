"""Signing in: by the password, by what the browser kept, by a token; and what does not let anybody in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from dalsegno import Store
from dalsegno.clock import ManualClock
from dalsegno.errors import LoginThrottled, SettingInvalid
from dalsegno.settings import Settings
from dalsegno.web.door import tidy_name
from dalsegno.web.login import local
from dalsegno.web.password import Password, hashed
from dalsegno.web.sessions import DAYS, Session, Sessions
from dalsegno.web.throttle import ADDRESS, EVERYONE, FORGET, MOST, Throttle
from tests.helpers import events_of, wait_until
from tests.web.conftest import Desk
from tests.web.test_jobs import problem

PASSWORD = "da capo al fine"
HTML = {"accept": "text/html,*/*"}

Consoles = Callable[..., Desk]


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    """What keeps sign-ins is tried on both databases, the rest on one."""
    return stores(sqlite_url)


@pytest.fixture
def locked(store: Store, consoles: Consoles) -> Desk:
    return consoles(store, console_password=PASSWORD)


def sign_in(desk: Desk, password: str = PASSWORD, **more: Any) -> httpx.Response:
    return desk.http.post("/login", data={"password": password, **more})


def elsewhere(desk: Desk) -> httpx.Client:
    """The same console, in a browser that knows nothing."""
    return httpx.Client(base_url=desk.url, timeout=30.0)


def look(desk: Desk, cookies: httpx.Cookies) -> httpx.Response:
    """With these cookies, in a browser that has no others."""
    return httpx.get(f"{desk.url}/api/jobs", headers={"cookie": "; ".join(f"{k}={v}" for k, v in cookies.items())})


# --- the door -----------------------------------------------------------------------------------


def test_without_a_password_the_door_is_open(desk: Desk) -> None:
    assert desk.http.get("/").status_code == 200
    assert desk.http.get("/login?next=/api/jobs").headers["location"] == "/api/jobs"
    assert sign_in(desk, "whatever").headers["location"] == "/"


def test_a_page_leads_to_the_sign_in_and_back(locked: Desk) -> None:
    away = locked.http.get("/?job=7", headers=HTML)
    assert (away.status_code, away.headers["location"]) == (303, "/login?next=%2F%3Fjob%3D7")
    page = locked.http.get(away.headers["location"])
    assert page.status_code == 200
    assert 'name="next" value="/?job=7"' in page.text
    assert "<script" not in page.text
    back = sign_in(locked, next="/?job=7")
    assert (back.status_code, back.headers["location"]) == (303, "/?job=7")
    assert locked.http.get("/", headers=HTML).status_code == 200
    assert locked.http.get("/login").headers["location"] == "/", "who is in need not sign in again"


def test_the_sign_in_speaks_chinese_to_who_asks_for_it(locked: Desk) -> None:
    page = locked.http.get("/login", headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.5"}).text
    assert '<html lang="zh-CN"' in page
    assert "密码" in page


@pytest.mark.parametrize("path", ["/", "/api/jobs", "/api/openapi.json", "/metrics", "/?fragment=active", "/nothing"])
def test_nothing_but_a_401_is_told_to_programs(locked: Desk, path: str) -> None:
    answer = locked.http.get(path)
    problem(answer, 401, "login_needed")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_write_without_a_sign_in_changes_nothing(locked: Desk) -> None:
    problem(locked.http.post("/api/jobs", json={"template": "full"}), 401, "login_needed")
    form = locked.http.post("/jobs", data={"template": "full"}, headers={**HTML, "referer": f"{locked.url}/?job=3"})
    assert (form.status_code, form.headers["location"]) == (303, "/login?next=%2F%3Fjob%3D3")
    assert locked.http.get("/api/jobs", auth=("console", PASSWORD)).json()["jobs"] == []


def test_a_fragment_tells_the_whole_page_to_go_and_sign_in(locked: Desk) -> None:
    headers = {**HTML, "hx-request": "true", "hx-current-url": f"{locked.url}/jobs?q=state:failed"}
    answer = locked.http.get("/?fragment=active", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["hx-redirect"] == "/login?next=%2Fjobs%3Fq%3Dstate%3Afailed"


@pytest.mark.parametrize("path", ["/healthz", "/login", "/static/console.css", "/static/mark.svg"])
def test_what_needs_no_password(locked: Desk, path: str) -> None:
    assert locked.http.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/static/../api/jobs", "/static/%2e%2e/api/jobs", "/login/../api/jobs", "//api/jobs"])
def test_no_way_around_the_door(locked: Desk, path: str) -> None:
    host, _, port = locked.url.removeprefix("http://").partition(":")
    import socket

    with socket.create_connection((host, int(port)), timeout=30) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.split()[1] in (b"401", b"404"), answer[:200]
    assert b'"jobs"' not in answer


# --- the cookie -----------------------------------------------------------------------------------


def test_the_cookie_is_for_this_console_alone(locked: Desk) -> None:
    said = sign_in(locked).headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=strict" in said
    assert "path=/" in said
    assert f"max-age={DAYS * 86400}" in said
    assert "secure" not in said
    assert PASSWORD not in said


@pytest.mark.parametrize("headers", [{"x-forwarded-proto": "https"}, {"origin": "https://music.example.org"}])
def test_over_https_the_cookie_never_travels_in_the_clear(
    store: Store, consoles: Consoles, headers: dict[str, str]
) -> None:
    desk = consoles(store, console_password=PASSWORD, console_hosts=("music.example.org",))
    answer = desk.http.post("/login", data={"password": PASSWORD}, headers={"host": "music.example.org", **headers})
    assert answer.status_code == 303
    assert "; secure" in answer.headers["set-cookie"].lower()


def test_a_sign_in_survives_a_restart_and_is_good_at_the_console_beside_it(
    database_url: str, stores: Callable[..., Store], consoles: Consoles
) -> None:
    kept = sign_in(consoles(stores(database_url), console_password=PASSWORD)).cookies
    assert look(consoles(stores(database_url), console_password=PASSWORD), kept).status_code == 200


def test_a_new_password_ends_every_sign_in(store: Store, consoles: Consoles, locked: Desk) -> None:
    kept = sign_in(locked).cookies
    problem(look(consoles(store, console_password=PASSWORD + "!"), kept), 401, "login_needed")


def test_signing_out_ends_it_also_for_who_kept_a_copy(
    database_url: str, stores: Callable[..., Store], consoles: Consoles
) -> None:
    store = stores(database_url)
    desk, beside = (consoles(each, console_password=PASSWORD) for each in (store, stores(database_url)))
    copy = sign_in(desk, name="kitchen").cookies
    assert look(beside, copy).status_code == 200
    out = desk.http.post("/logout")
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert not dict(desk.http.cookies)
    problem(look(desk, copy), 401, "login_needed")
    wait_until(lambda: look(beside, copy).status_code == 401, "the console beside it to hear")
    told = [(event["type"], event["source"]) for event in events_of(store)]
    assert told == [("console_signed_in", "kitchen@127.0.0.1"), ("console_signed_out", "kitchen@127.0.0.1")]


def test_a_sign_in_ends_with_its_days(still: Store, clock: ManualClock, consoles: Consoles) -> None:
    desk = consoles(still, console_password=PASSWORD)
    kept = sign_in(desk).cookies
    clock.advance(DAYS * 86400 - 1)
    assert look(desk, kept).status_code == 200
    clock.advance(2)
    problem(look(desk, kept), 401, "login_needed")


def test_a_cookie_of_our_own_making_opens_nothing(locked: Desk) -> None:
    sign_in(locked)
    ((name, good),) = locked.http.cookies.items()
    note, _, signature = good.partition(".")
    forged = [
        "", ".", "x", f"{note}.", f".{signature}", f"{note}.{signature[:-2]}", f"{note[:-2]}AA.{signature}",
        f"{note}.{signature}.more", "a" * 5000, f"{note}.{signature.swapcase()}",
    ]  # fmt: skip
    with elsewhere(locked) as browser:
        for text in forged:
            answer = browser.get("/api/jobs", headers={"cookie": f"{name}={text}"})
            assert answer.status_code == 401, text
        assert browser.get("/api/jobs", headers={"cookie": f"{name}={good}"}).status_code == 200


def test_two_consoles_on_one_host_do_not_take_each_others_cookies(
    fresh_database: Callable[..., str], stores: Callable[..., Store], consoles: Consoles
) -> None:
    desks = [consoles(stores(fresh_database("sqlite")), console_password=PASSWORD) for _ in range(2)]
    first, second = ({name for name, _ in sign_in(desk).cookies.items()} for desk in desks)
    assert first.isdisjoint(second)


# --- programs -------------------------------------------------------------------------------------


def test_programs_bring_the_password_along(locked: Desk) -> None:
    assert locked.http.get("/api/jobs", auth=("anything", PASSWORD)).status_code == 200
    assert locked.http.get("/api/jobs", headers={"authorization": f"Bearer {PASSWORD}"}).status_code == 200
    assert locked.http.get("/api/jobs", headers={"authorization": f"bearer  {PASSWORD}"}).status_code == 200
    problem(locked.http.get("/api/jobs", auth=("console", "wrong one")), 401, "login_failed")
    for junk in ("Basic", "Basic !!!", "Bearer", "Digest x", "Basic w6k=", "Bearer " + "x" * 5000):
        assert locked.http.get("/api/jobs", headers={"authorization": junk}).status_code in (401, 429), junk


def test_right_passwords_are_not_hashed_again_and_again(locked: Desk) -> None:
    """Wrong ones wait; a program that polls does not."""
    for _ in range(ADDRESS.free * 3):
        assert locked.http.get("/api/jobs", auth=("console", PASSWORD)).status_code == 200


def test_a_token_opens_until_the_password_changes(
    sqlite_url: str, stores: Callable[..., Store], consoles: Consoles, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from dalsegno.cli.app import app

    monkeypatch.setenv("CONSOLE_PASSWORD", PASSWORD)
    app(["--database", sqlite_url, "config", "token", "prometheus"], standalone_mode=False)
    headers = {"authorization": f"Bearer {capsys.readouterr().out.strip()}"}
    monkeypatch.delenv("CONSOLE_PASSWORD")
    store = stores(sqlite_url)
    desk = consoles(store, console_password=PASSWORD)
    assert desk.http.get("/api/jobs", headers=headers).status_code == 200
    changed = consoles(store, console_password=PASSWORD + "!")
    problem(changed.http.get("/api/jobs", headers=headers), 401, "login_needed")


# --- guessing -------------------------------------------------------------------------------------


def test_a_token_that_has_ended_keeps_nobody_out(still: Store, clock: ManualClock, consoles: Consoles) -> None:
    """A forgotten scraper sends it every few seconds, from an address that people come from, too."""
    desk = consoles(still, console_password=PASSWORD)
    keeper = Sessions(still, PASSWORD)
    keeper.look()
    ended = keeper.written(Session("a1", "prometheus", int(clock.now().timestamp()) - 1))
    others = Sessions(still, "another password")
    others.look()
    foreign = others.written(Session("a2", "", int(clock.now().timestamp()) + 1000))
    for token in (ended, foreign, ended[:-1] + "x"):
        for _ in range(8):
            assert desk.http.get("/api/jobs", headers={"authorization": f"Bearer {token}"}).status_code == 401
            assert desk.http.get("/api/jobs", auth=("prometheus", token)).status_code == 401
    assert desk.http.get("/api/jobs", headers={"authorization": f"Bearer {PASSWORD}"}).status_code == 200
    assert sign_in(desk).status_code == 303


def test_guessing_is_slow_and_gets_slower(still: Store, clock: ManualClock, consoles: Consoles) -> None:
    desk = consoles(still, console_password=PASSWORD)
    waits = []
    for _ in range(ADDRESS.free + 3):
        answer = sign_in(desk, "not this one")
        if answer.status_code == 429:
            waits.append(int(answer.headers["retry-after"]))
            assert f"{waits[-1]} s" in answer.text
            clock.advance(waits[-1])
            answer = sign_in(desk, "not this one")
        assert answer.status_code == 401
        assert "This is not the password." in answer.text
    assert waits == [1, 2, 4]
    early = sign_in(desk)
    assert early.status_code == 429, "also for the right one: else the wait would tell"
    throttled = desk.http.get("/api/jobs", auth=("console", PASSWORD))
    assert int(throttled.headers["retry-after"]) > 0
    problem(throttled, 429, "login_throttled")
    clock.advance(60)
    assert sign_in(desk).status_code == 303
    assert sign_in(desk, "not this one").status_code == 401, "and all is forgiven"


def tries(throttle: Throttle, address: str, count: int) -> int:
    """How many of so many tries are let through."""
    passed = 0
    for _ in range(count):
        try:
            throttle.admit(address)
        except LoginThrottled:
            continue
        passed += 1
    return passed


def test_many_addresses_share_a_patience_too_and_cannot_keep_out_who_was_here() -> None:
    clock = ManualClock()
    throttle = Throttle(clock.monotonic)
    throttle.admit("192.0.2.1")
    throttle.forgive("192.0.2.1")
    assert sum(tries(throttle, f"198.51.100.{last}", 1) for last in range(200)) == EVERYONE.free
    assert tries(throttle, "203.0.113.9", 1) == 0
    assert tries(throttle, "192.0.2.1", 1) == 1
    clock.advance(FORGET + 1)
    assert tries(throttle, "203.0.113.9", 1) == 1


def test_a_whole_ipv6_network_is_one_address_and_memory_is_bounded() -> None:
    clock = ManualClock()
    throttle = Throttle(clock.monotonic)
    assert sum(tries(throttle, f"2001:db8::{last:x}", 1) for last in range(100)) == ADDRESS.free
    for number in range(MOST + 500):
        clock.advance(FORGET + 1)
        throttle.admit(f"2001:db8:{number:x}::1")
    assert len(throttle._tries) == MOST


def test_a_wait_has_an_end() -> None:
    assert ADDRESS.wait(10_000) == ADDRESS.longest


# --- the password itself ----------------------------------------------------------------------------


def test_a_hash_stands_for_its_password(store: Store, consoles: Consoles) -> None:
    made = hashed(PASSWORD)
    assert PASSWORD not in made
    assert made != hashed(PASSWORD), "salted"
    desk = consoles(store, console_password=made)
    assert sign_in(desk).status_code == 303
    with elsewhere(desk) as browser:
        assert browser.get("/api/jobs", auth=("console", made)).status_code == 401, "the hash is not the password"


def test_the_same_letters_are_the_same_password() -> None:
    assert Password("caf\u00e9 caf\u00e9").is_("cafe\u0301 cafe\u0301")
    long = "x" * 1000
    assert not Password(long).is_(long + "y"), "what is cut off counts"


@pytest.mark.parametrize(
    "value",
    ["short", "scrypt:", "scrypt:16384:8:5:abc:def", f"scrypt:16383:8:5:{'a' * 22}:{'b' * 43}",
     f"scrypt:99999999:999:999:{'a' * 22}:{'b' * 43}"],
)  # fmt: skip
def test_a_password_that_cannot_work_is_said_without_repeating_it(
    value: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, stores: Callable[..., Store]
) -> None:
    from dalsegno.settings import load_settings
    from dalsegno.web.app import create_app

    monkeypatch.setenv("CONSOLE_PASSWORD", value)
    with pytest.raises(SettingInvalid, match="CONSOLE_PASSWORD") as caught:
        create_app(stores(sqlite_url), load_settings().settings)
    assert value not in str(caught.value) or value == "scrypt:"


def test_no_source_is_told_the_password(plain: None) -> None:
    settings = Settings(_env_file=None, console_password=PASSWORD)
    assert PASSWORD not in str(settings.thawed(settings.snapshot()))
    assert PASSWORD in settings.secrets()


# --- small things -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    ["https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)", "evil",
     "/\tevil", "/\n/evil.example", "http:evil", "", "/login", "/login?next=/login", "///evil.example", "/\x00"],
)  # fmt: skip
def test_nobody_is_led_elsewhere(where: str) -> None:
    assert local(where) == "/"


@pytest.mark.parametrize("where", ["/", "/jobs?q=state:failed+-error:429", "/jobs/7#items", "/songs?q=周杰伦"])
def test_back_to_where_one_was(where: str) -> None:
    assert local(where) == where


def test_a_sign_in_never_leads_elsewhere_either(locked: Desk) -> None:
    assert sign_in(locked, next="https://evil.example/").headers["location"] == "/"


def test_names_are_short_and_on_one_line() -> None:
    assert tidy_name("  living\nroom\u202e <b>@home ") == "living room <b> home"
    assert len(tidy_name("x" * 500)) == 40


def test_what_one_does_carries_ones_name(store: Store, locked: Desk) -> None:
    sign_in(locked, name="客厅")
    assert locked.http.post("/logout").status_code == 303
    assert events_of(store)[-1]["source"] == "客厅@127.0.0.1"


def test_a_form_full_of_fields_is_refused(locked: Desk) -> None:
    answer = locked.http.post("/login", data={str(number): "x" for number in range(200)})
    problem(answer, 422, "input_invalid")
