"""What can go wrong for a client: it was refused, nobody answered, or the answer makes no sense."""

from __future__ import annotations


class ClientError(Exception):
    """Base of them all."""


class Unreachable(ClientError):
    """Nobody answered, however often it was tried."""


class Unexpected(ClientError):
    """The answer is not what a Dal Segno of this age says: something else may stand at this address."""


class Refused(ClientError):
    """The server says why. `code` is stable: programs may rely on it."""

    def __init__(self, status: int, code: str, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"{detail} ({status}, {code})")
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after = retry_after
        """Seconds after which it may be worth asking again, where the server says so."""


class NotFound(Refused):
    """There is no such thing."""


class TooMany(Refused):
    """This client has as many unfinished requests as it may have, and waiting did not help."""
