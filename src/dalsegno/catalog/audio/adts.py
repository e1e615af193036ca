"""AAC without a container: a chain of frames that each know their length."""

from __future__ import annotations

from pathlib import Path

from dalsegno.catalog.audio.model import Audio, Window, corrupt, kbits, truncated

RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)


def _length(head: bytes) -> int:
    """Of the frame that begins here; 0 if none does."""
    if len(head) < 6 or head[0] != 0xFF or head[1] & 0xF6 != 0xF0 or (head[2] >> 2) & 15 >= len(RATES):
        return 0
    length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return length if length > 7 else 0


def begins(window: Window, start: int) -> bool:
    """Three frames in a row, or as many as there are."""
    at = start
    for _ in range(3):
        length = _length(window.at(at, 6))
        if not length:
            return at >= window.size and at > start
        at += length
    return True


def check(window: Window, start: int, _: Path) -> Audio:
    head = window.need(start, 7)
    at, frames = start, 0
    while at < window.size:
        length = _length(window.at(at, 6))
        if not length:
            if window.at(at, 3) in (b"TAG", b"APE", b"ID3"):
                break
            if window.size - at < 6:
                raise truncated("its last frame is cut off")
            raise corrupt(f"what comes after byte {at} is no audio")
        at += length
        frames += 1
    if at > window.size:
        raise truncated("its last frame is cut off")
    rate = RATES[(head[2] >> 2) & 15]
    seconds = frames * 1024 / rate
    return Audio(
        format="aac",
        codec="aac",
        suffix=".aac",
        bitrate=kbits(at - start, seconds),
        sample_rate=rate,
        bits=None,
        channels=(head[2] & 1) << 2 | head[3] >> 6 or 2,
        duration=round(seconds, 3),
        lossless=False,
        verified="structure",
    )
