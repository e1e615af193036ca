"""Pictures of every page of a running console: light and dark, English and Chinese, desk and phone.

dalsegno demo --port 8765 &
python scripts/screenshots.py http://127.0.0.1:8765 pictures
"""

from __future__ import annotations

import argparse
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LANGUAGES = {"en": "en-GB", "zh": "zh-CN"}
WIDTHS = {1280: 900, 360: 740}
FIXED = {
    "dashboard": "/",
    "jobs": "/jobs",
    "new-job": "/jobs/new?template=full",
    "playlists": "/playlists",
    "songs-running": "/songs",
    "songs-failed": "/songs?view=failed",
    "songs-waiting": "/songs?view=waiting",
    "songs-all": "/songs?view=all",
    "bulk": "/bulk/new?act=retry&q=state:failed&back=/songs",
    "bulk-operations": "/bulk",
    "requests": "/requests",
    "new-request": "/requests/new?title=naruto&decodeLinks=on",
    "exceptions": "/logs",
    "logs": "/logs/lines",
    "events": "/logs/events",
    "audit": "/logs/audit",
    "config": "/config",
    "config-raw": "/config/raw",
    "revisions": "/config/revisions",
    "compare": "/config/compare?a=disk&b=disk",
    "schedules": "/schedules",
    "new-schedule": "/schedules/new?name=nightly",
    "workflows": "/workflows",
    "workflow": "/workflows/full",
    "limits": "/limits",
    "system": "/system",
    "docs": "/docs",
    "filter-mistake": "/songs?q=stat:failed",
    "nothing": "/jobs/999999",
}
Step = tuple[str, str] | tuple[str, str, str]
FAILED = "/songs?view=failed"
TOUCHED: dict[str, tuple[str, list[Step]]] = {
    "drawer": (FAILED, [("click", "#item-rows a[data-drawer]"), ("wait", "#item-drawer")]),
    "drawer-force": (FAILED, [("click", "#item-rows a[data-key=f]"), ("wait", "#drawer .notice")]),
    "menu": (FAILED, [("click", "#all-menu > summary")]),
    "ticked": (FAILED, [("click", "#item-rows [data-tick]"), ("wait", "#bulk-bar")]),
    "help": ("/", [("press", "body", "?"), ("wait", "#help")]),
    "preferences": ("/", [("click", "#preferences > summary")]),
    "config-diff": ("/config", [("fill", "#key-MIN_FREE_SPACE", "25MB"), ("wait", "#review .impact")]),
    "config-mistake": ("/config", [("fill", "#key-MIN_FREE_SPACE", "12 bananas"), ("wait", "#review .wrong")]),
    "new-limit": ("/limits", [("click", "#new-limit > summary")]),
}
"""What opens on a page, and how."""
JOB_TABS = ("overview", "workflow", "items", "workers", "events", "logs", "config", "commands")


def pages(url: str) -> dict[str, str]:
    """Every page by name, with what this console has to show of jobs, playlists and songs."""
    found = dict(FIXED)
    with httpx.Client(base_url=url, timeout=30.0) as http:

        def first(things: str, **asked: str) -> Any:
            listed = http.get(f"/api/{things}", params={"limit": "1", **asked}).raise_for_status().json()
            return next(iter(listed[things.rpartition("/")[2]]), None)

        if job := first("jobs"):
            found |= {f"job-{tab}": f"/jobs/{job['id']}?tab={tab}" for tab in JOB_TABS}
            found["explain"] = f"/explain/job/{job['id']}"
        asked = http.get("/api/v1/parse/requests", params={"limit": 1})
        for each in asked.json() if asked.is_success else ():  # it may want a key
            found["request"] = f"/requests/{each['id']}"
            found |= {f"content-{number}": f"/requests/contents/{number}" for number in each["resultContentIds"][:1]}
        if playlist := first("playlists"):
            found["playlist"] = f"/playlists/{playlist['id']}"
            found["playlists-plan"] = f"/playlists/plan?template=download&id={playlist['id']}"
        if revision := first("config/revisions"):
            found["revision"] = f"/config/revisions/{revision['id']}"
        if line := first("exceptions"):
            found["exception"] = f"/logs/exceptions/{line['group']['fingerprint']}"
        if line := first("logs"):
            found["log-line"] = f"/logs/lines/{line['id']}"
        for state in ("failed", "succeeded"):
            if item := first("items", q=f"state:{state} stage:download"):
                found[f"item-{state}"] = f"/items/{item['id']}"
                found["force"] = f"/items/{item['id']}/force"
    return found


def touch(page: Page, steps: list[Step]) -> None:
    for step in steps:
        found = page.locator(step[1]).first
        match step:
            case ("click", _):
                found.click()
            case ("fill" | "press" as act, _, what):
                getattr(found, act)(what)
            case ("wait", _):
                found.wait_for()


def shoot(browser: Browser, url: str, folder: Path, *, only: str, languages: str, themes: str, widths: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    known: dict[str, tuple[str, list[Step]]] = {name: (path, []) for name, path in pages(url).items()} | TOUCHED
    wanted = {name: known[name] for name in known if not only or name in only.split(",")}
    for language, theme, width in product(languages.split(","), themes.split(","), map(int, widths.split(","))):
        context = browser.new_context(
            base_url=url, locale=LANGUAGES[language], color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": width, "height": WIDTHS.get(width, 900)},
        )  # fmt: skip
        page = context.new_page()
        for name, (path, steps) in wanted.items():
            page.goto(path)
            if page.locator("#pill").count():
                page.locator("#pill.on").wait_for()
            touch(page, steps)
            page.screenshot(path=folder / f"{name}-{language}-{theme}-{width}.png", full_page=not steps)
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="where the console is")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--only", default="", metavar="NAME,…", help="these pages; default: all")
    parser.add_argument("--languages", default="en,zh")
    parser.add_argument("--themes", default="light,dark")
    parser.add_argument("--widths", default="1280,360")
    asked = parser.parse_args()
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        parser.error(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        shoot(
            browser,
            asked.url,
            asked.folder,
            **{key: getattr(asked, key) for key in ("only", "languages", "themes", "widths")},
        )
        browser.close()


if __name__ == "__main__":
    main()
