"""Against servers nobody here wrote."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dalsegno.model.signal import Signal
from dalsegno.objects import (
    Forget,
    NameTaken,
    SourceChanged,
    Stored,
    StoreRefused,
    StoreUnavailable,
    Throttle,
    Unfinished,
    UploadCancelled,
    VerificationFailed,
    open_store,
)
from dalsegno.objects.multipart import PART, part_size
from dalsegno.objects.s3 import S3Store
from tests.objects.conftest import MIB, Song, store_on
from tests.objects.names import HOSTILE, REFUSED
from tests.s3 import S3Server, free_ports

pytestmark = pytest.mark.xdist_group("s3")
MakeSong = Callable[..., Song]


def content(store: S3Store, key: str) -> bytes:
    return b"".join(store.read(key))


def pending(server: S3Server, store: S3Store) -> list[str]:
    """The unfinished uploads a store knows, asked of the server."""
    with contextlib.closing(server.client()) as client:
        found = client.list_multipart_uploads(Bucket=server.bucket, Prefix=store.full_key(""))
    return [upload["UploadId"] for upload in found.get("Uploads", ())]


def test_the_probe_tells_the_dialects_apart_and_leaves_nothing(server: S3Server) -> None:
    store = store_on(server)
    able = store.probe()
    assert able.metadata
    assert able.etag_md5
    assert able.multipart
    assert able.list_parts
    assert able.multipart_etag
    assert able.deletes
    weed = "SeaweedFS" if "weed" in server.command[0] else "JuiceFS"
    assert able.if_none_match == (weed == "SeaweedFS")
    assert able.checksum_sha256 == (weed == "SeaweedFS")
    assert able.payload_checked == (weed == "JuiceFS")
    with contextlib.closing(server.client()) as client:
        assert not client.list_objects_v2(Bucket=server.bucket, Prefix=store.full_key("")).get("Contents")
    store.close()


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 5 * MIB, 5 * MIB + 1, 11 * MIB + 17])
def test_a_file_arrives_whole(store: S3Store, song: MakeSong, size: int) -> None:
    it = song(size)
    moves: list[tuple[int, int]] = []
    put = store.put("a/b.flac", *it, content_type="audio/flac", moved=lambda done, of: moves.append((done, of)))
    assert content(store, "a/b.flac") == it.path.read_bytes()
    assert (put.skipped, put.bytes_sent, put.parts_reused) == (False, size, 0)
    assert (put.stored.sha256, put.stored.size) == (it.sha256, size)
    assert store.stat("a/b.flac") == put.stored
    if size:
        assert moves == sorted(moves)
        assert moves[-1] == (size, size)


@pytest.mark.parametrize("key", HOSTILE)
@pytest.mark.parametrize("size", [100, MIB + 1])
def test_odd_names_are_kept(server: S3Server, store: S3Store, song: MakeSong, key: str, size: int) -> None:
    it = song(size)
    store.put(key, *it)
    assert content(store, key) == it.path.read_bytes()
    assert store.put(key, *it).skipped
    with contextlib.closing(server.client()) as client:
        listed = client.list_objects_v2(Bucket=server.bucket, Prefix=store.full_key(""))["Contents"]
    assert [entry["Key"] for entry in listed if not entry["Key"].endswith("/")] == [store.full_key(key)]


@pytest.mark.parametrize("key", REFUSED)
def test_names_no_store_should_keep_are_refused(store: S3Store, song: MakeSong, key: str) -> None:
    with pytest.raises(StoreRefused):
        store.put(key, *song(10))


@pytest.mark.parametrize("size", [1000, 6 * MIB])
@pytest.mark.parametrize("expect_absent", [False, True])
def test_the_same_is_skipped_and_other_content_never_replaced_unasked(
    store: S3Store, song: MakeSong, size: int, expect_absent: bool
) -> None:
    old, new = song(size, 1), song(size, 2)
    store.put("x", *old, expect_absent=expect_absent)
    again = store.put("x", *old, expect_absent=expect_absent)
    assert again.skipped
    assert again.stored.sha256 == old.sha256
    with pytest.raises(NameTaken):
        store.put("x", *new, expect_absent=expect_absent)
    assert content(store, "x") == old.path.read_bytes()
    forced = store.put("x", *old, force=True)
    assert (forced.skipped, forced.bytes_sent) == (False, size)
    store.put("x", *new, overwrite=True)
    assert content(store, "x") == new.path.read_bytes()


def test_what_another_program_stored_is_recognised_by_its_md5(server: S3Server, store: S3Store, song: MakeSong) -> None:
    it = song(5000)
    with contextlib.closing(server.client()) as client:
        client.put_object(Bucket=server.bucket, Key=store.full_key("x"), Body=it.path.read_bytes())
        client.put_object(Bucket=server.bucket, Key=store.full_key("y"), Body=b"z" * 5000)
    assert store.put("x", *it).skipped
    with pytest.raises(NameTaken):
        store.put("y", *it)


@pytest.mark.parametrize("size", [1000, 6 * MIB])
def test_a_source_that_changed_never_becomes_an_object(
    server: S3Server, store: S3Store, song: MakeSong, size: int
) -> None:
    it, resume = song(size), Forget()
    it.path.write_bytes(b"z" * size)
    with pytest.raises(SourceChanged):
        store.put("x", *it, resume=resume)
    it.path.write_bytes(b"short")
    with pytest.raises(SourceChanged):
        store.put("x", *it, resume=resume)
    assert store.stat("x") is None
    assert resume.load() is None
    assert pending(server, store) == []


def test_a_cancelled_upload_goes_on_where_it_stopped(server: S3Server, store: S3Store, song: MakeSong) -> None:
    it, resume = song(16 * MIB), Forget()
    moves: list[int] = []
    with pytest.raises(UploadCancelled):
        store.put(
            "x", *it, resume=resume, moved=lambda d, _: moves.append(d), cancelled=lambda: moves[-1:] > [11 * MIB]
        )
    assert store.stat("x") is None
    assert resume.load() is not None
    first: list[int] = []
    put = store.put("x", *it, resume=resume, moved=lambda done, _: first.append(done))
    assert (put.parts_reused, put.bytes_sent) == (2, 6 * MIB)
    assert first[0] == 5 * MIB
    assert content(store, "x") == it.path.read_bytes()
    assert resume.load() is None
    assert pending(server, store) == []


def test_a_part_that_is_wrong_on_the_server_is_sent_again(server: S3Server, store: S3Store, song: MakeSong) -> None:
    it, resume = song(16 * MIB), Forget()
    key = store.full_key("x")
    with contextlib.closing(server.client()) as client:
        upload = client.create_multipart_upload(Bucket=server.bucket, Key=key, Metadata={"sha256": it.sha256})
        whole = it.path.read_bytes()
        parts = {1: whole[: 5 * MIB], 2: b"wrong" * MIB, 3: b"short", 7: b"one too many" * MIB}
        for number, body in parts.items():
            arguments = {"Bucket": server.bucket, "Key": key, "UploadId": upload["UploadId"]}
            client.upload_part(**arguments, PartNumber=number, Body=body)
    saved = Unfinished(upload_id=upload["UploadId"], key=key, part_size=5 * MIB, sha256=it.sha256, size=it.size)
    resume.save(saved)
    put = store.put("x", *it, resume=resume)
    assert (put.parts_reused, put.bytes_sent) == (1, 11 * MIB)
    assert content(store, "x") == whole


def test_an_upload_the_server_forgot_starts_over(server: S3Server, store: S3Store, song: MakeSong) -> None:
    it, resume = song(11 * MIB), Forget()
    moves: list[int] = []
    with pytest.raises(UploadCancelled):
        store.put("x", *it, resume=resume, moved=lambda d, _: moves.append(d), cancelled=lambda: moves[-1:] > [6 * MIB])
    unfinished = resume.load()
    assert unfinished is not None
    with contextlib.closing(server.client()) as client:
        client.abort_multipart_upload(Bucket=server.bucket, Key=store.full_key("x"), UploadId=unfinished.upload_id)
    put = store.put("x", *it, resume=resume)
    assert (put.parts_reused, put.bytes_sent) == (0, it.size)
    assert content(store, "x") == it.path.read_bytes()


def test_an_upload_aborted_under_way_starts_over(server: S3Server, store: S3Store, song: MakeSong) -> None:
    it, resume, aborted = song(16 * MIB), Forget(), threading.Event()

    def moved(done: int, size: int) -> None:
        unfinished = resume.load()
        if done >= 6 * MIB and unfinished and not aborted.is_set():
            aborted.set()
            with contextlib.closing(server.client()) as client:
                client.abort_multipart_upload(
                    Bucket=server.bucket, Key=store.full_key("x"), UploadId=unfinished.upload_id
                )

    store.put("x", *it, resume=resume, moved=moved)
    assert content(store, "x") == it.path.read_bytes()
    assert pending(server, store) == []


def test_an_unfinished_upload_of_other_content_is_dropped(server: S3Server, store: S3Store, song: MakeSong) -> None:
    old, new, resume = song(11 * MIB, 1), song(11 * MIB, 2), Forget()
    moves: list[int] = []
    with pytest.raises(UploadCancelled):
        store.put(
            "x", *old, resume=resume, moved=lambda d, _: moves.append(d), cancelled=lambda: moves[-1:] > [6 * MIB]
        )
    put = store.put("x", *new, resume=resume)
    assert put.parts_reused == 0
    assert content(store, "x") == new.path.read_bytes()
    assert pending(server, store) == []


def test_a_lost_answer_to_the_completion_is_found_out(
    server: S3Server, store: S3Store, song: MakeSong, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, resume = song(6 * MIB), Forget()
    control = store._open()[0]
    complete = control.complete

    def lossy(*arguments: Any, **options: Any) -> None:
        complete(*arguments, **options)
        raise StoreUnavailable("unreachable", "the answer was lost")

    monkeypatch.setattr(control, "complete", lossy)
    put = store.put("x", *it, resume=resume)
    assert not put.skipped
    assert resume.load() is None
    assert content(store, "x") == it.path.read_bytes()


def test_a_store_that_has_something_else_afterwards_is_not_believed(
    server: S3Server, store: S3Store, song: MakeSong, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else replaces the object between our upload and our look."""
    it = song(1000)
    wire = store._open()[1]
    request = wire.request

    def meddled(method: str, key: str, **options: Any) -> Any:
        answer = request(method, key, **options)
        if method == "PUT":
            with contextlib.closing(server.client()) as client:
                client.put_object(Bucket=server.bucket, Key=key, Body=b"z" * 1000)
        return answer

    monkeypatch.setattr(wire, "request", meddled)
    with pytest.raises(VerificationFailed) as failed:
        store.put("x", *it)
    assert failed.value.code == "verification_failed"


