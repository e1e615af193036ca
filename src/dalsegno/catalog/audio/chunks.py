"""WAV (RIFF, RF64, BW64) and AIFF: chunks with sizes; the samples are all there if their chunk is."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from dalsegno.catalog.audio.model import Audio, NotAudio, Window, corrupt, kbits, truncated

UNKNOWN = 0xFFFFFFFF
"""A size that was written before the samples were: they go on to the end of the file."""
CODECS = {1: "pcm", 3: "pcm_float", 6: "alaw", 7: "mulaw", 2: "adpcm", 17: "adpcm", 80: "mp2", 85: "mp3"}


def _chunks(window: Window, at: int, layout: str) -> Iterator[tuple[bytes, int, int]]:
    """Name, where it begins, its size as declared."""
    while at + 8 <= window.size:
        name, size = struct.unpack(layout, window.at(at, 8))
        yield name, at + 8, size
        at += 8 + size + size % 2


def check_wave(window: Window, start: int, _: Path) -> Audio:
    head = window.need(start, 12)
    if head[8:12] != b"WAVE":
        raise NotAudio("not_audio", "This is a RIFF file, but not audio.")
    form: bytes = b""
    long_size: int | None = None
    for name, at, declared in _chunks(window, start + 12, "<4sI"):
        if name == b"ds64":
            long_size = int.from_bytes(window.need(at, 16)[8:16], "little")
        elif name == b"fmt ":
            form = window.need(at, min(declared, 40))
        elif name == b"data":
            return _wave(window, form, at, declared, long_size)
    raise truncated("there are headers, but no samples")


def _wave(window: Window, form: bytes, at: int, declared: int, long_size: int | None) -> Audio:
    if len(form) < 16:
        raise corrupt("its samples come before their description")
    code, channels, rate, per_second, _, bits = struct.unpack_from("<HHIIHH", form)
    if code == 0xFFFE and len(form) >= 26:
        code = int.from_bytes(form[24:26], "little")
    if not channels or not rate or not per_second:
        raise corrupt("its description makes no sense")
    size = declared
    if declared == UNKNOWN:
        size = window.size - at if long_size is None else long_size
    if at + size > window.size:
        raise truncated(f"it declares {size} bytes of samples and has {window.size - at}")
    if not size:
        raise truncated("there are headers, but no samples")
    codec = CODECS.get(code, f"wav-{code}")
    seconds = size / per_second
    return Audio(
        format="wav",
        codec=codec,
        suffix=".wav",
        bitrate=kbits(size, seconds),
        sample_rate=rate,
        bits=bits or None,
        channels=channels,
        duration=round(seconds, 3),
        lossless=codec.startswith("pcm"),
        verified="structure",
    )


def check_aiff(window: Window, start: int, _: Path) -> Audio:
    head = window.need(start, 12)
    if head[8:12] not in (b"AIFF", b"AIFC"):
        raise NotAudio("not_audio", "This is an IFF file, but not audio.")
    if start + 8 + int.from_bytes(head[4:8], "big") > window.size:
        raise truncated("it declares to be longer than it is")
    common = b""
    size = 0
    for name, at, declared in _chunks(window, start + 12, ">4sI"):
        if at + declared > window.size:
            raise truncated(f"a part of it declares {declared} bytes and has {window.size - at}")
        if name == b"COMM":
            common = window.need(at, min(declared, 22))
        elif name == b"SSND":
            size = declared
    if len(common) < 18 or not size:
        raise truncated("there are headers, but no samples")
    channels, frames, bits = struct.unpack_from(">hIh", common)
    exponent, mantissa = struct.unpack_from(">HQ", common, 8)
    rate = round(mantissa * 2.0 ** ((exponent & 0x7FFF) - 16383 - 63))
    kind = common[18:22] or b"NONE"
    raw = kind in (b"NONE", b"sowt", b"twos", b"in24", b"in32", b"fl32", b"fl64", b"FL32", b"FL64")
    if raw and size - 8 < frames * channels * ((bits + 7) // 8):
        raise truncated("it has fewer samples than it declares")
    seconds = frames / rate
    return Audio(
        format="aiff",
        codec="pcm" if raw else kind.decode("latin-1").strip().lower(),
        suffix=".aiff",
        bitrate=kbits(size, seconds),
        sample_rate=rate,
        bits=bits,
        channels=channels,
        duration=round(seconds, 3),
        lossless=raw,
        verified="structure",
    )
