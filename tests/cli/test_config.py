"""`config show` and `config check`: every value, where it comes from, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.settings import KEYS
from tests.cli.tool import say


def test_every_setting_is_shown_with_its_origin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "dalsegno.env").write_text("# mine\n\nDRAIN_SEC=5\nMAX_CONCURRENCY_TONE=3\nNODE_NAME=attic\n")
    monkeypatch.setenv("NODE_NAME", "cellar")
    answer = say("config", "show", "--json", "--database", "postgresql://me:hunter2@db/x").data
    assert answer.keys() == {"file", "settings"}
    assert answer["file"] == "dalsegno.env"
    assert all(row.keys() == {"key", "value", "origin", "line"} for row in answer["settings"])
    rows = {row["key"]: (row["value"], row["origin"], row["line"]) for row in answer["settings"]}
    assert set(KEYS) <= rows.keys()
    assert rows["DRAIN_SEC"] == ("5", "file", 3)
    assert rows["MAX_CONCURRENCY_TONE"] == ("3", "file", 4)
    assert rows["NODE_NAME"] == ("cellar", "environment", None)
    assert rows["BACKOFF_CAP_SEC"] == ("3600", "default", None)
    assert rows["DATABASE_URL"] == ("postgresql://me:***@db/x", "option", None)
    text = say("config", "show").out
    assert "dalsegno.env:3" in text
    assert "environment" in text


def test_secrets_are_masked_wherever_they_stand(folder: Path) -> None:
    (folder / "dalsegno.env").write_text(
        "DATABASE_URL=postgresql://me:hunter2@db/x\nLISTEN_DATABASE_URL=postgresql://db/x?user=me&password=hunter2\n"
    )
    for words in (("config", "show"), ("config", "show", "--json")):
        text = say(*words).out
        assert "hunter2" not in text
        assert text.count("***") == 2


def test_without_a_file_the_defaults_hold(folder: Path) -> None:
    assert say("config", "show", "--json").data["file"] is None
    assert "defaults (no dalsegno.env)" in say("config", "check").out


def test_the_check_tries_everything_the_settings_name(here: str, folder: Path) -> None:
    (folder / "my.env").write_text("SERVICES=tests.cli.studio\nLIBRARY_ROOT=music\n")
    answer = say("config", "check", "--env-file", "my.env", "--json").data
    assert answer.keys() == {"file", "database", "library", "services"}
    assert answer["library"] == str(folder / "music")
    assert answer["services"] == ["tone", "listen", "playlist", "echo", "gate", "collect", "sync", "download", "upload",
                                  "parse-search", "parse-decode"]  # fmt: skip
    assert say("config", "check", "--env-file", "my.env").out.endswith("All is well.\n")


@pytest.mark.parametrize("word", ["show", "check"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("\n# x\nDRIAN_SEC=5\n", 'dalsegno.env, line 3, DRIAN_SEC: this key is not known. Did you mean "DRAIN_SEC"?'),
        ("DRAIN_SEC=soon\n", "dalsegno.env, line 1, DRAIN_SEC: input should be a valid number"),
        ("NODE_NAME=x\nHEARTBEAT_TTL_SEC=3\n", "dalsegno.env, line 2, HEARTBEAT_TTL_SEC: "),
        ("MAX_CONCURRENCY_TONE=0\n", "dalsegno.env, line 1, MAX_CONCURRENCY_TONE: "),
        ("just words\n", 'line 1: "just words" is not KEY=value'),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(folder: Path, word: str, content: str, says: str) -> None:
    (folder / "dalsegno.env").write_text(content)
    answer = say("config", word, fine=False)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
    assert say("config", word, "--json", fine=False).error["code"] == "setting_invalid"


def test_a_named_file_must_be_there() -> None:
    answer = say("jobs", "--env-file", "missing.env", fine=False)
    assert answer.code == 2
    assert "missing.env: there is no such file" in answer.err


def test_the_check_names_a_module_that_is_not_there(folder: Path) -> None:
    (folder / "dalsegno.env").write_text("SERVICES=studio.missing\n")
    answer = say("config", "check", fine=False)
    assert answer.code == 2
    assert 'The services of "studio.missing" cannot be loaded' in answer.err


@pytest.mark.parametrize("key", ["OBJECT_STORE", "RETENTION_ARCHIVE"])
@pytest.mark.parametrize("way", ["file", "environment"])
def test_the_check_ends_with_a_value_that_means_nothing(
    folder: Path, key: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "file":
        (folder / "dalsegno.env").write_text(f"{key}=archive\n")
    else:
        monkeypatch.setenv(key, "archive")
    answer = say("config", "check", fine=False)
    assert answer.code == 2
    assert f"{key}: {key} is neither file:///…, s3://bucket/prefix nor a path: 'archive'." in answer.err
    monkeypatch.setenv(key, "off" if key == "RETENTION_ARCHIVE" else "/archive")
    assert say("config", "check").out.endswith("All is well.\n")


# --- changing them ----------------------------------------------------------------------------------


def numbers() -> list[int]:
    return [line["revision"]["id"] for line in say("config", "revisions", "--json").data]


def test_keys_are_set_and_taken_out_and_the_rest_stays(here: str, folder: Path) -> None:
    file = folder / "dalsegno.env"
    file.write_text("# mine\nDRAIN_SEC=5 # short\nSUBSONIC_PASSWORD=winter-river\n")
    answer = say(
        "config", "edit", "--set", "drain_sec=7", "--set", "NODE_NAME=attic", "--note", "slower", "--json"
    ).data
    assert answer.keys() == {"revision", "created", "state", "version", "warnings", "diff", "impact"}
    assert file.read_text() == "# mine\nDRAIN_SEC=7 # short\nSUBSONIC_PASSWORD=winter-river\nNODE_NAME=attic\n"
    assert answer["revision"]["note"] == "slower"
    text = say("config", "edit", "--unset", "NODE_NAME").out
    assert "-NODE_NAME=attic" in text
    assert f"New jobs use #{numbers()[0]}." in text
    assert file.read_text() == "# mine\nDRAIN_SEC=7 # short\nSUBSONIC_PASSWORD=winter-river\n"
    assert "The file says so already." in say("config", "edit", "--set", "DRAIN_SEC=7").out
    assert len(numbers()) == 3


def test_an_editor_sees_masks_and_changes_what_it_likes(
    file_here: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "dalsegno.env"
    file.write_text("SUBSONIC_PASSWORD=winter-river\nDRAIN_SEC=5\n")
    seen = folder / "seen"
    editor = folder / "editor.sh"
    editor.write_text(f'#!/bin/sh\ncp "$1" {seen}\nsed -i s/DRAIN_SEC=5/DRAIN_SEC=6/ "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    say("config", "edit")
    assert seen.read_text() == "SUBSONIC_PASSWORD=***\nDRAIN_SEC=5\n"
    assert file.read_text() == "SUBSONIC_PASSWORD=winter-river\nDRAIN_SEC=6\n"
    editor.write_text('#!/bin/sh\nsed -i s/DRAIN/DRIAN/ "$1"\n')
    answer = say("config", "edit", fine=False)
    assert answer.code == 2
    assert 'Did you mean "DRAIN_SEC"?' in answer.err
    monkeypatch.setenv("VISUAL", "false")
    assert "nothing was saved" in say("config", "edit", fine=False).err
    monkeypatch.setenv("VISUAL", str(folder / "missing"))
    assert "cannot be started" in say("config", "edit", fine=False).err
    assert file.read_text() == "SUBSONIC_PASSWORD=winter-river\nDRAIN_SEC=6\n"


def test_revisions_are_compared_and_applied(here: str, folder: Path) -> None:
    assert "No revisions" in say("config", "revisions").out
    say("config", "edit", "--set", "DRAIN_SEC=5", "--set", "SUBSONIC_PASSWORD=winter-river", "--note", "first")
    say("config", "edit", "--set", "DRAIN_SEC=6", "--set", "SUBSONIC_PASSWORD=frozen-lake")
    second, first = numbers()
    text = say("config", "diff", first, second).out
    assert "-DRAIN_SEC=5" in text
    assert "SUBSONIC_PASSWORD has another value." in text
    assert "No difference." in say("config", "diff", second).out
    answer = say("config", "apply", first, "--json").data
    assert answer["revision"]["restores"] == first
    assert (folder / "dalsegno.env").read_text() == "DRAIN_SEC=5\nSUBSONIC_PASSWORD=frozen-lake\n"
    listed = say("config", "revisions").out
    assert "first" in listed
    assert "winter-river" not in listed + text
    assert say("config", "apply", "999", fine=False).code == 2
    assert say("config", "revisions", "--limit", "1", "--before", second, "--json").data[0]["revision"]["id"] == first


def test_a_change_that_is_wrong_is_refused_with_every_reason(file_here: str, folder: Path) -> None:
    answer = say("config", "edit", "--set", "DRAIN_SEC=soon", "--set", "LIBRARY_ROT=x", "--json", fine=False)
    assert answer.code == 2
    assert answer.error["code"] == "config_invalid"
    assert [each["key"] for each in answer.error["details"]["errors"]] == ["DRAIN_SEC", "LIBRARY_ROT"]
    assert say("config", "edit", "--set", "DRAIN_SEC", fine=False).code == 2
    assert not (folder / "dalsegno.env").exists()


def test_the_check_names_all_mistakes(folder: Path) -> None:
    (folder / "dalsegno.env").write_text("DRIAN_SEC=5\nLANGUAGE=fr\n")
    answer = say("config", "check", fine=False)
    assert "line 1, DRIAN_SEC" in answer.err
    assert "line 2, LANGUAGE" in answer.err


def test_jobs_know_the_revision_they_were_made_with(file_here: str) -> None:
    say("config", "edit", "--set", "DRAIN_SEC=5")
    say("submit", "scale", "--json")
    (line,) = say("config", "revisions", "--json").data
    assert line["jobs"] == 1