@pytest.mark.parametrize("size", [1000, 6 * MIB])
def test_an_object_of_ours_that_arrived_damaged_is_put_right(
    server: S3Server, store: S3Store, song: MakeSong, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    it = song(size)
    stat, damaged = store.stat, threading.Event()

    def meddled(key: str) -> Stored | None:
        if (found := stat(key)) is not None and not damaged.is_set():
            damaged.set()
            with contextlib.closing(server.client()) as client:
                metadata = {"sha256": it.sha256}
                client.put_object(
                    Bucket=server.bucket, Key=store.full_key(key), Body=b"z" * (size - 1), Metadata=metadata
                )
            found = stat(key)
        return found

    monkeypatch.setattr(store, "stat", meddled)
    store.put("x", *it)
    assert damaged.is_set()
    assert content(store, "x") == it.path.read_bytes()


def test_a_name_taken_while_parts_were_sent_is_not_replaced(server: S3Server, store: S3Store, song: MakeSong) -> None:
    it, resume, taken = song(6 * MIB), Forget(), threading.Event()
    if not store.capabilities.if_none_match:
        pytest.skip("this store cannot be asked not to replace")

    def moved(done: int, size: int) -> None:
        if not taken.is_set():
            taken.set()
            with contextlib.closing(server.client()) as client:
                client.put_object(Bucket=server.bucket, Key=store.full_key("x"), Body=b"mine")

    with pytest.raises(NameTaken):
        store.put("x", *it, resume=resume, moved=moved)
    assert content(store, "x") == b"mine"
    assert resume.load() is None
    assert pending(server, store) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"access_key": "nobody-knows"}, "wrong_credentials"),
        ({"secret_key": "guessed-wrong-0"}, "wrong_credentials"),
    ],
)
def test_wrong_credentials_are_named_and_not_shown(
    server: S3Server, song: MakeSong, change: dict[str, str], code: str
) -> None:
    store = store_on(server, **change)
    for attempt in (store.probe, lambda: store.put("x", *song(10)), lambda: store.put("x", *song(2 * MIB))):
        with pytest.raises(StoreRefused) as refused:
            attempt()
        assert refused.value.code == code
        assert not any(secret in str(refused.value) for secret in (*change.values(), server.secret_key))
        assert Signal.of(refused.value).status == 403
    store.close()


