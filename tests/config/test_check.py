"""Everything that is wrong with a text is said at once: the line, the key, why, and a way out."""

from __future__ import annotations

import pytest

from dalsegno.config.check import MOST_BYTES, check, too_large
from dalsegno.config.envfile import parsed
from dalsegno.config.fields import GROUPS, key_of, ordered
from dalsegno.config.model import Fault
from dalsegno.errors import PayloadTooLarge, SettingInvalid
from dalsegno.settings import KEYS, load_settings


def faults(text: str) -> list[Fault]:
    return check(parsed(text))


def test_all_mistakes_are_told_at_once_by_line() -> None:
    text = "LIBRARY_ROT=x\n\nLANGUAGE=fr\nDRAIN_SEC=soon\nMIN_FREE_SPACE=lots\njust words\nMAX_CONCURRENCY_TONE=0\n"
    found = [(fault.line, fault.key, fault.suggestion) for fault in faults(text)]
    assert found == [
        (1, "LIBRARY_ROT", 'Did you mean "LIBRARY_ROOT"?'),
        (3, "LANGUAGE", "Write one of: auto, en, zh-CN."),
        (4, "DRAIN_SEC", "For example 30."),
        (5, "MIN_FREE_SPACE", "For example 2GB."),
        (6, None, "Write KEY=value, or begin the line with # to make it a remark."),
        (7, "MAX_CONCURRENCY_TONE", "For example 4."),
    ]
    assert all(fault.reason and fault.level == "error" for fault in faults(text))


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("A\x00B=1\n", 1, "NUL"),
        ("LIBRARY_ROOT=a\nNODE_NAME=\ud800\n", 2, "half a character"),
        ("\nLIBRARY_ROOT='never closed\n", 2, "never closed"),
        ("BACKOFF_BASE_SEC=10\nBACKOFF_CAP_SEC=5\n", 2, "must not be smaller"),
        ("BACKOFF_BASE_SEC=9999\n", 1, "must not be smaller"),
        ("NODE_LABELS=gpu\n", 1, '"gpu" is not name=value'),
        ("CONSOLE_PASSWORD=short\n", 1, "at least 8 characters"),
        ("CONSOLE_PORT=70000\n", 1, "less than or equal to 65535"),
        ("密码=1\n", 1, "not known"),
        ("\nNAME_TEMPLATE={artits}/{title}\n", 2, 'knows no {artits}. Did you mean "artist"?'),
        ("NAME_TEMPLATE={artist}\n", 1, "needs {title} or {id}"),
        ("NAME_TEMPLATE={title\n", 1, "cannot be read"),
        ("RETENTION_ARCHIVE=old/months\n", 1, "neither file:///…, s3://bucket/prefix nor a path"),
        ("OBJECT_STORE=ftp://nas/music\n", 1, 'cannot begin with "ftp://"'),
        ("OBJECT_STORE=s3://key@bucket/x\n", 1, "keys go into"),
        ("OBJECT_STORE=s3://bucket/x\nS3_ENDPOINT=nas:9000\n", 2, "must begin with http"),
        ("SOURCES=demo,subsonik\n", 1, 'no source "subsonik". Did you mean "subsonic"?'),
        ("EXTERNAL_SOURCES=mine=run\nDOWNLOAD_SOURCES=mine,yours\n", 2, 'no source "yours"'),
    ],
)
def test_a_mistake_has_its_line(text: str, line: int, says: str) -> None:
    (found, *_) = faults(text)
    assert found.line == line
    assert says in found.reason
    assert found.level == "error"


def test_a_mistake_has_a_way_out() -> None:
    assert [fault.suggestion for fault in faults("NAME_TEMPLATE=x\nOBJECT_STORE=x\nSOURCES=x\n")] == [
        "For example {artist}/{album}/{title}.",
        "For example s3://bucket/prefix.",
        "For example subsonic,feed; several with commas between.",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SUBSONIC_URL=nas:4533", '"nas:4533" has no http:// in front: write http://nas:4533.'),
        ("SUBSONIC_URL=192.168.1.5:4533", '"192.168.1.5:4533" has no http:// in front: write http://192.168.1.5:4533.'),
        ("FEED_URLS=https://a/b,feed://c/d", '"feed://c/d" is not an http or https address.'),
        ("FEED_URLS=me:velvet@nas/feed", "this has no http:// in front."),
        ("PLAYLIST_FILES=lists/*.m3u,ftp://nas/a.m3u", '"ftp://nas/a.m3u" is not an http or https address.'),
        ("YTDLP_URLS=youtube.com/playlist?list=1", "this has no http:// in front."),
        ('EXTERNAL_SOURCES="radio=python3 \'my radio.py"', 'the command of "radio" opens a quote and never closes it.'),
        (
            'EXTERNAL_DECODERS="radio=python3 \'my radio.py"',
            'the command of "radio" opens a quote and never closes it.',
        ),
    ],
)
def test_what_no_source_could_be_opened_with_is_told_under_its_key(text: str, said: str) -> None:
    (found,) = faults(text)
    assert (found.key, found.level, found.reason) == (text.partition("=")[0], "error", said)
    assert found.suggestion


