"""Named points at which a crash test ends the process as a power cut would.

`DALSEGNO_FAULT=settle.commit.before:3` kills the process with SIGKILL the third time it gets there.
Without the variable a point costs one test of a string.
"""

from __future__ import annotations

import itertools
import os
import signal

_wanted, _, _count = os.environ.get("DALSEGNO_FAULT", "").partition(":")
_visits = itertools.count(1)
_fatal = int(_count or 1)


def point(name: str) -> None:
    if _wanted and name == _wanted and next(_visits) == _fatal:
        os.kill(os.getpid(), signal.SIGKILL)
