"""Name templates: what a downloaded file is called, made of fields in braces."""

from __future__ import annotations

from functools import lru_cache
from string import Formatter

from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean

FIELDS = ("artist", "album", "title", "albumartist", "track", "disc", "year", "platform", "id")


def check_template(template: str) -> None:
    """Raises InputInvalid when no names can be made of it."""
    used = {name for part in parsed(template) for _, name in part if name}
    if not used & {"title", "id"}:
        raise InputInvalid(problem=f'The name template "{template}" needs {{title}} or {{id}}: all songs would be one.')


@lru_cache(16)
def parsed(template: str) -> list[list[tuple[str, str | None]]]:
    """Folders and name, each as pieces of text and the field after it."""
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise InputInvalid(problem=f'The name template "{template}" cannot be read: {error}.') from None
    parts: list[list[tuple[str, str | None]]] = [[]]
    for literal, name, spec, conversion in pieces:
        first, *rest = literal.split("/")
        parts[-1].append((first, None))
        parts += [[(text, None)] for text in rest]
        if name is None:
            continue
        if name not in FIELDS:
            hint = did_you_mean(name, FIELDS) or f" There are {', '.join(FIELDS)}."
            raise InputInvalid(problem=f"The name template knows no {{{name}}}.{hint}")
        if spec or conversion:
            raise InputInvalid(problem=f"In the name template, write {{{name}}} without anything more in the braces.")
        parts[-1].append(("", name))
    return parts
