"""Kodik, and whoever answers as it does: POST /search and /list with a token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from dalsegno.model.signal import ProviderError
from dalsegno.requests.drift import Reader, shown
from dalsegno.requests.kodik_shape import ANSWER, RESULT, place, works
from dalsegno.requests.upstream import Found, Listed, SearchSource, Wanted
from dalsegno.sources.model import Unusable
from dalsegno.sources.urls import host_of

if TYPE_CHECKING:
    from dalsegno.sources.http import Http
    from dalsegno.sources.registry import Config

PAGE = "100"
WITHIN = 60.0
PARAMS_MAX = 50
NOT_PASSED = frozenset({"next_page", "prev_page", "token"})


class Kodik(SearchSource):
    name = "kodik"

    def __init__(self, config: Config, http: Http) -> None:
        self._url = config.text("KODIK_URL").rstrip("/")
        self._token = config.text("KODIK_TOKEN")
        self._http = http

    def search(self, wanted: Wanted, page: str | None = None) -> Found:
        asked = {
            "title": wanted.title,
            "kinopoisk_id": wanted.kinopoisk_id,
            "imdb_id": wanted.imdb_id,
            "shikimori_id": wanted.shikimori_id,
            "with_episodes": "true",
            "limit": PAGE,
        }
        reader = Reader()
        answer = self._ask("search", {**asked, **_pairs(page)}, reader)
        results = answer.get("results")
        if not isinstance(results, list):
            raise Unusable(
                f"{host_of(self._url)} answers in a shape that nobody knows: it has no list of results.",
                code="upstream_changed",
            )
        found = works(reader, results)
        return Found(works=found, next_page=place(reader, answer, "next_page"), drift=reader.drift)

    def listing(self, params: Mapping[str, str]) -> Listed:
        reader = Reader()
        page = params.get("next_page") or params.get("prev_page")
        asked = {name: value for name, value in params.items() if name.lower() not in NOT_PASSED}
        answer = self._ask("list", {**asked, **_pairs(page)}, reader)
        results = answer.get("results")
        if not isinstance(results, list):
            reader.odd("results are missing" if results is None else "results are no list")
            results = []
        for each in results:
            form = reader.form("a result", each)
            reader.unknown("a result", form, RESULT)
            for name in ("id", "type", "title", "link"):
                reader.text("result", form, name, needed=True)
        return Listed(
            results=results,
            total=reader.number("answer", answer, "total"),
            next_page=place(reader, answer, "next_page"),
            prev_page=place(reader, answer, "prev_page"),
            drift=reader.drift,
        )

    def _ask(self, method: str, params: Mapping[str, str], reader: Reader) -> dict[str, Any]:
        form = {name: value for name, value in params.items() if value}
        if self._token:
            form["token"] = self._token
        body = self._http.post(f"{self._url}/{method}", form, trusted=True, within=WITHIN).body
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise Unusable(f"{host_of(self._url)} does not answer in JSON.", code="upstream_changed") from None
        told = reader.form("the answer", answer)
        if told.get("error") and not told.get("results"):
            raise self._refused(told["error"])
        reader.unknown("the answer", told, ANSWER)
        return told

    def _refused(self, said: Any) -> Exception:
        """Its errors come as a text, whatever the status."""
        text = said if isinstance(said, str) else shown(said)
        about_token = "token" in text.lower() or "токен" in text.lower()
        message = f"{host_of(self._url)} refuses: {text[:300]}"
        return ProviderError(401 if about_token else None, body=text[:300], message=message)


def _pairs(page: str | None) -> dict[str, str]:
    """Another page, as its answer named it. A token in it is not ours to send."""
    pairs = parse_qsl(page or "", max_num_fields=PARAMS_MAX)
    return {name: value for name, value in pairs if name.lower() != "token"}
