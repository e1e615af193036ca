"""The file on disk: whole, private, with its owner, through links; and a clear word where that cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dalsegno.config.check import MOST_BYTES
from dalsegno.config.files import alone, read, write
from dalsegno.errors import ConfigNotWritable

PROGRAM = """
import sys
from pathlib import Path
from dalsegno.config.files import alone, write
file = Path(sys.argv[1])
with alone(file):
    write(file, "NODE_NAME=new\\n")
"""


def test_only_its_owner_can_read_it(file: Path) -> None:
    file.chmod(0o644)
    write(file, "NODE_NAME=x\n")
    assert file.read_text() == "NODE_NAME=x\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_text_is_written_as_it_is(file: Path) -> None:
    text = "\ufeff# 晴天\r\nNODE_NAME=x\r\n"
    write(file, text)
    assert file.read_bytes() == text.encode()
    assert read(file).document.text == text


def test_a_link_stays_and_its_target_is_written(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "links" / "dalsegno.env"
    link.parent.mkdir()
    link.symlink_to(file)
    write(link, "NODE_NAME=x\n")
    assert link.is_symlink()
    assert file.read_text() == "NODE_NAME=x\n"
    assert list(link.parent.iterdir()) == [link]


def test_what_was_left_beside_it_is_not_followed(file: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    Path(f"{file}.new").symlink_to(precious)
    write(file, "NODE_NAME=x\n")
    assert precious.read_text() == "mine"
    assert file.read_text() == "NODE_NAME=x\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_its_owner_stays(file: Path) -> None:
    os.chown(file, 12345, 23456)
    write(file, "NODE_NAME=x\n")
    found = file.stat()
    assert (found.st_uid, found.st_gid) == (12345, 23456)


def test_where_it_cannot_be_written_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigNotWritable, match=r"no such file or directory\. Make the folder first"):
        write(tmp_path / "nowhere" / "my.env", "")
    with pytest.raises(ConfigNotWritable, match="Make the folder first"), alone(tmp_path / "nowhere" / "my.env"):
        pass
    (tmp_path / "folder.env").mkdir()
    with pytest.raises(ConfigNotWritable, match="not a plain file"):
        write(tmp_path / "folder.env", "")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to, not even root")
def test_a_folder_that_cannot_be_written_is_said() -> None:
    with pytest.raises(ConfigNotWritable, match="cannot be written"):
        write(Path("/proc/self/my.env"), "")


def test_what_cannot_be_read_is_said(file: Path, tmp_path: Path) -> None:
    file.write_bytes(b"NODE_NAME=\xff\n")
    assert "byte 11" in (read(file).problem or "")
    file.write_bytes(b"#" * (MOST_BYTES + 1))
    assert "larger than" in (read(file).problem or "")
    assert read(tmp_path).problem is not None
    assert read(None).version == read(tmp_path / "missing").version == ""


@pytest.mark.parametrize(("point", "content"), [("config.written", "old"), ("config.replaced", "new")])
def test_a_power_cut_leaves_the_old_or_the_new(file: Path, point: str, content: str) -> None:
    file.write_text("NODE_NAME=old\n")
    environment = {**os.environ, "DALSEGNO_FAULT": point}
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(file)], env=environment, check=False)
    assert ended.returncode == -9
    assert file.read_text() == f"NODE_NAME={content}\n"
    assert subprocess.run([sys.executable, "-c", PROGRAM, str(file)], check=False).returncode == 0
    assert file.read_text() == "NODE_NAME=new\n"
    assert list(file.parent.iterdir()) == [file]


def test_one_process_writes_at_a_time(file: Path) -> None:
    with alone(file):
        other = subprocess.Popen([sys.executable, "-c", PROGRAM, str(file)])
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1.5)
        before = file.read_text()
    assert other.wait(30) == 0
    assert before != "NODE_NAME=new\n"
    assert file.read_text() == "NODE_NAME=new\n"
