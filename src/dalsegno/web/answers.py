"""Answers as they leave the house: no secret in any text of them, and always valid UTF-8."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import JSONResponse

from dalsegno.engine.logbridge import masked


def without(secrets: Sequence[str], value: Any) -> Any:
    """The same tree with the secrets masked, also in keys."""
    match value:
        case str():
            return masked(value, secrets)
        case Mapping():
            return {without(secrets, key): without(secrets, each) for key, each in value.items()}
        case list() | tuple():
            return [without(secrets, each) for each in value]
        case _:
            return value


def json_answers(secrets: Sequence[str]) -> type[JSONResponse]:
    """The response class of an app whose settings hold these secrets."""

    class Answer(JSONResponse):
        def render(self, content: Any) -> bytes:
            text = _dumped(content)
            # Characters are written one by one, so a secret in any text is in here as it is written by itself. There
            # hardly ever is one, and looking into every text of a large answer takes longer than all the rest.
            if any(_dumped(secret)[1:-1] in text for secret in secrets):
                text = _dumped(without(secrets, content))
            return text.encode("utf-8", "replace")  # half a character may have come in with a request

    return Answer


def _dumped(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
