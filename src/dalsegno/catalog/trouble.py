"""Trouble: what an error of a source or a transfer means for the item, with a code and a sentence for people."""

from __future__ import annotations

from dalsegno.errors import DalSegnoError
from dalsegno.model.outcome import Fail, Outcome, Retry
from dalsegno.model.signal import Signal
from dalsegno.sources.model import Gone, NotOffered, Unusable

FINAL = {400, 401, 402, 403, 405, 406, 451}
"""Answers that stay the same however often one asks."""
NAMED = {401: "unauthorized", 402: "payment_required", 403: "forbidden", 429: "rate_limited", 451: "blocked_by_law"}


def trouble(error: Exception, doing: str) -> Outcome:
    """`doing` opens the sentence: "syncing Rain Songs"."""
    match error:
        case Gone() | Unusable():
            return Fail(f"{doing}: {str(error) or 'it is gone'}", code=getattr(error, "code", "gone"))
        case NotOffered():
            return Fail(f"{doing}: the source does not offer this", code="not_offered")
        case DalSegnoError():
            return Retry(f"{doing}: {error}", code=error.code)
    status = Signal.of(error).status
    text = f"{doing}: {error}" if str(error) else f"{doing}: {type(error).__name__}"
    if status in FINAL:
        return Fail(text, code=NAMED.get(status, f"http_{status}"))
    if status is not None:
        return Retry(text, code=NAMED.get(status, f"http_{status}"))
    code = getattr(error, "code", None)
    if isinstance(code, str):
        return Retry(text, code=code)
    return Retry(text, code="unreachable" if _is_network(error) else type(error).__name__)


def _is_network(error: Exception) -> bool:
    return isinstance(error, OSError) or type(error).__module__.startswith("urllib3")
