"""Melodies as FLAC and WAV files, made in about a millisecond.

A song is a row of notes and a note is a row of whole FLAC frames. Notes are kept, with the CRC of each of their frames,
so that a file is mostly joined from parts: a CRC is linear, and that of a frame follows from those of its header and
of its samples. Samples are stored as they are (verbatim subframes): nobody minds the size of a melody.
"""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from operator import mul

BLOCK = 4096
"""Samples of a frame."""
BEAT = BLOCK / 22_050
"""Seconds: one frame at 22.05 kHz, two at 44.1 kHz."""
RATE_CODES = {22_050: 6, 44_100: 9}
REST = -1
TIMBRES = (
    (1.0, 0.45, 0.2, 0.12, 0.05),  # a plucked string
    (1.0, 0.0, 0.35, 0.0, 0.15, 0.0, 0.06),  # a clarinet, more or less
)


@dataclass(frozen=True, slots=True)
class Melody:
    rate: int
    timbre: int
    notes: tuple[tuple[int, int], ...]
    """Semitones above A2, or REST, and beats: 1 or 2."""

    @property
    def duration(self) -> float:
        return sum(beats for _, beats in self.notes) * BEAT


def flac(melody: Melody, tags: Mapping[str, str], *, honest: bool = True) -> bytes:
    """Without honesty the checksum of the samples is wrong, as in a file that went bad in a bit that still decodes."""
    digest = hashlib.md5(usedforsecurity=False)
    frames: list[bytes] = []
    rate_code = RATE_CODES[melody.rate]
    for pitch, beats in melody.notes:
        for block in _note(pitch, beats, melody.rate, melody.timbre):
            digest.update(block.little)
            head = bytes((0xFF, 0xF8, 0xC0 | rate_code, 0x08)) + chr(len(frames)).encode()
            head += bytes((_crc8(head), block.kind))
            crc = block.shift(_crc16_of_bytes(head)) ^ block.crc
            frames.append(head + block.big + crc.to_bytes(2, "big"))
    checksum = digest.digest() if honest else bytes(byte ^ 0xFF for byte in digest.digest())
    packed = melody.rate << 44 | 0 << 41 | 15 << 36 | len(frames) * BLOCK
    info = struct.pack(">HH6xQ", BLOCK, BLOCK, packed) + checksum
    comments = _comments(tags)
    blocks = b"\x00" + len(info).to_bytes(3, "big") + info + b"\x84" + len(comments).to_bytes(3, "big") + comments
    return b"fLaC" + blocks + b"".join(frames)


def wav(melody: Melody, tags: Mapping[str, str]) -> bytes:
    samples = b"".join(
        block.little for pitch, beats in melody.notes for block in _note(pitch, beats, melody.rate, melody.timbre)
    )
    names = {"title": b"INAM", "artist": b"IART", "album": b"IPRD", "comment": b"ICMT"}
    entries = b"".join(_chunk(names[key], text.encode() + b"\x00") for key, text in tags.items() if key in names)
    form = struct.pack("<HHIIHH", 1, 1, melody.rate, melody.rate * 2, 2, 16)
    body = b"WAVE" + _chunk(b"fmt ", form) + _chunk(b"LIST", b"INFO" + entries) + _chunk(b"data", samples)
    return _chunk(b"RIFF", body)


def _chunk(name: bytes, body: bytes) -> bytes:
    return name + len(body).to_bytes(4, "little") + body + b"\x00" * (len(body) % 2)


def _comments(tags: Mapping[str, str]) -> bytes:
    texts = ["Dal Segno", *(f"{key.upper()}={text}" for key, text in tags.items())]
    fields = [len(text.encode()).to_bytes(4, "little") + text.encode() for text in texts]
    return fields[0] + (len(fields) - 1).to_bytes(4, "little") + b"".join(fields[1:])


@dataclass(frozen=True, slots=True)
class _Block:
    little: bytes
    """The samples as players take them, and as the MD5 of FLAC wants them."""
    big: bytes
    """The subframe after its first byte."""
    kind: int
    crc: int

    def shift(self, crc: int) -> int:
        """The CRC of a header, once the subframe has gone by."""
        if len(self.big) == 2:
            return _words()[crc]
        return _over_samples(crc)


_SILENCE = _Block(bytes(2 * BLOCK), b"\x00\x00", 0x00, 0)


@cache
def _note(pitch: int, beats: int, rate: int, timbre: int) -> tuple[_Block, ...]:
    """A few hundred at most, some MB in all."""
    blocks = beats * rate // 22_050
    if pitch == REST:
        return (_SILENCE,) * blocks
    length = blocks * BLOCK
    # A table of several periods, since one is seldom a whole number of samples and a note would be out of tune.
    frequency = 110.0 * 2 ** (pitch / 12)
    periods = 24
    size = round(periods * rate / frequency)
    shape = _shape(timbre)
    table = [shape[at * periods * len(shape) // size % len(shape)] for at in range(size)]
    wave = (table * (length // size + 1))[:length]
    samples = array("h", map(int, map(mul, wave, _envelope(length, rate))))
    return tuple(_block(samples[start : start + BLOCK]) for start in range(0, length, BLOCK))


@cache
def _shape(timbre: int) -> list[float]:
    """One period, fine enough that the nearest step will do."""
    partials = [(n, part) for n, part in enumerate(TIMBRES[timbre], start=1) if part]
    return [sum(part * math.sin(math.tau * n * at / 4096) for n, part in partials) for at in range(4096)]


@cache
def _envelope(length: int, rate: int) -> list[float]:
    """Begins and ends at nothing, so that notes join without a click."""
    attack, release = rate // 100, rate // 25
    fading = math.exp(-3.0 / length)
    level, levels = 15_000.0, []
    for at in range(length):
        levels.append(level * min(1.0, at / attack, (length - 1 - at) / release))
        level *= fading
    return levels


def _block(samples: array[int]) -> _Block:
    swapped = array("h", samples)
    swapped.byteswap()
    little, big = (samples, swapped) if sys.byteorder == "little" else (swapped, samples)
    return _Block(little.tobytes(), big.tobytes(), 0x02, _crc16_of_samples(samples))


@cache
def _words() -> list[int]:
    """What 16 bits make of the CRC (polynomial 0x8005), doubled bit by bit: it is linear."""
    table = [0]
    for bit in range(16):
        crc = 1 << bit
        for _ in range(16):
            crc = (crc << 1 ^ (0x8005 if crc & 0x8000 else 0)) & 0xFFFF
        table += [each ^ crc for each in table]
    return table


def _crc16_of_samples(samples: array[int]) -> int:
    table, crc = _words(), 0
    for sample in samples:
        crc = table[crc ^ (sample & 0xFFFF)]
    return crc


def _crc16_of_bytes(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x8005 if crc & 0x8000 else 0)) & 0xFFFF
    return crc


@cache
def _over_samples(crc: int) -> int:
    """The CRC after a block of zeros."""
    table = _words()
    for _ in range(BLOCK):
        crc = table[crc]
    return crc


def _crc8(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ (0x07 if crc & 0x80 else 0)) & 0xFF
    return crc
