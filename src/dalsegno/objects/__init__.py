"""Where files go: a folder, or S3."""

from __future__ import annotations

from dalsegno.objects.errors import (
    NameTaken,
    SourceChanged,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UploadCancelled,
    VerificationFailed,
)
from dalsegno.objects.model import Capabilities, Forget, ObjectStore, Put, Resume, Stored, Unfinished, check_key
from dalsegno.objects.opening import open_store
from dalsegno.objects.throttle import Throttle

__all__ = [
    "Capabilities",
    "Forget",
    "NameTaken",
    "ObjectStore",
    "Put",
    "Resume",
    "SourceChanged",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "Stored",
    "Throttle",
    "Unfinished",
    "UploadCancelled",
    "VerificationFailed",
    "check_key",
    "open_store",
]
