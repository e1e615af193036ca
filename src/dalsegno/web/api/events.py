"""The event stream: what changes, as it changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from dalsegno.insight.events import Cursor
from dalsegno.insight.pulse import read_cursor
from dalsegno.web.live import Live
from dalsegno.web.subscriber import Subscriber
from dalsegno.web.topics import topics_of, wanted

router = APIRouter(tags=["events"])

REPLAYED = 20_000
"""Events that are read again for somebody who comes back."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
EXAMPLE = """retry: 2000
event: hello
id: 4711
data: {"at":"2026-05-04T18:00:00+00:00","id":"4711"}

event: jobs
id: 4720
data: {"topic":"jobs","at":"2026-05-04T18:00:02+00:00","id":"4720"}

"""


class Stream(Response):
    """A response without an end. Frameworks' own streams run a task group and a queue for each; this is one task."""

    media_type = "text/event-stream"

    def __init__(self, live: Live, subscriber: Subscriber, resume: str | None) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._live = live
        self._subscriber = subscriber
        self._resume = resume

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        leaving = asyncio.ensure_future(self._until_gone(receive))
        try:
            async for text in self._texts():
                await send({"type": "http.response.body", "body": text, "more_body": True})
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b""})
        except OSError:
            pass  # whoever listened is gone
        finally:
            leaving.cancel()
            self._live.leave(self._subscriber)

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._subscriber.end()

    async def _texts(self) -> AsyncIterator[bytes]:
        live, subscriber = self._live, self._subscriber
        begins = self._events() if subscriber.full else self._topics()
        async for text in begins:
            yield text
            if subscriber.ended or live.closed:
                return
        while not subscriber.ended:
            lost, text = await subscriber.next()
            if lost is not None:
                yield live.resync(subscriber, lost)
            if text:
                yield text

    async def _topics(self) -> AsyncIterator[bytes]:
        """It joins first: what is told twice does no harm."""
        live, subscriber = self._live, self._subscriber
        live.join(subscriber)
        now = await live.ready()
        yield live.hello(now if self._resume is None else None)
        if self._resume is None:
            return
        after = read_cursor(self._resume)
        topics = None if after is None else await live.reader.missed(after, subscriber)
        if topics is None:
            yield live.resync(subscriber, "unknown")
            return
        for topic in sorted(topics):
            if subscriber.wants(topic):
                yield live.changed(topic)

    async def _events(self) -> AsyncIterator[bytes]:
        """It reads what it has missed page by page, and joins the others where they are."""
        live, subscriber = self._live, self._subscriber
        after = read_cursor(self._resume) if self._resume is not None else await live.reader.position()
        yield live.hello(after if self._resume is None else None)
        read = 0
        while after is not None and read < REPLAYED:
            page = await live.reader.page(after)
            if page is None:
                after = None
                break
            for event in page:
                if subscriber.concerned(topics_of(event)):
                    yield live.event(event)
            if page:
                after, read = Cursor(page[-1].tx, page[-1].id), read + len(page)
            elif not live.ahead(after):  # nobody else may run in between
                subscriber.after = after
                live.join(subscriber)
                return
        subscriber.after = await live.reader.position()
        live.join(subscriber)
        await live.ready()
        yield live.resync(subscriber, "unknown" if after is None else "too_many")


@router.get(
    "/events/stream",
    status_code=200,
    response_class=Stream,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}}}},
)
async def stream(
    request: Request,
    topics: Annotated[
        str | None, Query(description="Only these topics, with commas between.", examples=["jobs,job:12"])
    ] = None,
    events: Annotated[
        Literal["topics", "full"], Query(description="`full`: the events themselves, each with all that is known.")
    ] = "topics",
    last_event_id: Annotated[
        str | None, Query(description="Go on after this one, where there is no such header.")
    ] = None,
    header: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """What changes, as server-sent events. A named event says that its topic has changed.

    Reconnect with `Last-Event-ID` to go on where the stream was cut. `resync` means that some could not be told:
    look at everything again. `beat` comes every 15 seconds; `stale` says that the database does not answer, `fresh`
    that it does again.
    """
    live: Live = request.app.state.live
    subscriber = Subscriber(wanted(topics), full=events == "full")
    return Stream(live, subscriber, header or last_event_id or None)
