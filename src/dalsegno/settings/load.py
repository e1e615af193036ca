"""The settings in force: the file, overridden by the environment. Every value knows its origin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dotenv.parser import parse_stream
from pydantic import SecretStr, ValidationError

from dalsegno.errors import SettingInvalid
from dalsegno.model.suggest import did_you_mean
from dalsegno.settings.keys import CONCURRENCY, FREE, RETENTION, SOURCE
from dalsegno.settings.masks import MASK, masked_url
from dalsegno.settings.settings import KEYS, Settings

DEFAULT_FILE = Path("dalsegno.env")
Origin = Literal["default", "file", "environment", "option"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A setting as people see it."""

    key: str
    value: str
    origin: Origin
    line: int | None


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    file: Path
    found: bool
    """Whether the file is there. It need not be: every key has a default."""
    origins: Mapping[str, tuple[Origin, int | None]]

    def shown(self) -> list[Shown]:
        """Every key with its value (secrets masked) and origin."""
        rows = [(key, getattr(self.settings, key.lower())) for key in KEYS]
        rows += [(CONCURRENCY + name.upper(), limit) for name, limit in sorted(self.settings.max_concurrency.items())]
        rows += [(RETENTION + name.upper(), days) for name, days in sorted(self.settings.retention_lanes.items())]
        rows += [(SOURCE + name.upper(), MASK) for name in sorted(self.settings.source_options)]
        return [Shown(key, _as_text(value), *self.origins.get(key, ("default", None))) for key, value in rows]


def _free(key: str) -> str | None:
    """The beginning of a key that operators may make up."""
    return next((prefix for prefix in FREE if key.startswith(prefix) and key != prefix), None)


def load_settings(
    env_file: Path | None = None,
    database: str | None = None,
    *,
    needed: bool = True,
    options: Mapping[str, Any] | None = None,
    environment: bool = True,
) -> Loaded:
    """The settings in force. A named `env_file` must exist if it is `needed`; `database` is the command line's
    --database. `options` are said before anything else, by field; without `environment` nothing of it takes part.
    """
    file = env_file or DEFAULT_FILE
    origins: dict[str, tuple[Origin, int | None]] = {}
    free: dict[str, dict[str, str]] = {field: {} for field in FREE.values()}
    found = file.exists()
    if env_file is not None and needed and not found:
        raise SettingInvalid(key=str(file), problem="there is no such file.")
    given: dict[str, Any] = {}
    if not environment:  # a key that is given is not looked for there
        given = {name: each.get_default(call_default_factory=True) for name, each in Settings.model_fields.items()}
    for key, value, line in _read(file) if found else ():
        origins[key] = ("file", line)
        if prefix := _free(key):
            free[FREE[prefix]][key.removeprefix(prefix).lower()] = value
        elif not environment:
            given[key.lower()] = value
    for key, value in os.environ.items() if environment else ():
        prefix = _free(key)
        if value and (key in KEYS or prefix):
            origins[key] = ("environment", None)
            if prefix:
                free[FREE[prefix]][key.removeprefix(prefix).lower()] = value
    given |= free
    for name, value in {**(options or {}), **({} if database is None else {"database_url": database})}.items():
        given[name] = value
        origins[name.upper()] = ("option", None)
    try:
        settings = Settings(_env_file=file if found else None, _env_file_encoding="utf-8", **given)
    except ValidationError as error:
        raise _explained(error, file, origins) from None
    if settings.backoff_cap_sec < settings.backoff_base_sec:
        raise SettingInvalid(key="BACKOFF_CAP_SEC", problem="it must not be smaller than BACKOFF_BASE_SEC.")
    return Loaded(settings, file, found, origins)


def _read(file: Path) -> list[tuple[str, str, int]]:
    """Key, value and line of every entry that says something; raises for unknown keys and other text."""
    entries = []
    try:
        with file.open(encoding="utf-8") as stream:
            bindings = list(parse_stream(stream))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingInvalid(key=str(file), problem=f"it cannot be read: {error}.") from None
    for binding in bindings:
        # A binding's text begins with the blank lines before it.
        text = binding.original.string
        line = binding.original.line + text[: len(text) - len(text.lstrip())].count("\n")
        place = f"{file}, line {line}"
        if binding.error or (binding.key is not None and binding.value is None):
            raise SettingInvalid(key=place, problem=f'"{text.strip():.60}" is not KEY=value.')
        if binding.key is None:
            continue
        key = binding.key.upper()
        if key not in KEYS and not _free(key):
            hint = did_you_mean(key, (*KEYS, f"{CONCURRENCY}<SERVICE>", f"{RETENTION}<LANE>_JOBS_DAYS"))
            raise SettingInvalid(key=f"{place}, {binding.key}", problem=f"this key is not known.{hint}")
        if binding.value:
            entries.append((key, binding.value, line))
    return entries


def _explained(error: ValidationError, file: Path, origins: Mapping[str, tuple[Origin, int | None]]) -> SettingInvalid:
    fault = error.errors(include_url=False)[0]
    field = str(fault["loc"][0])
    prefix = next((prefix for prefix, gathered in FREE.items() if gathered == field), None)
    key = field.upper() if prefix is None else prefix + str(fault["loc"][1]).upper()
    origin, line = origins.get(key, ("default", None))
    place = f"{file}, line {line}, " if origin == "file" else "environment, " if origin == "environment" else ""
    reason = fault["msg"].removeprefix("Value error, ")
    secret = key.endswith("_URL") or prefix == SOURCE or Settings.model_fields[field].annotation is SecretStr
    given = "" if secret or not isinstance(fault["input"], str) else f' (it is "{fault["input"]:.60}")'
    return SettingInvalid(key=place + key, problem=f"{reason[0].lower()}{reason[1:]}{given}.")


def _as_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case SecretStr():
            return MASK if value.get_secret_value() else ""
        case dict():
            return ",".join(f"{name}={text}" for name, text in value.items())
        case tuple():
            return ",".join(masked_url(each) for each in value)
        case float():
            return f"{value:g}"
        case _:
            return masked_url(str(value))
