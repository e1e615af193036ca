"""docs/sources.md does not lie: its example runs, and its lists are whole."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from dalsegno.sources import external, model
from dalsegno.sources.registry import BUILTIN, GROUP, Config

TEXT = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
(CODE,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_source_of_your_own_runs(caddy: tuple[str, Path]) -> None:
    url, root = caddy
    (root / "latest.txt").write_text("One.mp3\nTwo.mp3\n")
    names: dict[str, type[model.Source]] = {}
    exec(CODE, names)
    source = names["Radio"](Config({"SOURCE_RADIO_BASE": url}))  # type: ignore[call-arg]
    (pool,) = source.pools()
    (playlist,) = source.playlists(pool)
    first, _ = source.tracks(playlist)
    assert first.title == "One"
    assert source.resolve(first).url == f"{url}/One.mp3"
    assert (source.can("resolve"), source.can("search")) == (True, False)
    source.close()


def test_every_built_in_source_is_described() -> None:
    for name, (_, setting) in BUILTIN.items():
        if name != "demo":
            assert f"### {name}\n" in TEXT
            assert f"`{setting}`" in TEXT
    assert f'"{GROUP}"' in TEXT


def test_every_field_and_code_of_the_protocol_is_described() -> None:
    for form in (model.Pool, model.Playlist, model.Track, model.Media):
        row = next(line for line in TEXT.splitlines() if line.startswith(f"| {form.__name__.lower()} |"))
        written = set(re.findall(r"`(\w+)`", row))
        assert written == {field.name for field in fields(form)} - ({"trusted"} if form is model.Media else set())
    for code in external.STATUSES:
        assert f"`{code}`" in TEXT
    for key in external.OURS:
        assert f"`SOURCE_<NAME>_{key}`" in TEXT
