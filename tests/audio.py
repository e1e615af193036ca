"""Small real audio files, made by hand: no encoder has to be installed. The same arguments give the same bytes."""

from __future__ import annotations

import hashlib
import io
import random
import struct
import sys
import wave
import zlib
from array import array


def samples(seconds: float, seed: int, rate: int, channels: int, bits: int) -> list[int]:
    """Interleaved noise, loud enough that every byte of a sample matters."""
    top = (1 << (bits - 1)) - 1
    chance = random.Random(seed)
    return [chance.randint(-top, top) for _ in range(int(seconds * rate) * channels)]


def wav(seconds: float = 0.2, seed: int = 1, *, rate: int = 44100, channels: int = 2, bits: int = 16) -> bytes:
    size = int(seconds * rate) * channels * bits // 8
    stream = io.BytesIO()
    with wave.open(stream, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(bits // 8)
        writer.setframerate(rate)
        writer.writeframes(random.Random(seed).randbytes(size))
    return stream.getvalue()


# --- FLAC: verbatim subframes, so nothing is compressed and every part of the format is there ----------------


def _table(polynomial: int, width: int) -> list[int]:
    top, mask = 1 << (width - 1), (1 << width) - 1
    table = []
    for byte in range(256):
        value = byte << (width - 8)
        for _ in range(8):
            value = ((value << 1) ^ polynomial) & mask if value & top else (value << 1) & mask
        table.append(value)
    return table


_CRC8, _CRC16 = _table(0x07, 8), _table(0x8005, 16)


def _crc8(data: bytes) -> int:
    value = 0
    for byte in data:
        value = _CRC8[value ^ byte]
    return value


def _crc16(data: bytes) -> int:
    value = 0
    for byte in data:
        value = ((value << 8) & 0xFFFF) ^ _CRC16[(value >> 8) ^ byte]
    return value


def _coded_number(number: int) -> bytes:
    return chr(number).encode("utf-8", "surrogatepass")  # as UTF-8 does it; enough for the first million frames


def _big(values: list[int], bits: int) -> bytes:
    if bits == 16:
        packed = array("h", values)
        if sys.byteorder == "little":
            packed.byteswap()
        return packed.tobytes()
    return b"".join(value.to_bytes(bits // 8, "big", signed=True) for value in values)


def _little(values: list[int], bits: int) -> bytes:
    return b"".join(value.to_bytes(bits // 8, "little", signed=True) for value in values)


def flac(
    seconds: float = 0.2,
    seed: int = 1,
    *,
    rate: int = 44100,
    channels: int = 2,
    bits: int = 16,
    md5: bool = True,
    total: int | None = None,
    title: str = "",
) -> bytes:
    """`total`: the length that STREAMINFO declares, if not the true one."""
    block = 4096
    values = samples(seconds, seed, rate, channels, bits)
    frames = len(values) // channels
    digest = hashlib.md5(_little(values, bits), usedforsecurity=False).digest() if md5 else bytes(16)
    packed = (rate << 44) | ((channels - 1) << 41) | ((bits - 1) << 36) | (frames if total is None else total)
    info = struct.pack(">HH", block, block) + bytes(6) + packed.to_bytes(8, "big") + digest
    comment = f"TITLE={title}".encode()
    tags = struct.pack("<I4sII", 4, b"test", 1, len(comment)) + comment
    parts = [b"fLaC", b"\x00", len(info).to_bytes(3, "big"), info, b"\x84", len(tags).to_bytes(3, "big"), tags]
    size_bits = {8: 1, 16: 4, 24: 6}[bits]
    for number, start in enumerate(range(0, frames, block)):
        count = min(block, frames - start)
        head = bytes([0xFF, 0xF8, 0x70, ((channels - 1) << 4) | (size_bits << 1)])
        head += _coded_number(number) + struct.pack(">H", count - 1)
        frame = head + bytes([_crc8(head)])
        for channel in range(channels):
            own = values[start * channels + channel : (start + count) * channels : channels]
            frame += b"\x02" + _big(own, bits)
        parts += [frame, struct.pack(">H", _crc16(frame))]
    return b"".join(parts)


# --- MP3: frames of silence, each with its own filling ---------------------------------------------------------


def mp3(
    seconds: float = 1.0, seed: int = 1, *, xing: bool = True, id3: bool = True, id3v1: bool = False, title: str = ""
) -> bytes:
    """128 kbit/s, 44.1 kHz, stereo. Side information of zeros decodes to silence, whatever fills the frame."""
    chance = random.Random(seed)
    count = max(2, int(seconds * 44100 / 1152))
    head, side = b"\xff\xfb\x90\x00", bytes(32)
    filling = 417 - len(head) - len(side)
    frames = [head + side + chance.randbytes(filling).replace(b"\xff", b"\xfe") for _ in range(count)]
    if xing:
        note = b"Info" + struct.pack(">III", 3, count, 417 * (count + 1))
        frames.insert(0, (head + side + note).ljust(417, b"\x00"))
    data = b"".join(frames)
    if id3:
        text = b"\x03" + title.encode()
        frame = b"TIT2" + _syncsafe(len(text)) + b"\x00\x00" + text
        data = b"ID3\x04\x00\x00" + _syncsafe(len(frame)) + frame + data
    return data + (b"TAG" + title.encode()[:30].ljust(125, b"\x00") if id3v1 else b"")


def _syncsafe(number: int) -> bytes:
    return bytes((number >> shift) & 0x7F for shift in (21, 14, 7, 0))


# --- Ogg -----------------------------------------------------------------------------------------------------

_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def ogg_crc(data: bytes) -> int:
    """Ogg's CRC is zlib's, mirrored."""
    mirrored = zlib.crc32(data.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)


def ogg_page(packet: bytes, *, kind: int, position: int, serial: int, number: int) -> bytes:
    lacing = bytes([255] * (len(packet) // 255) + [len(packet) % 255])
    head = struct.pack("<4sBBqIII", b"OggS", 0, kind, position, serial, number, 0) + bytes([len(lacing)]) + lacing
    page = head + packet
    return page[:22] + struct.pack("<I", ogg_crc(page)) + page[26:]


def opus(seconds: float = 1.0, seed: int = 1, *, end: bool = True) -> bytes:
    chance = random.Random(seed)
    pages = [(b"OpusHead" + struct.pack("<BBHIhB", 1, 2, 312, 48000, 0, 0), 2, 0)]
    pages.append((b"OpusTags" + struct.pack("<I4sI", 4, b"test", 0), 0, 0))
    count = max(1, int(seconds * 50))
    for number in range(count):
        last = end and number == count - 1
        pages.append((b"\xfc" + chance.randbytes(160), 4 if last else 0, 960 * (number + 1)))
    return b"".join(
        ogg_page(packet, kind=kind, position=position, serial=7, number=number)
        for number, (packet, kind, position) in enumerate(pages)
    )


# --- MP4 -----------------------------------------------------------------------------------------------------


def _box(kind: bytes, *content: bytes) -> bytes:
    inner = b"".join(content)
    return struct.pack(">I4s", 8 + len(inner), kind) + inner


def m4a(seconds: float = 1.0, seed: int = 1, *, codec: bytes = b"mp4a", moov_first: bool = True) -> bytes:
    """AAC in name only: the boxes are right, what the frames hold is noise."""
    chance = random.Random(seed)
    count = max(1, int(seconds * 44100 / 1024))
    frames = [chance.randbytes(300 + number % 40) for number in range(count)]
    entry = bytes(6) + struct.pack(">H", 1) + bytes(8) + struct.pack(">HHHHI", 2, 16, 0, 0, 44100 << 16)
    kind = _box(b"ftyp", b"M4A ", bytes(4), b"M4A mp42isom")
    body = _box(b"mdat", *frames)

    def moov(first: int) -> bytes:
        table = _box(
            b"stbl",
            _box(b"stsd", struct.pack(">II", 0, 1), _box(codec, entry)),
            _box(b"stts", struct.pack(">IIII", 0, 1, count, 1024)),
            _box(b"stsc", struct.pack(">IIIII", 0, 1, 1, count, 1)),
            _box(b"stsz", struct.pack(">III", 0, 0, count), *[struct.pack(">I", len(frame)) for frame in frames]),
            _box(b"stco", struct.pack(">III", 0, 1, first)),
        )
        length = struct.pack(">IIII", 0, 0, 44100, count * 1024)
        media = _box(
            b"mdia",
            _box(b"mdhd", bytes(4), length, bytes(4)),
            _box(b"hdlr", bytes(8), b"soun", bytes(13)),
            _box(b"minf", table),
        )
        return _box(b"moov", _box(b"mvhd", bytes(4), length, bytes(80)), _box(b"trak", media))

    if moov_first:
        offset = len(kind) + len(moov(0)) + 8
        return kind + moov(offset) + body
    return kind + body + moov(len(kind) + 8)
