"""Multipart uploads that a store holds parts of and nobody remembers: they cost money and are in no listing."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta

from dalsegno.catalog.abandoned import remembered_uploads
from dalsegno.insight.health.finding import Finding, Severity, found
from dalsegno.objects.errors import StoreError
from dalsegno.objects.opening import open_store as open_object_store
from dalsegno.objects.s3 import S3Store
from dalsegno.settings import Settings
from dalsegno.store.store import Store

JUST_BEGUN = timedelta(minutes=1)
"""One that is younger may not have been written down yet."""
OLD = timedelta(days=1)
"""One that is younger may be that of another program."""
MOST = 1000


def look(store: Store, settings: Settings, old: timedelta = OLD, just_begun: timedelta = JUST_BEGUN) -> list[Finding]:
    if not settings.object_store:
        return []
    target = None
    try:
        target = open_object_store(settings.object_store, settings.thawed(settings.snapshot()))
        begun = target.begun(MOST)
    except StoreError as error:
        name = target.url if target is not None else "OBJECT_STORE"
        return [found("store_unreachable", "error", f"store:{name}", store=name, problem=str(error))]
    finally:
        if target is not None:
            target.close()
    if not isinstance(target, S3Store):
        return []
    known = store.read(lambda tx: remembered_uploads(tx, target.identity))
    now = store.clock.now()
    unknown = sorted(
        (each.begun_at or datetime.fromtimestamp(0, UTC), each.key, each.upload_id)
        for each in begun
        if each.upload_id not in known
    )
    orphans = [each for each in unknown if each[0] < now - old]
    recent = [each for each in unknown if now - old <= each[0] < now - just_begun]
    return [
        *_told("upload_orphaned", "warning", target, orphans),
        *_told("upload_recent", "note", target, recent, old_seconds=old.total_seconds()),
    ]


def _told(
    code: str, severity: Severity, target: S3Store, some: list[tuple[datetime, str, str]], **more: float
) -> list[Finding]:
    if not some:
        return []
    oldest, key, upload_id = some[0]
    return [
        found(
            code, severity, f"store:{target.url}", oldest, store=target.url, count=len(some), **more,
            oldest_at=oldest, bucket=target.bucket, key=shlex.quote(key), upload=shlex.quote(upload_id),
            things=[f"{shlex.quote(key)} {shlex.quote(upload_id)}" for _, key, upload_id in some],
        )
    ]  # fmt: skip
