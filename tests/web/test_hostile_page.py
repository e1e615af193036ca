"""A page of somebody else, open in the operator's own browser, tries everything it can. Nothing may change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from dalsegno import Store
from dalsegno.web.app import create_app
from dalsegno.web.server import ConsoleServer, bind
from tests.helpers import every
from tests.web.conftest import Desk, Settings

PASSWORD = "da capo al fine"
BODY = '{"template": "full"}'
KINDS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json", "")
TRIES = """
async ({target, writes, kinds, body}) => {
  const told = [];
  const each = async (name, what) => {
    try { told.push([name, String(await what())]); } catch (error) { told.push([name, "refused"]); }
  };
  for (const [method, path] of writes) {
    for (const mode of ["no-cors", "cors"]) for (const kind of kinds) for (const credentials of ["include", "omit"]) {
      await each(`${mode} ${method} ${path} ${kind}`, async () => {
        const headers = kind ? {"content-type": kind} : {};
        const answer = await fetch(target + path, {method, mode, headers, body, credentials});
        return answer.type === "opaque" ? "opaque" : `${answer.status} ${await answer.text()}`;
      });
    }
    navigator.sendBeacon(target + path, new Blob([body], {type: "text/plain"}));
  }
  for (const path of ["/api/jobs", "/", "/healthz", "/api/openapi.json"]) {
    await each(`read ${path}`, async () => (await (await fetch(target + path, {credentials: "include"})).text()));
    for (const tag of ["img", "script", "link", "iframe", "object", "video"]) {
      await each(`${tag} ${path}`, () => new Promise((done) => {
        const element = document.createElement(tag);
        element.onload = () => done(tag === "iframe" || tag === "object" ? "shown" : "loaded");
        element.onerror = () => done("refused");
        if (tag === "link") element.rel = "stylesheet";
        element[{link: "href", object: "data"}[tag] || "src"] = target + path;
        document.body.append(element);
        setTimeout(() => done("nothing"), 300);
      }));
    }
  }
  return told;
}
"""
SUBMIT = """
({target, path, kind, field, value}) => {
  const form = document.createElement("form");
  Object.assign(form, {method: "post", action: target + path, enctype: kind});
  const input = document.createElement("input");
  Object.assign(input, {name: field, value});
  form.append(input);
  document.body.append(form);
  form.submit();
}
"""


class Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><body>win a prize")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[int]:
    """The port of another site's server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    return stores(sqlite_url)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context()
    yield context.new_page()
    context.close()


def everything(store: Store) -> dict[str, list[Any]]:
    from dalsegno.store.schema import metadata

    found = {}
    for table in metadata.sorted_tables:
        found[table.name] = [tuple(row.values()) for row in every(store, table.select())]
    return found


def writes(desk: Desk) -> list[tuple[str, str]]:
    """Every way the API has to change something, and the forms of the pages."""
    known = desk.http.get("/api/openapi.json", auth=("console", PASSWORD)).json()["paths"]
    listed = [(method.upper(), path.replace("{", "").replace("}", "")) for path, of in known.items() for method in of]
    listed = [(method, path.replace("job_id", "1").replace("item_id", "1")) for method, path in listed]
    return [each for each in listed if each[0] != "GET"] + [("POST", "/jobs"), ("POST", "/logout")]


def attack(page: Page, desk: Desk, target: str) -> None:
    """All that the page it stands on may try against `target`."""
    told = page.evaluate(
        TRIES, {"target": target, "writes": writes(desk)[:12], "kinds": KINDS, "body": BODY}
    )  # fmt: skip
    for name, answer in told:
        assert not answer.startswith("2"), (name, answer)
        assert '"jobs"' not in answer, (name, answer)
        assert "Dal Segno" not in answer, (name, answer)
        assert answer != "loaded" or name.startswith("img"), name
    here = page.url
    for path, kind, field, value in (
        ("/jobs", "application/x-www-form-urlencoded", "template", "full"),
        ("/jobs", "multipart/form-data", "template", "full"),
        ("/api/jobs", "text/plain", '{"template": "full", "options": {"x', '": 1}}'),
        ("/logout", "application/x-www-form-urlencoded", "x", "y"),
    ):
        with page.expect_navigation(url=target + path) as caught:
            page.evaluate(SUBMIT, {"target": target, "path": path, "kind": kind, "field": field, "value": value})
        assert caught.value is not None
        assert caught.value.status == 403, (path, kind)
        page.goto(here)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.test"])
def test_another_port_or_another_name_changes_nothing(
    store: Store, consoles: Callable[..., Desk], page: Page, elsewhere: int, host: str
) -> None:
    """127.0.0.1 on another port is the same *site*: cookies go along, and SameSite does not help."""
    desk = consoles(store, console_password=PASSWORD)
    page.goto(f"{desk.url}/login")
    page.fill("input[name=password]", PASSWORD)
    page.click("button.primary")
    page.wait_for_url(f"{desk.url}/")
    before = everything(store)
    page.goto(f"http://{host}:{elsewhere}/")
    attack(page, desk, desk.url)
    assert everything(store) == before
    page.goto(f"{desk.url}/")
    assert page.url == f"{desk.url}/", "still signed in: nobody else could sign us out"


def test_without_a_password_it_is_no_easier(
    store: Store, consoles: Callable[..., Desk], page: Page, elsewhere: int
) -> None:
    desk = consoles(store)
    before = everything(store)
    page.goto(f"http://evil.test:{elsewhere}/")
    attack(page, desk, desk.url)
    assert everything(store) == before


def test_a_name_that_was_bound_anew_to_this_machine_opens_nothing(
    store: Store, consoles: Callable[..., Desk], page: Page
) -> None:
    """DNS rebinding: to the browser, page and console are one origin. To the console the name is a stranger's."""
    desk = consoles(store)
    before = everything(store)
    rebound = desk.url.replace("127.0.0.1", "evil.test")
    answer = page.goto(f"{rebound}/")
    assert answer is not None
    assert answer.status == 421
    told = page.evaluate(
        """async (body) => {
          const headers = {"content-type": "application/json"};
          const made = await fetch("/api/jobs", {method: "POST", headers, body});
          const read = await fetch("/api/jobs");
          return [made.status, read.status, await read.text()];
        }""",
        BODY,
    )
    assert told[:2] == [421, 421]
    assert '"jobs":' not in told[2]
    assert everything(store) == before


def test_our_own_page_may(store: Store, plain: None, page: Page) -> None:
    """The same tries, where they are allowed: else the tests above would prove nothing."""
    app = create_app(store, Settings(_env_file=None))
    with bind("127.0.0.1", 0) as listening, ConsoleServer(app, listening) as console:
        page.goto(f"{console.url}/healthz")
        made = page.evaluate(
            """async (body) => (await fetch("/api/jobs",
               {method: "POST", headers: {"content-type": "application/json"}, body})).status""",
            BODY,
        )
        assert made == 201
