"""The settings file on its page: by form, as text, with and without scripts, and its revisions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from dalsegno import Store
from tests.web.conftest import Desk
from tests.web.console import CHINESE, Page, check_page, get

CONTENT = """\
# The attic's music.
LIBRARY_ROOT=/mnt/music   # the big disk
SUBSONIC_PASSWORD="winter river"
"""
SCRIPT = {"hx-request": "true"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "my.env"
    found.write_text(CONTENT)
    return found


@pytest.fixture
def office(store: Store, file: Path, consoles: Callable[..., Desk]) -> Desk:
    return consoles(store, env_file=file)


def answers(page: Page) -> dict[str, str]:
    """What a browser sends of the form as it stands."""
    found = {"base_version": page.all("input", name="base_version")[-1].attributes["value"]}
    for each in page.all("input"):
        if each.attributes.get("name", "").startswith(("key.", "was.")):
            found[each.attributes["name"]] = each.attributes.get("value", "")
    return found


def post(desk: Desk, path: str, fields: dict[str, Any], **more: Any) -> httpx.Response:
    answer = desk.http.post(path, data=fields, follow_redirects=True, **more)
    assert answer.status_code == 200, answer.text
    assert "winter river" not in answer.text
    assert "frozen lake" not in answer.text
    return answer


def flash(answer: httpx.Response) -> str:
    return answer.text.partition('id="flash"')[2].partition("</div>")[0]


def test_every_key_has_its_help_its_value_and_where_it_comes_from(office: Desk, file: Path) -> None:
    page = check_page(office, "/config")
    root = page.by_id("field-LIBRARY_ROOT")
    assert "The folder files are written to." in root.text
    assert "/mnt/music" in root.text
    assert "from the file, line 2" in " ".join(root.text.split())
    assert page.by_id("key-LIBRARY_ROOT").attributes["value"] == "/mnt/music"
    assert page.by_id("key-SUBSONIC_PASSWORD").attributes["value"] == ""
    assert page.by_id("key-SUBSONIC_PASSWORD").attributes["type"] == "password"
    assert "winter river" not in page.source
    assert "in sync" in page.by_id("config-state").text
    assert "写入文件的目录。" in get(office, "/config", CHINESE).by_id("field-LIBRARY_ROOT").text
    text = check_page(office, "/config/raw")
    assert text.by_id("content").text.strip() == CONTENT.replace("winter river", "***").strip()


def test_what_is_typed_is_judged_before_anything_is_written(office: Desk, file: Path) -> None:
    fields = answers(get(office, "/config")) | {
        "key.MIN_FREE_SPACE": "lots",
        "new.key": "LIBRARY_ROOD",
        "new.value": "x",
    }
    answer = post(office, "/config/check", fields, headers=SCRIPT)
    review = Page(answer.text)
    assert review.elements[0].attributes["id"] == "review"
    assert "is not a size" in answer.text
    assert "Did you mean" in answer.text
    assert "LIBRARY_ROOT" in answer.text
    assert "It cannot be saved like this." in answer.text
    whole = Page(post(office, "/config/check", fields).text)
    assert whole.by_id("key-MIN_FREE_SPACE").attributes["value"] == "lots"
    assert whole.by_id("key-MIN_FREE_SPACE").attributes["aria-invalid"] == "true"
    assert file.read_text() == CONTENT


def test_saving_shows_the_difference_and_the_impact_takes_a_note_and_keeps_the_rest(office: Desk, file: Path) -> None:
    job = office.start()["id"]
    fields = answers(get(office, "/config")) | {"key.LIBRARY_ROOT": "/mnt/more", "key.DOWNLOAD_WORKERS": "12"}
    review = Page(post(office, "/config/check", fields).text).by_id("review").text
    assert "/mnt/more" in review
    assert re.search(r"1 (queued|running) job keeps snapshot #1\.", review)
    assert "New jobs use #2." in review
    assert "DOWNLOAD_WORKERS: counts from the next start of the process on." in review
    said = flash(post(office, "/config/save", fields | {"note": "a bigger disk"}))
    assert "Saved as revision 2." in said
    assert file.read_text() == CONTENT.replace("/mnt/music", "/mnt/more") + "DOWNLOAD_WORKERS=12\n"
    assert file.stat().st_mode & 0o777 == 0o600
    newest = office.get("/api/config/revisions")["revisions"][0]
    assert (newest["note"], newest["saved_by"]) == ("a bigger disk", "console@127.0.0.1")
    assert "DOWNLOAD_WORKERS" in check_page(office, "/config").by_id("config-state").text, "it waits for a restart"
    assert f"job {job}" in check_page(office, "/config/revisions/1").source
    again = flash(post(office, "/config/save", answers(get(office, "/config"))))
    assert "exactly this already" in again


def test_a_secret_goes_one_way(office: Desk, file: Path) -> None:
    fields = answers(get(office, "/config")) | {"key.SUBSONIC_PASSWORD": "frozen lake"}
    review = post(office, "/config/check", fields)
    assert "type them again" in review.text
    assert "type them again" not in post(office, "/config/check", fields, headers=SCRIPT).text
    post(office, "/config/save", fields)
    assert 'SUBSONIC_PASSWORD="frozen lake"' in file.read_text()
    blank = answers(get(office, "/config")) | {"key.LIBRARY_ROOT": "/mnt/more"}
    post(office, "/config/save", blank)
    assert 'SUBSONIC_PASSWORD="frozen lake"' in file.read_text(), "blank keeps it"
    post(office, "/config/save", answers(get(office, "/config")) | {"drop.SUBSONIC_PASSWORD": "on"})
    assert "SUBSONIC_PASSWORD" not in file.read_text()


def test_the_text_is_saved_as_it_is_typed(office: Desk, file: Path) -> None:
    page = get(office, "/config/raw")
    typed = CONTENT.replace("winter river", "***").replace("/mnt/music", "/mnt/more").replace("\n", "\r\n")
    fields = {"base_version": page.all("input", name="base_version")[-1].attributes["value"], "content": typed}
    assert "/mnt/more" in Page(post(office, "/config/check", fields, headers=SCRIPT).text).by_id("review").text
    post(office, "/config/save", fields)
    assert file.read_bytes().decode() == CONTENT.replace("/mnt/music", "/mnt/more")


def test_a_file_that_changed_underneath_is_not_written_over(office: Desk, file: Path) -> None:
    fields = answers(get(office, "/config")) | {"key.LIBRARY_ROOT": "/mnt/more"}
    file.write_text(CONTENT + "DRAIN_SEC=40\n")
    assert "has changed since you opened it" in post(office, "/config/check", fields, headers=SCRIPT).text
    page = Page(post(office, "/config/save", fields).text)
    assert "Nothing was saved." in page.by_id("review").text
    assert page.by_id("key-LIBRARY_ROOT").attributes["value"] == "/mnt/more", "what was typed is kept"
    assert "DRAIN_SEC=40" in file.read_text()
    post(office, "/config/save", answers(page))
    assert file.read_text() == CONTENT.replace("/mnt/music", "/mnt/more") + "DRAIN_SEC=40\n"


def test_an_edit_on_disk_is_offered_as_a_revision(office: Desk, file: Path) -> None:
    file.write_text(CONTENT + "DRAIN_SEC=40\n")
    page = check_page(office, "/config")
    state = page.by_id("config-state")
    assert "The file was changed on disk." in state.text
    assert "DRAIN_SEC" in state.text
    version = page.all("input", name="base_version")[0].attributes["value"]
    said = flash(post(office, "/config/adopt", {"base_version": version, "note": "by hand", "back": "/config"}))
    assert "The file on disk is revision 2 now." in said
    assert "in sync" in check_page(office, "/config").by_id("config-state").text
    assert "That did not work." in flash(post(office, "/config/adopt", {"base_version": "old", "back": "/config"}))


def test_a_file_that_is_wrong_says_so_and_stays_out_of_force(office: Desk, file: Path) -> None:
    file.write_text(CONTENT + "DRAIN_SEC=soon\n")
    page = check_page(office, "/config")
    state = page.by_id("config-state")
    assert "The file on disk is not valid." in state.text
    assert "line 4" in state.text
    assert "DRAIN_SEC" in state.text
    fields = answers(page) | {"key.DRAIN_SEC": "20"}
    assert "Saved as revision 2." in flash(post(office, "/config/save", fields))


def test_revisions_are_compared_and_applied_again(office: Desk, file: Path) -> None:
    for root in ("/mnt/more", "/mnt/most"):
        post(office, "/config/save", answers(get(office, "/config")) | {"key.LIBRARY_ROOT": root})
    page = check_page(office, "/config/revisions")
    assert [row for row in ("row-3", "row-2", "row-1") if f'id="{row}"' in page.source] == ["row-3", "row-2", "row-1"]
    assert "in force" in page.by_id("row-3").text
    between = check_page(office, "/config/compare?a=1&b=2").source
    assert "/mnt/music" in between
    assert "/mnt/most" not in between
    assert "/mnt/most" in check_page(office, "/config/compare?a=1&b=disk").source
    old = check_page(office, "/config/revisions/1")
    assert "What applying it would change" in old.source
    version = old.all("input", name="base_version")[0].attributes["value"]
    fields = {"base_version": version, "note": "back again", "back": "/config/revisions/1"}
    assert "Revision 1 is in force again, as revision 4." in flash(post(office, "/config/revisions/1/apply", fields))
    assert file.read_text() == CONTENT
    assert "brings back #1" in check_page(office, "/config/revisions").by_id("row-4").text
    stale = flash(post(office, "/config/revisions/2/apply", fields))
    assert "That did not work." in stale
    assert file.read_text() == CONTENT


@pytest.mark.parametrize(
    "path", ["/config/compare?a=x&b=1", "/config/compare", "/config/revisions/9", "/config/compare?a=9&b=1"]
)
def test_what_is_no_revision_is_said(office: Desk, path: str) -> None:
    assert office.http.get(path).status_code in (404, 422)
    assert "</main>" in office.http.get(path).text


def test_a_console_without_a_file_shows_and_does_not_save(desk: Desk) -> None:
    page = check_page(desk, "/config")
    assert "There is no file to save." in page.by_id("config-state").text
    said = desk.http.post("/config/save", data=answers(page) | {"key.DRAIN_SEC": "20"})
    assert "started without a settings file" in said.text
    check_page(desk, "/config/raw")
    assert "No revision yet" in check_page(desk, "/config/revisions").source


def test_who_may_only_look_has_nothing_to_save(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, console_read_only=True)
    page = check_page(desk, "/config")
    assert "review" not in {element.attributes.get("id") for element in page.elements}
    assert "disabled" in page.by_id("key-LIBRARY_ROOT").attributes
    assert desk.http.post("/config/save", data=answers(page)).status_code == 403


def test_typing_is_judged_as_it_goes_and_keeps_what_was_typed(office: Desk, file: Path, chromium: Browser) -> None:
    with chromium.new_page(viewport={"width": 1280, "height": 800}) as page:
        page.goto(f"{office.url}/config")
        page.fill("#key-MIN_FREE_SPACE", "lots")
        page.wait_for_selector("#review >> text=is not a size")
        page.fill("#key-SUBSONIC_PASSWORD", "frozen lake")
        page.fill("#key-MIN_FREE_SPACE", "2GB")
        page.wait_for_selector("#review >> text=New jobs use #2.")
        page.fill("#note", "room to breathe")
        page.click("#review >> text=Save")
        page.wait_for_selector("#flash >> text=Saved as revision 2.")
        assert page.input_value("#key-SUBSONIC_PASSWORD") == ""
    assert 'SUBSONIC_PASSWORD="frozen lake"' in file.read_text()
    assert "MIN_FREE_SPACE=2GB" in file.read_text()
    assert office.get("/api/config/revisions")["revisions"][0]["note"] == "room to breathe"
