"""Changing the file: checked, compared with what is on disk, written whole, kept as a revision, and told as an event.

The file comes first. Where the revision cannot be written the old file is put back; after a power cut between the
two, the file is simply one that was edited on disk, and is offered as a revision.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dalsegno.config.check import check, too_large
from dalsegno.config.compare import Side, difference, is_of, side_of
from dalsegno.config.current import Current
from dalsegno.config.envfile import Document
from dalsegno.config.files import Disk, alone, read, write
from dalsegno.config.impact import impact_of
from dalsegno.config.masks import fingerprint, keeping, restored, secrets_in, stored
from dalsegno.config.model import Diff, Fault, Revision, Saved, State
from dalsegno.config.revisions import current_revision, get_revision, revision_of
from dalsegno.config.seals import hidden_in, seals
from dalsegno.engine.item import storable
from dalsegno.engine.logbridge import masked
from dalsegno.errors import ConfigChanged, ConfigInvalid, ConfigNowhere, DalSegnoError
from dalsegno.store.hot import Event
from dalsegno.store.schema import config_revisions
from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.config")

ADOPTED = "config_adopted"
FOUND = "As it was found."
EDITED = "Edited on disk."


def save(
    store: Store,
    current: Current,
    content: str,
    *,
    by: str,
    note: str | None = None,
    base_revision: int | None = None,
    base_version: str | None = None,
) -> Saved:
    """Make this the file. Masks in it stand for what the file has now; a secret left blank is kept.

    `base_version` names the file that was changed (`ConfigView.version`), `base_revision` the revision it was in
    sync with. Raises ConfigInvalid, ConfigChanged where it is another one by now, ConfigNotWritable.

    What is wrong with the text comes first: that is the writer's to mend, whatever has become of the file. A mask that
    stands for nothing is judged last: of a file that has changed, the change is the reason.
    """
    too_large(content)
    file = _file(current)
    with alone(file):
        disk, was = read(file), store.read(lambda tx: current_revision(tx, current))
        made = restored(content, disk.document, current.secrets)
        if not any(fault.level == "error" for fault in check(made.document)):
            _not_changed(current, disk, was, base_revision, base_version)
        return _put(store, current, disk, was, made.document, made.faults, "config_saved", by, note)


def adopt(
    store: Store, current: Current, *, by: str, note: str | None = None, base_version: str | None = None
) -> Saved:  # fmt: skip
    """Keep the file as somebody left it on disk as a revision."""
    file = _file(current)
    with alone(file):
        disk, was = read(file), store.read(lambda tx: current_revision(tx, current))
        _not_changed(current, disk, was, None, disk.version if base_version is None else base_version)
        return _put(store, current, disk, was, disk.document, (), ADOPTED, by, note or EDITED)


def apply(
    store: Store,
    current: Current,
    revision_id: int,
    *,
    by: str,
    note: str | None = None,
    base_revision: int | None = None,
    base_version: str | None = None,
) -> Saved:
    """Make an old revision the file again. Secrets stay as they are now: revisions do not hold them."""
    file = _file(current)
    with alone(file):
        disk = read(file)
        old, was = store.read(lambda tx: (get_revision(tx, revision_id), current_revision(tx, current)))
        whatever = base_revision is None and base_version is None
        _not_changed(current, disk, was, base_revision, disk.version if whatever else base_version)
        made = restored(old.content, disk.document, current.secrets, blank=True)
        document = keeping(made.document, disk.document)
        note = note or f"Revision {revision_id} again."
        return _put(store, current, disk, was, document, made.faults, "config_applied", by, note, restores=revision_id)


def begin(store: Store, current: Current) -> None:
    """At the start of a console: the file's first revision, so that there is something to go back to."""
    if current.file is None or current.problem is not None:
        return
    try:
        with alone(current.file):
            disk, was = read(current.file), store.read(lambda tx: current_revision(tx, current))
            if was is None and disk.version and disk.problem is None:
                _put(store, current, disk, was, disk.document, (), ADOPTED, "console", FOUND)
    except DalSegnoError as error:
        logger.warning("the settings file is not kept as a revision: %s", error)


def _file(current: Current) -> Path:
    if current.file is None:
        raise ConfigNowhere()
    return current.file


def _not_changed(
    current: Current, disk: Disk, was: Revision | None, base_revision: int | None, base_version: str | None
) -> None:
    now = f": it is revision {was.id} now" if was else ""
    if base_version is not None:
        same = base_version == disk.version
    elif base_revision is not None:
        untouched = was is not None and (not disk.version or is_of(was, current, disk.document))
        same = was is not None and was.id == base_revision and untouched
        now = ": somebody edited it on disk" if was is not None and not untouched else now
    else:
        same = was is None and not disk.document.parts and disk.problem is None
    if not same:
        raise ConfigChanged(now=now, revision=was.id if was else None)


