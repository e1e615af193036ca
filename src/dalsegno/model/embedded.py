"""JSON that stands in a text, however deep."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any


def fields(text: str) -> Iterator[tuple[str, Any]]:
    """Every key and value of the JSON in a text, however deep; JSON inside a string of it too (proxies do that)."""
    nodes: list[Any] = _documents(text)
    for _ in range(5000):
        if not nodes:
            return
        node = nodes.pop()
        if isinstance(node, dict):
            yield from ((key, value) for key, value in node.items() if isinstance(key, str))
            nodes += node.values()
        elif isinstance(node, list | tuple):
            nodes += node
        elif isinstance(node, str):
            nodes += _documents(node)


def _documents(text: str) -> list[Any]:
    """The JSON a text is, or that is embedded in it; also as the repr of a dict, which is how SDKs print it."""
    found: list[Any] = []
    start = text.find("{")
    if start < 0:
        return found
    with suppress(ValueError, RecursionError):
        return [json.loads(text)]
    for _ in range(4):
        try:
            document, start = json.JSONDecoder().raw_decode(text, start)
            found.append(document)
        except (ValueError, RecursionError):
            for end in (text.rfind("}"), text.rfind("}", 0, text.rfind("}"))):
                with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                    return [*found, ast.literal_eval(text[start : end + 1])]
            start += 1
        start = text.find("{", start)
        if start < 0:
            break
    return found
