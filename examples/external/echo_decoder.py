#!/usr/bin/env python3
"""A complete external decoder: a page's address with another ending is the file it plays.

    EXTERNAL_DECODERS = echo=python3 examples/external/echo_decoder.py
    SOURCE_ECHO_SUFFIX = .mp4
    SOURCE_ECHO_HOSTS = player.example.org, *.example.net

It needs nothing but Python, and knows nothing of Dal Segno but the protocol in docs/requests.md: a question a line on
standard input, answers a line each on standard output, everything else on standard error. What takes long to start
(a browser, a session) is started once, here, and serves every question that follows.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import urlsplit

settings: dict[str, str] = {}


class Trouble(Exception):
    """An answer that is an error: one of the protocol's codes, and words for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def hello(params: dict[str, Any]) -> dict[str, Any]:
    settings.update(params.get("settings") or {})
    return {"protocol": 1, "version": "1.0"}


def decode(params: dict[str, Any]) -> dict[str, Any]:
    link = params["link"]
    page = urlsplit(link["url"])
    if not page.path.strip("/"):
        raise Trouble("gone", "Nothing is played there.")
    path = page.path.rstrip("/") + settings.get("SUFFIX", ".mp4")
    return {"url": f"{page.scheme}://{page.netloc}{path}", "quality": link.get("quality", "")}


VERBS = {verb.__name__: verb for verb in (hello, decode)}


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    for text in sys.stdin:
        question = json.loads(text)
        if question["method"] == "cancel":  # each answer is whole before the next question is read
            continue
        number = question["id"]
        try:
            verb = VERBS.get(question["method"])
            if verb is None:
                raise Trouble("not_offered", f"There is no {question['method']}.")
            say({"id": number, "item": verb(question.get("params") or {}), "done": True})
        except Trouble as trouble:
            say({"id": number, "error": {"code": trouble.code, "message": str(trouble)}})
        except Exception as error:
            say({"id": number, "error": {"code": "failed", "message": f"{type(error).__name__}: {error}"}})


if __name__ == "__main__":
    main()
