"""docs/requests.md does not lie: its lists are whole."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from dalsegno.requests import upstreams
from dalsegno.requests.decoders import model, registry
from dalsegno.settings import Settings

TEXT = (Path(__file__).parents[2] / "docs" / "requests.md").read_text()


def test_every_field_of_the_protocol_is_described() -> None:
    for form in (model.Link, model.Decoded):
        for field in fields(form):
            assert f"`{field.name}`" in TEXT


def test_its_conversation_is_json() -> None:
    lines = re.findall(r"^[→←] (.*)$", TEXT, re.MULTILINE)
    assert len(lines) == 6
    for line in lines:
        assert "id" in json.loads(line)


def test_every_setting_it_names_is_one() -> None:
    named = set(re.findall(r"`((?:REQUESTS|KODIK|EXTERNAL_DECODERS)\w*)", TEXT))
    assert named
    assert {name.lower() for name in named} <= set(Settings.model_fields)
    for group in (upstreams.GROUP, registry.GROUP):
        assert f"`{group}`" in TEXT
