"""Numbers that a form says: of items, pools, playlists. One that is none is refused, and never left out: without it
the form would be about others than were ticked, or about everything."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import ImmutableMultiDict

from dalsegno.errors import InputInvalid
from dalsegno.web.console.i18n import N_


def numbers(form: ImmutableMultiDict[str, Any], name: str) -> list[int]:
    """Each once, the smallest first."""
    texts = {str(each).strip() for each in form.getlist(name)}
    if not all(text.isascii() and text.isdecimal() and len(text) < 20 and 0 < int(text) < 2**63 for text in texts):
        raise InputInvalid(problem=N_("One of those that were chosen has no number that anything has here."))
    return sorted(map(int, texts))
