"""The console's password: what is kept of it is what scrypt makes of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import unicodedata

from dalsegno.errors import SettingInvalid
from dalsegno.settings.values import HASHED

N, R, P = 2**14, 8, 5
"""16 MB and some tenths of a second for every guess."""
MOST_MEMORY = 2**28
LONGEST = 1000


def hashed(password: str) -> str:
    """A password as CONSOLE_PASSWORD may have it. No `$` in it: env files would read a variable there."""
    salt = secrets.token_bytes(16)
    return f"scrypt:{N}:{R}:{P}:{_text(salt)}:{_text(_scrypt(password, salt, N, R, P))}"


class Password:
    """CONSOLE_PASSWORD, as it is or hashed."""

    def __init__(self, said: str) -> None:
        given = said.startswith("scrypt:")
        found = HASHED.fullmatch(said if given else hashed(said))
        if found is None:
            raise SettingInvalid(key="CONSOLE_PASSWORD", problem="this is not a whole hash.")
        self._cost = (int(found[1]), int(found[2]), int(found[3]))
        self._salt, self._hash = _bytes(found[4]), _bytes(found[5])
        self._one = threading.Lock()
        try:
            if given:
                _scrypt("", self._salt, *self._cost, length=len(self._hash))
        except (ValueError, OverflowError, MemoryError):
            problem = "this hash asks for more than the machine gives; make one with: dalsegno config hash-password"
            raise SettingInvalid(key="CONSOLE_PASSWORD", problem=problem) from None

    def is_(self, given: str) -> bool:
        """Takes its time, and as much of it for a wrong one. One after another, so that guesses take no more memory."""
        with self._one:
            made = _scrypt(given[:LONGEST], self._salt, *self._cost, length=len(self._hash))
        return hmac.compare_digest(made, self._hash) and len(given) <= LONGEST


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int, *, length: int = 32) -> bytes:
    """The same letters are the same password, however a keyboard put their accents."""
    text = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=MOST_MEMORY, dklen=length)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
