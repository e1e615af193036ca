"""Who watches a download: the item it is done for, or a script that wants to know nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dalsegno.catalog.catalog import BREAKER

if TYPE_CHECKING:
    from dalsegno.catalog.candidates import Candidate
    from dalsegno.engine.item import Item


@dataclass(frozen=True, slots=True)
class Watch:
    say: Callable[[str], None] = lambda _text: None
    starting: Callable[[str], None] = lambda _source: None
    """Told where the bytes come from that will move now."""
    moved: Callable[[int, int | None], None] = lambda _done, _total: None
    cancelled: Callable[[], bool] = lambda: False
    permit: Callable[[str], AbstractContextManager[Any, None]] = lambda _name: nullcontext()
    considered: Callable[[tuple[Candidate, ...]], None] = lambda _seen: None
    """Told what was looked at before the song had to wait for a source."""
    last: Callable[[], bool] = lambda: False
    """Whether it fails for good if this attempt does."""
    forced: bool = False
    """Fetch it anew although it is there."""

    @classmethod
    def of(cls, item: Item, considered: Callable[[tuple[Candidate, ...]], None] = lambda _seen: None) -> Watch:
        return cls(
            say=lambda text: item.progress(text=text),
            starting=lambda source: item.progress(text="starting download", beside=f"via {source}"),
            moved=item.transferred,
            cancelled=lambda: item.cancelled,
            permit=lambda name: item.permit(name, breaker=BREAKER),
            considered=considered,
            last=lambda: item.attempt + 1 >= item.stage.max_attempts,
            forced=item.forced,
        )
