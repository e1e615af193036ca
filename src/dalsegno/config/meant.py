"""What a value must mean besides its form: a template that makes names, a store that can be opened, sources there are.

The same is asked again when a job is made: what it is made with need not have come from a file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dalsegno.errors import InputInvalid
from dalsegno.model.naming import check_template
from dalsegno.model.suggest import did_you_mean
from dalsegno.objects.errors import StoreRefused
from dalsegno.objects.opening import open_store
from dalsegno.settings import Settings
from dalsegno.sources.model import Unusable
from dalsegno.sources.registry import Config, Sources
from dalsegno.sources.urls import target


def meaningless(settings: Settings) -> Iterator[tuple[str, str]]:
    """Keys whose value means nothing here, and why."""
    try:
        check_template(settings.name_template)
    except InputInvalid as error:
        yield "NAME_TEMPLATE", str(error)
    archive = "" if settings.retention_archive == "off" else settings.retention_archive
    for key, place in (("OBJECT_STORE", settings.object_store), ("RETENTION_ARCHIVE", archive)):
        try:
            if place:
                open_store(place, {"S3_ENDPOINT": settings.s3_endpoint}).close()
        except StoreRefused as error:
            said = str(error).replace("OBJECT_STORE", key)
            yield ("S3_ENDPOINT" if error.code == "endpoint_invalid" else key), said
    yield from _addresses(settings)
    for key, programs in (
        ("EXTERNAL_SOURCES", settings.external_sources),
        ("EXTERNAL_DECODERS", settings.external_decoders),
    ):
        for name, command in programs.items():
            try:
                shlex.split(command)
            except ValueError:
                yield key, f'the command of "{name:.60}" opens a quote and never closes it.'
    known = Sources(Config({"EXTERNAL_SOURCES": settings.external_sources})).known()
    for key, names in (("SOURCES", settings.sources), ("DOWNLOAD_SOURCES", settings.download_sources)):
        for name in (name for name in names if name not in known):
            yield key, f'there is no source "{name:.60}".{did_you_mean(name, known)}'


def _addresses(settings: Settings) -> Iterator[tuple[str, str]]:
    one = (settings.subsonic_url,) if settings.subsonic_url else ()
    lists = tuple(each for each in settings.playlist_files if "://" in each)  # the others are paths
    for key, values in (
        ("SUBSONIC_URL", one),
        ("FEED_URLS", settings.feed_urls),
        ("PLAYLIST_FILES", lists),
        ("YTDLP_URLS", settings.ytdlp_urls),
    ):
        for value in values:
            if not _is_address(value):
                yield key, _not_an_address(value)


def _is_address(value: str) -> bool:
    try:
        target(value)
    except Unusable:
        return False
    return True


def _not_an_address(value: str) -> str:
    """Without a value that may hold a credential."""
    shown = "this" if "@" in value or "?" in value else f'"{value:.80}"'
    if "://" in value or not _is_address(f"http://{value}"):
        return f"{shown} is not an http or https address."
    meant = "" if shown == "this" else f": write http://{value:.80}"
    return f"{shown} has no http:// in front{meant}."