def _put(
    store: Store,
    current: Current,
    disk: Disk,
    was: Revision | None,
    document: Document,
    remarks: Iterable[Fault],
    event: str,
    by: str,
    note: str | None,
    *,
    restores: int | None = None,
) -> Saved:
    found = [*remarks, *check(document)]
    wrong = [fault for fault in found if fault.level == "error"]
    if wrong:
        raise ConfigInvalid(problem=_said(wrong[0], len(wrong)), errors=[asdict(fault) for fault in found])
    file, warnings = _file(current), tuple(found)
    before = side_of(disk.document, "before")
    after = side_of(document, "after")
    if event == ADOPTED:  # it is on disk already: the seals know whether a secret was changed there
        before = Side(was.content if was else "", was.secrets if was else {}, "before")
        after = Side(after.content, seals(current.file, document), "after")
    diff = difference(before, after)
    unchanged = bool(disk.version) and document.text == disk.document.text and disk.problem is None
    if unchanged and was is not None and is_of(was, current, document) and restores is None:
        return _saved(store, current, was, False, warnings, diff)
    if not unchanged:
        write(file, document.text)
    current.refresh()
    try:
        revision = store.write(
            "config", lambda tx: _keep(tx, current, disk, was, document, diff, event, by, note, restores)
        )
    except Exception:
        if not unchanged:
            _put_back(file, disk)
            current.refresh()
        raise
    return _saved(store, current, revision, True, warnings, diff)


def _put_back(file: Path, disk: Disk) -> None:
    if disk.version and disk.problem is None:
        write(file, disk.document.text)
    elif not disk.version:
        file.unlink(missing_ok=True)


def _keep(
    tx: Tx,
    current: Current,
    disk: Disk,
    was: Revision | None,
    document: Document,
    diff: Diff,
    event: str,
    by: str,
    note: str | None,
    restores: int | None,
) -> Revision:
    """The revision and its event; first what somebody had left on disk, so that nothing is missing in between."""
    lost = disk.version and event != ADOPTED and not is_of(was, current, disk.document)
    if lost and disk.problem is None and not any(fault.level == "error" for fault in check(disk.document)):
        was = _insert(tx, current, disk.document, disk.document, was, None, EDITED, None)
    revision = _insert(tx, current, disk.document, document, was, by, note, restores)
    if restores is not None:
        again = sa.update(config_revisions).where(config_revisions.c.id == restores)
        tx.conn.execute(again.values(applied_at=tx.now))
    data = {"revision": revision.id, "file": str(current.file), "keys": [change.key for change in diff.keys],
            "note": revision.note}  # fmt: skip
    tx.hot.insert_events(tx, [Event(event, by, data={**data, "restores": restores} if restores else data)])
    return revision


def _insert(
    tx: Tx,
    current: Current,
    before: Document,
    document: Document,
    was: Revision | None,
    by: str | None,
    note: str | None,
    restores: int | None,
) -> Revision:
    content = stored(document).text
    values: dict[str, Any] = {
        "file_path": str(current.file),
        "node": current.host,
        "content": content,
        "content_hash": fingerprint(content),
        "note": _clean(note, document, current) if note else None,
        "saved_by": by,
        "created_at": tx.now,
        "applied_at": tx.now,
        "restores": restores,
    }
    number = tx.conn.execute(sa.insert(config_revisions).values(values).returning(config_revisions.c.id)).scalar_one()
    old, known = hidden_in(before), was.secrets if was else {}
    hidden = hidden_in(document).items()
    sealed = seals(current.file, document, make=True)
    secrets = sealed or {key: known.get(key, number) if old.get(key) == value else number for key, value in hidden}
    tx.conn.execute(sa.update(config_revisions).where(config_revisions.c.id == number).values(secrets=secrets))
    return revision_of({**values, "id": number, "secrets": secrets})


def _clean(note: str, document: Document, current: Current) -> str:
    return storable(masked(note, (*secrets_in(document), *current.secrets)))[:2000]


def _said(fault: Fault, count: int) -> str:
    place = f"line {fault.line}: " if fault.line else ""
    key = f"{fault.key}: " if fault.key else ""
    more = f" And {count - 1} more." if count > 1 else ""
    return f"{place}{key}{fault.reason} {fault.suggestion}".rstrip() + more


def _saved(
    store: Store, current: Current, revision: Revision, created: bool, warnings: tuple[Fault, ...], diff: Diff
) -> Saved:  # fmt: skip
    impact = store.read(lambda tx: impact_of(tx, current, diff, revision.id))
    return Saved(revision, created, State.IN_SYNC, read(current.file).version, warnings, diff, impact)
