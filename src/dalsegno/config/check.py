"""Whether a text can be the settings file: everything that is wrong with it, each with its line and a way out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dotenv.main import resolve_variables
from pydantic import ValidationError

from dalsegno.config.envfile import Document
from dalsegno.config.fields import Key, key_of
from dalsegno.config.masks import PROGRAMS
from dalsegno.config.meant import meaningless
from dalsegno.config.model import Fault
from dalsegno.errors import PayloadTooLarge
from dalsegno.model.suggest import closest, did_you_mean
from dalsegno.settings import KEYS, Settings
from dalsegno.settings.keys import CONCURRENCY, FREE, SOURCE

MOST_BYTES = 256_000


def too_large(content: str) -> None:
    size = len(content.encode("utf-8", "replace"))
    if size > MOST_BYTES:
        raise PayloadTooLarge(what="The settings file", size=size, limit=MOST_BYTES)


def check(document: Document) -> list[Fault]:
    """Errors and warnings, by line."""
    found = [*_characters(document), *_lines(document), *_values(document)]
    return sorted(found, key=lambda fault: (fault.line or 0, fault.key or ""))


def values_of(document: Document) -> dict[str, str]:
    """What the entries say, the last of each key, with ${NAMES} filled in."""
    said = ((part.key, part.value) for part in document.entries() if part.key)
    return {key: value for key, value in resolve_variables(said, override=True).items() if value}


def settings_of(document: Document) -> Settings:
    """Of a text alone: what the environment says is not the file's doing. Raises what pydantic raises."""
    given: dict[str, Any] = {
        name: field.get_default(call_default_factory=True) for name, field in Settings.model_fields.items()
    }
    for key, value in values_of(document).items():
        prefix = next((prefix for prefix in FREE if key.startswith(prefix) and key != prefix), None)
        if prefix:
            given[FREE[prefix]][key.removeprefix(prefix).lower()] = value
        elif key in KEYS:
            given[key.lower()] = value
    return Settings(_env_file=None, **given)


def _characters(document: Document) -> Iterator[Fault]:
    for number, line in enumerate(document.text.split("\n"), 1):
        if "\x00" in line:
            yield Fault(number, None, "there is a NUL character in it.", "Take it out: no editor shows it.",
                        code="nul")  # fmt: skip
        if any("\ud800" <= character <= "\udfff" for character in line):
            yield Fault(number, None, "there is half a character in it.", "Type the character again.",
                        code="half_character")  # fmt: skip


def _lines(document: Document) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for part in document.parts:
        if part.kind == "broken":
            closed = part.text.count('"') % 2 == 0 and part.text.count("'") % 2 == 0
            reason = "this is not KEY=value." if closed else "a quote is opened here and never closed."
            yield Fault(part.line, None, reason, "Write KEY=value, or begin the line with # to make it a remark.",
                        code="no_entry" if closed else "unclosed")  # fmt: skip
        if part.kind != "entry" or part.key is None:
            continue
        if key_of(part.key) is None:
            known = (*KEYS, f"{CONCURRENCY}<SERVICE>", f"{SOURCE}<NAME>_<KEY>")
            yield Fault(part.line, part.key, "this key is not known.", did_you_mean(part.key, known).strip(),
                        code="key_unknown", data={"meant": closest(part.key, known)})  # fmt: skip
        elif part.key in first:
            reason = f"it is set in line {first[part.key]} already; the last one counts."
            yield Fault(part.line, part.key, reason, "Take one of them out.", "warning", "twice",
                        {"n": first[part.key]})  # fmt: skip
        first[part.key] = part.line


def _values(document: Document) -> Iterator[Fault]:
    lines = {part.key: part.line for part in document.entries()}
    try:
        settings = settings_of(document)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            field = str(each["loc"][0])
            prefix = next((prefix for prefix, gathered in FREE.items() if gathered == field), None)
            name = field.upper() if prefix is None else prefix + str(each["loc"][1]).upper()
            yield _wrong(
                name, lines.get(name), each["msg"].removeprefix("Value error, "), each["type"], each.get("ctx")
            )
        return
    if settings.backoff_cap_sec < settings.backoff_base_sec:
        key = "BACKOFF_CAP_SEC" if "BACKOFF_CAP_SEC" in lines else "BACKOFF_BASE_SEC"
        reason = "BACKOFF_CAP_SEC must not be smaller than BACKOFF_BASE_SEC."
        least = f"{settings.backoff_base_sec:g}"
        yield Fault(lines.get(key), key, reason, f"Write at least {least} as BACKOFF_CAP_SEC.", code="cap_below_base",
                    data={"least": least})  # fmt: skip
    for name, said in meaningless(settings):
        yield _wrong(name, lines.get(name), said, f"meaningless_{name.lower()}")


def _wrong(name: str, line: int | None, said: str, code: str, data: Mapping[str, Any] | None = None) -> Fault:
    key = key_of(name)
    if name in PROGRAMS and not code.startswith(
        "meaningless"
    ):  # what it says is part of a command, which may hold anything
        said = "each program is written as name=command"
    said = said if said.endswith((".", "?")) else f"{said}."
    return Fault(line, name, said[0].lower() + said[1:], "" if key is None else _suggestion(key), code=code,
                 data={name: value for name, value in (data or {}).items() if name != "error"})  # fmt: skip


def _suggestion(key: Key) -> str:
    match key.kind:
        case "choice" | "yes_no":
            return f"Write one of: {', '.join(key.choices)}."
        case "secret":
            return "Write the whole value."
        case "pairs" if key.name in PROGRAMS:
            return f"For example {key.example}; several with ; between."
        case "list" | "pairs":
            return f"For example {key.example}; several with commas between."
        case _:
            return f"For example {key.example}." if key.example else ""
