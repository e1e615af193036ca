"""Revisions: saved, guarded, adopted, compared, applied again; and never a secret among them."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.templates import order
from dalsegno.config.compare import compare
from dalsegno.config.current import Current
from dalsegno.config.jobs import job_config, jobs_of_revision
from dalsegno.config.model import Saved, State
from dalsegno.config.revisions import get_revision, list_revisions, revision_in_force
from dalsegno.config.save import adopt, apply, begin, save
from dalsegno.config.view import config_view, form_content, preview
from dalsegno.errors import ConfigChanged, ConfigInvalid, ConfigNotWritable, ConfigNowhere, NotFound, PayloadTooLarge
from dalsegno.settings import Settings
from dalsegno.settings.masks import MASK
from dalsegno.store.schema import config_revisions, events
from tests.config.conftest import CONTENT, SECRETS
from tests.helpers import command, events_of, every


@pytest.fixture
def kept(store: Store, current: Current) -> Current:
    begin(store, current)
    return current


def changed(store: Store, current: Current, old: str, new: str, **how: Any) -> Saved:
    view = config_view(store, current)
    assert old in view.content
    how = {"by": "attic", "base_version": view.version, **how}
    return save(store, current, view.content.replace(old, new), **how)


def numbers(store: Store, current: Current) -> list[int]:
    return [line.revision.id for line in store.read(lambda tx: list_revisions(tx, current))]


def everything_stored(store: Store) -> str:
    return json.dumps([dict(row) for table in (config_revisions, events) for row in every(store, sa.select(table))],
                      default=str, ensure_ascii=False)  # fmt: skip


def test_the_file_keeps_a_home_folder_as_it_was_typed_and_what_is_in_force_is_the_folder(
    store: Store, kept: Current, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/olga")
    changed(store, kept, "/mnt/music ", "~/Music ")
    assert "LIBRARY_ROOT=~/Music " in file.read_text()
    (root,) = [field for field in config_view(store, kept).fields if field.key == "LIBRARY_ROOT"]
    assert (root.in_file, root.value, root.kind) == ("~/Music", "/home/olga/Music", "path")


def test_the_file_as_it_was_found_is_the_first_revision(store: Store, kept: Current) -> None:
    view = config_view(store, kept)
    assert view.state == State.IN_SYNC
    assert view.revision is not None
    assert view.revision.content == view.content
    begin(store, kept)
    assert numbers(store, kept) == [view.revision.id]


def test_a_save_writes_the_file_and_keeps_a_revision(store: Store, kept: Current, file: Path) -> None:
    first = numbers(store, kept)[0]
    saved = changed(store, kept, "/mnt/music", "/mnt/bigger", note="a bigger disk")
    assert file.read_text() == CONTENT.replace("/mnt/music", "/mnt/bigger")
    assert file.stat().st_mode & 0o777 == 0o600
    assert kept.settings.library_root == Path("/mnt/bigger")
    assert (saved.created, saved.state, saved.revision.note, saved.revision.saved_by) == (
        True, State.IN_SYNC, "a bigger disk", "attic",
    )  # fmt: skip
    (change,) = saved.diff.keys
    assert (change.key, change.before, change.after) == ("LIBRARY_ROOT", "/mnt/music", "/mnt/bigger")
    assert "-LIBRARY_ROOT=/mnt/music   # the big disk" in saved.diff.unified.splitlines()
    assert numbers(store, kept) == [saved.revision.id, first]
    assert config_view(store, kept).state == State.IN_SYNC
    (event,) = events_of(store, type="config_saved")
    assert event["source"] == "attic"
    assert event["data"] == {"revision": saved.revision.id, "file": str(file), "keys": ["LIBRARY_ROOT"],
                             "note": "a bigger disk"}  # fmt: skip


def test_saving_what_is_there_saves_nothing(store: Store, kept: Current) -> None:
    before = numbers(store, kept)
    saved = changed(store, kept, "", "")
    assert not saved.created
    assert saved.diff.same
    assert saved.impact.says == ()
    assert numbers(store, kept) == before


def test_no_secret_is_stored(store: Store, kept: Current, file: Path) -> None:
    changed(store, kept, MASK, "frozen lake", note="now frozen lake")
    changed(store, kept, "# The attic's", "# frozen lake's")
    file.write_text(file.read_text() + "S3_SECRET_KEY=hidden-brook\n#S3_ACCESS_KEY=older-brook\n")
    adopt(store, kept, by="attic")
    apply(store, kept, numbers(store, kept)[-1], by="attic")
    stored = everything_stored(store)
    for secret in (*SECRETS, "frozen lake", "hidden-brook", "older-brook"):
        assert secret not in stored
    assert "S3_SECRET_KEY" in stored


def test_a_secret_that_changed_is_known_to_have(store: Store, kept: Current) -> None:
    first = numbers(store, kept)[0]
    saved = changed(store, kept, f'"{MASK}"', "spring")
    assert [(change.key, change.change, change.secret) for change in saved.diff.keys] == [
        ("SUBSONIC_PASSWORD", "changed", True)
    ]
    again = changed(store, kept, "/mnt/music", "/mnt/other")
    assert saved.revision.secrets == again.revision.secrets
    keys = [change.key for change in compare(store, kept, first, again.revision.id).diff.keys]
    assert keys == ["LIBRARY_ROOT", "SUBSONIC_PASSWORD"]
    keys = [change.key for change in compare(store, kept, saved.revision.id, again.revision.id).diff.keys]
    assert keys == ["LIBRARY_ROOT"]
    assert compare(store, kept, again.revision.id, None).diff.same


def test_a_secret_that_was_edited_on_disk_is_noticed(store: Store, kept: Current, file: Path) -> None:
    assert config_view(store, kept).state == State.IN_SYNC
    file.write_text(CONTENT.replace("winter river", "summer river"))
    view = config_view(store, kept)
    assert view.state == State.DISK_CHANGED
    assert view.revision is not None
    (change,) = compare(store, kept, view.revision.id, None).diff.keys
    assert (change.key, change.change, change.before, change.after) == ("SUBSONIC_PASSWORD", "changed", MASK, MASK)
    with pytest.raises(ConfigChanged, match="on disk"):
        save(store, kept, view.content, by="attic", base_revision=view.revision.id)
    adopted = adopt(store, kept, by="attic")
    assert adopted.created
    assert [each.key for each in adopted.diff.keys] == ["SUBSONIC_PASSWORD"]
    assert config_view(store, kept).state == State.IN_SYNC
    assert not adopt(store, kept, by="attic").created
    file.write_text(CONTENT)
    assert compare(store, kept, view.revision.id, None).diff.same, "it is what it was then"
    stored = everything_stored(store)
    for secret in ("winter river", "summer river"):
        assert secret not in stored
        for plain in (hashlib.sha256, hashlib.md5, hashlib.blake2b):
            assert plain(secret.encode()).hexdigest()[:16] not in stored


def test_the_key_of_seals_is_for_its_owner_alone_and_may_be_lost(store: Store, kept: Current, file: Path) -> None:
    key = file.with_name(".my.env.key")
    assert key.stat().st_mode & 0o777 == 0o600
    key.unlink()
    assert config_view(store, kept).state == State.IN_SYNC, "nothing is known, so nothing is said"
    changed(store, kept, "/mnt/music", "/mnt/other")
    assert config_view(store, kept).state == State.IN_SYNC
    file.write_text(file.read_text().replace("winter river", "summer river"))
    assert config_view(store, kept).state == State.DISK_CHANGED


@pytest.mark.parametrize("how", ["revision", "version"])
def test_a_file_that_changed_underneath_is_not_overwritten(store: Store, kept: Current, file: Path, how: str) -> None:
    view = config_view(store, kept)
    assert view.revision is not None
    base: dict[str, Any] = {"base_revision": view.revision.id} if how == "revision" else {"base_version": view.version}
    file.write_text(CONTENT + "LANGUAGE=en\n")
    with pytest.raises(ConfigChanged):
        save(store, kept, view.content, by="attic", **base)
    file.write_text(CONTENT)
    changed(store, kept, "/mnt/music", "/mnt/bigger")
    with pytest.raises(ConfigChanged, match="it is revision"):
        save(store, kept, view.content, by="attic", **base)
    with pytest.raises(ConfigChanged):
        apply(store, kept, view.revision.id, by="attic", **base)
    with pytest.raises(ConfigChanged):
        save(store, kept, view.content, by="attic")
    assert kept.settings.library_root == Path("/mnt/bigger")


def test_of_many_who_save_at_once_one_wins(store: Store, kept: Current, file: Path) -> None:
    view = config_view(store, kept)
    assert view.revision is not None
    base, start, outcomes = view.revision.id, threading.Barrier(8), list[str]()

    def try_it(number: int) -> None:
        start.wait()
        try:
            content = view.content.replace("/mnt/music", f"/mnt/{number}")
            save(store, kept, content, by=f"desk-{number}", base_revision=base)
            outcomes.append(f"/mnt/{number}")
        except ConfigChanged:
            outcomes.append("changed")

    threads = [threading.Thread(target=try_it, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = (outcome for outcome in outcomes if outcome != "changed")
    assert len(outcomes) == 8
    assert f"LIBRARY_ROOT={won} " in file.read_text()
    assert len(numbers(store, kept)) == 2


def test_two_who_change_only_a_secret_do_not_both_win(store: Store, kept: Current) -> None:
    view = config_view(store, kept)
    assert view.revision is not None
    for expected in (None, ConfigChanged):
        content = view.content.replace(f'"{MASK}"', "spring" if expected is None else "summer")
        if expected is None:
            save(store, kept, content, by="attic", base_revision=view.revision.id)
        else:
            with pytest.raises(expected):
                save(store, kept, content, by="attic", base_revision=view.revision.id)
    assert kept.settings.subsonic_password.get_secret_value() == "spring"


def test_what_is_wrong_is_not_saved(store: Store, kept: Current, file: Path) -> None:
    with pytest.raises(ConfigInvalid, match="line 3: LIBRARY_ROT: this key is not known") as caught:
        changed(store, kept, "LIBRARY_ROOT", "LIBRARY_ROT")
    (fault,) = caught.value.details["errors"]
    assert (fault["line"], fault["key"], fault["suggestion"]) == (3, "LIBRARY_ROT", 'Did you mean "LIBRARY_ROOT"?')
    with pytest.raises(ConfigInvalid, match="NUL"):
        changed(store, kept, "/mnt/music", "/mnt\x00music")
    with pytest.raises(PayloadTooLarge):
        changed(store, kept, "# The", "#" * 1_000_000)
    assert file.read_text() == CONTENT
    assert len(numbers(store, kept)) == 1


def test_an_edit_on_disk_is_noticed_and_offered(store: Store, kept: Current, file: Path) -> None:
    file.write_text(CONTENT.replace("/mnt/music", "/mnt/by-hand"))
    assert config_view(store, kept).state == State.DISK_CHANGED
    assert revision_in_force(store, kept) is None
    saved = adopt(store, kept, by="attic")
    assert saved.revision.note == "Edited on disk."
    assert [change.key for change in saved.diff.keys] == ["LIBRARY_ROOT"]
    assert config_view(store, kept).state == State.IN_SYNC
    assert revision_in_force(store, kept) == saved.revision.id


def test_a_save_over_an_edit_on_disk_keeps_that_too(store: Store, kept: Current, file: Path) -> None:
    file.write_text(CONTENT.replace("/mnt/music", "/mnt/by-hand"))
    changed(store, kept, "/mnt/by-hand", "/mnt/third")
    lines = store.read(lambda tx: list_revisions(tx, kept))
    assert [line.revision.note for line in lines] == [None, "Edited on disk.", "As it was found."]
    assert "/mnt/by-hand" in lines[1].revision.content
    assert [line.current for line in lines] == [True, False, False]


def test_a_file_that_is_wrong_on_disk_can_be_repaired(store: Store, kept: Current, file: Path) -> None:
    file.write_text(CONTENT + "DRIAN_SEC=5\n")
    view = config_view(store, kept)
    assert view.state == State.DISK_INVALID
    assert [(fault.line, fault.key) for fault in view.errors] == [(7, "DRIAN_SEC")]
    with pytest.raises(ConfigInvalid):
        adopt(store, kept, by="attic")
    assert revision_in_force(store, kept) == numbers(store, kept)[0], "the last valid one is in force"
    changed(store, kept, "DRIAN_SEC", "DRAIN_SEC")
    assert config_view(store, kept).state == State.IN_SYNC
    assert file.read_text() == CONTENT + "DRAIN_SEC=5\n"


def test_where_no_file_is_saving_makes_one(store: Store, tmp_path: Path) -> None:
    current = Current.of()
    begin(store, current)
    view = config_view(store, current)
    assert (view.state, view.content, view.revision) == (State.MISSING, "", None)
    saved = save(store, current, "LIBRARY_ROOT=/mnt/new\n", by="attic")
    assert saved.created
    assert (tmp_path / "dalsegno.env").stat().st_mode & 0o777 == 0o600
    (tmp_path / "dalsegno.env").unlink()
    assert config_view(store, current).state == State.MISSING
    save(store, current, "LIBRARY_ROOT=/mnt/again\n", by="attic", base_revision=saved.revision.id)
    assert current.settings.library_root == Path("/mnt/again")


def test_an_old_revision_comes_back_with_the_secrets_of_now(store: Store, kept: Current, file: Path) -> None:
    first = numbers(store, kept)[0]
    changed(store, kept, f'"{MASK}"', "spring")
    changed(store, kept, "/mnt/music", "/mnt/bigger")
    changed(store, kept, "SUBSONIC_URL", "S3_SECRET_KEY=brook-of-now\nSUBSONIC_URL")
    saved = apply(store, kept, first, by="attic")
    wanted = CONTENT.replace("winter river", "spring") + "S3_SECRET_KEY=brook-of-now\n"
    assert file.read_text() == wanted
    assert (saved.revision.restores, saved.revision.note) == (first, f"Revision {first} again.")
    assert config_view(store, kept).state == State.IN_SYNC
    again = store.read(lambda tx: get_revision(tx, first))
    assert again.applied_at is not None
    assert again.applied_at > again.created_at
    (event,) = events_of(store, type="config_applied")
    assert event["data"]["restores"] == first
    with pytest.raises(NotFound):
        apply(store, kept, 9999, by="attic")


def test_a_secret_that_is_gone_leaves_its_key_empty(store: Store, kept: Current) -> None:
    first = numbers(store, kept)[0]
    changed(store, kept, f'SUBSONIC_PASSWORD="{MASK}"\n', "")
    saved = apply(store, kept, first, by="attic")
    (warning,) = saved.warnings
    assert (warning.key, warning.level) == ("SUBSONIC_PASSWORD", "warning")
    assert kept.settings.subsonic_password.get_secret_value() == ""


def test_where_the_revision_cannot_be_kept_the_file_is_put_back(store: Store, kept: Current, file: Path) -> None:
    one = sa.Index("one_a_file", config_revisions.c.file_path, unique=True)
    try:
        store.write("test", lambda tx: one.create(tx.conn))
        with pytest.raises((sa.exc.IntegrityError, psycopg.errors.UniqueViolation)):
            changed(store, kept, "/mnt/music", "/mnt/x")
    finally:
        config_revisions.indexes.remove(one)
    assert file.read_text() == CONTENT
    assert kept.settings.library_root == Path("/mnt/music")
    assert config_view(store, kept).state == State.IN_SYNC


def test_where_the_file_cannot_be_written_nothing_is_kept(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "my.env").write_text(CONTENT)
    current = Current.of(folder / "my.env")
    begin(store, current)
    (folder / "my.env").rename(tmp_path / "my.env")
    shutil.rmtree(folder)
    with pytest.raises(ConfigNotWritable):
        save(store, current, CONTENT, by="attic", base_version="")
    assert len(numbers(store, current)) == 1


def test_settings_from_nowhere_are_shown_and_not_saved(store: Store) -> None:
    current = Current.fixed(Settings(_env_file=None, library_root=Path("/mnt/x"), subsonic_password="velvet"))
    begin(store, current)
    view = config_view(store, current)
    assert (view.file, view.state) == (None, State.MISSING)
    values = {field.key: field.value for field in view.fields}
    assert (values["LIBRARY_ROOT"], values["SUBSONIC_PASSWORD"]) == ("/mnt/x", MASK)
    with pytest.raises(ConfigNowhere):
        save(store, current, "", by="attic")


def test_every_key_is_shown_with_its_value_and_origin(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBSONIC_URL", "http://me:brook77@other")
    file.write_text(CONTENT + "MAX_CONCURRENCY_TONE=3\nEXTERNAL_SOURCES=a=run --token velvet\nSOURCE_A_KEY=velvet\n")
    current = Current.of(file)
    view = config_view(store, current)
    fields = {field.key: field for field in view.fields}
    root, url, tone = fields["LIBRARY_ROOT"], fields["SUBSONIC_URL"], fields["MAX_CONCURRENCY_TONE"]
    assert (root.value, root.origin, root.line, root.in_file) == ("/mnt/music", "file", 3, "/mnt/music")
    assert (url.value, url.origin, url.in_file) == (f"http://me:{MASK}@other", "environment", "http://nas:4533")
    assert (tone.value, tone.group, tone.restart_needed) == ("3", "engine", True)
    assert fields["EXTERNAL_SOURCES"].value == f"a={MASK}"
    assert fields["DRAIN_SEC"].origin == "default"
    assert not any(secret in repr(view) for secret in (*SECRETS, "velvet", "brook77"))
    found = preview(store, current, view.content.replace("http://nas", "http://attic").replace("=3", "=4"))
    assert found.valid
    assert found.impact.overridden == ("SUBSONIC_URL",)
    assert found.impact.restart_needed == ("MAX_CONCURRENCY_TONE",)


def test_what_needs_a_restart_says_so_until_then(store: Store, kept: Current) -> None:
    changed(store, kept, "# The", "DOWNLOAD_WORKERS=3\n# The")
    view = config_view(store, kept)
    fields = {field.key: field for field in view.fields}
    assert view.restart_pending == ("DOWNLOAD_WORKERS",)
    assert (fields["DOWNLOAD_WORKERS"].value, fields["DOWNLOAD_WORKERS"].in_file) == ("10", "3")


def test_a_form_changes_its_keys_and_nothing_else(store: Store, kept: Current, file: Path) -> None:
    answers = {"LIBRARY_ROOT": "/mnt/a b", "SUBSONIC_PASSWORD": "", "SUBSONIC_URL": "", "DRAIN_SEC": "5"}
    content = form_content(kept, answers)
    save(store, kept, content, by="attic", base_version=config_view(store, kept).version)
    wanted = CONTENT.replace("/mnt/music", "/mnt/a b").replace("SUBSONIC_URL=http://nas:4533\n", "") + "DRAIN_SEC=5\n"
    assert file.read_text() == wanted
    save(store, kept, form_content(kept, {"SUBSONIC_PASSWORD": None}), by="attic",
         base_version=config_view(store, kept).version)  # fmt: skip
    assert "SUBSONIC_PASSWORD" not in file.read_text()


def test_a_preview_writes_nothing(store: Store, kept: Current, file: Path) -> None:
    before = everything_stored(store)
    found = preview(store, kept, config_view(store, kept).content.replace("/mnt/music", "/mnt/x") + "LANGUAGE=fr\n")
    assert not found.valid
    assert [change.key for change in found.diff.keys] == ["LIBRARY_ROOT", "LANGUAGE"]
    assert not any(secret in repr(found) for secret in SECRETS)
    assert file.read_text() == CONTENT
    assert everything_stored(store) == before


def test_jobs_keep_the_settings_they_were_made_with(store: Store, kept: Current) -> None:
    first = numbers(store, kept)[0]
    made = [order(store, kept.settings, "download", revision=revision_in_force(store, kept)).job_id for _ in range(2)]
    view = config_view(store, kept)
    found = preview(store, kept, view.content.replace("/mnt/music", "/mnt/bigger"))
    assert found.impact.says[:2] == (f"2 queued jobs keep snapshot #{first}.", f"New jobs use #{first + 1}.")
    saved = changed(store, kept, "/mnt/music", "/mnt/bigger")
    later = order(store, kept.settings, "download", revision=revision_in_force(store, kept)).job_id
    old, new = job_config(store, kept, made[0]), job_config(store, kept, later)
    assert (old.revision and old.revision.id, new.revision and new.revision.id) == (first, saved.revision.id)
    differing = [(key.key, key.snapshot, key.current) for key in old.keys if key.differs]
    assert differing == [("LIBRARY_ROOT", "/mnt/music", "/mnt/bigger")]
    assert not new.differs
    counts = {line.revision.id: line.jobs for line in store.read(lambda tx: list_revisions(tx, kept))}
    assert counts == {first: 2, saved.revision.id: 1}
    assert [job.id for job in store.read(lambda tx: jobs_of_revision(tx, first))] == made[::-1]
    with pytest.raises(NotFound):
        job_config(store, kept, 999)


def test_an_override_is_shown_beside_the_snapshot(store: Store, kept: Current) -> None:
    job_id = order(store, kept.settings, "download").job_id
    command(store, "pause", job_id=job_id)
    command(store, "resume", job_id=job_id, payload={"overrides": {"LIBRARY_ROOT": "/mnt/bigger"}})
    found = job_config(store, kept, job_id)
    assert found.revision is None
    assert found.overrides == {"LIBRARY_ROOT": "/mnt/bigger"}
    (key,) = (key for key in found.keys if key.differs)
    assert (key.snapshot, key.override, key.current) == ("/mnt/music", "/mnt/bigger", "/mnt/music")


def test_revisions_come_page_by_page(store: Store, kept: Current) -> None:
    for number in range(4):
        changed(store, kept, "/mnt/", f"/mnt/{number}/")
    whole = numbers(store, kept)
    page = store.read(lambda tx: list_revisions(tx, kept, limit=2))
    rest = store.read(lambda tx: list_revisions(tx, kept, before=page[-1].revision.id, limit=10))
    assert [line.revision.id for line in (*page, *rest)] == whole
    assert len(whole) == 5


def test_files_of_two_machines_are_kept_apart(store: Store, kept: Current, file: Path) -> None:
    other = Current.of(file)
    other.host = "cellar"
    assert numbers(store, other) == []
    begin(store, other)
    assert numbers(store, kept) != numbers(store, other)
