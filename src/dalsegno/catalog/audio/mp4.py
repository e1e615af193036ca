"""MP4 and M4A (AAC, ALAC and others): boxes up to the last byte, and every sample inside the data they hold."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from dalsegno.catalog.audio.model import Audio, NotAudio, Window, corrupt, kbits, truncated

INDEX_MAX = 64 << 20
CODECS = {
    b"mp4a": "aac",
    b"alac": "alac",
    b"fLaC": "flac",
    b"Opus": "opus",
    b"ac-3": "ac3",
    b"ec-3": "eac3",
    b".mp3": "mp3",
    b"enca": "encrypted",
    b"drms": "encrypted",
}


def check(window: Window, start: int, _: Path) -> Audio:
    index = b""
    data: list[tuple[int, int]] = []
    fragmented = False
    at = start
    while at < window.size:
        head = window.at(at, 16)
        if not head.strip(b"\x00"):
            if window.size - at > 4096 and not data:
                raise corrupt("there are only zeros in it")
            break  # some writers pad the end
        if len(head) < 8:
            raise truncated("its last part is cut off")
        size, kind = struct.unpack_from(">I4s", head)
        inner = 8
        if size == 1:
            size, inner = struct.unpack_from(">Q", head, 8)[0], 16
        elif size == 0:
            size = window.size - at
        if size < inner or not all(32 <= byte < 127 or byte == 0xA9 for byte in kind):
            raise corrupt(f"what comes after byte {at} is no MP4")
        if at + size > window.size:
            raise truncated(f"a part of it declares {size} bytes and has {window.size - at}")
        if kind == b"mdat":
            data.append((at + inner, at + size))
        elif kind == b"moov":
            if size > INDEX_MAX:
                raise corrupt("its index is too large to be true")
            index = window.need(at + inner, size - inner)
        elif kind == b"moof":
            fragmented = True
        at += size
    if not index:
        raise truncated("its index is missing")
    if not data:
        raise truncated("there is an index, but no audio")
    for track in _inside(index, b"trak"):
        found = _track(track, data, fragmented)
        if found is not None:
            return found
    raise NotAudio("not_audio", "There is no sound track in this MP4 file.")


def _boxes(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 8 <= len(content):
        size, kind = struct.unpack_from(">I4s", content, at)
        inner = 8
        if size == 1:
            size, inner = struct.unpack_from(">Q", content, at + 8)[0], 16
        size = size or len(content) - at
        if size < inner:
            return
        yield kind, content[at + inner : at + size]
        at += size


def _inside(content: bytes, kind: bytes) -> Iterator[bytes]:
    return (inner for found, inner in _boxes(content) if found == kind)


def _one(content: bytes, *path: bytes) -> bytes:
    for kind in path:
        content = next(_inside(content, kind), b"")
    return content


def _track(track: bytes, data: list[tuple[int, int]], fragmented: bool) -> Audio | None:
    media = _one(track, b"mdia")
    if _one(media, b"hdlr")[8:12] != b"soun":
        return None
    head = _one(media, b"mdhd")
    scale, length = struct.unpack_from(">IQ", head, 20) if head[0] == 1 else struct.unpack_from(">II", head, 12)
    table = _one(media, b"minf", b"stbl")
    kind, entry = next(_boxes(_one(table, b"stsd")[8:]), (b"", b""))
    channels, bits, rate = struct.unpack_from(">HHxxxxI", entry, 16)
    rate >>= 16
    codec = CODECS.get(kind, kind.decode("latin-1").strip().lower())
    if codec == "encrypted":
        raise NotAudio("not_audio", "The file is encrypted and cannot be played.")
    if codec == "alac":
        config = _one(entry[28:], b"alac")
        if len(config) >= 28:
            bits, channels, rate = config[9], config[13], int.from_bytes(config[24:28], "big")
    size = 0 if fragmented else _covered(table, data)
    if fragmented:
        size = sum(end - begin for begin, end in data)
    seconds = length / scale
    lossless = codec in ("alac", "flac")
    return Audio(
        format="mp4",
        codec=codec,
        suffix=".m4a",
        bitrate=kbits(size, seconds),
        sample_rate=rate or scale,
        bits=bits if lossless else None,
        channels=channels,
        duration=round(seconds, 3),
        lossless=lossless,
        verified="structure",
    )


def _numbers(content: bytes, code: str) -> array[int]:
    """Big-endian numbers of 4 ("I") or 8 ("Q") bytes."""
    found = array(code)
    found.frombytes(content[: len(content) // found.itemsize * found.itemsize])
    if sys.byteorder == "little":
        found.byteswap()
    return found


def _covered(table: bytes, data: list[tuple[int, int]]) -> int:
    """Bytes of all samples, when each chunk of them lies within the data."""
    sizes_box, groups_box = _one(table, b"stsz"), _one(table, b"stsc")
    same, count = struct.unpack_from(">II", sizes_box, 4)
    sizes = _numbers(sizes_box[12 : 12 + 4 * count], "I")
    if not same and len(sizes) < count:
        raise corrupt("its index is cut off")
    short, long = _one(table, b"stco"), _one(table, b"co64")
    offsets = _numbers(short[8:], "I") if short else _numbers(long[8:], "Q")
    groups = _numbers(groups_box[8:], "I")
    firsts, per_chunk = groups[0::3], groups[1::3]
    data = sorted(data)
    begins = [begin for begin, _ in data]
    done = total = group = 0
    for number, offset in enumerate(offsets, 1):
        while group + 1 < len(firsts) and firsts[group + 1] <= number:
            group += 1
        samples = min(per_chunk[group], count - done)
        size = same * samples if same else sum(sizes[done : done + samples])
        place = bisect_right(begins, offset) - 1
        if place < 0 or offset + size > data[place][1]:
            raise truncated("its index speaks of samples that are not there")
        done, total = done + samples, total + size
    if done < count or not count:
        raise truncated("its index speaks of samples that are not there")
    return total
