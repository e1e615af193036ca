"""What is known about each key without looking at any file: what it is for, how a form asks for it, when it counts."""

from __future__ import annotations

import re
import types
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from dalsegno.config.model import Kind
from dalsegno.settings import KEYS, Settings
from dalsegno.settings.keys import CONCURRENCY, FREE, FROZEN, KEPT, RETENTION, SOURCE
from dalsegno.settings.values import Bytes

GROUPS = {
    "library": ("LIBRARY_ROOT", "MIN_FREE_SPACE", "NAME_TEMPLATE"),
    "sources": (
        "SOURCES", "SUBSONIC_URL", "SUBSONIC_USER", "SUBSONIC_PASSWORD", "SUBSONIC_API_KEY", "FEED_URLS",
        "PLAYLIST_FILES", "FOLDER_ROOTS", "YTDLP_URLS", "EXTERNAL_SOURCES", "DEMO_URL",
    ),
    "downloads": ("DOWNLOAD_SOURCES", "DOWNLOAD_WORKERS", "RESOLVE_WORKERS_MAX", "STALL_TIMEOUT_SEC"),
    "uploads": (
        "OBJECT_STORE", "S3_ENDPOINT", "S3_REGION", "S3_ACCESS_KEY", "S3_SECRET_KEY", "UPLOAD_WORKERS",
        "UPLOAD_BANDWIDTH",
    ),
    "requests": (
        "KODIK_URL", "KODIK_TOKEN", "REQUESTS_SOURCES", "REQUESTS_DECODERS", "EXTERNAL_DECODERS",
        "REQUESTS_LINK_TTL_SEC", "REQUESTS_ACTIVE_MAX", "REQUESTS_SEARCH_WORKERS", "REQUESTS_DECODE_WORKERS",
        "REQUESTS_MAX_RETRIES", "REQUESTS_API_KEY", "REQUESTS_PER_CLIENT_MAX", "REQUESTS_DEFAULT_PAGE_LIMIT",
        "REQUESTS_MAX_PAGE_LIMIT", "REQUESTS_WORKER_POLL_MS", "REQUESTS_STALE_RECOVERY_MS",
        "REQUESTS_STALE_AFTER_MS", "REQUESTS_PROGRESS_FLUSH_MS",
    ),
    "console": ("CONSOLE_HOST", "CONSOLE_PORT", "CONSOLE_PASSWORD", "CONSOLE_HOSTS", "CONSOLE_READ_ONLY", "LANGUAGE"),
    "machine": ("NODE_NAME", "NODE_LABELS", "SERVICES"),
    "engine": ("BACKOFF_BASE_SEC", "BACKOFF_CAP_SEC", "HEARTBEAT_TTL_SEC", "DRAIN_SEC", "OTEL_EXPORTER_OTLP_ENDPOINT"),
    "retention": (
        "RETENTION_JOBS_DAYS", "RETENTION_FAILED_DAYS", "RETENTION_FAILED_LAST", "RETENTION_EVENTS_DAYS",
        "RETENTION_LOGS_DAYS", "RETENTION_ARCHIVE",
    ),
    "database": ("DATABASE_URL", "LISTEN_DATABASE_URL", "NOTIFY_CHANNEL_PREFIX", "PG_BIN", "BACKUP_FOLDER"),
    "other": (),
}  # fmt: skip
"""Keys by what they are about, in the order of the form. A key that is in none is among `other`."""
LIVE = frozenset({
    "LIBRARY_ROOT", "LANGUAGE", "REQUESTS_ACTIVE_MAX", "REQUESTS_MAX_RETRIES", "REQUESTS_PER_CLIENT_MAX",
    "REQUESTS_DEFAULT_PAGE_LIMIT", "REQUESTS_MAX_PAGE_LIMIT", "RETENTION_JOBS_DAYS",
    "RETENTION_FAILED_DAYS", "RETENTION_FAILED_LAST", "RETENTION_EVENTS_DAYS", "RETENTION_LOGS_DAYS",
    "RETENTION_ARCHIVE", *(name.upper() for name in FROZEN),
})  # fmt: skip
"""What counts from the next job or page on, besides what services sign in with. All else is read once, at the start."""
READ_AT_START = frozenset({"CONSOLE_PASSWORD"})
"""Secrets that are not read anew."""
EXAMPLES = {
    "SUBSONIC_URL": "http://nas:4533",
    "FEED_URLS": "https://example.org/feed.xml",
    "PLAYLIST_FILES": "/music/party.m3u8",
    "FOLDER_ROOTS": "/mnt/music",
    "YTDLP_URLS": "https://example.org/playlist/1",
    "EXTERNAL_SOURCES": "musicdl=python3 bridge.py",
    "OBJECT_STORE": "s3://bucket/prefix",
    "S3_ENDPOINT": "https://nas:9000",
    "NODE_LABELS": "gpu=true,zone=eu",
    "SERVICES": "mypackage.services",
    "CONSOLE_HOSTS": "music.example.org",
    "MIN_FREE_SPACE": "2GB",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
    "UPLOAD_BANDWIDTH": "2MB",
    "RESOLVE_WORKERS_MAX": "40",
    "LISTEN_DATABASE_URL": "postgresql://user@host/name",
    "SOURCES": "subsonic,feed",
    "DOWNLOAD_SOURCES": "subsonic,folder",
    "RETENTION_ARCHIVE": "file:///mnt/archive",
    "KODIK_URL": "https://api.example.org",
    "REQUESTS_SOURCES": "kodik,subsonic",
    "REQUESTS_DECODERS": "direct,player",
    "EXTERNAL_DECODERS": "player=python3 decode.py",
}
URL = re.compile(r"_URL$|_ENDPOINT$|^OBJECT_STORE$")
SUSPECT = re.compile(r"PASS|PWD|SECRET|TOKEN|KEY|AUTH|CRED|SIGN|COOKIE", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    help: str
    group: str
    kind: Kind
    default: str
    choices: tuple[str, ...]
    example: str
    secret: bool
    restart_needed: bool


@lru_cache(1000)
def key_of(name: str) -> Key | None:
    """A key that may stand in the file, also one that an operator made up; None for one that nobody reads."""
    prefix = next((prefix for prefix in FREE if name.startswith(prefix) and name != prefix), None)
    if prefix == CONCURRENCY:
        service = name.removeprefix(CONCURRENCY).lower()
        return Key(name, f"Most items of {service} at once, on this machine.", "engine", "number", "", (), "4", False,
                   True)  # fmt: skip
    if prefix == RETENTION:
        end = next((end for end in KEPT if name.lower().endswith(end)), None)
        if end is None:
            return None
        lane = name.removeprefix(RETENTION).lower().removesuffix(end)
        about = f"RETENTION{end.upper()} for the lane {lane}."
        return Key(name, about, "retention", "number", "", (), "1000" if end == "_failed_last" else "30", False, False)
    if prefix == SOURCE:
        return Key(name, "What a plug-in wants to know.", "sources", "secret", "", (), "", True, False)
    return _known(name) if name in KEYS else None


def ordered() -> list[str]:
    """Every key, in the order of the form."""
    placed = [name for names in GROUPS.values() for name in names if name in KEYS]
    return [*placed, *(name for name in KEYS if name not in placed)]


@lru_cache(1000)
def is_secret(name: str) -> bool:
    """Whether a value is masked whole, also under a name that is only meant to be a secret's."""
    found = key_of(name)
    if found is not None:
        return found.secret
    meant = [key for key in get_close_matches(name, KEYS, n=1) if _known(key).secret]
    return bool(meant) or SUSPECT.search(name) is not None


def _known(name: str) -> Key:
    field = Settings.model_fields[name.lower()]
    kind = _kind(name, field)
    secret = kind == "secret"
    group = next((group for group, names in GROUPS.items() if name in names), "other")
    default = _default(field)
    live = name in LIVE or (secret and name not in READ_AT_START)
    choices = ("true", "false") if kind == "yes_no" else _choices(field.annotation)
    example = EXAMPLES.get(name) or default or (choices[0] if choices else "")
    text = " ".join((field.description or "").split())
    return Key(name, text, group, kind, default, choices, example, secret, not live)


def _kind(name: str, field: FieldInfo) -> Kind:
    plain = _bare(field.annotation)
    if field.metadata and any(each in field.metadata for each in get_args(Bytes)[1:2]):
        return "size"
    if get_origin(plain) is Literal:
        return "choice"
    if URL.search(name):
        return "url"
    by_type: dict[Any, Kind] = {
        SecretStr: "secret", bool: "yes_no", int: "number", float: "number", Path: "path",
        tuple: "list", dict: "pairs",
    }  # fmt: skip
    return by_type.get(get_origin(plain) or plain, "text")


def _bare(annotation: Any) -> Any:
    """Without `| None` and `Annotated`."""
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(each for each in get_args(annotation) if each is not type(None))
    return get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation


def _choices(annotation: Any) -> tuple[str, ...]:
    plain = _bare(annotation)
    return tuple(str(each) for each in get_args(plain)) if get_origin(plain) is Literal else ()


def _default(field: FieldInfo) -> str:
    value = None if field.default_factory else field.default
    match value:
        case None | SecretStr() | tuple() | dict():
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return str(value)
