"""The client for programs with an event loop: the same calls, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any, Self, TypeVar

import httpx

from dalsegno.client import calls
from dalsegno.client.calls import Call
from dalsegno.client.models import Content, Listing, Submitted
from dalsegno.client.patience import Patience
from dalsegno.client.reading import Reading

T = TypeVar("T")


class AsyncParseClient:
    """Safe to share between tasks of one loop."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        created_by: str | None = None,
        patience: Patience | None = None,
        http: httpx.AsyncClient | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`url` is where Dal Segno answers, `api_key` its REQUESTS_API_KEY, `created_by` whom requests are for.

        With `http` (proxies, certificates, timeouts of your own) closing it is yours, too.
        """
        self._base = calls.base(url)
        self._headers = calls.headers(api_key, created_by)
        self._own = http is None
        self._http = http or httpx.AsyncClient(timeout=calls.TIMEOUT)
        self._patience = patience or Patience()
        self._sleep = sleep

    async def submit(
        self,
        title: str | None = None,
        *,
        kinopoisk_id: str | None = None,
        imdb_id: str | None = None,
        shikimori_id: str | None = None,
        decode_links: bool = False,
    ) -> Submitted:
        """Ask for something to be searched and, with `decode_links`, decoded. Asking twice is harmless.

        What becomes of it is read with `iter_ready`; it goes on whether or not anybody looks.
        """
        return await self._make(calls.submit(title, kinopoisk_id, imdb_id, shikimori_id, decode_links))

    async def pending_count(self) -> int:
        """How many requests nobody has begun with: reason enough to submit no more for a while."""
        return await self._make(calls.pending_count())

    def iter_ready(
        self,
        *,
        since: datetime | None = None,
        cursor: str | None = None,
        size: int | None = None,
        every: bool = False,
    ) -> AsyncReady:
        """What changed since a moment (inclusive), or after a cursor that was kept, up to now.

        `size` is how many are fetched at once; `every` shows variants without a link, too.
        """
        return AsyncReady(self, Reading(since, cursor, size, every))

    async def get_content(self, content_id: int, *, every: bool = False) -> Content:
        """One content as it is now."""
        return await self._make(calls.content(content_id, every))

    async def list(self, source: str = "kodik", **params: Any) -> Listing:
        """One page of what an upstream has: `client.list(types="anime-serial", year=2026, next_page=…)`."""
        return await self._make(calls.listing(source, params))

    async def close(self) -> None:
        if self._own:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _make(self, call: Call[T]) -> T:
        sent = call.sent(self._base, self._headers)
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await self._http.request(**sent)
            except httpx.HTTPError as error:
                wait = self._patience.delay(attempt, error)
                if wait is None:
                    raise calls.failure(sent["url"], error) from error
            else:
                wait = self._patience.delay(attempt, answer)
                if wait is None:
                    return call.understood(answer)
            await self._sleep(wait)


class AsyncReady(AsyncIterator[Content]):
    """Contents in the order in which they changed. `cursor` is the place after the last one that came out."""

    def __init__(self, client: AsyncParseClient, reading: Reading) -> None:
        self._client, self._reading = client, reading

    @property
    def cursor(self) -> str:
        """Keep it when you are done with a content: `iter_ready(cursor=…)` goes on there, now or next week."""
        return self._reading.cursor

    async def __anext__(self) -> Content:
        while self._reading.hungry:
            self._reading.take(await self._client._make(self._reading.call()))
        content = self._reading.next()
        if content is None:
            raise StopAsyncIteration
        return content
