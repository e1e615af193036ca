"""The settings file over HTTP: every answer in its form, every guard in its place, and no secret anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.store.schema import metadata
from tests.helpers import events_of, every
from tests.web.conftest import Desk

CONTENT = """\
# The attic's music.
LIBRARY_ROOT=/mnt/music   # the big disk
SUBSONIC_PASSWORD="winter river"
DATABASE_URL=postgresql://me:amber-gate@nowhere/x
"""
SECRETS = ("winter river", "amber-gate", "frozen lake")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "my.env"
    found.write_text(CONTENT)
    return found


@pytest.fixture
def office(store: Store, file: Path, consoles: Callable[..., Desk]) -> Desk:
    return consoles(store, env_file=file)


def put(desk: Desk, status: int = 200, **body: Any) -> Any:
    answer = desk.http.put("/api/config/env", json=body)
    assert answer.status_code == status, answer.text
    assert not any(secret in answer.text for secret in SECRETS)
    return answer.json()


def changed(desk: Desk, old: str, new: str, status: int = 200, **how: Any) -> Any:
    found = desk.get("/api/config/env")
    assert old in found["content"]
    body = {"content": found["content"].replace(old, new), "base_revision": found["base_revision"], **how}
    return put(desk, status, **body)


def test_the_file_is_read_with_its_state_and_its_fields(office: Desk, file: Path) -> None:
    found = office.get("/api/config/env")
    assert (found["file"], found["state"], found["errors"]) == (str(file), "in_sync", [])
    assert found["content"] == CONTENT.replace("winter river", "***").replace("amber-gate", "***")
    assert found["base_revision"] == found["revision"]["id"]
    fields = {field["key"]: field for field in found["fields"]}
    root, password = fields["LIBRARY_ROOT"], fields["SUBSONIC_PASSWORD"]
    assert (root["value"], root["origin"], root["line"], root["kind"]) == ("/mnt/music", "file", 2, "path")
    assert (password["secret"], password["value"], password["in_file"]) == (True, "***", "***")
    assert fields["LANGUAGE"]["choices"] == ["auto", "en", "zh-CN"]
    assert fields["DATABASE_URL"]["restart_needed"]
    assert all(field["help"] and field["group"] for field in found["fields"])


def test_a_save_answers_with_the_revision_the_difference_and_the_impact(office: Desk, file: Path) -> None:
    job = office.start()
    first = office.get("/api/config/env")["base_revision"]
    saved = changed(office, "/mnt/music", "/mnt/bigger", note="a bigger disk")
    assert file.read_text() == CONTENT.replace("/mnt/music", "/mnt/bigger")
    assert (saved["created"], saved["revision"]["note"]) == (True, "a bigger disk")
    assert saved["revision"]["saved_by"] == "api@127.0.0.1"
    assert [(each["key"], each["before"], each["after"]) for each in saved["diff"]["keys"]] == [
        ("LIBRARY_ROOT", "/mnt/music", "/mnt/bigger")
    ]
    number = saved["revision"]["id"]
    assert saved["impact"]["says"] == [f"1 queued job keeps snapshot #{first}.", f"New jobs use #{number}."]
    assert saved["impact"]["kept"] == [{"revision_id": first, "status": "queued", "jobs": 1}]
    later = office.start()
    assert later["snapshot"]["LIBRARY_ROOT"] == "/mnt/bigger"
    own = office.get(f"/api/jobs/{job['id']}/config")
    assert (own["revision"]["id"], own["current"]["id"], own["differs"]) == (first, number, True)
    assert [key["key"] for key in own["keys"] if key["differs"]] == ["LIBRARY_ROOT"]
    assert not office.get(f"/api/jobs/{later['id']}/config")["differs"]
    office.get("/api/jobs/999/config", 404)
    assert put(office, 200, content=file.read_text(), base_revision=number)["created"] is False


def test_each_mistake_is_told_with_its_line_key_reason_and_suggestion(office: Desk, file: Path) -> None:
    problem = changed(office, "LIBRARY_ROOT", "LANGUAGE=fr\nLIBRARY_ROT", 422)
    assert problem["code"] == "config_invalid"
    assert [(each["line"], each["key"]) for each in problem["errors"]] == [(2, "LANGUAGE"), (3, "LIBRARY_ROT")]
    assert problem["errors"][1]["suggestion"] == 'Did you mean "LIBRARY_ROOT"?'
    assert all(each["reason"] for each in problem["errors"])
    assert file.read_text() == CONTENT


def test_a_file_that_changed_underneath_answers_409(office: Desk, file: Path) -> None:
    found = office.get("/api/config/env")
    file.write_text(CONTENT + "LANGUAGE=en\n")
    by_revision = {"content": found["content"], "base_revision": found["base_revision"]}
    assert put(office, 409, **by_revision)["code"] == "config_changed"
    assert put(office, 409, content=found["content"], base_version=found["version"])["code"] == "config_changed"
    assert put(office, 409, content=found["content"])["code"] == "config_changed"
    assert office.get("/api/config/env")["state"] == "disk_changed"
    assert file.read_text() == CONTENT + "LANGUAGE=en\n"
    adopted = office.post("/api/config/revisions", {"note": "by hand"}, 201)
    assert [each["key"] for each in adopted["diff"]["keys"]] == ["LANGUAGE"]
    changed(office, "LANGUAGE=en", "LANGUAGE=zh-CN")


@pytest.mark.parametrize("base", [{}, {"base_revision": 999}, {"base_version": "another"}])
def test_a_text_that_is_wrong_is_wrong_whatever_it_was_made_from(
    office: Desk, file: Path, base: dict[str, Any]
) -> None:
    content = CONTENT.replace("LIBRARY_ROOT", "LANGUAGE=fr\nLIBRARY_ROT")
    problem = put(office, 422, content=content, **base)
    assert problem["code"] == "config_invalid"
    assert [(each["line"], each["key"]) for each in problem["errors"]] == [(2, "LANGUAGE"), (3, "LIBRARY_ROT")]
    assert all(each["reason"] and each["suggestion"] for each in problem["errors"])
    assert put(office, 409, content=CONTENT, **base)["code"] == "config_changed"
    assert file.read_text() == CONTENT


def test_a_mask_whose_secret_was_taken_out_underneath_is_a_change_and_no_mistake(office: Desk, file: Path) -> None:
    found = office.get("/api/config/env")
    file.write_text(CONTENT.replace('SUBSONIC_PASSWORD="winter river"\n', ""))
    body = {"content": found["content"], "base_revision": found["base_revision"]}
    assert put(office, 409, **body)["code"] == "config_changed"


def test_a_file_that_is_wrong_is_shown_and_repaired(office: Desk, file: Path) -> None:
    file.write_text(CONTENT + "S3_SECRET_KY=frozen lake\n")
    found = office.get("/api/config/env")
    assert found["state"] == "disk_invalid"
    assert [(each["line"], each["key"]) for each in found["errors"]] == [(5, "S3_SECRET_KY")]
    assert "frozen lake" not in json.dumps(found)
    assert office.start()["snapshot"]["LIBRARY_ROOT"] == "/mnt/music"
    put(office, content=found["content"].replace("S3_SECRET_KY=***", "DRAIN_SEC=5"), base_version=found["version"])
    assert office.get("/api/config/env")["state"] == "in_sync"


def test_a_check_says_what_a_save_would_do_and_does_nothing(office: Desk, file: Path) -> None:
    content = office.get("/api/config/env")["content"]
    found = office.post("/api/config/env/check", {"content": content + "DRAIN_SEC=7\n"}, 200)
    assert found["valid"]
    assert [each["key"] for each in found["diff"]["keys"]] == ["DRAIN_SEC"]
    assert found["impact"]["restart_needed"] == ["DRAIN_SEC"]
    assert "+DRAIN_SEC=7" in found["diff"]["unified"]
    found = office.post("/api/config/env/check", {"content": "SUBSONIC_PASSWORD=frozen lake\nX"}, 200)
    assert not found["valid"]
    assert "frozen lake" not in json.dumps(found)
    assert file.read_text() == CONTENT
    assert len(office.get("/api/config/revisions")["revisions"]) == 1


def test_revisions_are_listed_compared_and_applied_again(office: Desk, file: Path) -> None:
    first = office.get("/api/config/env")["base_revision"]
    second = changed(office, "/mnt/music", "/mnt/bigger")["revision"]["id"]
    third = changed(office, '"***"', "frozen lake")["revision"]["id"]
    page = office.get("/api/config/revisions?limit=2")
    assert [line["id"] for line in page["revisions"]] == [third, second]
    rest = office.get(f"/api/config/revisions?limit=2&cursor={page['next_cursor']}")
    assert ([line["id"] for line in rest["revisions"]], rest["next_cursor"]) == ([first], None)
    assert [line["current"] for line in page["revisions"]] == [True, False]
    compared = office.get(f"/api/config/revisions/{first}/diff/{third}")
    assert [(each["key"], each["change"], each["secret"]) for each in compared["diff"]["keys"]] == [
        ("LIBRARY_ROOT", "changed", False), ("SUBSONIC_PASSWORD", "changed", True),
    ]  # fmt: skip
    path = f"/api/config/revisions/{first}/apply"
    assert office.post(path, {"base_revision": second}, 409)["code"] == "config_changed"
    applied = office.post(path, {"base_revision": third, "note": "back"}, 200)
    assert (applied["revision"]["restores"], applied["state"]) == (first, "in_sync")
    assert file.read_text() == CONTENT.replace("winter river", "frozen lake")
    assert office.get(f"/api/config/revisions/{first}")["applied_at"] == applied["revision"]["applied_at"]
    assert "***" in office.get(f"/api/config/revisions/{third}")["content"]
    for missing in ("revisions/999", f"revisions/999/diff/{first}", f"revisions/{first}/diff/999"):
        office.get(f"/api/config/{missing}", 404)
    office.post("/api/config/revisions/999/apply", status=404)
    assert [event["data"]["revision"] for event in events_of(office.store, type="config_applied")] == [
        applied["revision"]["id"]
    ]


def test_no_secret_is_in_any_row_or_answer(office: Desk, file: Path) -> None:
    changed(office, '"***"', '"frozen lake"', note="it is frozen lake now")
    file.write_text(file.read_text() + "# SUBSONIC_API_KEY=winter river\n")
    office.post("/api/config/revisions", status=201)
    first = office.get("/api/config/revisions")["revisions"][-1]["id"]
    office.post(f"/api/config/revisions/{first}/apply", status=200)
    changed(office, "LIBRARY_ROOT", "LIBRARY_ROT", 422)
    office.start()
    for table in metadata.sorted_tables:
        rows = json.dumps([dict(row) for row in every(office.store, sa.select(table))], default=str)
        assert not any(secret in rows for secret in SECRETS), table.name
    for path in ("config/env", "config/revisions", f"config/revisions/{first}", "events", "jobs/1/config"):
        text = office.http.get(f"/api/{path}").text
        assert not any(secret in text for secret in SECRETS), path


def test_hostile_bodies_are_refused(office: Desk, file: Path) -> None:
    base = office.get("/api/config/env")["base_revision"]
    for content, status, code in (
        ("A\x00B", 422, "config_invalid"),
        ("x" * 1_000_000, 422, "input_invalid"),
        ("#" + "晴" * 100_000, 413, "payload_too_large"),
        ("NODE_NAME='open", 422, "config_invalid"),
    ):
        assert put(office, status, content=content, base_revision=base)["code"] == code
    raw = json.dumps({"content": "NODE_NAME=\ud800", "base_revision": base})
    answer = office.http.put("/api/config/env", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert put(office, 422, contents="x")["code"] == "input_invalid"
    assert put(office, 422, content="", base_revision="newest")["code"] == "input_invalid"
    assert file.read_text() == CONTENT
    put(office, content="\ufeffexport NODE_NAME='a b'\r\nDRAIN_SEC=1\r\nDRAIN_SEC=2\r\n", base_revision=base)
    assert file.read_bytes() == b"\xef\xbb\xbfexport NODE_NAME='a b'\r\nDRAIN_SEC=1\r\nDRAIN_SEC=2\r\n"


def test_a_console_without_a_file_says_so(desk: Desk) -> None:
    found = desk.get("/api/config/env")
    assert (found["file"], found["state"], found["revision"]) == (None, "missing", None)
    assert put(desk, 409, content="")["code"] == "config_nowhere"
    assert desk.get("/api/config/revisions") == {"revisions": [], "next_cursor": None}
