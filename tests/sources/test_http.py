"""The way out to the web: what it fetches, and everything it must not."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from urllib3.exceptions import HTTPError, IncompleteRead, ProtocolError, SSLError

from dalsegno.model.signal import ProviderError, Signal, is_unreachable
from dalsegno.sources import addresses
from dalsegno.sources.http import Http
from dalsegno.sources.model import Gone, Unusable
from dalsegno.sources.urls import lasting, named, secrets_of, target
from tests.servers import caddy_tls, free_port
from tests.sources.hostile import KEEP, Hostile, hostile, ok, redirect


@pytest.fixture
def http() -> Iterator[Http]:
    with Http(read_timeout=5, connect_timeout=5) as client:
        yield client


@pytest.fixture
def server() -> Iterator[Hostile]:
    with hostile() as running:
        yield running


def read(http: Http, url: str, **options: object) -> bytes:
    with http.open(url, trusted=True, **options) as answer:  # type: ignore[arg-type]
        return b"".join(answer.stream())


# ---- what it fetches ----


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 100_000, 3_000_001])
def test_bytes_arrive_as_they_are(http: Http, caddy: tuple[str, Path], size: int) -> None:
    url, root = caddy
    body = os.urandom(size)
    (root / f"{size}.bin").write_bytes(body)
    assert read(http, f"{url}/{size}.bin") == body


def test_names_that_need_quoting_are_found(http: Http, caddy: tuple[str, Path]) -> None:
    url, root = caddy
    (root / 'ü 夜 "曲".txt').write_bytes(b"here")
    assert http.get(f'{url}/ü 夜 "曲".txt', trusted=True).body == b"here"


def test_a_range_is_a_range(http: Http, caddy: tuple[str, Path]) -> None:
    url, root = caddy
    (root / "r.bin").write_bytes(bytes(range(256)))
    with http.open(f"{url}/r.bin", headers={"Range": "bytes=250-"}, trusted=True) as answer:
        assert (answer.status, answer.headers["Content-Range"], answer.length) == (206, "bytes 250-255/256", 6)
        assert answer.read(100) == bytes(range(250, 256))


def test_only_the_head(http: Http, caddy: tuple[str, Path]) -> None:
    url, root = caddy
    (root / "h.bin").write_bytes(b"x" * 1000)
    with http.open(f"{url}/h.bin", method="HEAD", trusted=True) as answer:
        assert (answer.status, answer.headers["content-length"], answer.read(10)) == (200, "1000", b"")


def test_a_connection_is_used_again(http: Http, server: Hostile) -> None:
    server.answers["/"] = ok(b"hello", keep=True)
    assert [read(http, server.url + "/") for _ in range(5)] == [b"hello"] * 5
    assert server.connections == 1


def test_a_connection_closed_meanwhile_is_made_anew(http: Http, server: Hostile) -> None:
    server.answers["/"] = ok(b"hello")  # promises to stay, and goes
    assert [read(http, server.url + "/") for _ in range(3)] == [b"hello"] * 3


def test_a_body_that_was_not_read_does_not_become_the_next_answer(http: Http, server: Hostile) -> None:
    server.answers["/a"] = ok(b"a" * 100_000, keep=True)
    server.answers["/b"] = ok(b"b", keep=True)
    with http.open(server.url + "/a", trusted=True) as answer:
        answer.read_into(memoryview(bytearray(10)))
    assert read(http, server.url + "/b") == b"b"


def test_many_threads_share_it(http: Http, caddy: tuple[str, Path]) -> None:
    url, root = caddy
    bodies = {n: os.urandom(50_000 + n) for n in range(16)}
    for n, body in bodies.items():
        (root / f"t{n}.bin").write_bytes(body)
    wrong: list[int] = []

    def fetch(n: int) -> None:
        wrong.extend(n for _ in range(20) if read(http, f"{url}/t{n}.bin") != bodies[n])

    threads = [threading.Thread(target=fetch, args=(n,)) for n in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("piece", [1, 7, 5000])
def test_heads_and_chunks_may_arrive_in_pieces(http: Http, server: Hostile, piece: int) -> None:
    server.piece = piece
    body = os.urandom(5000)
    chunks = b"".join(b"%X;x=y\r\n%b\r\n" % (len(part), part) for part in (body[:3], body[3:4000], body[4000:]))
    head = f"HTTP/1.1 200 OK\r\nX-Padding: {'p' * piece * 5}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    server.answers["/"] = head + chunks + b"0\r\nTrailer: yes\r\n\r\n" + KEEP
    assert read(http, server.url + "/") == body
    assert read(http, server.url + "/") == body
    assert server.connections == 1


def test_an_answer_may_be_announced_first(http: Http, server: Hostile) -> None:
    server.answers["/"] = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok(b"then this")
    assert read(http, server.url + "/") == b"then this"


def test_old_servers_end_by_closing(http: Http, server: Hostile) -> None:
    server.answers["/"] = b"HTTP/1.0 200 OK\r\n\r\nall of it"
    assert read(http, server.url + "/") == b"all of it"


def test_a_document_that_is_compressed_anyway_is_unpacked_up_to_its_limit(http: Http, server: Hostile) -> None:
    server.answers["/"] = ok(gzip.compress(b"x" * 100_000), "Content-Encoding: gzip")
    assert http.get(server.url + "/", trusted=True).body == b"x" * 100_000
    with pytest.raises(Unusable, match="unpacks to more") as caught:
        http.get(server.url + "/", trusted=True, limit=99_999)
    assert caught.value.code == "too_large"


def test_a_login_in_the_url_becomes_a_header(http: Http, server: Hostile) -> None:
    server.answers["/"] = ok(b"")
    with http.open(server.url.replace("//", "//me:s%40cret@") + "/", trusted=True) as answer:
        assert answer.url == server.url + "/"
    assert server.requests[0][1]["authorization"] == "Basic bWU6c0BjcmV0"


def test_https_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = os.urandom(300_000)
    (tmp_path / "s.bin").write_bytes(body)
    with caddy_tls(tmp_path) as (url, authority):
        with Http() as http, pytest.raises(SSLError, match="localhost: CERTIFICATE_VERIFY_FAILED") as caught:
            read(http, f"{url}/s.bin")
        assert is_unreachable(caught.value)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        with Http() as http:
            assert [read(http, f"{url}/s.bin") for _ in range(3)] == [body] * 3
            with pytest.raises(Unusable, match="private network"):
                http.open(f"{url}/s.bin")
            with pytest.raises(Exception, match="secure"):
                read(http, url.replace("localhost", "127.0.0.1") + "/s.bin")


def test_what_cannot_be_reached_is_named_as_people_know_it(http: Http) -> None:
    with pytest.raises(HTTPError, match=r"^127\.0\.0\.1:1: Failed to establish"):
        http.open("http://127.0.0.1:1/x", trusted=True)


# ---- redirects ----


def test_redirects_are_followed(http: Http, server: Hostile) -> None:
    server.answers |= {"/a": redirect("/b?x=1"), "/b": redirect("c"), "/c": ok(b"there")}
    with http.open(server.url + "/a", trusted=True) as answer:
        assert (answer.url, answer.read(10)) == (server.url + "/c", b"there")


def test_a_redirect_loop_ends(http: Http, server: Hostile) -> None:
    server.answers["/a"] = redirect("/a")
    with pytest.raises(Unusable, match="redirects without end") as caught:
        http.open(server.url + "/a", trusted=True)
    assert caught.value.code == "redirect_loop"
    assert len(server.requests) == 1, "whoever is asked the same again says the same again"


def test_ten_redirects_are_followed_and_no_more(http: Http, server: Hostile) -> None:
    server.answers |= {f"/{step}": redirect(f"/{step + 1}") for step in range(11)} | {"/11": ok(b"there")}
    assert read(http, server.url + "/1") == b"there"
    with pytest.raises(Unusable, match="redirects more than 10 times") as caught:
        http.open(server.url + "/0", trusted=True)
    assert caught.value.code == "redirect_loop"


def test_a_redirect_back_without_the_login_is_no_loop(http: Http, server: Hostile) -> None:
    """What is sent is another question: some hosts pass by a sign-in on the way."""
    with hostile() as other:
        other.answers["/back"] = redirect(f"{server.url}/a")
        server.answers["/a"] = redirect(f"{other.url}/back")
        with pytest.raises(Unusable, match="redirects without end"):
            http.open(server.url + "/a", headers={"Authorization": "Bearer x"}, trusted=True)
    assert [headers.get("authorization") for _, headers in server.requests] == ["Bearer x", None]


@pytest.mark.parametrize(
    "where",
    ["http://169.254.169.254/latest/meta-data/", "http://[fe80::1%25lo]/", "http://[::ffff:169.254.169.254]/",
     "http://100.100.100.200/", "http://[fd00:ec2::254]/", "http://[64:ff9b::a9fe:a9fe]/"],
)  # fmt: skip
def test_no_redirect_leads_to_metadata(http: Http, server: Hostile, where: str) -> None:
    server.answers["/a"] = redirect(where)
    with pytest.raises(Unusable, match="never asked") as caught:
        http.open(server.url + "/a", trusted=True)
    assert caught.value.code == "address_refused"


@pytest.mark.parametrize(
    "where", ["file:///etc/passwd", "ftp://example.org/", "gopher://127.0.0.1/", "data:,x", "http://[x"]
)
def test_no_redirect_leads_out_of_http(http: Http, server: Hostile, where: str) -> None:
    server.answers["/a"] = redirect(where)
    with pytest.raises(Unusable, match="only http and https") as caught:
        http.open(server.url + "/a", trusted=True)
    assert caught.value.code == "bad_url"


def test_trust_does_not_travel_to_another_private_host(http: Http, server: Hostile) -> None:
    with hostile() as other:
        other.answers["/secret"] = ok(b"private")
        server.answers["/a"] = redirect(f"http://localhost:{other.port}/secret")
        with pytest.raises(Unusable, match="private network"):
            http.open(server.url + "/a", trusted=True)
        assert other.requests == []


def test_trust_stays_on_the_same_host(http: Http, server: Hostile) -> None:
    with hostile() as other:
        other.answers["/b"] = ok(b"same machine")
        server.answers["/a"] = redirect(f"{other.url}/b")
        assert read(http, server.url + "/a") == b"same machine"


def test_credentials_stay_behind_when_a_redirect_leaves(http: Http, server: Hostile) -> None:
    with hostile() as other:
        other.answers["/b"] = ok(b"")
        server.answers["/a"] = redirect("/again")
        server.answers["/again"] = redirect(f"{other.url}/b")
        sent = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "k", "Range": "bytes=0-"}
        http.open(server.url + "/a", headers=sent, trusted=True).close()
        http.open(server.url.replace("//", "//me:pw@") + "/a", trusted=True).close()
    assert [headers.get("authorization", "")[:6] for _, headers in server.requests] == ["Bearer"] * 2 + ["Basic "] * 2
    for _, headers in other.requests:
        assert not headers.keys() & {"authorization", "cookie", "x-api-key"}
    assert other.requests[0][1]["range"] == "bytes=0-"


# ---- addresses ----


def test_a_private_address_is_refused_unless_it_was_configured(http: Http, server: Hostile) -> None:
    server.answers["/"] = ok(b"private")
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1", "0177.0.0.1"):
        url = f"http://{host}:{server.port}"
        with pytest.raises(Unusable, match="private network") as caught:
            http.open(url + "/")
        assert caught.value.code == "address_refused"
    assert server.requests == []
    read(http, server.url + "/")
    with pytest.raises(Unusable):  # nor over a connection that someone trusted has left open
        http.open(server.url + "/")


@pytest.mark.parametrize(
    ("address", "trusted", "plain"),
    [("10.0.0.1", True, False), ("192.168.1.1", True, False), ("127.0.0.1", True, False), ("::1", True, False),
     ("fd12::1", True, False), ("100.64.0.1", True, False), ("0.0.0.0", True, False), ("224.0.0.1", True, False),
     ("169.254.1.1", False, False), ("fe80::1%eth0", False, False), ("168.63.129.16", False, False),
     ("1.1.1.1", True, True), ("2606:4700::1111", True, True), ("198.18.0.7", True, True)],
)  # fmt: skip
def test_which_addresses_are_asked(address: str, trusted: bool, plain: bool) -> None:
    for allowed, trust in ((trusted, True), (plain, False)):
        if allowed:
            addresses.check(address, "host", trust)
        else:
            with pytest.raises(Unusable):
                addresses.check(address, "host", trust)


# ---- answers that are wrong ----


def test_a_body_cut_short_is_noticed(http: Http, server: Hostile) -> None:
    server.answers["/length"] = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"
    server.answers["/chunk"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nonly this"
    server.answers["/chunks"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n"
    for path in server.answers:
        with pytest.raises(IncompleteRead) as caught:
            read(http, server.url + path)
        assert is_unreachable(caught.value)


@pytest.mark.parametrize(
    "said",
    [b"220 mail.example ESMTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
     b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: br\r\n\r\nhello",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello", b"", b"HTTP/1.1 200 OK\r\nX: y",
     b"HTTP/1.1 200 OK\r\n" + b"X-Endless: yes\r\n" * 10_000 + b"\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 20],
)  # fmt: skip
def test_what_is_not_http_is_an_error(http: Http, server: Hostile, said: bytes) -> None:
    server.answers["/"] = said
    with pytest.raises(ProtocolError):
        read(http, server.url + "/")


def test_a_document_has_a_limit(http: Http, server: Hostile) -> None:
    server.answers["/length"] = ok(b"x" * 1001)
    server.answers["/open"] = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001
    for path in server.answers:
        with pytest.raises(Unusable) as caught:
            http.get(server.url + path, trusted=True, limit=1000)
        assert caught.value.code == "too_large"


def test_silence_is_a_timeout(server: Hostile) -> None:
    server.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + KEEP
    with Http(read_timeout=0.05) as http, pytest.raises(TimeoutError, match="sent nothing for") as caught:
        read(http, server.url + "/")
    assert is_unreachable(caught.value)


def test_a_reader_can_be_woken(http: Http, server: Hostile) -> None:
    server.answers["/length"] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + KEEP
    server.answers["/open"] = b"HTTP/1.1 200 OK\r\n\r\nhe" + KEEP
    for path in server.answers:
        with http.open(server.url + path, trusted=True, read_timeout=60) as answer:
            threading.Timer(0.05, answer.abort).start()
            with pytest.raises(IncompleteRead):
                answer.read(10)


def test_nobody_there(http: Http) -> None:
    with pytest.raises(Exception, match="refused") as caught:
        http.open(f"http://127.0.0.1:{free_port()}/", trusted=True)
    assert is_unreachable(caught.value)


def test_errors_are_told_apart(http: Http, server: Hostile) -> None:
    server.answers["/gone"] = ok(b"", status="410 Gone")
    server.answers["/slow"] = ok(b"not so fast", "Retry-After: 7", status="429 Too Many Requests")
    for path in ("/gone", "/missing"):
        with pytest.raises(Gone):
            http.get(server.url + path, trusted=True)
    with pytest.raises(ProviderError) as caught:
        http.get(server.url + "/slow?token=hidden", trusted=True)
    signal = Signal.of(caught.value)
    assert (signal.status, signal.headers["retry-after"], signal.body) == (429, "7", "not so fast")
    assert "hidden" not in str(caught.value)


def test_a_form_is_sent_to_the_host_that_was_named_and_nowhere_else(http: Http, server: Hostile) -> None:
    server.answers["/search"] = ok(b"{}")
    server.answers["/moved"] = redirect("/search")
    form = {"token": "a&b", "title": "夜曲"}
    for path in ("/search", "/moved"):
        assert http.post(server.url + path, form, trusted=True).body == b"{}"
    assert set(server.bodies) == {b"token=a%26b&title=%E5%A4%9C%E6%9B%B2"}
    with hostile() as other:
        server.answers["/away"] = redirect(f"{other.url}/search")
        with pytest.raises(Unusable, match="elsewhere"):
            http.post(server.url + "/away", form, trusted=True)
        assert other.connections == 0


# ---- URLs ----


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "/etc/passwd", "http://", "http:///x", "http://a b/", "http://h:99999/", "http://h\r\n/"],
)
def test_what_is_no_url_for_us(url: str, http: Http) -> None:
    if url == "http://h\r\n/":
        assert target(url).host == "h"
    else:
        with pytest.raises(Unusable):
            http.open(url)


def test_a_header_cannot_smuggle_another(http: Http, server: Hostile) -> None:
    with pytest.raises(Unusable, match="header"):
        http.open(server.url + "/", headers={"X": "a\r\nY: b"}, trusted=True)
    assert server.requests == []


def test_urls_are_kept_without_credentials() -> None:
    assert named("https://me:pw@host/feed?token=abc&x=1") == "https://host/feed?token=***&x=1"
    assert lasting("https://host/a.mp3?x=1")
    assert not lasting("https://host/a.mp3?Expires=1&Signature=x")
    assert not lasting("https://me:pw@host/a.mp3")
    assert "pw" in secrets_of("https://me:pw@host/a.mp3?X-Amz-Signature=sig&a=b")
    assert "sig" in secrets_of("https://me:pw@host/a.mp3?X-Amz-Signature=sig&a=b")


def test_hosts_beyond_ascii_are_asked_by_their_other_name() -> None:
    place = target("HTTPS://Müsic.example:8443/ä?q=ü#part")
    assert (place.host, place.path) == ("xn--msic-0ra.example", "/%C3%A4?q=%C3%BC")
    assert target("http://[::1]:80/").url == "http://[::1]/"
