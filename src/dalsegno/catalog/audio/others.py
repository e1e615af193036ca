"""Formats that are rare or closed: their sizes and chains of blocks are checked, nothing is decoded."""

from __future__ import annotations

import struct
from pathlib import Path

from dalsegno.catalog.audio.model import Audio, NotAudio, Verified, Window, corrupt, kbits, truncated

STRUCTURE: Verified = "structure"


def _shorter(declared: int, window: Window) -> None:
    if declared > window.size:
        raise truncated(f"it declares {declared} bytes and has {window.size}")


# --- Windows Media ---------------------------------------------------------------------------------------------

_ASF_DATA = bytes.fromhex("3626b2758e66cf11a6d900aa0062ce6c")
_ASF_FILE = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_ASF_STREAM = bytes.fromhex("9107dcb7b7a9cf118ee600c00c205365")
_ASF_AUDIO = bytes.fromhex("409e69f84d5bcf11a8fd00805f5c442b")
_WMA = {0x160: "wma1", 0x161: "wma2", 0x162: "wmapro", 0x163: "wmalossless"}


def check_asf(window: Window, start: int, _: Path) -> Audio:
    size = int.from_bytes(window.need(start, 30)[16:24], "little")
    _shorter(start + size, window)
    header = window.need(start, min(size, 1 << 20))
    seconds, declared, form = 0.0, 0, b""
    at = 30
    while at + 24 <= len(header):
        kind, length = header[at : at + 16], int.from_bytes(header[at + 16 : at + 24], "little")
        if length < 24:
            raise corrupt("its headers are wrong")
        inner = header[at + 24 : at + length]
        if kind == _ASF_FILE:
            declared = int.from_bytes(inner[16:24], "little")
            played, _sent, preroll = struct.unpack_from("<QQQ", inner, 40)
            seconds = max(0.0, played / 1e7 - preroll / 1e3)
        elif kind == _ASF_STREAM and inner[:16] == _ASF_AUDIO and not form:
            form = inner[54:72]
        at += length
    _shorter(start + declared, window)
    data = start + size
    if window.at(data, 16) != _ASF_DATA:
        raise truncated("there are headers, but no audio")
    _shorter(data + int.from_bytes(window.need(data, 24)[16:24], "little"), window)
    if len(form) < 16:
        raise NotAudio("not_audio", "There is no sound track in this Windows Media file.")
    code, channels, rate, per_second, _align, bits = struct.unpack_from("<HHIIHH", form)
    codec = _WMA.get(code, f"wma-{code:x}")
    return Audio(
        format="asf", codec=codec, suffix=".wma", bitrate=round(per_second * 8 / 1000), sample_rate=rate,
        bits=bits if codec == "wmalossless" else None, channels=channels, duration=round(seconds, 3),
        lossless=codec == "wmalossless", verified=STRUCTURE,
    )  # fmt: skip


# --- Monkey's Audio --------------------------------------------------------------------------------------------


def check_ape(window: Window, start: int, _: Path) -> Audio:
    if int.from_bytes(window.need(start, 6)[4:6], "little") < 3980:
        raise NotAudio("not_audio", "This is a Monkey's Audio file of before 2004, which nothing here can check.")
    described, headed, seek, wave, low, high, tail = struct.unpack("<7I", window.need(start + 8, 28))
    _shorter(start + described + headed + seek + wave + (high << 32 | low) + tail, window)
    _, _, per_frame, last, frames, bits, channels, rate = struct.unpack("<HHIIIHHI", window.need(start + described, 24))
    seconds = ((frames - 1) * per_frame + last) / rate if frames else 0.0
    return Audio(
        format="ape", codec="ape", suffix=".ape", bitrate=kbits(high << 32 | low, seconds), sample_rate=rate, bits=bits,
        channels=channels, duration=round(seconds, 3), lossless=True, verified=STRUCTURE,
    )  # fmt: skip


# --- DSD -------------------------------------------------------------------------------------------------------


def check_dsf(window: Window, start: int, _: Path) -> Audio:
    _, total, _ = struct.unpack("<QQQ", window.need(start + 4, 24))
    _shorter(start + total, window)
    channels, rate, _, samples = struct.unpack("<IIIQ", window.need(start + 28 + 24, 20))
    return _dsd("dsf", window, channels, rate, samples / rate)


