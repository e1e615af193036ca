"""Languages: what is said where, and which one a reader gets.

The texts in templates and modules are English; `locales/*/LC_MESSAGES/*.po` says them in another language, a file a
page. They are read as they are: nothing has to be compiled.
"""

from __future__ import annotations

import gettext
from functools import cache
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from fastapi import Request

from dalsegno.settings import Settings

LOCALES = Path(__file__).parent.parent / "locales"
LANGUAGES = {"en": "English", "zh-CN": "简体中文"}
"""By the names that browsers use, each called as its readers call it."""
COOKIE = "language"


def N_(text: str) -> str:  # noqa: N802
    """Marks a text that is translated where it is shown."""
    return text


def language_of(request: Request, settings: Settings) -> str:
    """The reader's choice, the operator's setting, the browser's wish."""
    chosen = request.cookies.get(COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    said = settings.language
    return _wished(request.headers.get("accept-language", "")) if said == "auto" else said


def _wished(header: str) -> str:
    """The first of ours in the order of the header's weights."""
    wishes = []
    for part in header[:500].split(","):
        name, _, weight = "".join(part.lower().split()).partition(";q=")
        try:
            wishes.append((-float(weight or 1), name))
        except ValueError:
            continue
    for unwished, name in sorted(wishes, key=lambda wish: wish[0]):
        if unwished and name.split("-")[0] in ("en", "zh"):
            return "zh-CN" if name.startswith("zh") else "en"
    return "en"


@cache
def texts(language: str) -> gettext.NullTranslations:
    if language == "en":
        return gettext.NullTranslations()
    compiled = BytesIO()
    write_mo(compiled, whole_catalog(language))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


def whole_catalog(language: str) -> Catalog:
    """All files of a language as one."""
    whole = Catalog(locale=language.replace("-", "_"), header_comment="")
    for file in sorted((LOCALES / language.replace("-", "_") / "LC_MESSAGES").glob("*.po")):
        with file.open("rb") as opened:
            for message in read_po(opened, locale=whole.locale):
                if message.id:
                    whole[message.id] = message
    return whole
