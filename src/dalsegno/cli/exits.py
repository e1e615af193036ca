"""What the exit code of a command means. Scripts may rely on it."""

from __future__ import annotations

from dalsegno.errors import DalSegnoError

OK = 0
UNEXPECTED = 1
BAD_INPUT = 2
COMPLETED_WITH_ERRORS = 3
FAILED = 4
CANCELED = 5
PAUSED = 6
UNAVAILABLE = 7
SIGNALED = 128
"""Plus the number of the signal: stopped before the job had ended. Run it again to continue."""

OF_STATUS = {
    "completed": OK,
    "completed_with_errors": COMPLETED_WITH_ERRORS,
    "failed": FAILED,
    "canceled": CANCELED,
    "paused": PAUSED,
}

HELP = """**Exit codes**

0 done · 1 unexpected error · 2 bad usage or input · 3 completed with errors · 4 failed · 5 canceled ·
6 paused · 7 database unavailable, or taken by another engine ·
130, 143 stopped by a signal (run again to continue)"""


def code_of(error: DalSegnoError) -> int:
    """The exit code for an error a person can do something about."""
    if error.code == "database_url_invalid":
        return BAD_INPUT
    if error.code.startswith(("database_", "schema_", "engine_")):
        return UNAVAILABLE
    return UNEXPECTED if error.code == DalSegnoError.code else BAD_INPUT
