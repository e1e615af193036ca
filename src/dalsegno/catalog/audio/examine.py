"""Tell what a file is by its first bytes, and hand it to the one who knows that format."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

from dalsegno.catalog.audio import adts, chunks, flac, mp4, mpeg, ogg, others
from dalsegno.catalog.audio.model import Audio, NotAudio, Window

Check = Callable[[Window, int, Path], Audio]
"""Given the file, where its audio begins (behind an ID3 tag), and its path for decoders that open it themselves."""

MAGIC: tuple[tuple[bytes, Check], ...] = (
    (b"fLaC", flac.check),
    (b"OggS", ogg.check),
    (b"RIFF", chunks.check_wave),
    (b"RF64", chunks.check_wave),
    (b"BW64", chunks.check_wave),
    (b"FORM", chunks.check_aiff),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", others.check_asf),
    (b"MAC ", others.check_ape),
    (b"DSD ", others.check_dsf),
    (b"FRM8", others.check_dsdiff),
    (b"wvpk", others.check_wavpack),
    (b"MPCK", others.check_musepack8),
    (b"MP+", others.check_musepack7),
)


def examine(
    path: Path, *, deep: bool = False, descriptor: int | None = None, content: memoryview | None = None
) -> Audio:
    """What is at `path` (open already where a `descriptor` is given, read already where its `content` is); raises
    NotAudio when it is something else, cut off or damaged.

    FLAC is always decoded, because it carries a checksum to compare with. A damaged MP3 still decodes, to noise, and
    Ogg has checksums of its own: decoding these adds little and costs more than fetching them, so it is done only when
    `deep`.
    """
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
    try:
        window = Window(opened, content)
        if window.size == 0:
            raise NotAudio("empty_file", "The file is empty.")
        return _examine(window, path, deep)
    except (struct.error, LookupError, ArithmeticError, ValueError) as error:
        raise NotAudio("corrupt_audio", "The file is damaged: its headers contradict each other.") from error
    finally:
        if descriptor is None:
            os.close(opened)


def _examine(window: Window, path: Path, deep: bool) -> Audio:
    start = mpeg.behind_id3(window)
    head = window.at(start, 16)
    if start and not head:
        raise NotAudio("truncated_audio", "The file ends too early: there are tags, but no audio.")
    for magic, check in MAGIC:
        if head.startswith(magic):
            return check(window, start, path) if check is not ogg.check else ogg.check(window, start, path, deep=deep)
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip"):
        return mp4.check(window, start, path)
    if adts.begins(window, start):
        return adts.check(window, start, path)
    if not start:
        _refuse_text(window.at(0, 1024))
    first = mpeg.find(window, start)
    if first is None:
        raise NotAudio("not_audio", "This is no audio file of any known format.")
    return mpeg.check(window, first, path, deep=deep)


def _refuse_text(head: bytes) -> None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(b"<"):
        raise NotAudio("html_instead_of_audio", "This is a web page, not audio.")
    if text[:1] in (b"{", b"["):
        raise NotAudio("json_instead_of_audio", f"This is a message, not audio: {_words(head)}")
    if text.startswith(
        (b"#extm3u", b"%pdf", b"pk\x03\x04", b"rar!", b"\x1f\x8b", b"\x89png", b"\xff\xd8\xff", b"gif8")
    ):
        raise NotAudio("not_audio", "This is a file of another kind, not audio.")
    if not head.strip(b"\x00"):
        raise NotAudio("corrupt_audio", "The file is damaged: it begins with nothing but zeros.")


def _words(head: bytes) -> str:
    return " ".join(head[:160].decode("utf-8", "replace").split())
