"""MP3 (and Layers I and II): the chain of frames, from the first to the end of the file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dalsegno.catalog.audio import decode
from dalsegno.catalog.audio.model import Audio, Window, corrupt, kbits, truncated

JUNK_BEFORE = 128 * 1024
"""How far the first frame is looked for."""
RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}
BITRATES = {
    (True, 3): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 3): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 1): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


class Frame(NamedTuple):
    length: int
    samples: int
    rate: int
    kind: int
    """Version and layer: they do not change within a file."""


def _frames() -> dict[int, Frame]:
    """Every header there can be, by its second and third byte."""
    found = {}
    for second in range(0xE0, 0x100):
        version, layer = (second >> 3) & 3, (second >> 1) & 3
        for third in range(256):
            code, rate_code, padding = third >> 4, (third >> 2) & 3, (third >> 1) & 1
            if version == 1 or layer == 0 or code in (0, 15) or rate_code == 3:
                continue
            rate = RATES[version][rate_code]
            bits = BITRATES[version == 3, layer][code - 1] * 1000
            if layer == 3:
                length, samples = (12 * bits // rate + padding) * 4, 384
            else:
                samples = 576 if layer == 1 and version != 3 else 1152
                length = samples // 8 * bits // rate + padding
            found[second << 8 | third] = Frame(length, samples, rate, second & 0x1E)
    return found


FRAMES = _frames()


def behind_id3(window: Window) -> int:
    """Where the file goes on behind its ID3v2 tags (some have several)."""
    start = 0
    while True:
        head = window.at(start, 10)
        if len(head) < 10 or head[:3] != b"ID3" or head[3] == 0xFF or any(byte > 0x7F for byte in head[6:10]):
            return start
        size = head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]
        start += 10 + size + (10 if head[5] & 0x10 else 0)


def find(window: Window, start: int) -> int | None:
    """The first frame that two more follow (or the end of the file)."""
    limit = min(window.size, start + JUNK_BEFORE)
    position = start
    while position < limit:
        block = window.at(position, min(64 * 1024, limit - position + 1))
        at = block.find(b"\xff")
        while at >= 0 and at + 2 < len(block):
            if block[at + 1] >= 0xE0 and _chain(window, position + at, 3):
                return position + at
            at = block.find(b"\xff", at + 1)
        position += max(1, len(block) - 2)
    return None


def _chain(window: Window, position: int, count: int) -> bool:
    kind = None
    for number in range(count):
        head = window.at(position, 3)
        if len(head) < 3:
            return number > 0
        frame = FRAMES.get(head[1] << 8 | head[2]) if head[0] == 0xFF else None
        if frame is None or (kind is not None and (frame.kind, frame.rate) != kind):
            return number > 1 and window.at(position, 3) in (b"TAG", b"APE", b"LYR", b"\x00\x00\x00")
        kind = (frame.kind, frame.rate)
        position += frame.length
    return True


def check(window: Window, start: int, path: Path, *, deep: bool = False) -> Audio:
    end = _before_tags(window, start)
    first_head = window.need(start, 4)
    first = FRAMES[first_head[1] << 8 | first_head[2]]
    declared = _declared(window.at(start, 200), first)
    same = (first.kind, first.rate)
    position, count, samples, skipped = start + (first.length if declared is not None else 0), 0, 0, 0
    if declared is not None and position > end:
        raise truncated("not even the first frame is whole")
    while position + 4 <= end:
        window.at(position, min(64 * 1024, end - position))
        position, found, duration, good = _walk(window, position, end, same)
        count, samples = count + found, samples + duration
        if good:
            continue
        after = _resync(window, position, end, same)
        skipped += after - position
        if skipped > max(16 * 1024, (end - start) // 50):
            raise corrupt(f"{skipped} bytes between its frames are no audio")
        position = after
    if position > end:
        raise truncated("its last frame is cut off")
    if declared and count < declared:
        raise truncated(f"it declares {declared} frames and has {count}")
    if not count:
        raise truncated("there is no frame of audio in it")
    heard = decode.mpeg(path, None if deep else 4 * 1152)
    if not heard or (deep and heard < (samples - 2 * 1152) // 2):
        raise corrupt("it cannot be decoded")
    layer = {1: "mp3", 2: "mp2", 3: "mp1"}[(first.kind >> 1) & 3]
    seconds = samples / first.rate
    return Audio(
        format="mp3",
        codec=layer,
        suffix=f".{layer}",
        bitrate=kbits(end - start, seconds),
        sample_rate=first.rate,
        bits=None,
        channels=1 if first_head[3] >> 6 == 3 else 2,
        duration=round(seconds, 3),
        lossless=False,
        verified="decoded" if deep else "structure",
    )


def _walk(window: Window, position: int, end: int, same: tuple[int, int]) -> tuple[int, int, int, bool]:
    """As many frames as the buffer holds: where it got to, how many, how long, and whether the last was one."""
    buffer, base, frames = window.buffer, window.start, FRAMES
    at, limit = position - base, min(len(buffer), end - base) - 3
    count = samples = 0
    while at < limit:
        frame = frames.get(buffer[at + 1] << 8 | buffer[at + 2]) if buffer[at] == 0xFF else None
        if frame is None or (frame.kind, frame.rate) != same:
            return at + base, count, samples, False
        at += frame.length
        if at + base > end:
            return at + base, count, samples, True
        count += 1
        samples += frame.samples
    return at + base, count, samples, True


def _resync(window: Window, position: int, end: int, same: tuple[int, int]) -> int:
    """Where the frames go on, or the end."""
    while position + 3 < end:
        block = window.at(position, min(16 * 1024, end - position))
        at = block.find(b"\xff")
        while 0 <= at < len(block) - 2:
            frame = FRAMES.get(block[at + 1] << 8 | block[at + 2])
            if frame is not None and (frame.kind, frame.rate) == same and _chain(window, position + at, 3):
                return position + at
            at = block.find(b"\xff", at + 1)
        position += max(1, len(block) - 2)
    return end


def _declared(frame: bytes, first: Frame) -> int | None:
    """The count of frames in a Xing, Info or VBRI header; 0 where there is a header without it, None without one."""
    mono = frame[3] >> 6 == 3
    side = (17 if mono else 32) if first.kind & 0x18 == 0x18 else (9 if mono else 17)
    at = 4 + side
    if frame[at : at + 4] in (b"Xing", b"Info"):
        return int.from_bytes(frame[at + 8 : at + 12], "big") if frame[at + 7] & 1 else 0
    if frame[36:40] == b"VBRI":
        return int.from_bytes(frame[50:54], "big")
    return None


def _before_tags(window: Window, start: int) -> int:
    """Where the frames end: before ID3v1, APE and Lyrics3 tags, in whatever order."""
    end = window.size
    for _ in range(8):
        tail = window.at(max(start, end - 160), min(160, end - start))
        if len(tail) >= 128 and tail[-128:-125] == b"TAG":
            end -= 128
        elif tail[-32:-24] == b"APETAGEX":
            size = int.from_bytes(tail[-20:-16], "little") + (32 if tail[-9] & 0x80 else 0)
            end -= size
        elif tail[-9:] == b"LYRICS200" and tail[-15:-9].isdigit():
            end -= int(tail[-15:-9]) + 15
        elif tail[-10:-7] == b"3DI":
            size = tail[-4] << 21 | tail[-3] << 14 | tail[-2] << 7 | tail[-1]
            end -= size + 20
        else:
            break
    return max(end, start)
