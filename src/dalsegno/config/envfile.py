"""`dalsegno.env` as a document. What is not changed stays as it was: comments, order, blank lines, quotes, line ends.

It is read by the rules of python-dotenv, which is what reads the settings: the last of several lines counts, `export`
is allowed, and a quoted value may go over several lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from typing import Literal

from dotenv.parser import parse_stream

BOM = "\ufeff"
LINE_END = re.compile(r"\r\n|\n|\r")
HEAD = re.compile(r"\s*(?:export[^\S\r\n]+)?(?:'[^']+'|[^=#\s]+)[^\S\r\n]*=[^\S\r\n]*")
"""Everything of an entry that stands before its value."""
QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
NOTE = re.compile(r"\s+#.*", re.DOTALL)
"""What ends a value without quotes."""
SPACE = re.compile(r"\s")
"""Shells that read the file want quotes around it."""
PLAIN = re.compile(r"(?!['\"#])[^\s\\](?:[^\r\n\\]*[^\s\\])?")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the file: an entry with the blank lines before it, a comment, or something that is neither."""

    text: str
    line: int
    """Where it begins to say something."""
    kind: Literal["entry", "comment", "blank", "broken"]
    key: str | None = None
    """In capitals."""
    value: str = ""
    """Without its quotes."""
    at: tuple[int, int] = (0, 0)
    """Where in `text` the value stands, quotes included."""

    @property
    def quote(self) -> str:
        first = self.text[self.at[0] : self.at[0] + 1]
        return first if first in ("'", '"') else ""

    def with_value(self, value: str) -> Part:
        start, end = self.at
        bare = not self.quote and _reads_bare(value)  # as whoever wrote it likes it
        written = value if bare else quoted(value, self.quote)
        text = self.text[:start] + written + self.text[end:]
        return replace(self, text=text, value=value, at=(start, start + len(written)))


@dataclass(frozen=True, slots=True)
class Document:
    parts: tuple[Part, ...]
    marked: bool = False
    """Begins with a byte order mark, as some editors write it."""

    @property
    def text(self) -> str:
        return BOM * self.marked + "".join(part.text for part in self.parts)

    def entries(self) -> Iterator[Part]:
        return (part for part in self.parts if part.kind == "entry")

    def last(self, key: str) -> Part | None:
        """The entry that counts."""
        return next((part for part in reversed(self.parts) if part.kind == "entry" and part.key == key), None)

    def with_value(self, key: str, value: str) -> Document:
        """One key changed where it stands, or added at the end."""
        found = self.last(key)
        if found is not None:
            return replace(self, parts=tuple(part.with_value(value) if part is found else part for part in self.parts))
        end = LINE_END.search(self.text)
        newline = end[0] if end else "\n"
        whole = self.text
        if whole.removeprefix(BOM) and not whole.endswith(("\n", "\r")):
            whole += newline
        return parsed(f"{whole}{key}={quoted(value)}{newline}")

    def without(self, key: str) -> Document:
        """Every line of a key gone; the blank lines before it stay."""
        kept = []
        for part in self.parts:
            if part.kind != "entry" or part.key != key:
                kept.append(part.text)
                continue
            blank = part.text[: len(part.text) - len(part.text.lstrip())]
            ends = [end.end() for end in LINE_END.finditer(blank)]
            kept.append(blank[: ends[-1]] if ends else "")
        return parsed(BOM * self.marked + "".join(kept))


def parsed(text: str) -> Document:
    marked = text.startswith(BOM)
    rest = text.removeprefix(BOM)
    parts, at, line = [], 0, 1
    for binding in parse_stream(StringIO(text, newline="")):
        piece = binding.original.string
        blank = len(piece) - len(piece.lstrip())
        begins = line + _lines(piece[:blank])
        if not piece.strip():
            part = Part(piece, begins, "blank")
        elif binding.error or (binding.key is not None and binding.value is None):
            part = Part(piece, begins, "broken")
        elif binding.key is None:
            part = Part(piece, begins, "comment")
        else:
            part = Part(piece, begins, "entry", binding.key.upper(), _read(piece, binding.value or ""), _place(piece))
        parts.append(part)
        at += len(piece)
        # A broken line leaves half of its \r\n to the next piece.
        line += _lines(piece) - (piece.endswith("\r") and rest[at : at + 1] == "\n")
    return Document(tuple(parts), marked)


def _read(piece: str, value: str) -> str:
    """A value over several lines reads the same whatever ends them."""
    if "\r" not in piece.rstrip():
        return value
    (again, *_) = parse_stream(StringIO(LINE_END.sub("\n", piece)))
    return again.value or ""


def _lines(text: str) -> int:
    return len(LINE_END.findall(text))


def _place(text: str) -> tuple[int, int]:
    """Where the value of an entry stands."""
    head = HEAD.match(text)
    assert head is not None, "dotenv found a key here"
    start = head.end()
    rest = text[start:]
    if found := QUOTED.match(rest):
        return start, start + found.end()
    if rest.startswith("#") and head[0][-1].isspace():  # nothing but a remark
        return start, start
    value = NOTE.sub("", LINE_END.split(rest, maxsplit=1)[0]).rstrip()
    return start, start + len(value)


def _reads_bare(value: str) -> bool:
    return not value or (PLAIN.fullmatch(value) is not None and NOTE.search(value) is None)


def quoted(value: str, quote: str = "") -> str:
    """A value as it is written: without quotes where everybody reads that back, else with those it had."""
    if not quote and _reads_bare(value) and not SPACE.search(value):
        return value
    if quote != '"' and not LINE_END.search(value):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'