def test_a_missing_bucket_is_named(server: S3Server, song: MakeSong) -> None:
    store = open_store("s3://no-such-bucket/x", server.config)
    for attempt in (store.probe, lambda: store.put("x", *song(10))):
        with pytest.raises(StoreRefused) as refused:
            attempt()
        assert refused.value.code == "bucket_missing"
    store.close()


def test_nobody_there(song: MakeSong) -> None:
    (port,) = free_ports(1)
    config = {"S3_ENDPOINT": f"http://127.0.0.1:{port}", "S3_ACCESS_KEY": "a", "S3_SECRET_KEY": "b"}
    store = open_store("s3://bucket", config)
    with pytest.raises(StoreUnavailable) as gone:
        store.probe()
    assert gone.value.code == "unreachable"
    assert "nobody listens" in str(gone.value)
    store.close()


def test_all_uploads_share_the_bandwidth(store: S3Store, song: MakeSong) -> None:
    """Every byte that leaves has passed the throttle."""
    passed: list[int] = []

    class Counting(Throttle):
        def take(self, count: int, cancelled: Callable[[], bool] = lambda: False) -> bool:
            passed.append(count)
            return super().take(count, cancelled)

    throttle = Counting(1e12)
    sent = sum(store.put(f"x{size}", *song(size), throttle=throttle).bytes_sent for size in (0, 1000, 6 * MIB))
    assert sum(passed) == sent == 6 * MIB + 1000
    assert max(passed) <= 32 * 1024


def test_many_threads_share_a_store(store: S3Store, song: MakeSong) -> None:
    songs = [song(2000 + number, number) for number in range(40)]

    def upload(numbers: range) -> None:
        for number in numbers:
            store.put(f"many/{number}", *songs[number], expect_absent=True)

    threads = [threading.Thread(target=upload, args=(range(start, 40, 8),)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, it in enumerate(songs):
        assert content(store, f"many/{number}") == it.path.read_bytes()


def test_parts_grow_with_the_file() -> None:
    assert part_size(1) == PART
    assert part_size(10_000 * PART) == PART
    assert part_size(10_000 * PART + 1) == 2 * PART
    assert all(part_size(size) * 10_000 >= size for size in (10**11, 10**12, 5 * 10**12))
