"""Submit everything that an upstream lists, and never more than the server can chew.

    python discover.py http://127.0.0.1:8765 --types anime-serial

Submitting the same twice is harmless, so nothing needs to be remembered.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from dalsegno.client import AsyncParseClient

ENOUGH = 200
"""Requests that wait to be begun: while there are as many, nothing is added."""
PAUSE = 30.0
IDS = ("kinopoisk_id", "imdb_id", "shikimori_id")


async def discover(client: AsyncParseClient, types: str, year: str | None) -> int:
    submitted = 0
    page = None
    while True:
        found = await client.list("kodik", types=types, year=year, limit=100, next_page=page)
        if found.warning:
            sys.stderr.write(f"{found.warning}\n")
        for work in found.results:
            while await client.pending_count() >= ENOUGH:
                await asyncio.sleep(PAUSE)
            known = {name: str(work[name]) for name in IDS if work.get(name)}
            asked = await client.submit(None if known else work["title"], **known, decode_links=True)
            submitted += asked.created
        page = found.next_page
        if page is None:
            return submitted


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--types", default="anime-serial")
    parser.add_argument("--year")
    given = parser.parse_args()
    key = os.environ.get("REQUESTS_API_KEY")
    async with AsyncParseClient(given.url, api_key=key, created_by="discovery") as client:
        sys.stdout.write(f"{await discover(client, given.types, given.year)} new requests\n")


if __name__ == "__main__":
    asyncio.run(main())
