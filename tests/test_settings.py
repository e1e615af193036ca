"""Settings: the file, the environment before it, an option before both; every value knows its origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.errors import SettingInvalid
from dalsegno.settings import KEYS, Settings, load_settings
from dalsegno.settings.masks import masked_query, masked_url


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)


def written(text: str) -> Path:
    file = Path("my.env")
    file.write_text(text)
    return file


def test_every_key_has_a_default_that_works() -> None:
    loaded = load_settings()
    assert not loaded.found
    assert loaded.settings.database_url == "sqlite:///dalsegno.db"
    assert {row.origin for row in loaded.shown()} == {"default"}
    assert [row.key for row in loaded.shown()] == list(KEYS)


def test_an_option_goes_before_the_environment_and_that_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = written("DATABASE_URL=sqlite:///file.db\nDRAIN_SEC=1\n")
    assert load_settings(file).settings.database_url == "sqlite:///file.db"
    monkeypatch.setenv("DATABASE_URL", "sqlite:///environment.db")
    loaded = load_settings(file)
    assert loaded.settings.database_url == "sqlite:///environment.db"
    assert loaded.origins == {"DATABASE_URL": ("environment", None), "DRAIN_SEC": ("file", 2)}
    loaded = load_settings(file, "sqlite:///option.db")
    assert loaded.settings.database_url == "sqlite:///option.db"
    assert loaded.origins["DATABASE_URL"] == ("option", None)


def test_an_empty_value_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAIN_SEC", "")
    loaded = load_settings(written("NODE_NAME=\nDRAIN_SEC=7\n"))
    assert loaded.settings.node_name
    assert loaded.settings.drain_sec == 7
    assert loaded.origins == {"DRAIN_SEC": ("file", 2)}


def test_keys_may_be_written_in_small_letters_in_the_file() -> None:
    loaded = load_settings(written("drain_sec=7\nexport NODE_NAME='a b' # mine\n"))
    assert (loaded.settings.drain_sec, loaded.settings.node_name) == (7, "a b")
    assert loaded.origins["NODE_NAME"] == ("file", 2)


def test_limits_are_found_by_the_services_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_CONCURRENCY_TONE", "9")
    settings = load_settings(written("MAX_CONCURRENCY_MY_RENDERER=3\nMAX_CONCURRENCY_TONE=2\n")).settings
    assert settings.concurrency(["my-renderer", "tone", "other"]) == {"my-renderer": 3, "tone": 9}


def test_lists_and_labels_are_written_with_commas() -> None:
    settings = load_settings(written("SERVICES=a.b, c\nNODE_LABELS=gpu=true, zone=eu\n")).settings
    assert settings.services == ("a.b", "c")
    assert settings.node_labels == {"gpu": "true", "zone": "eu"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("LIBRARY_ROT=x", 'Did you mean "LIBRARY_ROOT"'),
        ("\n\nMAX_CONCURRENCY_=2", "line 3"),
        ("NODE_LABELS=gpu", '"gpu" is not name=value'),
        ("SERVICES=no-module", '"no-module" is not the name of a Python module'),
        ("BACKOFF_BASE_SEC=10\nBACKOFF_CAP_SEC=5", "must not be smaller than BACKOFF_BASE_SEC"),
        ("BACKOFF_BASE_SEC=0", "greater than 0"),
        ("NOTIFY_CHANNEL_PREFIX=Bad Prefix", "NOTIFY_CHANNEL_PREFIX"),
        ("MAX_CONCURRENCY_TONE=many", "MAX_CONCURRENCY_TONE"),
        ("DRAIN_SEC", "is not KEY=value"),
        ("DRAIN_SEC=nan", "DRAIN_SEC"),
        ("BACKOFF_CAP_SEC=inf", "BACKOFF_CAP_SEC"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, says: str) -> None:
    with pytest.raises(SettingInvalid) as caught:
        load_settings(written(text))
    assert says in str(caught.value)


def test_a_mistake_in_the_environment_is_said_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAIN_SEC", "soon")
    with pytest.raises(SettingInvalid, match="environment, DRAIN_SEC"):
        load_settings()


def test_a_file_that_is_no_text_is_refused() -> None:
    Path("my.env").write_bytes(b"NODE_NAME=\xff\xfe\n")
    with pytest.raises(SettingInvalid, match="cannot be read"):
        load_settings(Path("my.env"))
    with pytest.raises(SettingInvalid, match="cannot be read"):
        load_settings(Path())


def test_a_snapshot_keeps_the_library_where_it_is_and_no_secret(tmp_path: Path) -> None:
    settings = load_settings(written("LIBRARY_ROOT=music\nDATABASE_URL=postgresql://me:hunter2@db/x\n")).settings
    assert settings.snapshot()["LIBRARY_ROOT"] == str(tmp_path / "music")
    assert settings.secrets() == ("hunter2",)


def test_a_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/olga")
    loaded = load_settings(written(
        "LIBRARY_ROOT=~/Music\nFOLDER_ROOTS=~/a, /b, c~d\nPLAYLIST_FILES=~/a.m3u, ~/lists/*.m3u, https://h.example/~me/b.m3u\n"
        "OBJECT_STORE=~/archive\nRETENTION_ARCHIVE=~\nBACKUP_FOLDER=~/backups\nPG_BIN=~/pg/bin\n"
    ))  # fmt: skip
    shown = {row.key: row.value for row in loaded.shown() if row.origin == "file"}
    assert shown == {
        "LIBRARY_ROOT": "/home/olga/Music",
        "FOLDER_ROOTS": "/home/olga/a,/b,c~d",
        "PLAYLIST_FILES": "/home/olga/a.m3u,/home/olga/lists/*.m3u,https://h.example/~me/b.m3u",
        "OBJECT_STORE": "/home/olga/archive",
        "RETENTION_ARCHIVE": "/home/olga",
        "BACKUP_FOLDER": "/home/olga/backups",
        "PG_BIN": "/home/olga/pg/bin",
    }
    kept = loaded.settings.snapshot()
    assert kept["LIBRARY_ROOT"] == "/home/olga/Music"
    assert kept["FOLDER_ROOTS"] == ["/home/olga/a", "/b", str(tmp_path / "c~d")]
    assert kept["OBJECT_STORE"] == "/home/olga/archive"


@pytest.mark.parametrize("key", ["LIBRARY_ROOT", "PLAYLIST_FILES", "OBJECT_STORE"])
def test_a_home_folder_that_nobody_has_is_a_mistake(key: str) -> None:
    with pytest.raises(SettingInvalid, match=f"line 1, {key}: there is no such home folder .it is .~nobody-at-all/x"):
        load_settings(written(f"{key}=~nobody-at-all/x\n"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@db/x", "postgresql://me:***@db/x"),
        ("postgresql+psycopg://me:hun@ter2@db/x", "postgresql+psycopg://me:***@db/x"),
        ("postgresql://db/x?user=me&password=hunter2&a=b", "postgresql://db/x?user=me&password=***&a=b"),
        ("postgresql://me@db/x", "postgresql://me@db/x"),
        ("postgresql://me:12/34@db/x", "postgresql://me:***@db/x"),
        ("postgresql://db:5432/x?options=a@b", "postgresql://db:5432/x?options=a@b"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("https://t0ken@git/x", "https://***@git/x"),
        ("https://t0ken:@git/x", "https://***:@git/x"),
        ("https://t0ken:x-oauth-basic@git/x", "https://***:x-oauth-basic@git/x"),
        ("https://me:pa/ss@nas/x", "https://me:***@nas/x"),
        ("https://me:p%40ss@nas/x", "https://me:***@nas/x"),
        ("https://nas:8080/f?mail=me@x.org", "https://nas:8080/f?mail=me@x.org"),
        ("https://nas:8080/@me/f", "https://nas:8080/@me/f"),
        ("https://[::1]:80/f?mail=me@x.org", "https://[::1]:80/f?mail=me@x.org"),
        ("https://nas/f;token=t0ken", "https://nas/f;token=***"),
        ("https://nas/f?a=b;sid=t0ken#x", "https://nas/f?a=b;sid=***#x"),
        ("https://nas/f#access_token=t0ken&x=1", "https://nas/f#access_token=***&x=1"),
        (
            "https://nas/f?author=me&keyword=key&design=sig&token=",
            "https://nas/f?author=me&keyword=key&design=sig&token=",
        ),
    ],
)
def test_a_password_is_masked_wherever_it_stands(url: str, shown: str) -> None:
    assert masked_url(url) == shown


NAMES = [
    "token", "auth_token", "user_token", "X-Plex-Token", "client_secret", "access_key", "apiKey", "passkey",
    "passphrase", "X-Amz-Signature", "X-Amz-Credential", "sign", "PHPSESSID", "jwt", "authorization",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_whose_name_tells_of_a_secret_has_one(name: str) -> None:
    url = f"https://nas/f?a=b&{name}=t0ken%2Fx&c=d"
    assert masked_url(url) == f"https://nas/f?a=b&{name}=***&c=d"
    settings = Settings(_env_file=None, feed_urls=(url,))
    assert {"t0ken%2Fx", "t0ken%2fx", "t0ken/x"} <= set(settings.secrets())
    snapshot = settings.snapshot()
    assert snapshot["FEED_URLS"] == [f"https://nas/f?a=b&{name}=***&c=d"]
    assert settings.thawed(snapshot)["FEED_URLS"] == [url]


def test_a_secret_is_known_in_every_way_it_may_be_written() -> None:
    found = Settings(_env_file=None, subsonic_password='a b/"ü').secrets()
    assert {'a b/"ü', "a%20b%2F%22%C3%BC", "a%20b/%22%c3%bc", "a+b%2F%22%C3%BC", 'a b/\\"\\u00fc'} <= set(found)


def test_masking_takes_no_time_worth_mentioning() -> None:
    """A settings file may be a quarter of a megabyte of anything."""
    for text in ("?" + "key" * 80_000, "?key=&" * 40_000, "?key=a&" * 40_000, ";" * 250_000):
        assert "a" not in masked_query(text)


def test_a_password_in_the_query_is_a_secret_too() -> None:
    settings = load_settings(None, "postgresql://db/x?user=me&password=hunter2").settings
    assert settings.secrets() == ("hunter2",)


def test_secrets_are_masked_longest_first_and_plain_options_are_none() -> None:
    """One that begins like another would leave its end behind; a time-out of 60 s would blank every 60."""
    settings = Settings(
        _env_file=None,
        subsonic_password="aria",
        s3_secret_key="aria da capo",
        source_options={"a_timeout": "60", "a_hosts": "nas.local", "a_root": "/mnt", "a_token": "t0ken"},
    )
    found = settings.secrets()
    assert found.index("aria da capo") < found.index("aria")
    assert "t0ken" in found
    assert not {"60", "nas.local", "/mnt"} & set(found)
