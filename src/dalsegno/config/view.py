"""The file as people look at it, and what would become of it if they saved what they typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dalsegno.config.check import check, too_large
from dalsegno.config.compare import difference, is_of, side_of
from dalsegno.config.current import Current
from dalsegno.config.envfile import Document
from dalsegno.config.fields import GROUPS, Key, key_of, ordered
from dalsegno.config.files import Disk, read
from dalsegno.config.impact import impact_of
from dalsegno.config.masks import mask_value, restored, shown, stored
from dalsegno.config.model import ConfigView, Fault, Field, Preview, Revision, State
from dalsegno.config.revisions import current_revision
from dalsegno.engine.logbridge import masked
from dalsegno.settings import Loaded
from dalsegno.settings.keys import FREE
from dalsegno.store.store import Store


def config_view(store: Store, current: Current) -> ConfigView:
    disk, revision = read(current.file), store.read(lambda tx: current_revision(tx, current))
    errors = tuple(faults_of(current, disk))
    return ConfigView(
        file=None if current.file is None else str(current.file),
        state=_state(current, disk, revision, errors),
        version=disk.version,
        revision=revision,
        content=shown(disk.document, current.secrets),
        fields=tuple(_fields(current, disk.document, errors)),
        errors=errors,
        restart_pending=tuple(_restart_pending(current)),
    )


def form_content(current: Current, changes: Mapping[str, str | None]) -> str:
    """The file's text, masked, with these keys as a form sets them. None takes a key out, and so does a blank answer,
    except for a secret: that is kept."""
    document = stored(read(current.file).document)
    for name, value in changes.items():
        key = key_of(name)
        if value:
            document = document.with_value(name, value)
        elif value is None or key is None or not key.secret:
            document = document.without(name)
    return document.text


def preview(store: Store, current: Current, content: str) -> Preview:
    """What saving this text would do. Nothing is written."""
    too_large(content)
    disk = read(current.file)
    made = restored(content, disk.document, current.secrets)
    errors = sorted((*made.faults, *check(made.document)), key=lambda fault: (fault.line or 0, fault.key or ""))
    diff = difference(side_of(disk.document, "on disk"), side_of(made.document, "new"))
    impact = store.read(lambda tx: impact_of(tx, current, diff))
    secrets = (*current.secrets,)
    return Preview(masked(stored(made.document).text, secrets), tuple(errors), diff, impact)


def _state(current: Current, disk: Disk, revision: Revision | None, errors: Iterable[Fault]) -> State:
    if not disk.version:
        return State.MISSING
    if any(fault.level == "error" for fault in errors):
        return State.DISK_INVALID
    return State.IN_SYNC if is_of(revision, current, disk.document) else State.DISK_CHANGED


def faults_of(current: Current, disk: Disk) -> list[Fault]:
    """What is wrong with the file on disk, also together with the environment."""
    if disk.problem is not None:
        return [Fault(None, None, disk.problem, "Save a new one here, or repair it where it is.", code="unreadable")]
    found = check(disk.document)
    if disk.version and current.problem is not None and not any(fault.level == "error" for fault in found):
        hint = "The environment has a part in this: look there too."
        found.append(Fault(None, None, current.problem, hint, code="environment"))
    return found


def _fields(current: Current, document: Document, errors: Iterable[Fault]) -> list[Field]:
    now, then = _shown(current.loaded), _shown(current.started)
    made_up = [name for name in {**now, **{part.key or "": "" for part in document.entries()}}
               if any(name.startswith(prefix) for prefix in FREE)]  # fmt: skip
    groups = list(GROUPS)
    keys = [key for name in (*ordered(), *sorted(made_up)) if (key := key_of(name))]
    keys.sort(key=lambda key: groups.index(key.group))
    origins = current.loaded.origins
    return [
        _field(key, (then if key.restart_needed else now).get(key.name, ""), origins.get(key.name, ("default", None)),
               document, errors)
        for key in keys
    ]  # fmt: skip


def _field(key: Key, value: str, origin: tuple[str, int | None], document: Document, errors: Iterable[Fault]) -> Field:
    part = document.last(key.name)
    return Field(
        key=key.name,
        help=key.help,
        group=key.group,
        kind=key.kind,
        default=key.default,
        choices=key.choices,
        example=key.example,
        secret=key.secret,
        restart_needed=key.restart_needed,
        value=mask_value(key.name, value),
        origin=origin[0],  # type: ignore[arg-type]
        line=origin[1],
        in_file=None if part is None else mask_value(key.name, part.value),
        errors=tuple(fault for fault in errors if fault.key == key.name),
    )


def _shown(loaded: Loaded) -> dict[str, str]:
    return {row.key: row.value for row in loaded.shown()}


def _restart_pending(current: Current) -> list[str]:
    """Secrets are compared too, so by what they are and not by what is shown of them."""
    now, then = current.settings, current.started.settings
    changed = {name for name in type(now).model_fields if getattr(now, name) != getattr(then, name)}
    plain = [name for name in ordered() if name.lower() in changed and (key := key_of(name)) and key.restart_needed]
    limits = {*now.max_concurrency.items()} ^ {*then.max_concurrency.items()}
    return plain + sorted({f"MAX_CONCURRENCY_{name.upper()}" for name, _ in limits})
