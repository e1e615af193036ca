"""Errors as a person or a program meets them: one message, never a traceback unless asked."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from dalsegno.cli import exits
from dalsegno.errors import DalSegnoError


def report(code: str, message: str, details: dict[str, Any], *, as_json: bool) -> None:
    """Say what went wrong, on stderr."""
    if as_json:
        document = {"error": {"code": code, "message": message, "details": details}}
        sys.stderr.write(json.dumps(document, ensure_ascii=False, default=str) + "\n")
    else:
        sys.stderr.write(f"dalsegno: {message}\n")


def exit_code_for(error: Exception, *, as_json: bool, debug: bool) -> int:
    """Report an error that ended a command; returns the code to exit with."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, DalSegnoError):
        report(error.code, str(error), error.details, as_json=as_json)
        return exits.code_of(error)
    if hasattr(error, "format_message"):  # what typer raises for bad usage, whichever module it is in this year
        report("usage", error.format_message(), {}, as_json=as_json)
        return exits.BAD_INPUT
    kept = _keep(error)
    message = f"Something unexpected went wrong ({type(error).__name__}: {error}). Nothing finished is lost."
    where = f"\nThe details are in {kept}; --debug shows them here." if kept else "\n--debug shows the details."
    report("unexpected", message + where, {"log": str(kept) if kept else None}, as_json=as_json)
    return exits.UNEXPECTED


def _keep(error: Exception) -> Path | None:
    try:
        descriptor, name = tempfile.mkstemp(prefix="dalsegno-error-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return None
    return Path(name)
