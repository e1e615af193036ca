"""Settings that a job is resumed with: known, valid, and in the form its snapshot has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import SecretStr, TypeAdapter, ValidationError

from dalsegno.catalog.templates import LANE, check
from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean
from dalsegno.settings import Settings
from dalsegno.settings.keys import FROZEN
from dalsegno.settings.settings import frozen_form
from dalsegno.store.schema import jobs
from dalsegno.store.store import Store

ROOT = "LIBRARY_ROOT"
PATHS = frozenset({ROOT, "FOLDER_ROOTS", "PLAYLIST_FILES"})
CHANGEABLE = (ROOT, *(name.upper() for name in FROZEN))
SECRET = frozenset(name.upper() for name, field in Settings.model_fields.items() if field.annotation is SecretStr)


def checked(
    store: Store, settings: Settings, job_id: int, given: Mapping[str, Any], *, base: Path | None = None
) -> dict[str, Any]:
    """The overrides as they are stored. `base` is where relative paths start; without it there may be none.

    Jobs of other lanes have settings of their own, which only their services know.
    """
    query = sa.select(jobs.c.lane, jobs.c.snapshot, jobs.c.overrides).where(jobs.c.id == job_id)
    job = store.read(lambda tx: tx.row(query))
    if job is None or not given:
        return dict(given)
    before = {**(job["snapshot"] or {}), **(job["overrides"] or {})}
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in SECRET:
            raise InputInvalid(problem=f"{key} is a secret and no part of a job: write it into dalsegno.env. "
                               "It is read at run time, so a resume without it is enough.")  # fmt: skip
        if key in CHANGEABLE:
            found[key] = _frozen(settings, key, value, base)
        elif job["lane"] != LANE.name or key in before:
            found[key] = value
        else:
            raise InputInvalid(problem=f"A job has no setting {key} that a resume can change."
                               f"{did_you_mean(key, CHANGEABLE)}")  # fmt: skip
    if job["lane"] == LANE.name:
        _consistent(settings, found)
    return found


def _frozen(settings: Settings, key: str, value: Any, base: Path | None) -> Any:
    """Read like a line of the settings file, and kept like it."""
    field = Settings.model_fields[key.lower()]
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    try:
        # As text first: a user may be called 123.
        read = TypeAdapter(field.rebuild_annotation()).validate_python(text)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        said = fault["msg"].removeprefix("Value error, ")
        raise InputInvalid(problem=f"{key}: {said[0].lower()}{said[1:]}.") from None
    if key in PATHS:
        many = isinstance(read, tuple)
        read = tuple(_absolute(key, each, base) for each in read) if many else _absolute(key, str(value), base)
    kept, comes_back = frozen_form(settings, key, read)
    if not comes_back:
        raise InputInvalid(problem=f"{key} holds a secret, which no job keeps: write it into dalsegno.env, "
                           "then resume with the same value.")  # fmt: skip
    return kept


def _absolute(key: str, text: str, base: Path | None) -> str:
    if "://" in text:
        return text
    path = Path(text).expanduser()
    if not text.strip() or (base is None and not path.is_absolute()):
        raise InputInvalid(problem=f'{key} must be a whole path, from the root on; it is "{text}".')
    return str(path if base is None else base / path)


def _consistent(settings: Settings, changed: Mapping[str, Any]) -> None:
    """What is checked when a job is started is checked of what changes."""
    blank: dict[str, Any] = {"sources": (), "download_sources": (), "object_store": None}
    given = {
        name: changed[name.upper()] for name in ("name_template", "s3_endpoint", *blank) if name.upper() in changed
    }
    check(settings.model_copy(update={**blank, **given}), None, [])
