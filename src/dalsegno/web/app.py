"""The application: the API, the live page and their static files, behind one guard."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from dalsegno import telemetry
from dalsegno.config.current import Current
from dalsegno.config.save import begin
from dalsegno.doctor.rounds import Rounds
from dalsegno.requests.room import Room as ParseTools
from dalsegno.settings import Settings
from dalsegno.store.store import Store
from dalsegno.version import VERSION
from dalsegno.web import docs, health, login, metrics
from dalsegno.web.answers import json_answers
from dalsegno.web.api.describing import describe
from dalsegno.web.api.routers import ROUTERS
from dalsegno.web.console.pages import page_of_error
from dalsegno.web.console.routers import PAGES
from dalsegno.web.door import Door
from dalsegno.web.guard import Guard
from dalsegno.web.live import Live
from dalsegno.web.moments import Moments
from dalsegno.web.origins import Origins
from dalsegno.web.probe import Probe
from dalsegno.web.problems import DOCUMENTED, answer_with_problems, describe_problems
from dalsegno.web.room import Room

STATIC = Path(__file__).parent / "static"


def create_app(
    store: Store, given: Settings | Current, *, host: str | None = None, read_only: bool = False
) -> FastAPI:  # fmt: skip
    """Settings that are `given` alone are shown, never saved. `host` is where it listens, unless that is CONSOLE_HOST;
    `read_only` is said before CONSOLE_READ_ONLY."""
    current = Current.fixed(given) if isinstance(given, Settings) else given
    settings, secrets = current.settings, current.secrets
    app = FastAPI(
        title="Dal Segno",
        version=VERSION,
        summary="Jobs that always continue from the mark.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # the default pages load their scripts from a CDN
        redoc_url=None,
        default_response_class=json_answers(secrets),
        responses=DOCUMENTED,
        generate_unique_id_function=lambda route: route.name,
    )
    read_only = read_only or settings.console_read_only
    begin(store, current)
    rounds = Rounds(store, current)
    app.state.room = Room(store, current, rounds, read_only)
    app.state.door = Door(store, current)
    app.state.live = Live(store, secrets, current.file, rounds)
    app.state.moments = Moments(app.state.live)
    app.state.probe = Probe()
    app.state.parse_tools = ParseTools(store, settings, lambda: current.settings)
    if (told := telemetry.start(settings)) is not None:
        app.add_middleware(telemetry.Traced, telemetry=told)
    origins = Origins(host or settings.console_host, settings.console_hosts)
    app.add_middleware(
        Guard, origins=origins, door=app.state.door, read_only=read_only, secrets=secrets, page=page_of_error
    )
    answer_with_problems(app, secrets, page_of_error)
    for pages in (*PAGES, docs.router, health.router, metrics.router, login.router):  # first: these stay open and ask
        app.include_router(pages)
    for part in ROUTERS:
        app.include_router(part, prefix="/api")
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """The process lives. It says nothing about the database."""
        return {"status": "ok"}

    describe_problems(app)
    describe(app)
    _prepare_routes(app)
    return app


def _prepare_routes(app: FastAPI) -> None:
    """FastAPI does it at the first request otherwise, and meanwhile silences a warning of pydantic's for the whole
    process: where that one has other threads, they undo it."""
    nowhere = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(nowhere)
