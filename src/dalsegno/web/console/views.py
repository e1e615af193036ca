"""Views: a page's filters that a reader keeps under a name. In the reader's browser only, a cookie for each page."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

Views = dict[str, str]
"""The query string of each, by name."""
LONGEST_NAME = 40
LONGEST_QUERY = 1000
LARGEST = 3800
"""Bytes; browsers drop a cookie of more than 4096."""


def cookie_of(path: str) -> str:
    return "views" + path.rstrip("/").replace("/", "_")


def kept(cookies: Mapping[str, str], path: str) -> Views:
    try:
        found = json.loads(urlsafe_b64decode(cookies.get(cookie_of(path), "")))
        return {str(name): str(query) for name, query in found}
    except (ValueError, TypeError):
        return {}


def with_view(views: Views, name: str, query: str) -> Views:
    """The newest is first; what no longer fits is forgotten, the oldest first."""
    name = name[:LONGEST_NAME]
    if len(query) > LONGEST_QUERY:
        return views
    views = {name: query, **without(views, name)}
    while len(written(views)) > LARGEST:
        views.popitem()
    return views


def without(views: Views, name: str) -> Views:
    return {each: query for each, query in views.items() if each != name}


def written(views: Views) -> str:
    return urlsafe_b64encode(json.dumps([*views.items()], separators=(",", ":")).encode()).decode()
