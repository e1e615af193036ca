"""The file as a document: whatever is not changed stays byte for byte, and what is written is read back."""

from __future__ import annotations

from io import StringIO

import pytest
from dotenv import dotenv_values
from hypothesis import assume, given
from hypothesis import strategies as st

from dalsegno.config.envfile import parsed, quoted

PIECES = ["A=1", "b = 'x y'", 'export C="two\nlines"', "# remark", "", "  ", "D=", "E=a # said", "just words",
          "F='open", "G=#no", "\ufeff", "密码=晴天", "H=\\", '"', "=", "A=2", "\x00", "I=${A}"]  # fmt: skip
ENDS = ["\n", "\r\n", "\r", ""]
texts = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(ENDS)), max_size=8).map(
    lambda pairs: "".join(piece + end for piece, end in pairs)
)
values = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("'\"\\# \t\r\n$"), max_size=20)


@given(texts)
def test_a_document_is_its_text(text: str) -> None:
    assert parsed(text).text == text


@given(texts)
def test_it_reads_what_the_settings_read(text: str) -> None:
    document = parsed(text)
    assume(not any(part.kind == "broken" for part in document.parts))
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    read = dotenv_values(stream=StringIO(normal), interpolate=False)
    last = {part.key: part.value for part in document.entries()}
    assert last == {key.upper(): value or "" for key, value in read.items()}


@given(texts, values)
def test_a_key_is_changed_and_nothing_else(text: str, value: str) -> None:
    before = parsed(text)
    assume(not any(part.kind == "broken" for part in before.parts))
    after = before.with_value("A", value)
    found = after.last("A")
    assert found is not None
    assert found.value == value
    changed = before.last("A")
    if changed is None:
        assert after.text.startswith(text)
        return
    at = len("\ufeff" * before.marked + "".join(part.text for part in before.parts[: before.parts.index(changed)]))
    assert after.text.startswith(text[: at + changed.at[0]])
    assert after.text.endswith(text[at + changed.at[1] :])


@given(values, st.sampled_from(["", "'", '"']))
def test_what_is_written_is_read_back(value: str, quote: str) -> None:
    text = f"A={quoted(value, quote)}\nB=after\n"
    assert [(part.key, part.value) for part in parsed(text).entries()] == [("A", value), ("B", "after")]
    assert dotenv_values(stream=StringIO(text, newline=""), interpolate=False) == {"A": value, "B": "after"}


def test_a_value_keeps_its_quotes_its_remark_and_its_place() -> None:
    text = "# top\r\n\r\nexport LIBRARY_ROOT = 'a b'  # big\r\nDRAIN_SEC=5\t# short\r\n"
    document = parsed(text).with_value("LIBRARY_ROOT", "it's here").with_value("DRAIN_SEC", "7")
    assert document.text == "# top\r\n\r\nexport LIBRARY_ROOT = 'it\\'s here'  # big\r\nDRAIN_SEC=7\t# short\r\n"


def test_a_new_key_comes_last_with_the_line_ends_that_are_there() -> None:
    assert parsed("A=1\r\nB=2").with_value("C", "x").text == "A=1\r\nB=2\r\nC=x\r\n"
    assert parsed("").with_value("C", "x y").text == "C='x y'\n"
    assert parsed("\ufeff").with_value("C", "x").text == "\ufeffC=x\n"


def test_a_key_goes_with_all_its_lines() -> None:
    text = "# one\nA=1\n\n\nA='two\nlines' # said\nB=2\n"
    assert parsed(text).without("A").text == "# one\n\n\nB=2\n"
    assert parsed(text).without("C").text == text


def test_the_last_of_several_counts_and_is_the_one_that_is_changed() -> None:
    document = parsed("A=1\nA=2\n")
    assert document.last("A").value == "2"  # type: ignore[union-attr]
    assert document.with_value("A", "3").text == "A=1\nA=3\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_whatever_ends_them(end: str) -> None:
    text = end.join(["\ufeff# x", "", "just words", "more words", "A='two", "lines'", "", "B=1", ""])
    found = [(part.kind, part.line) for part in parsed(text).parts if part.kind != "blank"]
    assert found == [("comment", 1), ("broken", 3), ("broken", 4), ("entry", 5), ("entry", 8)]
