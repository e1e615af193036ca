"""Bytes of one song into its part: hashed on the way, resumed after a break, never more or less than announced."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from urllib3.exceptions import HTTPError, IncompleteRead

from dalsegno import durable, faults
from dalsegno.catalog import space
from dalsegno.catalog.answers import Answer, Refused, Vanished, Web, check_type, range_of, refusal_of
from dalsegno.catalog.part import Note, Part, boot, origin_of
from dalsegno.clock import SystemClock
from dalsegno.model.signal import ProviderError
from dalsegno.sources.model import Media, Unusable

__all__ = ["Broken", "Cancelled", "Fetched", "Refused", "Vanished", "fetch"]

BUFFER = 512 * 1024
"""A file up to this size is written and examined in one piece."""
PIECE = 64 * 1024
"""Larger ones are written in pieces of this size. Of larger pieces Linux makes larger pages, from memory that a virtual
machine may have to ask its host for: there a gigabyte took 1.9 s instead of 0.9 (and 0.75 where memory was at hand)."""
SMALL = 2 * 1024 * 1024
"""A file up to this size is fetched again rather than noted for a later run: the note would cost more."""
LIMIT = 4 * 1024**3
SYNC_EVERY = 32 * 1024 * 1024
FLUSH_EVERY = 1.0
"""Seconds after which bytes that drip in are written though the buffer is not full."""
IDLE_TRIES = 3
"""Breaks in a row without a new byte between them."""
TRIES = 100
RESTARTS = 3
"""From the first byte: of a server that cannot go on, or whose file changes under our hands."""
_CLOCK = SystemClock()


class Cancelled(Exception):
    """The job was canceled, or the lease is lost. What was fetched stays in the part."""


class Broken(Exception):
    """The bytes stopped coming, again and again.

    `code` is one of connection_lost, truncated_body, stalled, changed_on_the_way and unreadable_file.
    """

    def __init__(self, message: str, code: str = "connection_lost") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Fetched:
    size: int
    sha256: str
    resumed_from: int = 0
    """Bytes that an earlier run had left."""
    transferred: int = 0
    """Bytes that this run moved."""
    etag: str | None = None
    content: memoryview | None = None
    """All of it, where it came in one piece; until this thread fetches again."""


def fetch(
    http: Web,
    media: Media,
    part: Part,
    *,
    moved: Callable[[int, int | None], None],
    cancelled: Callable[[], bool],
    stall: float = 30.0,
    keep_free: int = 0,
    refresh: Callable[[], Media] | None = None,
    limit: int = LIMIT,
    breath: float = 0.5,
) -> Fetched:
    """All of `media` in `part`. `moved` hears of bytes so far and of how many; `refresh` asks the source again for an
    address that no longer works; `breath` is the pause after a break, in seconds.

    Raises Unusable, Gone or ProviderError for what the other side did; Broken, DiskFull or Cancelled, after which a
    later run goes on from the part.
    """
    if (media.url is None) == (media.path is None):
        raise Unusable("The source gave neither a URL nor a file.", code="no_address")
    transfer = _Transfer(http, media, part, moved, cancelled, stall, keep_free, refresh, limit, breath)
    try:
        with space.watched(part.root, media.size, keep_free):
            return transfer.copy() if media.path is not None else transfer.run()
    except (space.DiskFull, Cancelled, Broken, ProviderError):
        transfer.break_off()
        raise


class _Buffers(threading.local):
    """One buffer a thread, for life: memory is bounded by the number of workers."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(BUFFER))


_buffers = _Buffers()


