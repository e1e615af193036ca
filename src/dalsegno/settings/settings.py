"""One field per key, and what is asked of all of them together."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dalsegno.model.retention import LANES, Policy, Rule
from dalsegno.settings.keys import FREE, FROZEN, KEPT, KNOWN_OPTIONS, OWN, SOURCE
from dalsegno.settings.masks import MASK, hidden_in, kept_form, spellings, unmasked
from dalsegno.settings.values import HASHED, HOST, Bytes, Commands, Folder, Labels, LaneRules, Names, Place, Places


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
    pg_bin: Folder | None = None
    """The folder of pg_dump, pg_restore and psql, where they are not on PATH: for backups of PostgreSQL."""
    backup_folder: Folder | None = None
    """Where the backup goes that is made before a change of the schema. Unless said: beside a SQLite database, and for
    PostgreSQL the current folder."""
    library_root: Folder = Path("library")
    """The folder files are written to."""
    min_free_space: Bytes = 1_000_000_000
    """What stays free on the library's disk, for example `2GB`: a job pauses before it takes more."""
    name_template: str = "{artist}/{album}/{title}"
    """A downloaded file's place in the library, without its suffix. Also {albumartist}, {track}, {disc}, {year},
    {platform} and {id}; a part that is empty is left out."""
    sources: Names = ()
    """Where playlists come from, in order; every source that is configured unless said."""
    download_sources: Names = ()
    """Where songs are fetched from, in order; unless said, a song's own source and then those that can search."""
    download_workers: PositiveInt = 10
    """Songs transferred at once."""
    upload_workers: PositiveInt = 4
    """Files uploaded at once."""
    stall_timeout_sec: float = Field(default=30.0, gt=0)
    """Seconds without a byte after which a transfer is broken off, to go on from there."""
    subsonic_url: str | None = None
    """A Subsonic or Navidrome server, for example `http://nas:4533`."""
    subsonic_user: str = ""
    """Its user."""
    subsonic_password: SecretStr = SecretStr("")
    """The user's password."""
    subsonic_api_key: SecretStr = SecretStr("")
    """An API key instead, where the server knows them."""
    feed_urls: Names = ()
    """RSS or Atom feeds of podcasts."""
    playlist_files: Places = ()
    """M3U, XSPF, CSV files or lists of URLs: paths or http addresses."""
    folder_roots: Places = ()
    """Folders whose audio files are a source."""
    ytdlp_urls: Names = ()
    """Playlist pages for yt-dlp (needs the extra `ytdlp`)."""
    external_sources: Commands = Field(default_factory=dict)
    """Programs that speak JSON lines: `musicdl=python3 bridge.py; other=…`."""
    source_options: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict)
    """From SOURCE_<NAME>_<KEY>: what plug-ins want to know, by the names as written there."""
    demo_url: str | None = None
    """The demo catalog's address; `dalsegno demo` sets it."""
    object_store: Place | None = None
    """Where files are uploaded to: `file:///mnt/archive`, or `s3://bucket/prefix`."""
    s3_endpoint: str | None = None
    """The address of an S3 server that is not Amazon's."""
    s3_region: str = "us-east-1"
    """The bucket's region."""
    s3_access_key: SecretStr = SecretStr("")
    """The key's id."""
    s3_secret_key: SecretStr = SecretStr("")
    """The key itself."""
    upload_bandwidth: Bytes = 0
    """The most bytes per second that all uploads take together, for example `2MB`; 0 is no limit."""
    kodik_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    """Where parse requests are searched: an address with the Kodik API's `/search` and `/list` below it."""
    kodik_token: SecretStr = SecretStr("")
    """Its token."""
    requests_sources: Names = ()
    """Where parse requests are searched, in order; unless said, Kodik, plug-ins, and sources that can search."""
    requests_link_ttl_sec: PositiveInt = 21_600
    """Seconds for which a decoded link is taken to be good, where its decoder does not say; then it is decoded again
    when its content is next asked for."""
    requests_active_max: PositiveInt = 8
    """Parse requests worked on at once; the others wait."""
    requests_search_workers: PositiveInt = 4
    """Searches at once, on this machine."""
    requests_decode_workers: PositiveInt = 4
    """Variants decoded at once, on this machine."""
    requests_max_retries: int = Field(default=3, ge=1, le=1000)
    """How often a search or a variant may fail, or lose its worker in a row, before it has failed for good."""
    requests_default_page_limit: PositiveInt = 50
    """Requests on a page where `limit` is not given."""
    requests_max_page_limit: PositiveInt = 200
    """The most requests on a page, whatever `limit` says."""
    requests_api_key: SecretStr = SecretStr("")
    """What programs send as `X-API-KEY` to reach the API of parse requests; none is asked for where this is empty."""
    requests_per_client_max: int = Field(default=0, ge=0)
    """Unfinished requests that one `X-Created-By` may have; 0 is no limit."""
    requests_decoders: Names = ()
    """Decoders, in the order in which they are tried; every one that is configured unless said."""
    external_decoders: Commands = Field(default_factory=dict)
    """Decoders that are programs and speak JSON lines: `player=python3 decode.py; other=…`."""
    requests_worker_poll_ms: PositiveInt = 2000
    """Accepted, and not needed: workers are told of a new request instead of looking for one."""
    requests_stale_recovery_ms: PositiveInt = 60_000
    """Accepted, and not needed: what a dead process left is looked for several times in HEARTBEAT_TTL_SEC."""
    requests_stale_after_ms: PositiveInt = 300_000
    """Accepted, and not needed: a request is stale HEARTBEAT_TTL_SEC after its process died, and never before."""
    requests_progress_flush_ms: PositiveInt = 1000
    """Accepted, and not needed: phases are written at once, progress once a second at most."""
    console_host: str = "127.0.0.1"
    """Where the console listens."""
    console_port: int = Field(default=8765, ge=0, le=65535)
    """Its port; 0 takes any that is free."""
    console_password: SecretStr = SecretStr("")
    """What the console asks for before it answers: a password of at least 8 characters, or what
    `dalsegno config hash-password` makes of one. Other addresses than loopback need it."""
    console_hosts: Names = ()
    """Further names that the console answers to, for example behind a reverse proxy: `music.example.org`."""
    console_read_only: bool = False
    """Show everything and change nothing."""
    language: Literal["auto", "en", "zh-CN"] = "auto"
    """The console's language until its reader chooses one: `en`, `zh-CN`, or `auto`, what the browser asks for."""
    retention_jobs_days: NonNegativeFloat = 90.0
    """Days that a finished job is kept which leaves nothing to retry, with its stages and items; 0 is for ever. What
    it downloaded and recorded stays in any case."""
    retention_failed_days: NonNegativeFloat = 0.0
    """The same for a job with items that could still be retried; unless said, for ever."""
    retention_failed_last: int = Field(default=0, ge=0)
    """Of those jobs, keep only the newest that have so many such items between them; 0 keeps all."""
    retention_events_days: NonNegativeFloat = 90.0
    """Days that events are kept; 0 is for ever. On PostgreSQL they go by the month."""
    retention_logs_days: NonNegativeFloat = 30.0
    """Days that log lines are kept; 0 is for ever. On PostgreSQL they go by the month."""
    retention_archive: Place = ""
    """Where months of events and logs are put before PostgreSQL drops them: `file:///…`, `s3://bucket/prefix`, or
    `off`. Unless said, OBJECT_STORE, and without one a folder beside the library."""
    retention_lanes: LaneRules = Field(default_factory=dict)
    """From RETENTION_LANE_<LANE>_JOBS_DAYS, _FAILED_DAYS, _FAILED_LAST, _EVENTS_DAYS and _LOGS_DAYS: the same for one
    lane; the lane `enrich` has FAILED_LAST 1000 unless said."""
    node_name: Annotated[str, Field(min_length=1, max_length=200)] = Field(default_factory=socket.gethostname)
    """What this machine is called in listings; the host name unless said otherwise."""
    node_labels: Labels = Field(default_factory=dict)
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
    otel_exporter_otlp_endpoint: str | None = Field(default=None, pattern=r"^https?://\S+$")
    """Where OpenTelemetry spans are sent over HTTP, for example `http://collector:4318` (needs the extra `otel`)."""
    services: Names = ()
    """Modules that define services and workflows."""

    @field_validator("console_password")
    @classmethod
    def _guessable(cls, password: SecretStr) -> SecretStr:
        text = password.get_secret_value()
        if text.startswith("scrypt:") and HASHED.fullmatch(text) is None:
            raise ValueError("this is not a whole hash; make one with: dalsegno config hash-password")
        if text and len(text) < 8:
            raise ValueError("a password needs at least 8 characters")
        return password

    @field_validator("requests_api_key")
    @classmethod
    def _long(cls, key: SecretStr) -> SecretStr:
        if 0 < len(key.get_secret_value()) < 16:
            raise ValueError("a key that programs send needs at least 16 characters")
        return key

    @field_validator("console_hosts")
    @classmethod
    def _hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if HOST.fullmatch(name) is None:
                raise ValueError(f'"{name:.60}" is not a host name, such as music.example.org or nas.local:8443')
        return names

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

    def retention(self, lanes: Iterable[str] = ()) -> Policy:
        """How long what is over is kept, for lanes by their own names: RETENTION_LANE_MY_LANE_… is about `my-lane`."""
        general = Rule(self.retention_jobs_days, self.retention_failed_days, self.retention_failed_last,
                       self.retention_events_days, self.retention_logs_days)  # fmt: skip
        found: dict[str, dict[str, float]] = {lane: dict(said) for lane, said in LANES.items()}
        names = {_as_key(lane): lane for lane in lanes}
        for key, value in self.retention_lanes.items():
            end = next(end for end in KEPT if key.endswith(end))
            lane = key.removesuffix(end)
            found.setdefault(names.get(lane, lane), {})[KEPT[end]] = value
        return Policy(general, found)

    def snapshot(self) -> dict[str, Any]:
        """What a job keeps of these settings for life. Secrets are masked, and paths do not move with `cd`."""
        kept = {name.upper(): kept_form(getattr(self, name)) for name in FROZEN if getattr(self, name)}
        kept["LIBRARY_ROOT"] = str(self.library_root.absolute())
        for key in ("FOLDER_ROOTS", "PLAYLIST_FILES"):
            if key in kept:
                kept[key] = [each if "://" in each else str(Path(each).absolute()) for each in kept[key]]
        return kept

    def thawed(self, snapshot: Mapping[str, Any]) -> dict[str, Any]:
        """A job's settings as they are used: its snapshot, with what was masked there read anew."""
        values: dict[str, Any] = dict(snapshot)
        for name in FROZEN:
            live, kept = getattr(self, name), snapshot.get(name.upper())
            if kept is not None and MASK in str(kept):
                values[name.upper()] = unmasked(kept, live)
        for name, field in type(self).model_fields.items():
            if field.annotation is SecretStr and name not in OWN:
                values[name.upper()] = getattr(self, name).get_secret_value()
        values |= {SOURCE + key.upper(): text for key, text in self.source_options.items()}
        return values

    def secrets(self) -> tuple[str, ...]:
        """Texts that must never be logged, however they are written; the longest first: one may begin like another."""
        found = {text for key, text in self.source_options.items() if not key.endswith(KNOWN_OPTIONS)}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.annotation is SecretStr:
                found.add(value.get_secret_value())
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str) and "://" in text:
                    found |= {*hidden_in(text)}
        found = {each for text in found for each in spellings(text)}
        return tuple(sorted(found - {""}, key=lambda text: (-len(text), text)))


KEYS = tuple(name.upper() for name in Settings.model_fields if name not in FREE.values())


def frozen_form(settings: Settings, key: str, value: Any) -> tuple[Any, bool]:
    """A value as a snapshot keeps it, and whether these settings give it back from there."""
    kept = kept_form(value)
    plain = list(value) if isinstance(value, tuple) else value
    return kept, kept == plain or unmasked(kept, getattr(settings, key.lower())) == plain


def _as_key(service: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", service.lower())
