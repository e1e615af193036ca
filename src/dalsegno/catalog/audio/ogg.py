"""Ogg (Vorbis, Opus, FLAC, Speex): every page has a checksum and a number, and the last says that it is the last."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from dalsegno.catalog.audio import decode, flac
from dalsegno.catalog.audio.model import Audio, NotAudio, Verified, Window, corrupt, kbits, truncated

HEAD = struct.Struct("<4sBBqIII B")
_MIRROR = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def crc(page: bytes) -> int:
    """Ogg's CRC is zlib's with every bit order turned round: so zlib does the work."""
    mirrored = zlib.crc32(page.translate(_MIRROR), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(_MIRROR), "big")


@dataclass(slots=True)
class Stream:
    first: bytes
    """The packet that says what it is."""
    number: int = -1
    position: int = 0
    ended: bool = False


def check(window: Window, start: int, path: Path, *, deep: bool = False) -> Audio:
    streams = _pages(window, start)
    for stream in streams.values():
        if not stream.ended:
            raise truncated("its last page is missing")
    for stream in streams.values():
        found = _audio(stream, window, path, deep)
        if found is not None:
            return found
    raise NotAudio("not_audio", "There is no audio in this Ogg file.")


def _pages(window: Window, start: int) -> dict[int, Stream]:
    streams: dict[int, Stream] = {}
    at = start
    while at < window.size:
        head = window.at(at, 27)
        if len(head) < 27:
            raise truncated("its last page is cut off")
        magic, _, kind, position, serial, number, checksum, segments = HEAD.unpack(head)
        if magic != b"OggS":
            raise corrupt(f"what comes after byte {at} is no Ogg page")
        size = 27 + segments + sum(window.at(at + 27, segments))
        page = window.at(at, size)
        if len(page) < size:
            raise truncated("its last page is cut off")
        if crc(page[:22] + b"\x00\x00\x00\x00" + page[26:]) != checksum:
            raise corrupt(f"the page at byte {at} does not have its checksum")
        stream = streams.get(serial)
        if stream is None:
            if not kind & 2:
                raise corrupt("its first page is missing")
            stream = streams[serial] = Stream(page[27 + segments :])
        elif number != stream.number + 1:
            raise corrupt(f"pages before byte {at} are missing")
        stream.number = number
        if position > 0:
            stream.position = position
        stream.ended = stream.ended or bool(kind & 4)
        at += size
    return streams


def _audio(stream: Stream, window: Window, path: Path, deep: bool) -> Audio | None:
    first = stream.first
    bits: int | None = None
    verified: Verified = "structure"
    samples = stream.position
    if first.startswith(b"\x01vorbis"):
        channels, rate = struct.unpack_from("<BI", first, 11)
        codec, suffix = "vorbis", ".ogg"
        if deep:
            if not decode.vorbis(path):
                raise corrupt("it cannot be decoded")
            verified = "decoded"
    elif first.startswith(b"OpusHead"):
        channels, skip = struct.unpack_from("<BH", first, 9)
        codec, suffix, rate, samples = "opus", ".opus", 48000, max(0, stream.position - skip)
    elif first.startswith(b"\x7fFLAC"):
        info = flac.stream_info(first[17:51])
        samples, verified = flac.verify(path, info)
        codec, suffix, rate, channels, bits = "flac", ".oga", info.rate, info.channels, info.bits
    elif first.startswith(b"Speex   "):
        rate, channels = struct.unpack_from("<I", first, 36)[0], struct.unpack_from("<I", first, 48)[0]
        codec, suffix = "speex", ".spx"
    else:
        return None
    seconds = samples / rate
    return Audio(
        format="ogg",
        codec=codec,
        suffix=suffix,
        bitrate=kbits(window.size, seconds),
        sample_rate=rate,
        bits=bits,
        channels=channels,
        duration=round(seconds, 3),
        lossless=codec == "flac",
        verified=verified,
    )
