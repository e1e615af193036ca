"""Backups and restores behind PgBouncer in transaction mode: past it, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dalsegno import open_store, submit
from dalsegno.errors import PoolerBetween, UpgradeNeedsBackup
from dalsegno.moves.restore import restore
from dalsegno.store.backup import backup
from dalsegno.store.migrate import upgrade
from dalsegno.store.notes import UPGRADE, read_note
from dalsegno.store.open import parse_url
from dalsegno.store.upgrade import Precaution
from tests.cli.tool import say
from tests.helpers import keys, one_step
from tests.moves.test_shared import ask
from tests.moves.test_upgrade import BEFORE
from tests.outages import Server
from tests.store.test_migrate import _fill
from tests.storms.conftest import bounced, own_server, server, url

__all__ = ["bounced", "own_server", "server", "url"]

pytestmark = pytest.mark.xdist_group("storms")

Bounced = Callable[..., str]


def whole(pooled: str) -> bool:
    """Every connection of the pool finds our tables: there is one."""
    return ask(pooled, "SELECT count(*) > 0 FROM jobs") == [(True,)]


@pytest.fixture
def pooled(url: str, bounced: Bounced) -> str:
    with closing(open_store(url)) as store:
        submit(store, one_step(), items=keys(4))
    return bounced(url, default_pool_size="1")


def test_a_backup_and_a_restore_refuse_to_go_through_the_pooler(
    pooled: str, tmp_path: Path, url: str, pg_bin: Path
) -> None:
    refused = say("backup", tmp_path / "b", "--database", pooled, "--json", fine=False)
    assert (refused.code, refused.error["code"]) == (2, "pooler_between")
    assert "LISTEN_DATABASE_URL is not set" in refused.error["message"]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PoolerBetween):
        backup(parse_url(pooled), tmp_path / "b")
    backup(parse_url(url), tmp_path / "b", tools=pg_bin)
    refused = say("restore", tmp_path / "b", "--force", "--database", pooled, "--json", fine=False)
    assert refused.error["code"] == "pooler_between"
    with pytest.raises(PoolerBetween):
        restore(tmp_path / "b", parse_url(pooled), force=True)
    assert whole(pooled)


def test_with_the_direct_way_known_the_pool_stays_as_it_is(
    pooled: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTEN_DATABASE_URL", url)
    assert say("backup", tmp_path / "a", "--database", pooled, "--json").data["tables"]["items"] == 4
    monkeypatch.setenv("DATABASE_URL", pooled)
    assert say("backup", tmp_path / "b", "--json").data["tables"]["items"] == 4
    assert whole(pooled)
    assert say("restore", tmp_path / "b", "--force", "--json").data["check"]["agrees"] is True
    assert whole(pooled)


def test_a_way_to_somewhere_else_is_none(
    pooled: str, url: str, server: Server, bounced: Bounced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is called the same."""
    monkeypatch.setenv("DATABASE_URL", pooled)
    elsewhere = {
        server.url(): "leads to another database",
        f"{url}?options=-csearch_path%3Dpg_catalog": "another schema",
        pooled: "leads through it, too",
        bounced(url, default_pool_size="2"): "leads through a pooler, too",
        "postgresql://127.0.0.1:1/nowhere": "does not answer",
    }
    for listen, said in elsewhere.items():
        monkeypatch.setenv("LISTEN_DATABASE_URL", listen)
        assert said in say("backup", tmp_path / "b", "--json", fine=False).error["message"]


def test_an_upgrade_makes_its_backup_past_the_pooler_or_none(
    server: Server, bounced: Bounced, tmp_path: Path, pg_bin: Path
) -> None:
    """Over a pool of one connection, which the upgrade has."""
    unattended, kept = (server.create(name) for name in ("unattended", "kept"))
    for address in (unattended, kept):
        upgrade(parse_url(address), BEFORE)
        _fill(address)
    through = bounced(unattended, default_pool_size="1")
    with pytest.raises(UpgradeNeedsBackup, match="LISTEN_DATABASE_URL is not set"):
        open_store(through, precaution=Precaution(tmp_path, pg_bin, attended=True))
    with closing(open_store(through, precaution=Precaution(tmp_path, pg_bin))) as store:
        note = store.read(lambda tx: read_note(tx, UPGRADE))
    assert note is not None
    assert "LISTEN_DATABASE_URL" in note["backup"]
    assert whole(through)
    through = bounced(kept, default_pool_size="1")
    with closing(open_store(through, listen_url=kept, precaution=Precaution(tmp_path, pg_bin))) as store:
        note = store.read(lambda tx: read_note(tx, UPGRADE))
    assert note is not None
    assert Path(note["backup"]).exists()
    assert whole(through)
