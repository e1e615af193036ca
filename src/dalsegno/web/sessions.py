"""Sign-ins: a signed note in the browser, worth nothing once the password has changed or somebody has signed out.

What signs it is made of a key in the database and the password, so sign-ins survive a restart, and a copy of the
database alone makes none.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.errors import DalSegnoError
from dalsegno.store.hot import Event
from dalsegno.store.schema import system_settings

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

DAYS = 30
KEY = "console_key"
ENDED = "console_signed_out"
LOOK_EVERY = 5.0
"""Seconds within which another console of the same database hears of a sign-out."""
LONGEST = 2000
SHAPE = re.compile(r"Wy[\w-]{10,}\.[\w-]{43}", re.ASCII)
"""A list in base64 and a signature: no password anybody has looks like it."""


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    name: str
    """What the person wanted to be called; empty where nothing was said."""
    expires: int
    """Seconds since 1970."""


class Sessions:
    def __init__(self, store: Store, password: str) -> None:
        self._store = store
        self._password = password.encode("utf-8", "surrogatepass")
        self._lock = threading.Lock()
        self._key = b""
        self._mark = ""
        self._ended: dict[str, int] = {}
        self._looked = float("-inf")

    @property
    def cookie(self) -> str:
        """Its name: cookies know hosts but no ports, and there may be several consoles on one."""
        self.look()
        return f"dalsegno_{self._mark}"

    @property
    def fresh(self) -> bool:
        """Whether `known` has what it needs, without asking the database."""
        return bool(self._key) and self._store.clock.monotonic() - self._looked < LOOK_EVERY

    def open(self, name: str, who: str) -> str:
        """A new sign-in; what the browser keeps of it."""
        self.look()
        expires = int(self._store.clock.now().timestamp()) + DAYS * 86400
        self._store.write("sign in", lambda tx: tx.hot.insert_events(tx, [Event("console_signed_in", who)]))
        return self.written(Session(secrets.token_urlsafe(12), name, expires))

    def written(self, session: Session) -> str:
        note = _text(json.dumps([session.id, session.name, session.expires]).encode())
        return f"{note}.{self._signature(note)}"

    def known(self, text: str) -> Session | None:
        """Whose it is; None for what is not ours, too old or signed out."""
        note, _, signature = text.partition(".")
        if not self._key or len(text) > LONGEST or not text.isascii():
            return None
        if not hmac.compare_digest(signature, self._signature(note)):
            return None
        session = Session(*json.loads(_bytes(note)))
        if session.id in self._ended or session.expires <= self._store.clock.now().timestamp():
            return None
        return session

    def shaped(self, text: str) -> bool:
        """Whether it is a sign-in or a token that was made here or elsewhere, worth something or not."""
        return len(text) <= LONGEST and SHAPE.fullmatch(text) is not None

    def close(self, session: Session, who: str) -> None:
        """Sign out, for good: a copy of the note is worth nothing either."""
        now = int(self._store.clock.now().timestamp())

        def work(tx: Tx) -> dict[str, int]:
            ended = {id: until for id, until in _read(tx, ENDED, {}).items() if until > now}
            ended[session.id] = session.expires
            row = {"value": ended, "updated_by": who, "updated_at": tx.now}
            if tx.insert_new(system_settings, {"key": ENDED, **row}) is None:
                tx.conn.execute(sa.update(system_settings).where(system_settings.c.key == ENDED).values(**row))
            tx.hot.insert_events(tx, [Event("console_signed_out", who)])
            return ended

        self._ended = self._store.write("sign out", work)

    def look(self) -> None:
        """Ask the database, where that was not done just now."""
        if self.fresh:
            return
        with self._lock:
            try:
                stored, ended = self._store.read(lambda tx: (_read(tx, KEY, None), _read(tx, ENDED, {})))
                if stored is None:
                    stored = self._store.write("console key", _new_key)
            except DalSegnoError:
                if not self._key:
                    raise
                # A database that is away ends no sign-in.
            else:
                secret = bytes.fromhex(stored)
                self._mark = hmac.digest(secret, b"cookie", hashlib.sha256).hex()[:8]
                self._key = hmac.digest(secret, b"session:" + self._password, hashlib.sha256)
                self._ended = ended
            self._looked = self._store.clock.monotonic()

    def _signature(self, note: str) -> str:
        return _text(hmac.digest(self._key, note.encode(), hashlib.sha256))


def _new_key(tx: Tx) -> str:
    row = {"key": KEY, "value": secrets.token_hex(32), "updated_by": "console", "updated_at": tx.now}
    tx.insert_new(system_settings, row)
    return str(_read(tx, KEY, None))


def _read(tx: Tx, key: str, default: Any) -> Any:
    found = tx.conn.execute(sa.select(system_settings.c.value).where(system_settings.c.key == key)).scalar()
    return default if found is None else found


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
