"""Read what is ready, one line of JSON each, and remember how far.

    python consume.py http://127.0.0.1:8765 cursor.txt

Run it every few minutes. If it is killed, the next run goes on after the last content that was printed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dalsegno.client import ParseClient


def main(url: str, place: str) -> None:
    kept = Path(place)
    cursor = kept.read_text() if kept.exists() else None
    with ParseClient(url, api_key=os.environ.get("REQUESTS_API_KEY")) as client:
        ready = client.iter_ready(cursor=cursor)
        for content in ready:
            links = [variant.mp4_link for variant in content.variants]
            line = {"id": content.id, "title": content.title, "links": links}
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
            sys.stdout.flush()
            save(kept, ready.cursor)
        save(kept, ready.cursor)


def save(path: Path, cursor: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(cursor)
    beside.replace(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