@dataclass
class _Transfer:
    http: Web
    media: Media
    part: Part
    moved: Callable[[int, int | None], None]
    cancelled: Callable[[], bool]
    stall: float
    keep_free: int
    refresh: Callable[[], Media] | None
    limit: int
    breath: float

    def __post_init__(self) -> None:
        self.digest = hashlib.sha256()
        self.done = 0
        self.total: int | None = None
        self.etag: str | None = None
        self.modified: str | None = None
        self.resumed_from = 0
        self.transferred = 0
        self.synced = 0
        self.restarts = 0
        self.content: memoryview | None = None
        self.renewed_at = -1
        """Bytes that had come when its address was last asked for again."""
        self.worked = False
        """An address of this song has given bytes before."""

    # --- from a file ------------------------------------------------------------------------------

    def copy(self) -> Fetched:
        path = self.media.path
        assert path is not None
        self.part.forget_note()
        self.part.keep_only(0)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Vanished(f"{path.name} is no longer in its folder.", "not_found") from None
        except PermissionError as error:
            raise Unusable(f"{path.name} may not be read: {error.strerror}.", code="unreadable_file") from None
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            before = os.fstat(descriptor)
            self.total = before.st_size
            self._expect()
            view = _buffers.view
            while count := _read(descriptor, view, path):
                self._store(view[:count])
                self._tell()
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if self.done != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
            raise Broken(f"{path.name} was changed while it was read.", "changed_on_the_way")
        return self._fetched()

    # --- over HTTP --------------------------------------------------------------------------------

    def run(self) -> Fetched:
        self._take_up()
        idle = 0
        trouble: Exception | None = None
        for _ in range(TRIES):
            before = self.transferred
            try:
                if self._ask():
                    return self._fetched()
                continue
            except (HTTPError, TimeoutError, ConnectionError) as error:
                trouble = error
            idle = 0 if self.transferred > before else idle + 1
            self._check_cancelled()
            if idle >= IDLE_TRIES:
                break
            if self.breath:
                time.sleep(self.breath * 2**idle)
        raise self._broken(trouble) from trouble

    def _broken(self, trouble: Exception | str | None) -> Broken:
        known = f" of {space.spoken(self.total)}" if self.total else ""
        if isinstance(trouble, TimeoutError):
            return Broken(f"Nothing came for {self.stall:g} s, after {space.spoken(self.done)}{known}.", "stalled")
        code = "truncated_body" if self.done and self.total else "connection_lost"
        why = f": {trouble}" if trouble and not isinstance(trouble, IncompleteRead) else ""
        return Broken(f"It broke off again and again, after {space.spoken(self.done)}{known}{why}.", code)

    def _take_up(self) -> None:
        """What an earlier run has left, if it can be gone on with."""
        if self.part.fresh:
            return
        have = self.part.size
        if not have:
            self.part.forget_note()
            return
        note = self.part.read_note()
        if note is None or not self._trusts(note):
            self._start_over()
            return
        have = min(have, note.length or have)
        if note.boot != boot() or not note.boot:
            have = min(have, note.synced)
        self.etag, self.modified, self.total, self.synced = note.etag, note.modified, note.length, note.synced
        self._hash_again(have)
        self.resumed_from, self.worked = have, have > 0

    def _trusts(self, note: Note) -> bool:
        """The same thing as before, by a validator that the server can be held to."""
        assert self.media.url is not None
        if self.media.size is not None and note.length is not None and self.media.size != note.length:
            return False
        same_song = (note.source, note.remote_id) == (self.part.source, self.part.remote_id)
        same_place = note.origin == origin_of(self.media.url, self.media.secrets)
        return same_song and (note.etag is not None or (note.modified is not None and same_place))

    def _hash_again(self, have: int) -> None:
        os.lseek(self.part.descriptor, 0, os.SEEK_SET)
        view = _buffers.view
        while self.done < have:
            count = os.readv(self.part.descriptor, [view[: have - self.done]])
            if not count:
                break
            self.digest.update(view[:count])
            self.done += count
            self._check_cancelled()
        self.part.keep_only(self.done)

    def _start_over(self, *, changed: bool = True) -> None:
        """`changed`: it is another file by now. Else the other side cannot go on in the middle."""
        self.restarts += 1
        if self.restarts > RESTARTS:
            if not changed:
                raise self._broken("the other side cannot go on from there")
            raise Broken("It broke off, and was another file each time it was to go on.", "changed_on_the_way")
        self.part.forget_note()
        self.part.keep_only(0)
        self.digest = hashlib.sha256()
        self.done = self.resumed_from = self.synced = 0
        self.total = self.etag = self.modified = None

    def _ask(self) -> bool:
        """One request; whether everything is there after it."""
        media = self.media
        assert media.url is not None
        if self.done and not (self.etag or self.modified):
            self._start_over(changed=False)
        if self.done and self.done == self.total:
            return True
        headers = {**media.headers, "Accept-Encoding": "identity"}
        if self.done:
            headers["Range"] = f"bytes={self.done}-"
            headers["If-Range"] = self.etag or self.modified or ""
        answer = self.http.open(media.url, headers=headers, trusted=media.trusted, read_timeout=self.stall)
        try:
            match answer.status:
                case 200:
                    self._begin(answer)
                case 206 if self._goes_on(answer):
                    pass
                case 206 | 416 if self.done:
                    whole = answer.status == 416 and self.done == range_of(answer)[2] == (self.total or self.done)
                    if not whole:
                        self._start_over()
                    return whole
                case _:
                    self._renew(answer)
                    return False
            self._receive(answer)
        finally:
            answer.close()
        return True

    def _begin(self, answer: Answer) -> None:
        if self.done or ((self.transferred or not self.part.fresh) and self.part.size):
            self._start_over(changed=self._is_another(answer))
        check_type(answer, self.media)
        self.total = answer.length
        self._expect()
        etag = answer.headers.get("etag") or ""
        self.etag = etag if etag.startswith('"') else None
        self.modified = answer.headers.get("last-modified")
        if self.total is None or self.total > SMALL:
            self.leave_note()

    def _is_another(self, answer: Answer) -> bool:
        """Than the one that was begun, as far as the server says so."""
        if self.etag is not None:
            return answer.headers.get("etag") != self.etag
        return self.modified is not None and answer.headers.get("last-modified") != self.modified

    def _goes_on(self, answer: Answer) -> bool:
        """Its range is the one asked for, of the same thing."""
        first, last, total = range_of(answer)
        etag = answer.headers.get("etag") or ""
        if first != self.done or (etag.startswith('"') and self.etag is not None and etag != self.etag):
            return False
        if total is not None:
            if self.total is not None and total != self.total:
                return False
            self.total = total
        if last is None or (self.total is not None and last + 1 != self.total):
            return False
        self._expect()
        return True

    def _renew(self, answer: Answer) -> None:
        """A new address where the old one has expired; else the error that the answer is."""
        media = self.media
        expired = media.expires_at is not None and media.expires_at <= _CLOCK.now()
        fresh = self.transferred > self.renewed_at and (self.worked or expired)
        if answer.status in (401, 403, 404, 410) and self.refresh is not None and fresh:
            self.renewed_at = self.transferred
            self.media = self.refresh()
            if self.media.url is not None:
                return
        raise refusal_of(answer, media)

    def _expect(self) -> None:
        """Stop before a byte is written when it cannot come out right."""
        promised, total = self.media.size, self.total
        if total is not None and promised is not None and total != promised:
            raise Unusable(f"{total} bytes are announced; the source says it has {promised}.", code="length_mismatch")
        if total == 0:
            raise Unusable("The file is empty.", code="empty_file")
        expected = total if total is not None else promised
        if (expected or 0) > self.limit:
            raise Unusable(
                f"It has {space.spoken(expected or 0)}; {space.spoken(self.limit)} is the limit.", "too_large"
            )
        space.room_for(self.part.root, None if expected is None else expected - self.done, self.keep_free)

    def _receive(self, answer: Answer) -> None:
        small = self.total is not None and self.total - self.done <= BUFFER
        view, filled = _buffers.view if small else _buffers.view[:PIECE], 0
        flushed = time.monotonic()
        left = None if self.total is None else self.total - self.done
        try:
            while count := answer.read_into(view[filled:] if filled else view):
                filled += count
                if filled in (len(view), left) or time.monotonic() - flushed > FLUSH_EVERY:
                    ready, filled = filled, 0
                    self._store(view[:ready])
                    self.content = view[:ready] if ready == self.done else None
                    left = None if left is None else left - ready
                    self._tell()
                    flushed = time.monotonic()
                    faults.point("fetch.stored")
        finally:
            if filled:
                self.content = None
                self._store(view[:filled])
                self._tell()
        self._check_length()

    def _check_length(self) -> None:
        expected = self.total if self.total is not None else self.media.size
        if expected is not None and self.done < expected:
            raise ConnectionError(f"{self.done} of {expected} bytes came")
        if expected is not None and self.done > expected:
            self.part.discard()
            raise Unusable(f"{self.done} bytes came where {expected} were announced.", code="length_mismatch")
        if not self.done:
            raise Unusable("The file is empty.", code="empty_file")

    # --- both -------------------------------------------------------------------------------------

    def _store(self, view: memoryview) -> None:
        count = len(view)
        try:
            written = os.write(self.part.descriptor, view)
            while written < count:
                written += os.write(self.part.descriptor, view[written:])
        except OSError:
            self.part.keep_only(self.done)
            raise
        self.digest.update(view)
        self.done += count
        self.transferred += count
        self.worked = True
        if self.done > self.limit:
            self.part.discard()
            raise Unusable(f"More than {space.spoken(self.limit)} came: that is the limit.", code="too_large")
        if self.done - self.synced >= SYNC_EVERY:
            self._sync()

    def _sync(self) -> None:
        if self.total is None or self.keep_free:
            space.room_for(self.part.root, None if self.total is None else self.total - self.done, self.keep_free)
        self.synced = self.done
        if durable.enabled:
            durable.sync_data(self.part.descriptor)
            self.leave_note()

    def _tell(self) -> None:
        self.moved(self.done, self.total)
        self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self.cancelled():
            raise Cancelled

    def break_off(self) -> None:
        """Keep what a later run can go on from, and only that."""
        if self.part.size and self.media.url is not None and (self.etag or self.modified):
            self.leave_note()
        else:
            self.part.discard()

    def leave_note(self) -> None:
        """For whoever goes on from here. Bytes that nobody could check again are not worth one."""
        if self.media.url is None or not (self.etag or self.modified):
            return
        note = Note(
            origin=origin_of(self.media.url, self.media.secrets),
            source=self.part.source,
            remote_id=self.part.remote_id,
            etag=self.etag,
            modified=self.modified,
            length=self.total,
            synced=self.synced if durable.enabled else 0,
            boot=boot(),
        )
        with suppress(OSError):  # on a full disk there is no room for it either: then the next run starts over
            self.part.write_note(note)

    def _fetched(self) -> Fetched:
        return Fetched(self.done, self.digest.hexdigest(), self.resumed_from, self.transferred, self.etag,
                       self.content)  # fmt: skip


def _read(descriptor: int, view: memoryview, path: Path) -> int:
    """Trouble with the origin is the song's. Trouble with the library is everybody's, so the two are told apart."""
    try:
        return os.readv(descriptor, [view])
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> Broken:
    return Broken(f"{path.name} cannot be read: {error.strerror}.", "unreadable_file")
