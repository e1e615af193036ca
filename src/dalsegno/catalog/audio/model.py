"""What is known about a file after it was examined, or why it is not to be had."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

Quality = Literal["hi-res", "lossless", "high", "standard", "low"]
Verified = Literal["md5", "decoded", "structure"]
HEAD = 4096
WINDOW = 256 * 1024


class NotAudio(Exception):
    """`code` is one of html_instead_of_audio, json_instead_of_audio, not_audio, truncated_audio, corrupt_audio and
    empty_file."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message


def truncated(what: str) -> NotAudio:
    return NotAudio("truncated_audio", f"The file ends too early: {what}.")


def corrupt(what: str) -> NotAudio:
    return NotAudio("corrupt_audio", f"The file is damaged: {what}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audio:
    format: str
    codec: str
    suffix: str
    """With its dot."""
    bitrate: int
    """kbit/s, on average."""
    sample_rate: int
    bits: int | None
    """Per sample, of codecs that keep samples."""
    channels: int
    duration: float
    """Seconds."""
    lossless: bool
    verified: Verified
    """How sure it is that all bytes are right: the encoder's own checksum, decoded to the end, or whole in its
    structure (every frame, page or box is in its place up to the end of the file)."""

    @property
    def quality(self) -> Quality:
        if self.lossless:
            return "hi-res" if (self.bits or 0) > 16 or self.sample_rate > 48000 else "lossless"
        return "high" if self.bitrate >= 256 else "standard" if self.bitrate >= 120 else "low"

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"quality": self.quality}


def kbits(size: int, duration: float) -> int:
    return round(size * 8 / duration / 1000) if duration > 0 else 0


class Window:
    """A file read through one buffer: whatever its size, little of it is in memory."""

    def __init__(self, descriptor: int, content: memoryview | None = None) -> None:
        self._descriptor = descriptor
        self.start = 0
        if content is not None:
            self.size, self.buffer = len(content), bytes(content)
            return
        self.size = os.fstat(descriptor).st_size
        self.buffer = os.pread(descriptor, min(HEAD, self.size), 0)

    def at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes; fewer at the end of the file."""
        start = offset - self.start
        if start < 0 or (start + count > len(self.buffer) and self.start + len(self.buffer) < self.size):
            self.start, start = offset, 0
            self.buffer = os.pread(self._descriptor, min(max(count, WINDOW), max(0, self.size - offset)), offset)
        return self.buffer[start : start + count]

    def need(self, offset: int, count: int) -> bytes:
        found = self.at(offset, count)
        if len(found) < count:
            raise truncated(f"{offset + count} bytes are needed, it has {self.size}")
        return found
