"""Services and workflows that the tests of the command line run: `--services tests.cli.studio`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from dalsegno import Fail, Item, Lane, Step, Workflow, service


@service("echo")
def echo(item: Item) -> Any:
    """Says its parameters; a key that begins with "bad" fails for good."""
    item.log.info("hello from %s", item.key)
    if item.key.startswith("bad"):
        return Fail(f"{item.key} is a bad one", code="bad_key")
    return item.params or None


@service("gate", workers=1)
def gate(item: Item) -> Any:
    """Waits for the file named by the parameter `gate`, as long as nobody cancels it."""
    opened = Path(item.params["gate"])
    Path(f"{opened}.{item.key}").touch()
    while not opened.exists():
        if item.cancelled:
            return Fail("stopped on request", code="canceled")
        time.sleep(0.005)
    return {"level": item.snapshot.get("LEVEL")}


ECHOES = Workflow(name="echoes", steps=(Step(key="say", service="echo"),))
STRICT = Workflow(name="strict", steps=(Step(key="say", service="echo", on_failure="stop"),))
GATED = Workflow(name="gated", steps=(Step(key="wait", service="gate"),))
CAREFUL = Workflow(
    name="careful", lane=Lane(name="careful", max_active=1, recovery="pause"), steps=(Step(key="wait", service="gate"),)
)
