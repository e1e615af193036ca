"""Decoders of miniaudio, a piece at a time: memory stays small, and the GIL is free while they work."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from miniaudio import ffi, lib  # type: ignore[import-untyped]

PIECE = 16384
"""Samples of all channels: 128 KB of output."""


def mpeg(path: Path, limit: int | None) -> int:
    """How many samples (per channel) come out of an MP3, up to about `limit`."""
    mp3 = ffi.new("ma_dr_mp3 *")
    if not lib.ma_dr_mp3_init_file(mp3, os.fsencode(path), ffi.NULL):
        return 0
    try:
        buffer = ffi.new("ma_dr_mp3_int16[]", PIECE * 2)
        total = 0
        piece = PIECE if limit is None else min(PIECE, limit)
        while (limit is None or total < limit) and (got := lib.ma_dr_mp3_read_pcm_frames_s16(mp3, piece, buffer)):
            total += got
        return total
    finally:
        lib.ma_dr_mp3_uninit(mp3)


def vorbis(path: Path) -> int:
    """How many samples (per channel) come out of an Ogg Vorbis file."""
    error = ffi.new("int *")
    stream = lib.stb_vorbis_open_filename(os.fsencode(path), error, ffi.NULL)
    if not stream:
        return 0
    try:
        channels = lib.stb_vorbis_get_info(stream).channels
        buffer = ffi.new("short[]", 8192 * channels)
        total = 0
        while got := lib.stb_vorbis_get_frame_short_interleaved(stream, channels, buffer, 8192 * channels):
            total += got
        return total
    finally:
        lib.stb_vorbis_close(stream)


def flac(path: Path, bits: int, channels: int) -> tuple[int, bytes | None]:
    """How many samples (per channel) come out of a FLAC file, and the MD5 of them all as the encoder reckons it
    (None for sizes that no encoder makes)."""
    stream = lib.ma_dr_flac_open_file(os.fsencode(path), ffi.NULL)
    if not stream:
        return 0, None
    try:
        if stream.channels != channels or stream.bitsPerSample != bits:
            return 0, None
        return _flac(stream, bits, channels)
    finally:
        lib.ma_dr_flac_close(stream)


def _flac(stream: Any, bits: int, channels: int) -> tuple[int, bytes | None]:
    piece = PIECE // channels
    whole = bits in (8, 16, 24, 32) and sys.byteorder == "little"
    digest = hashlib.md5(usedforsecurity=False)
    total = 0
    if bits == 16:
        narrow = ffi.new("ma_dr_flac_int16[]", piece * channels)
        view = memoryview(ffi.buffer(narrow))
        while got := lib.ma_dr_flac_read_pcm_frames_s16(stream, piece, narrow):
            total += got
            digest.update(view[: got * channels * 2])
        return total, digest.digest() if whole else None
    wide = ffi.new("ma_dr_flac_int32[]", piece * channels)
    view = memoryview(ffi.buffer(wide))
    size = bits // 8
    while got := lib.ma_dr_flac_read_pcm_frames_s32(stream, piece, wide):
        total += got
        if whole:
            # Samples come in the upper bytes of 32 bits; an encoder counts only the bytes they need.
            raw = bytes(view[: got * channels * 4])
            packed = bytearray(got * channels * size)
            for place in range(size):
                packed[place::size] = raw[4 - size + place :: 4]
            digest.update(packed)
    return total, digest.digest() if whole else None
