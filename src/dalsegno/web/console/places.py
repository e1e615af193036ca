"""The console's pages: where they are, what they are called, and the letter that leads there."""

from __future__ import annotations

from dataclasses import dataclass

from dalsegno.web.console.i18n import N_


@dataclass(frozen=True, slots=True)
class Place:
    key: str
    path: str
    title: str
    """In English; translated where it is shown."""
    letter: str
    """Pressed after `g`."""


PLACES = (
    Place("dashboard", "/", N_("Dashboard"), "d"),
    Place("jobs", "/jobs", N_("Jobs"), "j"),
    Place("playlists", "/playlists", N_("Playlists"), "p"),
    Place("songs", "/songs", N_("Songs"), "s"),
    Place("schedules", "/schedules", N_("Schedules"), "t"),
    Place("requests", "/requests", N_("Requests"), "r"),
    Place("logs", "/logs", N_("Logs"), "l"),
    Place("config", "/config", N_("Config"), "c"),
    Place("workflows", "/workflows", N_("Workflows"), "w"),
    Place("limits", "/limits", N_("Limits"), "i"),
    Place("system", "/system", N_("System"), "y"),
)
"""In the order of the navigation. The first four are at hand on a phone; the others are under More."""
