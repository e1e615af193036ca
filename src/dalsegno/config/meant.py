"""What a value must mean besides its form: a template that makes names, a store that can be opened, sources there are.

The same is asked again when a job is made: what it is made with need not have come from a file.
"""

from __future__ import annotations

from collections.abc import Iterator

from dalsegno.errors import InputInvalid
from dalsegno.model.naming import check_template
from dalsegno.model.suggest import did_you_mean
from dalsegno.objects.errors import StoreRefused
from dalsegno.objects.opening import open_store
from dalsegno.settings import Settings
from dalsegno.sources.registry import Config, Sources


def meaningless(settings: Settings) -> Iterator[tuple[str, str]]:
    """Keys whose value means nothing here, and why."""
    try:
        check_template(settings.name_template)
    except InputInvalid as error:
        yield "NAME_TEMPLATE", str(error)
    if settings.object_store:
        try:
            open_store(settings.object_store, {"S3_ENDPOINT": settings.s3_endpoint}).close()
        except StoreRefused as error:
            yield ("S3_ENDPOINT" if error.code == "endpoint_invalid" else "OBJECT_STORE"), str(error)
    known = Sources(Config({"EXTERNAL_SOURCES": settings.external_sources})).known()
    for key, names in (("SOURCES", settings.sources), ("DOWNLOAD_SOURCES", settings.download_sources)):
        for name in (name for name in names if name not in known):
            yield key, f'there is no source "{name:.60}".{did_you_mean(name, known)}'
