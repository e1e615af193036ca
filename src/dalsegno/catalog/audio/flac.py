"""FLAC: decoded to the end and compared with the checksum of the samples that its encoder left in it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dalsegno.catalog.audio import decode
from dalsegno.catalog.audio.model import Audio, Verified, Window, corrupt, kbits, truncated


class StreamInfo(NamedTuple):
    rate: int
    channels: int
    bits: int
    total: int
    """Samples per channel; 0 where the encoder did not know."""
    md5: bytes


def stream_info(block: bytes) -> StreamInfo:
    packed = int.from_bytes(block[10:18], "big")
    return StreamInfo(
        packed >> 44, ((packed >> 41) & 7) + 1, ((packed >> 36) & 31) + 1, packed & 0xF_FFFF_FFFF, block[18:34]
    )


def check(window: Window, start: int, path: Path) -> Audio:
    position = start + 4
    info = None
    while True:
        head = window.need(position, 4)
        kind, size = head[0] & 0x7F, int.from_bytes(head[1:4], "big")
        if kind == 0:
            info = stream_info(window.need(position + 4, 34))
        elif kind == 127:
            raise corrupt("its headers are wrong")
        position += 4 + size
        if position > window.size:
            raise truncated("its headers are cut off")
        if head[0] & 0x80:
            break
    if info is None or not info.rate:
        raise corrupt("its headers are wrong")
    if position == window.size:
        raise truncated("there are headers, but no audio")
    samples, verified = verify(path, info)
    seconds = samples / info.rate
    return Audio(
        format="flac",
        codec="flac",
        suffix=".flac",
        bitrate=kbits(window.size - position, seconds),
        sample_rate=info.rate,
        bits=info.bits,
        channels=info.channels,
        duration=round(seconds, 3),
        lossless=True,
        verified=verified,
    )


def verify(path: Path, info: StreamInfo) -> tuple[int, Verified]:
    samples, md5 = decode.flac(path, info.bits, info.channels)
    if info.total and samples < info.total:
        # A frame whose checksum is wrong is left out by the decoder, wherever it is; a cut ends before the total.
        lost = info.total - samples
        raise truncated(f"{lost} of {info.total} samples are missing, or damaged beyond decoding")
    if not samples:
        raise corrupt("it cannot be decoded")
    if info.total and samples > info.total:
        raise corrupt(f"it declares {info.total} samples and has {samples}")
    if md5 is None or not any(info.md5):
        return samples, "decoded"
    if md5 != info.md5:
        raise corrupt("its samples do not have the checksum (MD5) that its encoder noted")
    return samples, "md5"
