"""From a complete part to a file in the library: checked, named, made durable, moved in one step, over no other."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from dalsegno import durable, faults
from dalsegno.catalog import space
from dalsegno.catalog.audio import Audio, NotAudio, examine
from dalsegno.catalog.fetch import Fetched
from dalsegno.catalog.part import Part, clear, read_receipt
from dalsegno.catalog.receipts import Receipt
from dalsegno.catalog.shelf import Shelf

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Landed:
    path: PurePosixPath
    """Relative to the library's root."""
    size: int
    sha256: str
    audio: Audio
    reused: bool = False
    """The same bytes were there already."""


def land(
    part: Part,
    fetched: Fetched,
    *,
    name: Callable[[str], PurePosixPath],
    shelf: Shelf | None = None,
    replace: PurePosixPath | None = None,
    twin: Callable[[str], PurePosixPath | None] | None = None,
    extra: Mapping[str, Any] | None = None,
    deep: bool = False,
) -> Landed:
    """`name` is asked for the place, given the suffix that fits the content. `replace`: a file that gives way to the
    new one if that has the same suffix (else both stay). `twin` is asked, given a SHA-256, for a file of the library
    that has it: then that one is used and nothing is stored twice. `extra` is kept in the receipt. The part is gone
    afterwards, the receipt stays until `part.clear`.

    Raises NotAudio (nothing of the part is kept) or DiskFull.
    """
    try:
        audio = examine(part.path, deep=deep, descriptor=part.descriptor, content=fetched.content)
    except NotAudio:
        part.discard()
        raise
    with space.watched(part.root, fetched.size):
        durable.sync_file(part.descriptor)
        faults.point("land.synced")
        receipt = Receipt(
            sha256=fetched.sha256,
            size=fetched.size,
            path="",
            audio=audio.as_dict(),
            modified_ns=os.fstat(part.descriptor).st_mtime_ns,
            extra=extra or {},
        )
        if replace is not None and replace.suffix.lower() == audio.suffix:
            receipt, reused = _over(part, receipt, replace), False
        elif twin is not None and (found := _twin(part, receipt, twin(receipt.sha256))) is not None:
            receipt, reused = found, True
        else:
            receipt, reused = _beside(part, receipt, name(audio.suffix), shelf or Shelf(part.root))
    return Landed(receipt.place, receipt.size, receipt.sha256, audio, reused)


def adopt(root: Path, key: str, *, shelf: Shelf | None = None) -> Receipt | None:
    """What a run that was cut off had finished, brought to its end; None when the song is still to be fetched (and then
    no receipt is left). Raises PartBusy while another is at it."""
    receipt = read_receipt(root, key)
    if receipt is None or not _proper(receipt):
        return None
    final = root / receipt.path
    try:
        part = Part.open(root, key, create=False)
    except FileNotFoundError:
        if _is(final, receipt):
            durable.sync_folder(final.parent)
            return receipt
        clear(root, key)
        return None
    with part:
        if final.exists() and final.samefile(part.path):
            durable.sync_folder(final.parent)
            part.remove()
            return receipt
        if part.size != receipt.size or _digest(part.path) != receipt.sha256:
            if _is(final, receipt):
                part.remove()
                return receipt
            part.discard()
            return None
        claimed = final.is_file() and not final.stat().st_size
        if receipt.replace or claimed:
            return _over(part, receipt, receipt.place)
        return _beside(part, receipt, receipt.place, shelf or Shelf(root))[0]


def in_place(root: Path, receipt: Receipt) -> bool:
    """Whether all that a finished song lacks is to be written down."""
    return _proper(receipt) and _is(root / receipt.path, receipt)


def _proper(receipt: Receipt) -> bool:
    return not receipt.place.is_absolute() and ".." not in receipt.place.parts


def _over(part: Part, receipt: Receipt, place: PurePosixPath) -> Receipt:
    final = part.root / place
    receipt = _at(receipt, place, replace=True)
    final.parent.mkdir(parents=True, exist_ok=True)
    part.write_receipt(receipt)
    faults.point("land.receipt")
    part.path.replace(final)
    faults.point("land.moved")
    durable.sync_folder(final.parent)
    return receipt


def _beside(part: Part, receipt: Receipt, wanted: PurePosixPath, shelf: Shelf) -> tuple[Receipt, bool]:
    folder = shelf.folder(wanted.parts[:-1])
    with shelf.filling(folder):
        return _under_a_free_name(part, receipt, folder, wanted.name, shelf)


def _under_a_free_name(part: Part, receipt: Receipt, folder: str, wanted: str, shelf: Shelf) -> tuple[Receipt, bool]:
    place = folder[len(shelf.root) + 1 :]
    for name, there in shelf.free_names(folder, wanted):
        if there is not None:
            same = _twin(part, receipt, PurePosixPath(place, there))
            if same is not None:
                return same, True
            continue
        receipt = _at(receipt, f"{place}/{name}" if place else name)
        part.write_receipt(receipt)
        faults.point("land.receipt")
        if not _move(part, f"{folder}/{name}"):
            same = _twin(part, receipt, PurePosixPath(place, name))  # whoever was faster may have had the same song
            if same is not None:
                return same, True
            continue
        shelf.added(folder, name)
        durable.sync_folder(folder)
        faults.point("land.durable")
        part.remove()
        faults.point("land.removed")
        return receipt, False
    raise FileExistsError(f"{wanted} is taken, and so are all its numbers")


def _twin(part: Part, receipt: Receipt, place: PurePosixPath | None) -> Receipt | None:
    """The file there instead of ours, if its bytes are the same."""
    if place is None or not _is(part.root / place, receipt, look=True):
        return None
    receipt = _at(receipt, place)
    part.write_receipt(receipt)
    faults.point("land.reused")
    part.remove()
    return receipt


def _move(part: Part, final: str) -> bool:
    """Under its name, unless somebody was faster: a rename would have replaced their file."""
    try:
        part.link(final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in durable.NO_LINKS:
            raise
    else:
        faults.point("land.moved")
        return True
    try:
        os.close(os.open(final, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except FileExistsError:
        return False
    faults.point("land.claimed")
    part.path.replace(final)
    faults.point("land.moved")
    return True


def _at(receipt: Receipt, place: PurePosixPath | str, *, replace: bool = False) -> Receipt:
    return Receipt(
        sha256=receipt.sha256,
        size=receipt.size,
        path=str(place),
        audio=receipt.audio,
        modified_ns=receipt.modified_ns,
        replace=replace,
        extra=receipt.extra,
    )


def _is(path: Path, receipt: Receipt, *, look: bool = False) -> bool:
    """Whether the file there is the receipt's. Its bytes are read only if its time is another, or to `look`."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if found.st_size != receipt.size or not path.is_file():
        return False
    return (not look and found.st_mtime_ns == receipt.modified_ns) or _digest(path) == receipt.sha256


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    view = memoryview(bytearray(CHUNK))
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(view):
            digest.update(view[:count])
    return digest.hexdigest()