def check_dsdiff(window: Window, start: int, _: Path) -> Audio:
    head = window.need(start, 16)
    if head[12:16] != b"DSD ":
        raise NotAudio("not_audio", "This is an IFF file, but not audio.")
    end = start + 12 + int.from_bytes(head[4:12], "big")
    _shorter(end, window)
    at, rate, channels, size = start + 16, 0, 0, 0
    while at + 12 <= end:
        kind, length = struct.unpack(">4sQ", window.need(at, 12))
        if kind == b"PROP":
            inner = window.need(at + 12, min(length, 4096))
            rate = _property(inner, b"FS  ", 4)
            channels = _property(inner, b"CHNL", 2)
        elif kind in (b"DSD ", b"DST "):
            size = length
        at += 12 + length + length % 2
    if not size or not rate or not channels:
        raise truncated("there are headers, but no audio")
    return _dsd("dff", window, channels, rate, size * 8 / channels / rate)


def _property(inner: bytes, name: bytes, width: int) -> int:
    at = inner.find(name)
    return int.from_bytes(inner[at + 12 : at + 12 + width], "big") if at >= 0 else 0


def _dsd(form: str, window: Window, channels: int, rate: int, seconds: float) -> Audio:
    return Audio(
        format=form, codec="dsd", suffix=f".{form}", bitrate=kbits(window.size, seconds), sample_rate=rate, bits=1,
        channels=channels, duration=round(seconds, 3), lossless=True, verified=STRUCTURE,
    )  # fmt: skip


# --- WavPack ---------------------------------------------------------------------------------------------------

_WAVPACK_RATES = (6000, 8000, 9600, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000, 192000)


def check_wavpack(window: Window, start: int, _: Path) -> Audio:
    declared, flags, reached, channels = -1, 0, 0, 0
    at = start
    while window.size - at >= 32 and window.at(at, 4) == b"wvpk":
        size, _version, _number, high, total, index, samples, own, _crc = struct.unpack(
            "<IHBBIIIII", window.need(at + 4, 28)
        )
        if at == start:
            declared, flags = (-1 if total == 0xFFFFFFFF else total | high >> 4 << 32), own
        if index == 0 and samples:
            channels += 1 if own & 4 else 2
        reached = max(reached, index + samples)
        at += size + 8
    if at > window.size or (declared >= 0 and reached < declared):
        raise truncated(f"it declares {declared} samples and has {reached}")
    rate_code = flags >> 23 & 15
    rate = _WAVPACK_RATES[rate_code] if rate_code < len(_WAVPACK_RATES) else 0
    seconds = reached / rate if rate else 0.0
    return Audio(
        format="wavpack", codec="wavpack", suffix=".wv", bitrate=kbits(at - start, seconds), sample_rate=rate,
        bits=((flags & 3) + 1) * 8 - (flags >> 13 & 31), channels=channels, duration=round(seconds, 3),
        lossless=not flags & 8, verified=STRUCTURE,
    )  # fmt: skip


# --- Musepack --------------------------------------------------------------------------------------------------

_MUSEPACK_RATES = (44100, 48000, 37800, 32000)


def _varying(data: bytes) -> tuple[int, int]:
    """A number of seven bits a byte, and how many bytes it took."""
    value = 0
    for count, byte in enumerate(data, 1):
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            return value, count
    raise corrupt("its headers are wrong")


def check_musepack8(window: Window, start: int, _: Path) -> Audio:
    at = start + 4
    samples = rate = channels = 0
    while True:
        head = window.at(at, 12)
        if len(head) < 3 or at > window.size:
            raise truncated("its last part is missing")
        size, width = _varying(head[2:])
        if head[:2] == b"SE":
            break
        if head[:2] == b"SH":
            inner = window.need(at + 2 + width + 5, 24)
            samples, first = _varying(inner)
            second = _varying(inner[first:])[1]
            rate = _MUSEPACK_RATES[inner[first + second] >> 5 & 3]
            channels = (inner[first + second + 1] >> 4) + 1
        if size < 3:
            raise corrupt("its parts contradict each other")
        at += size
    return _musepack(window, start, rate, channels, samples)


def check_musepack7(window: Window, start: int, _: Path) -> Audio:
    head = window.need(start, 12)
    if head[3] & 15 != 7:
        raise NotAudio("not_audio", "This is a Musepack file of a version that nothing here can check.")
    return _musepack(window, start, _MUSEPACK_RATES[head[10] & 3], 2, int.from_bytes(head[4:8], "little") * 1152)


def _musepack(window: Window, start: int, rate: int, channels: int, samples: int) -> Audio:
    seconds = samples / rate
    return Audio(
        format="musepack", codec="musepack", suffix=".mpc", bitrate=kbits(window.size - start, seconds),
        sample_rate=rate, bits=None, channels=channels, duration=round(seconds, 3), lossless=False, verified=STRUCTURE,
    )  # fmt: skip
