"""Examining: what it is, and whether all of it is there."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.catalog.audio import Audio, NotAudio, examine
from tests import audio

MAKERS: dict[str, Callable[[], bytes]] = {
    "wav": audio.wav,
    "flac": audio.flac,
    "flac-24": lambda: audio.flac(bits=24, rate=96000),
    "flac-8": lambda: audio.flac(bits=8, channels=1),
    "mp3": audio.mp3,
    "mp3-plain": lambda: audio.mp3(xing=False, id3=False),
    "mp3-tagged": lambda: audio.mp3(id3v1=True),
    "opus": audio.opus,
    "m4a": audio.m4a,
    "m4a-index-last": lambda: audio.m4a(moov_first=False),
}


@pytest.fixture
def look(tmp_path: Path) -> Callable[[bytes], Audio]:
    def examined(data: bytes) -> Audio:
        path = tmp_path / "file"
        path.write_bytes(data)
        return examine(path)

    return examined


def code_of(look: Callable[[bytes], Audio], data: bytes) -> str:
    with pytest.raises(NotAudio) as caught:
        look(data)
    return caught.value.code


@pytest.mark.parametrize(
    ("made", "suffix", "rate", "bits", "quality", "verified"),
    [
        ("wav", ".wav", 44100, 16, "lossless", "structure"),
        ("flac", ".flac", 44100, 16, "lossless", "md5"),
        ("flac-24", ".flac", 96000, 24, "hi-res", "md5"),
        ("flac-8", ".flac", 44100, 8, "lossless", "md5"),
        ("mp3", ".mp3", 44100, None, "standard", "structure"),
        ("mp3-plain", ".mp3", 44100, None, "standard", "structure"),
        ("mp3-tagged", ".mp3", 44100, None, "standard", "structure"),
        ("opus", ".opus", 48000, None, "low", "structure"),
        ("m4a", ".m4a", 44100, None, "low", "structure"),
        ("m4a-index-last", ".m4a", 44100, None, "low", "structure"),
    ],
)
def test_a_whole_file_is_known_by_its_content(
    look: Callable[[bytes], Audio], made: str, suffix: str, rate: int, bits: int | None, quality: str, verified: str
) -> None:
    found = look(MAKERS[made]())
    assert (found.suffix, found.sample_rate, found.bits) == (suffix, rate, bits)
    assert (found.quality, found.verified) == (quality, verified)
    assert found.duration == pytest.approx(0.2 if "flac" in made or made == "wav" else 1.0, abs=0.03)


@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize("keep", [0.02, 0.51, 0.9, -1])
def test_a_cut_is_noticed(look: Callable[[bytes], Audio], made: str, keep: float) -> None:
    data = MAKERS[made]()
    end = len(data) - 1 if keep < 0 else int(len(data) * keep)
    if made == "mp3-tagged" and keep < 0:
        data, end = audio.mp3(), -1
    assert code_of(look, data[:end]) in ("truncated_audio", "corrupt_audio", "not_audio")


@pytest.mark.parametrize("made", ["flac", "flac-24", "flac-8", "opus"])
def test_one_flipped_bit_is_noticed(look: Callable[[bytes], Audio], made: str) -> None:
    data = MAKERS[made]()
    chance = random.Random(1)
    for _ in range(20):
        place = chance.randrange(200, len(data))
        broken = bytearray(data)
        broken[place] ^= 1 << chance.randrange(8)
        assert code_of(look, bytes(broken)) in ("corrupt_audio", "truncated_audio")


def test_samples_that_are_not_the_encoders_are_noticed_by_md5(look: Callable[[bytes], Audio]) -> None:
    data = audio.flac(seed=1)
    other = audio.flac(seed=2)
    head = 4 + 4 + 34
    assert code_of(look, data[:head] + other[head:]) == "corrupt_audio"


def test_a_flac_without_checksum_is_decoded(look: Callable[[bytes], Audio]) -> None:
    assert look(audio.flac(md5=False)).verified == "decoded"


def test_a_flac_that_declares_more_samples_is_cut_off(look: Callable[[bytes], Audio]) -> None:
    assert code_of(look, audio.flac(total=44100)) == "truncated_audio"


def test_zeros_in_the_middle_of_an_mp3_are_no_audio(look: Callable[[bytes], Audio]) -> None:
    data = bytearray(audio.mp3(10, xing=False))
    data[50_000:100_000] = bytes(50_000)
    assert code_of(look, bytes(data)) == "corrupt_audio"


def test_an_mp3_with_fewer_frames_than_it_declares_is_cut_off(look: Callable[[bytes], Audio]) -> None:
    data = audio.mp3(5)
    assert code_of(look, data[: -417 * 10]) == "truncated_audio"


def test_an_mp3_may_have_junk_before_it(look: Callable[[bytes], Audio]) -> None:
    assert look(b"\x01\x02junk" * 50 + audio.mp3(id3=False)).codec == "mp3"


def test_an_mp3_can_be_decoded_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(audio.mp3(3))
    assert examine(path, deep=True).verified == "decoded"


def test_an_ogg_without_its_last_page_is_cut_off(look: Callable[[bytes], Audio]) -> None:
    assert code_of(look, audio.opus(end=False)) == "truncated_audio"


def test_an_ogg_with_a_page_missing_is_damaged(look: Callable[[bytes], Audio]) -> None:
    data = audio.opus()
    pages = [b"OggS" + page for page in data.split(b"OggS")[1:]]
    del pages[10]
    assert code_of(look, b"".join(pages)) == "corrupt_audio"


def test_an_index_that_points_outside_is_cut_off(look: Callable[[bytes], Audio]) -> None:
    data = bytearray(audio.m4a())
    at = data.index(b"stco") + 12
    data[at : at + 4] = struct.pack(">I", len(data) - 10)
    assert code_of(look, bytes(data)) == "truncated_audio"


def test_a_wav_that_was_streamed_has_no_size(look: Callable[[bytes], Audio]) -> None:
    data = bytearray(audio.wav())
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    assert look(bytes(data)).duration == pytest.approx(0.2, abs=0.01)


def test_an_aiff_is_known(look: Callable[[bytes], Audio]) -> None:
    samples = bytes(8000)
    common = struct.pack(">hIh", 2, 2000, 16) + struct.pack(">HQ", 16383 + 15, 44100 << 48)
    inner = b"AIFFCOMM" + struct.pack(">I", 18) + common + b"SSND" + struct.pack(">I", 8008) + bytes(8) + samples
    data = b"FORM" + struct.pack(">I", len(inner)) + inner
    assert (look(data).sample_rate, look(data).suffix) == (44100, ".aiff")
    assert code_of(look, data[:-100]) == "truncated_audio"


def test_plain_aac_is_known(look: Callable[[bytes], Audio]) -> None:
    frame = bytes([0xFF, 0xF1, 0x50, 0x80, 307 >> 3, (307 & 7) << 5 | 0x1F, 0xFC]) + bytes(300)
    assert look(frame * 50).suffix == ".aac"
    assert code_of(look, (frame * 50)[:-5]) == "truncated_audio"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_file"),
        (b"<!DOCTYPE html><html>sorry</html>", "html_instead_of_audio"),
        (b"\xef\xbb\xbf\n <html>", "html_instead_of_audio"),
        (b'{"error": "no such song"}', "json_instead_of_audio"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "not_audio"),
        (b"just some words " * 100, "not_audio"),
        (bytes(5000), "corrupt_audio"),
        (b"ID3\x04\x00\x00\x00\x00\x00\x05hello", "truncated_audio"),
        (b"RIFF\x00\x00\x00\x00AVI ", "not_audio"),
    ],
)
def test_anything_else_is_refused_with_a_reason(look: Callable[[bytes], Audio], data: bytes, code: str) -> None:
    assert code_of(look, data) == code


MAGICS = [
    b"fLaC",
    b"OggS",
    b"RIFF1234WAVE",
    b"RF641234WAVE",
    b"FORM1234AIFF",
    b"MAC \x96\x0f",
    b"DSD ",
    b"FRM8",
    b"wvpk",
]
MAGICS += [
    b"MPCK",
    b"MP+\x07",
    b"\0\0\0\x18ftypM4A ",
    b"\xff\xfb\x90\x00",
    b"\xff\xf1P\x80",
    b"ID3\x04\0\0\0\0\0\x02ab",
]
MAGICS += [bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.sampled_from(MAGICS), st.binary(max_size=600))
def test_no_rubbish_brings_it_down(tmp_path: Path, magic: bytes, rest: bytes) -> None:
    path = tmp_path / "rubbish"
    path.write_bytes(magic + rest)
    _answered(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.sampled_from(sorted(MAKERS)), st.data())
def test_no_damage_brings_it_down(tmp_path: Path, made: str, data: st.DataObject) -> None:
    broken = bytearray(FILES[made])
    for _ in range(data.draw(st.integers(1, 5))):
        broken[data.draw(st.integers(0, min(len(broken) - 1, 700)))] = data.draw(st.integers(0, 255))
    path = tmp_path / "broken"
    path.write_bytes(broken)
    _answered(path)


FILES = {name: make() for name, make in MAKERS.items()}


def _answered(path: Path) -> None:
    with suppress(NotAudio):
        assert isinstance(examine(path), Audio)
