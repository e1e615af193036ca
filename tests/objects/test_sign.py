from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from dalsegno.objects.sign import Credentials, encode, query_string, sign


def test_the_example_in_amazons_documentation() -> None:
    credentials = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    headers = sign(
        credentials,
        "us-east-1",
        datetime(2013, 5, 24, tzinfo=UTC),
        "GET",
        "examplebucket.s3.amazonaws.com",
        "/test.txt",
        "",
        {"range": "bytes=0-9"},
        hashlib.sha256(b"").hexdigest(),
    )
    assert headers["authorization"].endswith("f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


def test_credentials_do_not_show_themselves() -> None:
    assert "hidden" not in repr(Credentials("a", "hidden"))


def test_names_are_escaped_once_and_completely() -> None:
    assert encode("夜/a b+c%~.mp3") == "%E5%A4%9C/a%20b%2Bc%25~.mp3"
    assert query_string({"uploadId": "a/b=", "partNumber": "1"}) == "partNumber=1&uploadId=a%2Fb%3D"
