"""A Resume in a file, as the database would be: there after a crash."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from dalsegno.objects import Unfinished


class Note:
    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Unfinished | None:
        return Unfinished(**json.loads(self.path.read_text())) if self.path.exists() else None

    def save(self, unfinished: Unfinished) -> None:
        new = self.path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(dataclasses.asdict(unfinished), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
