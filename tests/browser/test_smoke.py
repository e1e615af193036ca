"""An evening at home, in a browser against a process: jobs, a pause, a kill, a full disk, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from dalsegno.sources.demo_catalog import Fault
from tests.browser.nas import NUMBERED, TEMPLATES, Nas, reader, said
from tests.helpers import wait_until

pytestmark = pytest.mark.timeout(900)

ENDED = ("completed", "completed_with_errors")
SLOW = dict.fromkeys(range(1, 13), Fault.SLOW)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Callable[[Nas], Page]]:
    """`page(nas)`: a tab at this console; what goes wrong in it fails the test."""
    wrong: list[str] = []
    contexts = []

    def open_tab(nas: Nas) -> Page:
        context = reader(chromium, nas)
        contexts.append(context)
        made = context.new_page()
        made.on("pageerror", lambda error: wrong.append(str(error)))
        return made

    yield open_tab
    for context in contexts:
        context.close()
    assert wrong == []


def start(page: Page, label: str) -> int:
    """A new job from its card; returns its number."""
    page.goto("/jobs/new")
    page.get_by_label(label, exact=False).first.check()
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(NUMBERED)
    return int(page.url.rpartition("/")[2])


def test_a_job_from_every_template(nases: Callable[..., Nas], page: Callable[[Nas], Page]) -> None:
    nas = nases(songs=6, faults=False)
    tab = page(nas)
    for key, label in TEMPLATES.items():
        job = start(tab, label)
        expect(tab.locator("#flash")).to_contain_text(f"Job {job} is queued.")
        assert nas.until(job, *ENDED)["template"] == key
        expect(tab.locator("#job-head")).to_contain_text("completed")  # told, not asked for
        expect(tab.locator("#job-head")).to_contain_text("100 %")


def test_paused_resumed_killed_and_gone_on_from_the_mark(
    nases: Callable[..., Nas], page: Callable[[Nas], Page]
) -> None:
    # A song takes ten seconds: time enough to see it drain.
    nas = nases(songs=12, pace=2.0, faults=SLOW, more="DOWNLOAD_WORKERS=2\n")
    tab = page(nas)
    job = start(tab, "Everything")
    expect(tab.locator("#job-tab")).to_contain_text("running")
    wait_until(lambda: nas.items(f"job:{job} stage:download state:running"), "songs on their way", timeout=90.0)
    tab.locator("#job-head button[data-key=p]").click()
    expect(tab.locator("#flash")).to_contain_text(said(f"Job {job} pauses"))
    expect(tab.locator("#job-head")).to_contain_text("draining")
    nas.until(job, "paused")
    expect(tab.locator("#job-head button.primary[data-key=p]")).to_be_visible()
    done = {item["key"] for item in nas.items(f"job:{job} stage:download state:succeeded")}
    tab.locator("#job-head button[data-key=p]").click()
    nas.until(job, "running")
    expect(tab.locator("#flash")).to_contain_text(said("goes on from the mark"))
    wait_until(lambda: nas.items(f"job:{job} stage:download state:running"), "songs on their way again", timeout=90.0)
    nas.kill()
    expect(tab.locator("#pill.on")).to_have_count(0)
    nas.start()
    expect(tab.locator("#pill.on")).to_be_visible()
    expect(tab.locator("#job-head")).to_contain_text("paused")
    interrupted = {item["key"] for item in nas.items(f"job:{job} state:interrupted")}
    assert interrupted
    tab.goto("/songs?view=interrupted")
    expect(tab.locator("#item-rows > tr")).to_have_count(len(interrupted))
    nas.catalog.pace = 0.0
    tab.goto(f"/jobs/{job}")
    tab.locator("#job-head button[data-key=p]").click()
    nas.until(job, "completed")
    expect(tab.locator("#job-head")).to_contain_text("completed")
    assert all(nas.catalog.requests[key.rpartition(":")[2]] <= 2 for key in done)


def test_one_song_is_retried_and_another_by_force(nases: Callable[..., Nas], page: Callable[[Nas], Page]) -> None:
    nas = nases(songs=8)
    job = nas.order("full")
    nas.until(job, "completed_with_errors")
    failed = nas.items(f"job:{job} stage:download state:failed")
    assert len(failed) == 2
    nas.catalog.faults = {}  # the source has mended its songs
    tab = page(nas)
    tab.goto("/songs?view=failed")
    expect(tab.locator("#item-rows > tr")).to_have_count(2)
    tab.locator(f"#row-{failed[0]['id']}").get_by_role("button", name="Retry").click()
    expect(tab.locator("#item-rows > tr")).to_have_count(1)
    nas.succeeded(failed[0]["id"])
    tab.locator(f"#row-{failed[1]['id']} [data-key=f]").click()
    expect(tab.locator("#drawer")).to_be_visible()
    expect(tab.locator("#drawer .notice")).to_contain_text("Downloads it")
    tab.locator("#drawer").get_by_role("button", name="Force-retry").click()
    nas.succeeded(failed[1]["id"])
    here = nas.items(f"job:{job} stage:download state:succeeded")[0]
    tab.goto(f"/items/{here['id']}/force")
    expect(tab.locator("main .notice")).to_contain_text("keeps")  # the old file until the new one is verified
    times = len(nas.item(here["id"])["timeline"])
    tab.get_by_role("button", name="Force-retry").click()
    nas.succeeded(here["id"], since=times)


def test_a_full_disk_asks_for_another_folder(
    nases: Callable[..., Nas], page: Callable[[Nas], Page], small_disk: Path, tmp_path: Path
) -> None:
    # Two at a time: more would fill the disk with beginnings before a single song is whole.
    nas = nases(songs=16, faults=False, library=small_disk, more="DOWNLOAD_WORKERS=2\n")
    tab = page(nas)
    tab.goto("/")
    expect(tab.locator("#pill.on")).to_be_visible()
    job = nas.order("full")
    banner = tab.locator("#attention .attention").filter(has_text="The disk is full")
    expect(banner.first).to_be_visible()
    nas.until(job, "paused")
    done = {item["key"]: item for item in nas.items(f"job:{job} stage:download state:succeeded")}
    assert 0 < len(done) < 16
    names = {f"song:{song['id']}": song["remote_id"] for song in nas.http.get("/api/songs").json()["songs"]}
    asked = {names[key]: nas.catalog.requests[names[key]] for key in done}
    assert all(asked.values())
    tab.locator(f"#fix-{job}-LIBRARY_ROOT").fill(str(tmp_path / "roomy"))
    tab.locator(f"#fix-{job}-LIBRARY_ROOT").press("Enter")
    expect(tab.locator("#flash")).to_contain_text(said("goes on from the mark"))
    nas.until(job, "completed")
    expect(banner).to_have_count(0)
    assert {name: nas.catalog.requests[name] for name in asked} == asked
    assert [*(tmp_path / "roomy").rglob("*.flac"), *(tmp_path / "roomy").rglob("*.wav")]


def test_settings_are_changed_seen_and_taken_back(nases: Callable[..., Nas], page: Callable[[Nas], Page]) -> None:
    nas = nases(songs=4, faults=False)
    before = nas.env.read_text()
    nas.post("/api/pause", {"lane": "catalog"})
    nas.order("download")
    tab = page(nas)
    tab.goto("/config")
    tab.locator("#key-MIN_FREE_SPACE").fill("12 bananas")
    expect(tab.locator("#review .wrong").first).to_be_visible()
    tab.locator("#key-MIN_FREE_SPACE").fill("25MB")
    expect(tab.locator("#review")).to_contain_text("MIN_FREE_SPACE=25MB")
    expect(tab.locator("#review .impact")).to_contain_text("1 queued job keeps")
    tab.locator("#note").fill("room for the cat")
    tab.get_by_role("button", name="Save").click()
    expect(tab.locator("#flash")).to_contain_text("Saved as revision")
    assert nas.env.read_text() == before.replace("MIN_FREE_SPACE=0", "MIN_FREE_SPACE=25MB")
    assert nas.env.stat().st_mode & 0o777 == 0o600
    tab.goto("/config/revisions")
    expect(tab.locator("#revision-list")).to_contain_text("room for the cat")
    tab.locator("#revision-list a[href^='/config/revisions/']").last.click()
    expect(tab.locator("main")).to_contain_text("MIN_FREE_SPACE=25MB")  # what goes away
    tab.get_by_role("button", name="Apply this revision").click()
    wait_until(lambda: nas.env.read_text() == before, "the file as it was")
    tab.goto("/config/revisions")
    expect(tab.locator("#revision-list")).to_contain_text("brings back")


def test_the_language_is_a_choice(nases: Callable[..., Nas], page: Callable[[Nas], Page]) -> None:
    nas = nases(songs=4, faults=False)
    tab = page(nas)
    tab.goto("/jobs?q=state:running")
    tab.locator("#preferences summary").click()
    tab.get_by_role("link", name="简体中文").click()
    expect(tab.locator("h1")).to_contain_text("任务")
    assert "q=state" in tab.url, "the page stays the same"
    tab.goto("/jobs/new")
    for name in ("全链路", "仅采集", "仅同步", "同步+下载", "仅下载", "仅上传", "下载+上传"):
        expect(tab.locator("#new-job .cards")).to_contain_text(name)
    tab.goto("/playlists")
    expect(tab.locator("html")).to_have_attribute("lang", "zh-CN")
