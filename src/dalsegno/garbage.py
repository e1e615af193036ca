"""How often Python looks for what only holds on to itself.

Almost nothing here does, and a look at every 700 new objects, as is Python's habit, costs a busy engine a tenth of its
time (2,000 downloads: 3.5 s instead of 4.0).
"""

import gc

OBJECTS = 50_000
"""New ones before a look: a few MB."""


def look_rarely() -> None:
    """Once all is loaded: what is there now stays, and is not looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