def test_a_key_that_is_set_twice_is_a_warning() -> None:
    (found,) = faults("DRAIN_SEC=1\nDRAIN_SEC=2\n")
    assert (found.line, found.key, found.level) == (2, "DRAIN_SEC", "warning")
    assert "line 1" in found.reason


@pytest.mark.parametrize(
    "text",
    ["", "# only a remark", "\ufeffDRAIN_SEC=5\r\n", "export NODE_NAME='a b' # mine\n", "drain_sec=5\n", "NODE_NAME=\n",
     "SOURCE_MUSICDL_TOKEN=x\nMAX_CONCURRENCY_MY_RENDERER=3\n", "FEED_URLS=https://a/b,https://c/d\n",
     "NODE_NAME=晴天\n", "LIBRARY_ROOT=${HOME}/music\n", "CONSOLE_READ_ONLY=yes\n"],
)  # fmt: skip
def test_what_the_settings_take_is_right(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert faults(text) == []
    file = tmp_path_factory.mktemp("env") / "my.env"
    file.write_bytes(text.encode())
    load_settings(file)


@pytest.mark.parametrize(
    "text", ["LIBRARY_ROT=x\n", "DRAIN_SEC\n", "DRAIN_SEC=nan\n", "a b\n", "LANGUAGE=x\n", "SERVICES=no-module\n"]
)
def test_what_the_settings_refuse_is_wrong(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert any(fault.level == "error" for fault in faults(text))
    file = tmp_path_factory.mktemp("env") / "my.env"
    file.write_bytes(text.encode())
    with pytest.raises(SettingInvalid):
        load_settings(file)


def test_no_reason_repeats_a_secret() -> None:
    text = (
        "CONSOLE_PASSWORD=velvet\nEXTERNAL_SOURCES=run --token velvet\nSUBSONIC_PASWORD=velvet\n"
        "DATABASE_URL='postgresql://me:velvet@db/x\nS3_SECRET_KEY velvet\n"
    )
    found = faults(text)
    assert len(found) == 5
    assert "velvet" not in repr(found)


def test_the_environment_is_not_the_files_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAIN_SEC", "soon")
    assert faults("NODE_NAME=x\n") == []
    assert [fault.key for fault in faults("DRAIN_SEC=later\n")] == ["DRAIN_SEC"]


def test_a_file_has_an_end() -> None:
    too_large("x" * MOST_BYTES)
    with pytest.raises(PayloadTooLarge):
        too_large("晴" * (MOST_BYTES // 3 + 1))


def test_every_key_has_its_place_in_the_form() -> None:
    assert sorted(ordered()) == sorted(KEYS)
    for name in KEYS:
        key = key_of(name)
        assert key is not None
        assert key.help, name
        assert key.group in GROUPS
    assert key_of("SOURCE_") is None
    assert key_of("NOBODY_READS_THIS") is None


def test_keys_say_how_they_are_asked_for() -> None:
    kinds = {name: key.kind for name in KEYS if (key := key_of(name))}
    wanted = {
        "LIBRARY_ROOT": "path", "MIN_FREE_SPACE": "size", "DOWNLOAD_WORKERS": "number", "LANGUAGE": "choice",
        "CONSOLE_READ_ONLY": "yes_no", "SUBSONIC_PASSWORD": "secret", "FEED_URLS": "list", "NODE_LABELS": "pairs",
        "SUBSONIC_URL": "url", "NODE_NAME": "text", "RESOLVE_WORKERS_MAX": "number",
    }  # fmt: skip
    assert {name: kinds[name] for name in wanted} == wanted
    needed = {name for name in KEYS if (key := key_of(name)) and key.restart_needed}
    assert {"DATABASE_URL", "CONSOLE_HOST", "CONSOLE_PORT", "CONSOLE_PASSWORD", "DOWNLOAD_WORKERS"} <= needed
    assert needed.isdisjoint({"LIBRARY_ROOT", "FEED_URLS", "SUBSONIC_PASSWORD", "LANGUAGE"})
