"""How a store can fail: a stable code and a sentence for people; status and headers for the breaker.

These are not DalSegnoErrors, because those count as trouble of this machine and say nothing about a provider.
"""

from __future__ import annotations

from collections.abc import Mapping


class StoreError(Exception):
    """Base of all. `status` and `headers` are the store's answer, where there was one."""

    def __init__(
        self, code: str, message: str, *, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.code = code
        self.message = message
        self.status = status
        self.headers = {name.lower(): value for name, value in dict(headers or {}).items()}
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.code, self.message, self.status, self.headers)


class StoreUnavailable(StoreError):
    """It does not answer, or asks to wait: later is better."""


class StoreRefused(StoreError):
    """It answered no, and will say no again until somebody changes something."""


class StoreFull(StoreError):
    """There is no room."""

    certain = True
    """False where the store did not say so, and it only looks like it: then it is worth another attempt later."""


class NameTaken(StoreError):
    """Something else is stored under this key."""

    def __init__(self, key: str) -> None:
        super().__init__("name_taken", f"Something else is already stored as {key!r}.")


class VerificationFailed(StoreError):
    """What arrived is not what was sent. To repair it, store again with `force` and `overwrite`."""

    ours = False
    """The damaged object bears our SHA-256, so it was not stored by somebody else meanwhile."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__("verification_failed", f"{key!r} did not arrive as it was sent: {problem}")


class SourceChanged(StoreError):
    """The local file is not the one that was recorded."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__("source_changed", f"{name!r} is not the file that was recorded: {problem}")


class UploadCancelled(StoreError):
    """Asked to stop. What arrived stays, and the next attempt continues there."""

    def __init__(self) -> None:
        super().__init__("cancelled", "The upload was asked to stop.")


def _rebuild(
    kind: type[StoreError], code: str, message: str, status: int | None, headers: dict[str, str]
) -> StoreError:
    """Subclasses word their own message, so unpickling goes around their __init__."""
    error = kind.__new__(kind)
    StoreError.__init__(error, code, message, status=status, headers=headers)
    return error
