"""What the rest of the house sees of the settings file. Texts in here never hold a secret: they are masked."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from dalsegno.settings.load import Origin

Kind = Literal["text", "number", "size", "choice", "yes_no", "list", "pairs", "path", "url", "secret"]
"""How a form asks for a value."""


class State(StrEnum):
    """How the file on disk stands to the revision in force."""

    IN_SYNC = "in_sync"
    DISK_CHANGED = "disk_changed"
    """Valid, and not what was last saved: somebody edited the file. It is offered as a revision."""
    DISK_INVALID = "disk_invalid"
    """Not used: the settings read before it went bad stay in force."""
    MISSING = "missing"
    """There is no file. Defaults hold, and saving makes one."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a text."""

    line: int | None
    """Counted from 1; None where no line is to blame."""
    key: str | None
    reason: str
    suggestion: str
    level: Literal["error", "warning"] = "error"
    """Warnings do not keep a text from being saved."""
    code: str = ""
    """What kind of mistake, for translators; `data` has what the sentences say."""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Field:
    """One key: what it is for, and what it is now."""

    key: str
    help: str
    group: str
    """Which part of a form it belongs to; GROUPS has their order."""
    kind: Kind
    default: str
    choices: tuple[str, ...]
    example: str
    secret: bool
    """Write-only: `value` is empty or the mask, and a blank answer keeps what is stored."""
    restart_needed: bool
    """A change counts from the next start of the process on; else from the next job on."""
    value: str
    """In force."""
    origin: Origin
    line: int | None
    """Of the file, where it comes from there."""
    in_file: str | None
    """What the file says, as a form shows it; None where it says nothing. Differs from `value` where the
    environment overrides it."""
    errors: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Revision:
    """A saved version of the file. `content` has masks where secrets were."""

    id: int
    file_path: str
    node: str | None
    content: str
    content_hash: str
    note: str | None
    saved_by: str | None
    created_at: datetime
    applied_at: datetime | None
    """When it last became the file's content."""
    restores: int | None
    """The revision whose content it brought back."""
    secrets: dict[str, int | str]
    """By key: a seal of the secret (`config/seals.py`), else the number of the revision that set it."""


@dataclass(frozen=True, slots=True)
class RevisionLine:
    """A revision as lists show it."""

    revision: Revision
    current: bool
    """The file's newest: what it was last saved as."""
    jobs: int
    """That run or ran with it."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    key: str
    change: Literal["added", "removed", "changed"]
    before: str | None
    after: str | None
    secret: bool
    """Then `before` and `after` are masks at most."""
    restart_needed: bool


@dataclass(frozen=True, slots=True)
class Diff:
    keys: tuple[KeyChange, ...]
    unified: str
    """Lines as `diff -u` writes them, masked; empty where nothing differs."""

    @property
    def same(self) -> bool:
        return not self.keys and not self.unified


@dataclass(frozen=True, slots=True)
class KeptJobs:
    """Unfinished jobs that keep the settings they were made with."""

    revision_id: int | None
    status: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Impact:
    revision_id: int | None
    """What new jobs use: before saving, the number that the revision will most likely get."""
    kept: tuple[KeptJobs, ...]
    restart_needed: tuple[str, ...]
    """Changed keys that count only from the next start on."""
    overridden: tuple[str, ...]
    """Changed keys that have no effect: the environment or an option says otherwise."""
    says: tuple[str, ...]
    """The same in English, a sentence each."""


@dataclass(frozen=True, slots=True)
class ConfigView:
    """Everything the Config page shows."""

    file: str | None
    """Where it is or will be; None where this process was given none, and nothing can be saved."""
    state: State
    version: str
    """Names the file's content on disk; give it back as `base_version` when saving."""
    revision: Revision | None
    """The one last saved."""
    content: str
    """Of the file, masked; empty where there is none."""
    fields: tuple[Field, ...]
    """In the order of GROUPS. Keys that were made up (SOURCE_…, MAX_CONCURRENCY_…) are at their group's end."""
    errors: tuple[Fault, ...]
    """What is wrong with the file as it is on disk."""
    restart_pending: tuple[str, ...]
    """Keys whose value in force here is still the one from the start of this process."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What saving a text would do."""

    content: str
    """The text that would be written, masked."""
    errors: tuple[Fault, ...]
    """With any of level `error`, it cannot be saved."""
    diff: Diff
    """From the file on disk."""
    impact: Impact

    @property
    def valid(self) -> bool:
        return not any(fault.level == "error" for fault in self.errors)


@dataclass(frozen=True, slots=True)
class Saved:
    revision: Revision
    created: bool
    """False where the file already said exactly this."""
    state: State
    version: str
    warnings: tuple[Fault, ...]
    diff: Diff
    impact: Impact


@dataclass(frozen=True, slots=True)
class Comparison:
    before: Revision | None
    """None is the file on disk."""
    after: Revision | None
    diff: Diff


@dataclass(frozen=True, slots=True)
class JobKey:
    """One setting of a job."""

    key: str
    snapshot: Any
    """Frozen when the job was made; None where it was not set."""
    override: Any
    """What a resume has set since; None where nothing."""
    current: Any
    """What a job made now would get."""
    differs: bool
    """What the job uses is not what a new one would."""


@dataclass(frozen=True, slots=True)
class JobConfig:
    job_id: int
    revision: Revision | None
    """The revision the job was made with; None where that is not known."""
    current: Revision | None
    keys: tuple[JobKey, ...]
    overrides: dict[str, Any]

    @property
    def differs(self) -> bool:
        return any(key.differs for key in self.keys)
