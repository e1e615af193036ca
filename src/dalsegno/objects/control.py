"""The calls that happen once an upload or less, through boto3: credentials, addresses and XML are its business."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from dalsegno.objects.errors import StoreError, StoreRefused
from dalsegno.objects.model import Begun
from dalsegno.objects.refusal import refusal, unreachable
from dalsegno.objects.sign import Credentials

CHUNK = 1024 * 1024
T = TypeVar("T")


class Control:
    def __init__(self, bucket: str, *, endpoint: str | None, region: str, access_key: str, secret_key: str) -> None:
        # boto3 is slow to import, and most processes never upload.
        import boto3  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415

        self.bucket, self.region = bucket, region
        session = boto3.session.Session(
            aws_access_key_id=access_key or None, aws_secret_access_key=secret_key or None, region_name=region
        )
        # Only a refreshing set, such as a machine's role, changes later.
        self._credentials = session.get_credentials()
        if self._credentials is None:
            raise StoreRefused("wrong_credentials", "There is no access key. Set S3_ACCESS_KEY and S3_SECRET_KEY.")
        try:
            self._client = session.client(
                "s3",
                endpoint_url=endpoint or None,
                config=Config(
                    signature_version="s3v4",
                    # Newer defaults send checksums that many vendors refuse.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    retries={"mode": "standard", "total_max_attempts": 4},
                    max_pool_connections=64,
                    connect_timeout=10,
                    read_timeout=60,
                    s3={"addressing_style": "path" if endpoint else "auto"},
                ),
            )
            url = self._client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "x"})
        except ValueError as error:
            raise StoreRefused("endpoint_invalid", "S3_ENDPOINT is not a valid address.") from error
        self.base: str = url.partition("?")[0].removesuffix("/x")
        """Where keys begin, asked of boto3 because it knows every region's address."""
        self._host = urlsplit(self.base).netloc

    def credentials(self) -> Credentials:
        frozen = self._credentials.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    def head_bucket(self) -> None:
        try:
            self._call(self._client.head_bucket, Bucket=self.bucket)
        except StoreError as error:
            if error.status == 404:
                raise refusal(404, error.headers, "NoSuchBucket", "", host=self._host) from error
            raise

    def create(self, key: str, content_type: str, metadata: Mapping[str, str]) -> str:
        answer = self._call(
            self._client.create_multipart_upload,
            Bucket=self.bucket,
            Key=key,
            ContentType=content_type,
            Metadata=dict(metadata),
        )
        return str(answer["UploadId"])

    def parts(self, key: str, upload_id: str) -> dict[int, tuple[int, str]]:
        """Number → size and ETag, of all parts the store has."""
        found: dict[int, tuple[int, str]] = {}
        marker = 0
        while True:
            answer = self._call(
                self._client.list_parts,
                Bucket=self.bucket,
                Key=key,
                UploadId=upload_id,
                PartNumberMarker=marker,
            )
            for part in answer.get("Parts", ()):
                found[part["PartNumber"]] = (part["Size"], part["ETag"].strip('"').lower())
            following = answer.get("NextPartNumberMarker") or 0
            if not answer.get("IsTruncated") or following <= marker:
                return found
            marker = following

    def begun(self, prefix: str, most: int) -> list[Begun]:
        """Multipart uploads that are not finished, the first `most` by key."""
        found: list[Begun] = []
        place: dict[str, str] = {}
        while len(found) < most:
            answer = self._call(
                self._client.list_multipart_uploads, Bucket=self.bucket, Prefix=prefix, MaxUploads=most, **place
            )
            found += [
                Begun(key=each["Key"], upload_id=each["UploadId"], begun_at=each.get("Initiated"))
                for each in answer.get("Uploads", ())
            ]
            following = {
                "KeyMarker": answer.get("NextKeyMarker") or "",
                "UploadIdMarker": answer.get("NextUploadIdMarker") or "",
            }
            if not answer.get("IsTruncated") or not following["KeyMarker"] or following == place:
                break
            place = following
        return found[:most]

    def complete(self, key: str, upload_id: str, etags: Mapping[int, str], *, guarded: bool) -> None:
        parts = [{"PartNumber": number, "ETag": f'"{etag}"'} for number, etag in sorted(etags.items())]
        self._call(
            self._client.complete_multipart_upload,
            Bucket=self.bucket,
            Key=key,
            UploadId=upload_id,
            MultipartUpload={"Parts": parts},
            **({"IfNoneMatch": "*"} if guarded else {}),
        )

    def abort(self, key: str, upload_id: str) -> None:
        """Also fine when the store has forgotten it, or will not say: an upload nobody finishes harms no object."""
        try:
            self._call(self._client.abort_multipart_upload, Bucket=self.bucket, Key=key, UploadId=upload_id)
        except StoreRefused:
            return

    def delete(self, key: str) -> None:
        """For probes: nothing else is ever deleted."""
        self._call(self._client.delete_object, Bucket=self.bucket, Key=key)

    def read(self, key: str) -> Iterator[bytes]:
        body = self._call(self._client.get_object, Bucket=self.bucket, Key=key)["Body"]
        try:
            yield from body.iter_chunks(CHUNK)
        finally:
            body.close()

    def close(self) -> None:
        self._client.close()

    def _call(self, call: Callable[..., T], **arguments: Any) -> T:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            return call(**arguments)
        except ClientError as error:
            answer = error.response.get("ResponseMetadata", {})
            said = error.response.get("Error", {})
            status = int(answer.get("HTTPStatusCode") or 500)
            code, message = str(said.get("Code", "")), str(said.get("Message", ""))
            # A 200 with an error inside: the work was not done.
            status = 500 if status < 300 else status
            raise refusal(status, answer.get("HTTPHeaders", {}), code, message, host=self._host) from error
        except BotoCoreError as error:
            raise unreachable(self._host, error) from error
