"""The built-in workflow `scale`: renders the notes of a scale, verifies each, binds them into a playlist.

Small, but real, and it shows every shape: `render` fans out into one item a note, `verify` follows it note by
note while others still render, `bind` waits for all.
"""

from __future__ import annotations

import array
import errno
import io
import math
import re
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dalsegno.builtin.files import whole, write_whole
from dalsegno.engine.item import Item
from dalsegno.engine.planner import Plan
from dalsegno.engine.service import service
from dalsegno.errors import InputInvalid
from dalsegno.model.outcome import Fail, Outcome, PauseJob, Release, Skip
from dalsegno.model.workflow import Step, Workflow

SCALE = Workflow(
    name="scale",
    steps=(
        Step(key="render", service="tone", default_params={"notes": 24, "seconds": 1.0, "pace": 0.2}),
        Step(key="verify", service="listen", depends_on=("render",), follow="each"),
        Step(key="bind", service="playlist", depends_on=("verify",)),
    ),
)

RATE = 22_050
LOUDNESS = 0.5
FADE = 0.01
"""Seconds: a tone that starts or ends at full strength clicks."""
HEADER = 44
LOWEST = 48  # C3, as MIDI counts
MOST_NOTES = 61
LONGEST = 60.0
SLICES = 10
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")


@service("tone", workers=2)
def tone(item: Item) -> Any:
    """Write one note as a WAV file; skipped when it is there already, whole."""
    number, seconds = int(item.params["number"]), float(item.params["seconds"])
    frames = round(RATE * seconds)
    path = _place(item.snapshot, f"{number + 1:02}-{item.key.replace('#', 's')}.wav")
    result = {"path": str(path), "frames": frames, "seconds": seconds, "title": item.key}
    there = None if item.forced else whole(path, HEADER + 2 * frames)
    if there is not None:
        item.artifact("output", path)
        return Skip("the file is there, whole", {**result, "sha256": there})
    samples = array.array("h")
    pitch = 440.0 * 2 ** ((LOWEST + number - 69) / 12)
    for piece in range(SLICES):
        if item.cancelled:
            return Release("stopped on request")
        samples.extend(_wave(pitch, frames, frames * piece // SLICES, frames * (piece + 1) // SLICES))
        item.progress((piece + 1) / SLICES, f"{item.key}, {pitch:.1f} Hz")
        time.sleep(float(item.params.get("pace", 0)) / SLICES)
    try:
        checksum = write_whole(path, _wav(samples))
    except OSError as error:
        return _trouble(error, path)
    item.artifact("output", path)
    item.log.info("rendered %s", path.name)
    return {**result, "sha256": checksum}


@tone.plan
def notes(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """One item a note, from C3 upwards."""
    count, seconds = plan.params.get("notes", 24), plan.params.get("seconds", 1.0)
    if not isinstance(count, int) or not 1 <= count <= MOST_NOTES:
        raise InputInvalid(problem=f"notes must be a whole number from 1 to {MOST_NOTES}, not {count!r}.")
    if not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST:
        raise InputInvalid(problem=f"seconds must be more than 0 and at most {LONGEST:g}, not {seconds!r}.")
    for number in range(count):
        octave, step = divmod(LOWEST + number, 12)
        yield f"{NAMES[step]}{octave - 1}", {"number": number}


@service("listen", workers=2)
def listen(item: Item) -> Any:
    """Read a rendered file back: same bytes, all frames, and as loud as it should be."""
    rendered = item.input
    path = Path(rendered["path"])
    try:
        checksum = item.artifact("input", path)
        with wave.open(str(path), "rb") as file:
            frames = file.getnframes()
            samples = array.array("h", file.readframes(frames))
    except (OSError, EOFError, wave.Error) as error:
        return Fail(f"{path.name} cannot be read: {error}", code="unreadable")
    if checksum != rendered["sha256"]:
        return Fail(f"{path.name} is not the file that was written", code="checksum_mismatch")
    if frames != rendered["frames"]:
        return Fail(f"{path.name} has {frames} frames, not {rendered['frames']}", code="wrong_length")
    rms = math.sqrt(sum(sample * sample for sample in samples) / max(1, frames)) / 32767
    if rms < LOUDNESS / 4:
        return Fail(f"{path.name} is too quiet ({rms:.3f})", code="too_quiet")
    return {
        "path": str(path),
        "seconds": rendered["seconds"],
        "title": rendered["title"],
        "rms": round(rms, 4),
    }


@service("playlist")
def playlist(item: Item) -> Any:
    """Write the M3U8 playlist of all verified notes."""
    path = _place(item.snapshot, item.key)
    lines = ["#EXTM3U"]
    for track in item.params["tracks"]:
        lines += [f"#EXTINF:{track['seconds']:.0f},{track['title']}", Path(track["path"]).name]
    try:
        write_whole(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        return _trouble(error, path)
    item.artifact("output", path, content_type="application/vnd.apple.mpegurl")
    return {"path": str(path), "tracks": len(item.params["tracks"])}


@playlist.plan
def tracks(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """One playlist. Notes arrive in the order they were verified; their names put them in order."""
    verified = sorted((upstream.result for upstream in plan.upstream()), key=lambda result: str(result["path"]))
    kept = [{name: result[name] for name in ("path", "title", "seconds")} for result in verified]
    yield "scale.m3u8", {"tracks": kept}


def _place(snapshot: dict[str, Any], name: str) -> Path:
    """One file in the library's folder, whatever the name: keys come from outside, and none may lead elsewhere."""
    safe = re.sub(r"[^\w .-]", "_", name).lstrip(".") or "_"
    return Path(snapshot.get("LIBRARY_ROOT", "library")) / "scale" / safe


def _wave(pitch: float, frames: int, start: int, end: int) -> Iterator[int]:
    """Samples of a tone and its octave, faded in and out. The same input gives the same bytes."""
    turn, fade = 2 * math.pi * pitch / RATE, max(1.0, FADE * RATE)
    for n in range(start, end):
        level = LOUDNESS * min(1.0, n / fade, (frames - n) / fade)
        yield round(32767 * level * (0.8 * math.sin(turn * n) + 0.2 * math.sin(2 * turn * n)))


def _wav(samples: array.array[int]) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


def _trouble(error: OSError, path: Path) -> Outcome:
    """A full disk pauses the job; a folder we may not write to does not get better by trying again."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PauseJob(f"no space left for {path}", code="disk_full")
    return Fail(f"{path} cannot be written: {error.strerror}", code="not_writable")
