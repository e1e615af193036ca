"""The settings file: whether it can be used, and whether others can read the secrets in it."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

from dalsegno.config.envfile import parsed
from dalsegno.config.seals import hidden_in
from dalsegno.insight.health.finding import Finding, Severity, found

OTHERS = 0o077


def look(file: Path | None, problem: str | None = None) -> list[Finding]:
    """`problem`: why its content is not in force."""
    findings = [found("settings_invalid", "error", "settings", problem=problem)] if problem else []
    if file is None:
        return findings
    if not file.exists():
        return findings or [found("settings_absent", "ok", "settings", file=str(file))]
    for each in (file, file.with_name(f".{file.name}.key")):
        findings += _readable(each, has_secrets=each != file or _has_secrets(file))
    return findings or [found("settings_fine", "ok", "settings", file=str(file))]


def _readable(file: Path, *, has_secrets: bool) -> list[Finding]:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return []
    if not mode & OTHERS:
        return []
    severity: Severity = "error" if has_secrets else "note"
    return [found("secrets_readable", severity, f"file:{file}", file=shlex.quote(str(file)), mode=f"{mode:04o}")]


def _has_secrets(file: Path) -> bool:
    try:
        return bool(hidden_in(parsed(file.read_text("utf-8"))))
    except (OSError, UnicodeDecodeError):
        return True
