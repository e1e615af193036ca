"""Secrets are in no text that is kept or shown, and every text that was shown can be saved back."""

from __future__ import annotations

import pytest

from dalsegno.config.envfile import parsed
from dalsegno.config.masks import fingerprint, keeping, restored, secrets_in, shown, stored
from dalsegno.settings.masks import MASK
from tests.config.conftest import CONTENT, SECRETS

HOSTILE = """\
\ufeff# SUBSONIC_PASSWORD=commented-velvet
#export S3_SECRET_KEY = 'commented-copper'
# see http://me:linked-velvet@nas/feed and https://nas/?token=asked-velvet
DATABASE_URL=postgresql://me:base-velvet@db/x
LISTEN_DATABASE_URL=postgresql://db/x?user=me&password=heard-velvet
# or http://joined-velvet@nas/feed, https://nas/f;sid=lone-velvet and https://nas/f?a=b&X-Plex-Token=plex-velvet
SUBSONIC_PASSWORD="plain-velvet" # before that plain-velvet
subsonic_api_key='two
lines-velvet'
SOURCE_MUSICDL_TOKEN=source-velvet
EXTERNAL_SOURCES="musicdl=run --token program-velvet; other=x"
FEED_URLS=https://a:feed-velvet@x/f, https://b:comma,velvet@y/f, https://alone-velvet@z/f, https://z/?passkey=pass-velvet
PLAYLIST_FILES=https://x/a.m3u?auth_token=one-velvet,https://x/a.m3u?auth_token=two-velvet
KODIK_URL=https://x/?client_secret=client-velvet&X-Amz-Signature=signed-velvet;token=other-velvet
S3_SECRET_KY=typo-velvet
MY_PASSPHRASE=made-up-velvet
CONSOLE_PASSWORD="never-closed-velvet
and-goes-on-velvet
NODE_NAME=attic
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_no_secret_is_left_wherever_it_stands(end: str) -> None:
    text = HOSTILE.replace("\n", end)
    kept = stored(parsed(text)).text
    assert "velvet" not in kept
    assert "copper" not in kept
    assert "NODE_NAME=attic" in kept
    assert len(kept.splitlines()) == len(text.splitlines()) - 1, "a secret of two lines is one mask"


def test_an_address_without_a_secret_is_shown_as_it_is() -> None:
    text = "# http://nas:8080/f?mail=me@x.org\nFEED_URLS=https://nas:8080/f?mail=me@x.org&keyword=jazz\n"
    assert stored(parsed(text)).text == text


@pytest.mark.parametrize("text", [CONTENT, HOSTILE, HOSTILE.replace("\n", "\r\n"), ""])
def test_what_was_masked_comes_back(text: str) -> None:
    disk = parsed(text)
    for secrets in ((), SECRETS, ("attic", "musicdl")):
        back = restored(shown(disk, secrets), disk, secrets)
        assert back.document.text == text
        assert back.faults == ()


def test_the_same_text_always_has_the_same_fingerprint() -> None:
    first, again = (fingerprint(stored(parsed(CONTENT)).text) for _ in range(2))
    other = fingerprint(stored(parsed(CONTENT.replace("winter", "summer"))).text)
    assert first == again == other
    assert fingerprint(stored(parsed(CONTENT + "#")).text) != first


def test_a_blank_secret_is_kept_and_a_new_one_is_taken() -> None:
    disk = parsed(CONTENT)
    kept = restored(CONTENT.replace('"winter river"', ""), disk, ())
    assert kept.document.last("SUBSONIC_PASSWORD").value == "winter river"  # type: ignore[union-attr]
    new = restored(CONTENT.replace('"winter river"', "spring"), disk, ())
    assert new.document.last("SUBSONIC_PASSWORD").value == "spring"  # type: ignore[union-attr]


def test_addresses_come_back_one_by_one() -> None:
    disk = parsed("FEED_URLS=https://a:one1@x/f,https://a:two2@x/f,https://y/f\n")
    text = f"FEED_URLS=https://new/f,https://a:{MASK}@x/f,https://a:{MASK}@x/f\n"
    back = restored(text, disk, ())
    assert back.document.text == "FEED_URLS=https://new/f,https://a:one1@x/f,https://a:two2@x/f\n"
    assert back.faults == ()


def test_programs_come_back_by_name() -> None:
    disk = parsed("EXTERNAL_SOURCES=a=run --token one1; b=run b\n")
    back = restored(f"EXTERNAL_SOURCES=b={MASK}; c=run c; a={MASK}\n", disk, ())
    assert back.document.last("EXTERNAL_SOURCES").value == "b=run b; c=run c; a=run --token one1"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "line",
    [f"S3_SECRET_KEY={MASK}", f"DATABASE_URL=postgresql://me:{MASK}@elsewhere/x", f"EXTERNAL_SOURCES=new={MASK}",
     f"FEED_URLS=https://other:{MASK}@x/f", f"NODE_NAME=a{MASK}"],
)  # fmt: skip
def test_a_mask_that_stands_for_nothing_is_a_mistake(line: str) -> None:
    back = restored(f"# x\n{line}\n", parsed("DATABASE_URL=postgresql://me:base1@db/x\n"), ())
    (fault,) = back.faults
    assert (fault.line, fault.key, fault.level) == (2, line.partition("=")[0], "error")


def test_an_old_text_leaves_a_secret_empty_that_is_gone_and_keeps_one_that_is_new() -> None:
    disk = parsed("SUBSONIC_PASSWORD=now1\nS3_SECRET_KEY=only-here\n")
    back = restored(f"SUBSONIC_PASSWORD={MASK}\nSUBSONIC_API_KEY={MASK}\n", disk, (), blank=True)
    (fault,) = back.faults
    assert (fault.key, fault.level) == ("SUBSONIC_API_KEY", "warning")
    text = keeping(back.document, disk).text
    assert text == "SUBSONIC_PASSWORD=now1\nSUBSONIC_API_KEY=\nS3_SECRET_KEY=only-here\n"


def test_a_word_that_happens_to_be_a_secret_comes_back_too() -> None:
    disk = parsed("SUBSONIC_USER=admin\nSUBSONIC_PASSWORD=admin\n# admin's own\nLIBRARY_ROOT=/mnt/admin\n")
    text = shown(disk, secrets_in(disk))
    assert "admin" not in text
    assert restored(text, disk, secrets_in(disk)).document.text == disk.text
