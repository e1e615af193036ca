"""A client for parse requests: ask for something once, and read by cursor what became of everything.

    from dalsegno.client import ParseClient

    with ParseClient("http://127.0.0.1:8765", created_by="discovery") as client:
        client.submit(title="Naruto", decode_links=True)
        for content in (ready := client.iter_ready()):
            print(content.id, content.title, ready.cursor)

There is no method that looks at one request again and again, and none is needed: what is done shows up in `iter_ready`,
once per change, for everybody at their own pace. Nothing else of Dal Segno is loaded with it.
"""

from dalsegno.client.asynchronous import AsyncParseClient, AsyncReady
from dalsegno.client.errors import ClientError, NotFound, Refused, TooMany, Unexpected, Unreachable
from dalsegno.client.models import Content, Episode, Listing, ParseRequest, Season, Submitted, Variant
from dalsegno.client.patience import Patience
from dalsegno.client.synchronous import ParseClient, Ready

__all__ = [
    "AsyncParseClient",
    "AsyncReady",
    "ClientError",
    "Content",
    "Episode",
    "Listing",
    "NotFound",
    "ParseClient",
    "ParseRequest",
    "Patience",
    "Ready",
    "Refused",
    "Season",
    "Submitted",
    "TooMany",
    "Unexpected",
    "Unreachable",
    "Variant",
]
