"""The console's texts: every one is said in every language, and nothing is translated that nobody says.

python scripts/texts.py               what is missing, fuzzy, unused or said twice; fails if anything is
python scripts/texts.py --add jobs    put what is missing into jobs.po, ready to be filled in
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from babel.messages.catalog import Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, unescape

from dalsegno.config.fields import key_of, ordered
from dalsegno.insight.health.kinds import GROUPS, KINDS
from dalsegno.insight.query import PROBLEMS

WEB = Path(__file__).parent.parent / "src" / "dalsegno" / "web"
KEYWORDS: dict[str, tuple[int, ...] | None] = {
    "_": None,
    "N_": None,
    "text": None,
    "ngettext": (1, 2),
    "plural": (1, 2),
}
"""`text` and `plural` are those of `Words`."""
METHODS = [("console/**.py", "python"), ("templates/**.html", "jinja2")]
OPTIONS = {"templates/**.html": {"extensions": "", "silent": "false", "trimmed": "true"}}


def said(*begins: str) -> dict[str, str | tuple[str, str]]:
    """Every text in code and templates, or in files whose paths begin so, by its singular."""
    found: dict[str, str | tuple[str, str]] = {}
    for file, _, text, *_ in extract_from_dir(WEB, METHODS, OPTIONS, keywords=KEYWORDS):
        one = text[0] if isinstance(text, tuple) else text
        if one and (not begins or file.startswith(begins)):
            found[one] = text if isinstance(text, tuple) else found.get(one, text)
    keys = (key_of(name) for name in (*ordered(), "SOURCE_ANY_KEY"))
    kinds = (text for kind in KINDS.values() for text in (kind.says, kind.fix) if text)
    helps = (key.help for key in keys if key is not None)
    return {**found, **{text: text for text in (*kinds, *GROUPS.values(), *PROBLEMS.values(), *helps)}}


def translated(folder: Path) -> Iterator[tuple[str, Message]]:
    for file in sorted(folder.glob("LC_MESSAGES/*.po")):
        with file.open("rb") as opened:
            for message in read_po(opened, abort_invalid=True):
                if message.id:
                    yield file.name, message


def single(message: Message) -> str:
    return message.id if isinstance(message.id, str) else message.id[0]


def faults() -> list[str]:
    texts, found = said(), []
    for folder in sorted(path for path in (WEB / "locales").iterdir() if path.is_dir()):
        known = list(translated(folder))
        times = Counter(single(message) for _, message in known)
        found += [f"{folder.name}: missing: {text!r}" for text in texts if text not in times]
        found += [f"{folder.name}: said twice: {text!r}" for text, count in times.items() if count > 1]
        for file, message in known:
            text = single(message)
            whole = message.string if isinstance(message.string, tuple) else (message.string,)
            where = f"{folder.name}/{file}"
            if text not in texts:
                found.append(f"{where}: nobody says {text!r}")
            elif message.fuzzy or not all(whole):
                found.append(f"{where}: not translated: {text!r}")
            elif "%(" in text and any(_names(text) != _names(each) for each in whole):
                found.append(f"{where}: other %(names)s than in {text!r}")
    return found


def _names(text: str) -> set[str]:
    return {part.partition(")")[0] for part in text.split("%(")[1:]}


def add(name: str, *begins: str) -> None:
    texts = said(*begins)
    for folder in sorted(path for path in (WEB / "locales").iterdir() if path.is_dir()):
        known = {single(message) for _, message in translated(folder)}
        lines = []
        for one, text in texts.items():
            if one in known:
                continue
            plural = f'msgid_plural {_quoted(text[1])}\nmsgstr[0] ""\n' if isinstance(text, tuple) else 'msgstr ""\n'
            lines.append(f"\nmsgid {_quoted(one)}\n{plural}")
        file = folder / "LC_MESSAGES" / f"{name}.po"
        head = file.read_text() if file.exists() else HEAD.format(language=folder.name)
        file.write_text(head + "".join(lines))


HEAD = """msgid ""
msgstr ""
"Language: {language}\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Plural-Forms: nplurals=1; plural=0;\\n"
"""


def _quoted(text: str) -> str:
    found = '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    assert unescape(found) == text
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", metavar="NAME", nargs="+")
    asked = parser.parse_args()
    if asked.add:
        add(*asked.add)
    found = faults()
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
