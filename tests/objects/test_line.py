"""What a server may answer, and what it may do instead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from dalsegno.objects.line import LineCut, Lines

Say = Callable[[list[bytes]], str]


@pytest.fixture
def say() -> Iterator[Say]:
    """A server that reads one request for each of its answers and then hangs up."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(listener: socket.socket, answers: list[bytes]) -> None:
        connection, _ = listener.accept()
        with closing(connection):
            for answer in answers:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(65536)
                connection.sendall(answer)

    def start(answers: list[bytes]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        thread = threading.Thread(target=serve, args=(listener, answers))
        thread.start()
        threads.append(thread)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join(10)
    for listener in listeners:
        listener.close()


HEAD = b"PUT / HTTP/1.1\r\nhost: x\r\n\r\n"


def test_two_exchanges_share_a_connection(say: Say) -> None:
    lines = Lines(say([b"HTTP/1.1 200 OK\r\nETag: a\r\ncontent-length: 2\r\n\r\nok", b"HTTP/1.1 204 No\r\n\r\n"]))
    first = lines.exchange(HEAD, (), bodiless=False)
    assert (first.status, first.headers["etag"], first.data) == (200, "a", b"ok")
    assert lines.exchange(HEAD, (), bodiless=False).status == 204
    lines.close()


def test_chunks_and_interim_answers(say: Say) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    chunked = b"HTTP/1.1 503 Slow\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
    lines = Lines(say([interim + chunked, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]))
    answer = lines.exchange(HEAD, (), bodiless=False)
    assert (answer.status, answer.data) == (503, b"hello world")
    assert lines.exchange(HEAD, (), bodiless=False).status == 200
    lines.close()


def test_a_head_answer_has_a_length_and_no_body(say: Say) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"
    lines = Lines(say([answer, answer]))
    for _ in range(2):
        assert lines.exchange(HEAD, (), bodiless=True).headers["content-length"] == "1000"
    lines.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_an_answer_is_an_error(say: Say, answer: bytes) -> None:
    lines = Lines(say([answer]))
    with pytest.raises(LineCut):
        lines.exchange(HEAD, (), bodiless=False)
    lines.close()


def test_a_body_that_fails_takes_its_connection_with_it(say: Say) -> None:
    lines = Lines(say([b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]))

    def body() -> Iterator[bytes]:
        yield b"a"
        raise RuntimeError("cancelled")

    with pytest.raises(RuntimeError):
        lines.exchange(HEAD, body(), bodiless=False)
    lines.close()
