"""The operator's settings: `dalsegno.env`, overridden by the environment. Every value knows its origin."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv.parser import parse_stream
from pydantic import BeforeValidator, Field, PositiveInt, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dalsegno.errors import SettingInvalid
from dalsegno.model.suggest import did_you_mean

DEFAULT_FILE = Path("dalsegno.env")
CONCURRENCY = "MAX_CONCURRENCY_"
QUERY_PASSWORD = re.compile(r"(?<=[?&]password=)[^&]*")
Origin = Literal["default", "file", "environment", "option"]


def _names(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _labels(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in _names(value)]
    bad = [name for name, equals, _ in pairs if not equals or not name.strip()]
    if bad:
        raise ValueError(f'"{bad[0]}" is not name=value; write for example gpu=true,zone=eu')
    return {name.strip(): text.strip() for name, _, text in pairs}


class Settings(BaseSettings):
    """One field per key, with a default that works. Keys are the fields' names in capitals."""

    model_config = SettingsConfigDict(
        use_attribute_docstrings=True,
        extra="ignore",
        frozen=True,
        env_ignore_empty=True,
        validate_default=False,
        allow_inf_nan=False,
    )

    database_url: str = "sqlite:///dalsegno.db"
    """Where everything is kept: `sqlite:///file.db`, or `postgresql://user:password@host/name`."""
    listen_database_url: str | None = None
    """A direct connection for LISTEN, where DATABASE_URL goes through PgBouncer in transaction mode."""
    library_root: Path = Path("library")
    """The folder files are written to."""
    node_name: Annotated[str, Field(min_length=1, max_length=200)] = Field(default_factory=socket.gethostname)
    """What this machine is called in listings; the host name unless said otherwise."""
    node_labels: Annotated[dict[str, str], NoDecode, BeforeValidator(_labels)] = Field(default_factory=dict)
    """What this machine offers, for example `gpu=true,zone=eu`."""
    max_concurrency: Annotated[dict[str, PositiveInt], NoDecode] = Field(default_factory=dict)
    """From MAX_CONCURRENCY_<SERVICE>; the names as written there, in small letters."""
    resolve_workers_max: PositiveInt | None = None
    """Most workers at once before the last phase of a service made of phases; four times its workers unless said."""
    backoff_base_sec: float = Field(default=15.0, gt=0)
    """Seconds before the first retry; each further one waits twice as long."""
    backoff_cap_sec: float = Field(default=3600.0, gt=0)
    """The longest wait between two tries, in seconds."""
    heartbeat_ttl_sec: float = Field(default=60.0, ge=30)
    """Seconds without a heartbeat after which a process counts as dead (at least 30)."""
    notify_channel_prefix: str = Field(default="dalsegno_", pattern=r"^[a-z_][a-z0-9_]{0,40}$")
    """What the PostgreSQL notification channel begins with: one prefix per installation on a server."""
    drain_sec: float = Field(default=30.0, ge=0)
    """Seconds that running items have to finish after SIGTERM."""
    services: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)] = ()
    """Modules that define services and workflows."""

    @field_validator("services")
    @classmethod
    def _modules(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")):
                raise ValueError(f'"{name}" is not the name of a Python module, such as mypackage.services')
        return names

    def concurrency(self, services: list[str]) -> dict[str, int]:
        """The limits by the services' own names: `MAX_CONCURRENCY_MY_RENDERER` is for `my-renderer`."""
        return {name: self.max_concurrency[key] for name in services if (key := _as_key(name)) in self.max_concurrency}

    def snapshot(self) -> dict[str, Any]:
        """What a job keeps of these settings for life. No secrets, and paths that do not move with `cd`."""
        return {"LIBRARY_ROOT": str(self.library_root.absolute())}

    def secrets(self) -> tuple[str, ...]:
        """Texts that must never be logged."""
        urls = (self.database_url, self.listen_database_url or "")
        found = {secret for url in urls for secret in (_password(url), *QUERY_PASSWORD.findall(url)) if secret}
        return tuple(sorted(found))


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
        return [Shown(key, _as_text(value), *self.origins.get(key, ("default", None))) for key, value in rows]


KEYS = tuple(name.upper() for name in Settings.model_fields if name != "max_concurrency")


def load_settings(env_file: Path | None = None, database: str | None = None) -> Loaded:
    """The settings in force. A named `env_file` must exist; `database` is the command line's --database."""
    file = env_file or DEFAULT_FILE
    origins: dict[str, tuple[Origin, int | None]] = {}
    limits: dict[str, str] = {}
    found = file.exists()
    if env_file is not None and not found:
        raise SettingInvalid(key=str(file), problem="there is no such file.")
    for key, value, line in _read(file) if found else ():
        origins[key] = ("file", line)
        if key.startswith(CONCURRENCY):
            limits[key] = value
    for key, value in os.environ.items():
        if value and (key in KEYS or key.startswith(CONCURRENCY)):
            origins[key] = ("environment", None)
            if key.startswith(CONCURRENCY):
                limits[key] = value
    given: dict[str, Any] = {"max_concurrency": {key.removeprefix(CONCURRENCY).lower(): limits[key] for key in limits}}
    if database is not None:
        given["database_url"] = database
        origins["DATABASE_URL"] = ("option", None)
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
        if key not in KEYS and (not key.startswith(CONCURRENCY) or key == CONCURRENCY):
            hint = did_you_mean(key, (*KEYS, f"{CONCURRENCY}<SERVICE>"))
            raise SettingInvalid(key=f"{place}, {binding.key}", problem=f"this key is not known.{hint}")
        if binding.value:
            entries.append((key, binding.value, line))
    return entries


def _explained(error: ValidationError, file: Path, origins: Mapping[str, tuple[Origin, int | None]]) -> SettingInvalid:
    fault = error.errors(include_url=False)[0]
    field = str(fault["loc"][0])
    key = field.upper() if field != "max_concurrency" else CONCURRENCY + str(fault["loc"][1]).upper()
    origin, line = origins.get(key, ("default", None))
    place = f"{file}, line {line}, " if origin == "file" else "environment, " if origin == "environment" else ""
    reason = fault["msg"].removeprefix("Value error, ")
    given = "" if key.endswith("_URL") or not isinstance(fault["input"], str) else f' (it is "{fault["input"]:.60}")'
    return SettingInvalid(key=place + key, problem=f"{reason[0].lower()}{reason[1:]}{given}.")


def _as_key(service: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", service.lower())


def _as_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case dict():
            return ",".join(f"{name}={text}" for name, text in value.items())
        case tuple():
            return ",".join(value)
        case float():
            return f"{value:g}"
        case _:
            return masked_url(str(value))


def _password(url: str) -> str:
    """What stands between the user's name and the last @ of a URL; empty where there is none."""
    found = re.match(r"[\w+]+://[^:/@]*:(.+)@", url)
    return found.group(1) if found else ""


def masked_url(url: str) -> str:
    """The URL without its password, wherever it stands."""
    secret = _password(url)
    shown = url.replace(f":{secret}@", ":***@") if secret else url
    return QUERY_PASSWORD.sub("***", shown)
