"""One look from outside, with whatever can be reached: no settings, no database, it still says what it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dalsegno.doctor.examination import LIMIT, Looked, examine
from dalsegno.doctor.opening import opened
from dalsegno.doctor.secrets import look as look_at_file
from dalsegno.doctor.subjects import subjects, without_database
from dalsegno.engine.logbridge import masked
from dalsegno.errors import SettingInvalid
from dalsegno.insight.health.finding import Finding, in_order
from dalsegno.settings import load_settings
from dalsegno.settings.load import DEFAULT_FILE


@dataclass(frozen=True, slots=True)
class Visit:
    findings: list[Finding]
    """Worst first, without secrets."""
    looks: list[Looked]


def visit(
    env_file: Path | None = None, database: str | None = None, *, thorough: bool = False, limit: float = LIMIT
) -> Visit:
    file = (env_file or DEFAULT_FILE).absolute()
    try:
        settings = load_settings(env_file, database).settings
    except SettingInvalid as error:
        return Visit(in_order(look_at_file(file, str(error))), [])
    store = opened(settings)
    if isinstance(store, Finding):
        findings, looks = examine(without_database(settings, file), limit)
        findings.append(store)
    else:
        try:
            findings, looks = examine(subjects(store, settings, file, thorough=thorough, limit=limit), limit)
        finally:
            store.close()
    secrets = settings.secrets()
    return Visit(in_order(_without(secrets, each) for each in findings), looks)


def _without(secrets: Sequence[str], finding: Finding) -> Finding:
    says, fix = masked(finding.says, secrets), masked(finding.fix, secrets)
    return replace(finding, says=says, fix=fix, data=_masked(finding.data, secrets))


def _masked(value: Any, secrets: Sequence[str]) -> Any:
    match value:
        case str():
            return masked(value, secrets)
        case Mapping():
            return {key: _masked(each, secrets) for key, each in value.items()}
        case list() | tuple():
            return [_masked(each, secrets) for each in value]
        case _:
            return value
