"""Submit everything that an upstream lists, and never more than the server can chew.

    python discover.py http://127.0.0.1:8765 --types anime-serial

Submitting the same twice is harmless, so nothing needs to be remembered.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator

from dalsegno.client import AsyncParseClient, ClientError

ENOUGH = 200
"""Requests that wait to be begun: while there are as many, nothing is added."""
PAUSE = 30.0
IDS = ("shikimori_id", "kinopoisk_id", "imdb_id")


async def discover(client: AsyncParseClient, types: str, year: str | None) -> int:
    new = 0
    async for title, ids in works(client, types, year):
        while await client.pending_count() >= ENOUGH:
            await asyncio.sleep(PAUSE)
        asked = await client.submit(title, **ids, decode_links=True)
        new += asked.created
    return new


async def works(
    client: AsyncParseClient, types: str, year: str | None
) -> AsyncIterator[tuple[str | None, dict[str, str]]]:
    """Each once, by its ids, or by its title where it has none: the upstream lists one for every translation."""
    seen = set()
    page = None
    while True:
        found = await client.list("kodik", types=types, year=year, limit=100, next_page=page)
        if found.warning:
            sys.stderr.write(f"{found.warning}\n")
        for result in found.results:
            if not isinstance(result, dict):
                continue
            ids = {name: str(result[name]) for name in IDS if result.get(name)}
            title = None if ids else result.get("title")
            if (ids or title) and (title, *ids.values()) not in seen:
                seen.add((title, *ids.values()))
                yield title, ids
        page = found.next_page
        if page is None:
            return


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--types", default="anime-serial")
    parser.add_argument("--year")
    given = parser.parse_args()
    key = os.environ.get("REQUESTS_API_KEY")
    async with AsyncParseClient(given.url, api_key=key, created_by="discovery") as client:
        try:
            new = await discover(client, given.types, given.year)
        except ClientError as error:
            sys.exit(f"discover: {error}")
    sys.stdout.write(f"{new} new requests\n")


if __name__ == "__main__":
    asyncio.run(main())
