"""An S3 store's no, in words: which code it has here, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno.objects.errors import StoreError, StoreFull, StoreRefused, StoreUnavailable

_REFUSED = {
    "NoSuchBucket": ("bucket_missing", "There is no such bucket on {host}. Create it, or correct OBJECT_STORE."),
    "InvalidBucketName": ("bucket_missing", "The bucket's name is not valid on {host}. Correct OBJECT_STORE."),
    "InvalidAccessKeyId": ("wrong_credentials", "{host} does not know this access key. Check S3_ACCESS_KEY."),
    "InvalidAccessKey": ("wrong_credentials", "{host} does not know this access key. Check S3_ACCESS_KEY."),
    "SignatureDoesNotMatch": ("wrong_credentials", "{host} does not accept the secret key. Check S3_SECRET_KEY."),
    "ExpiredToken": ("wrong_credentials", "The session token for {host} has expired."),
    "InvalidToken": ("wrong_credentials", "{host} does not accept the session token."),
    "AccessDenied": ("access_denied", "{host} does not allow this. Give the access key rights to read and write."),
    "AllAccessDisabled": ("access_denied", "{host} has disabled all access to this bucket."),
    "AccountProblem": ("access_denied", "{host} reports a problem with the account."),
    "RequestTimeTooSkewed": ("clock_skew", "The clock of this machine is too far from that of {host}. Set it."),
    "PermanentRedirect": ("wrong_region", "The bucket is in another region. Check S3_REGION and S3_ENDPOINT."),
    "AuthorizationHeaderMalformed": ("wrong_region", "The bucket is in another region. Check S3_REGION."),
    "IllegalLocationConstraintException": ("wrong_region", "The bucket is in another region. Check S3_REGION."),
    "KeyTooLongError": ("key_too_long", "The name is too long for {host}."),
    "InvalidObjectName": ("key_invalid", "{host} cannot keep this name."),
    "XMinioInvalidObjectName": ("key_invalid", "{host} cannot keep this name."),
    "XMinioParentIsObject": ("key_invalid", "A file stands where a folder is needed on {host}."),
    "XMinioObjectExistsAsDirectory": ("key_invalid", "A folder stands where a file is needed on {host}."),
    "ExistingObjectIsDirectory": ("key_invalid", "A folder stands where a file is needed on {host}."),
    "ExistingObjectIsFile": ("key_invalid", "A file stands where a folder is needed on {host}."),
    "EntityTooLarge": ("too_large", "The file is too large for {host}."),
    "BadDigest": ("verification_failed", "The bytes were damaged on their way to {host}."),
    "InvalidDigest": ("verification_failed", "The bytes were damaged on their way to {host}."),
    "XAmzContentSHA256Mismatch": ("verification_failed", "The bytes were damaged on their way to {host}."),
    "XAmzContentChecksumMismatch": ("verification_failed", "The bytes were damaged on their way to {host}."),
    "PreconditionFailed": ("exists", "Something is already stored under this name on {host}."),
    "NoSuchUpload": ("upload_gone", "{host} no longer knows this unfinished upload."),
    "NoSuchKey": ("not_found", "There is no such object on {host}."),
    "InvalidPart": ("parts_gone", "{host} no longer has all parts of this upload."),
    "InvalidPartOrder": ("parts_gone", "{host} no longer has all parts of this upload."),
}
_FULL = frozenset(
    {"QuotaExceeded", "StorageFull", "InsufficientStorage", "InsufficientCapacity", "EntityQuotaExceeded"}
    | {"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "ServiceQuotaExceeded"}
)
_FULL_SIGNS = ("no space left", "storage full", "no free volumes", "no writable volumes", "quota exceeded", "disk full")
_LATER = {
    "SlowDown": ("slow_down", "{host} asks to slow down."),
    "RequestTimeout": ("request_timeout", "{host} waited too long for the bytes."),
    "OperationAborted": ("conflict", "Another request changes the same object on {host} just now."),
    "ConditionalRequestConflict": ("conflict", "Another request changes the same object on {host} just now."),
    "ServiceUnavailable": ("store_unavailable", "{host} is not available just now."),
}
_BY_STATUS = {
    301: _REFUSED["PermanentRedirect"],
    307: _REFUSED["PermanentRedirect"],
    401: _REFUSED["AccessDenied"],
    403: _REFUSED["AccessDenied"],
    404: _REFUSED["NoSuchKey"],
    409: ("conflict", "{host} reports a conflict with another request."),
    412: _REFUSED["PreconditionFailed"],
    413: _REFUSED["EntityTooLarge"],
    429: _LATER["SlowDown"],
}


def refusal(status: int, headers: Mapping[str, str], code: str, message: str, *, host: str) -> StoreError:
    answer: dict[str, Any] = {"status": status, "headers": dict(headers)}
    if status == 507 or code in _FULL or (status >= 500 and any(sign in message.lower() for sign in _FULL_SIGNS)):
        return StoreFull("store_full", f"{host} has no room left.", **answer)
    if code in _REFUSED:
        name, sentence = _REFUSED[code]
        return StoreRefused(name, sentence.format(host=host), **answer)
    if code in _LATER:
        name, sentence = _LATER[code]
        return StoreUnavailable(name, sentence.format(host=host), **answer)
    if status in _BY_STATUS:
        name, sentence = _BY_STATUS[status]
        kind = StoreUnavailable if status in {409, 429} else StoreRefused
        return kind(name, sentence.format(host=host), **answer)
    said = f" ({code or 'no code'}: {message[:200]})" if code or message else ""
    if status >= 500:
        return StoreUnavailable("store_failed", f"{host} answered {status}{said}.", **answer)
    return StoreRefused("store_refused", f"{host} refused with {status}{said}.", **answer)


def unreachable(host: str, error: Exception) -> StoreUnavailable:
    """The cause is kept for the breaker; its text is not repeated, as it may hold whole requests."""
    problem = _PROBLEMS.get(type(error).__name__, type(error).__name__)
    failed = StoreUnavailable("unreachable", f"{host} cannot be reached: {problem}.")
    failed.__cause__ = error
    return failed


_PROBLEMS = {
    "ConnectionRefusedError": "nobody listens there",
    "gaierror": "its name is unknown",
    "TimeoutError": "it does not answer",
    "ConnectionResetError": "it cut the connection",
    "BrokenPipeError": "it cut the connection",
    "LineCut": "it cut the connection",
    "SSLError": "it does not speak TLS",
    "SSLCertVerificationError": "its certificate is not trusted",
    # botocore's
    "EndpointConnectionError": "nobody listens there",
    "ConnectTimeoutError": "it does not answer",
    "ReadTimeoutError": "it stopped answering",
    "ConnectionClosedError": "it cut the connection",
}
