"""Signing in and out. Plain forms: they work without scripts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dalsegno.errors import InputInvalid, LoginFailed, LoginThrottled
from dalsegno.version import VERSION
from dalsegno.web.console.i18n import language_of
from dalsegno.web.door import LONGEST_NAME, Door, tidy_name
from dalsegno.web.sessions import DAYS

router = APIRouter(include_in_schema=False)

WORDS = {
    "en": {
        "title": "Sign in",
        "password": "Password",
        "password_help": "CONSOLE_PASSWORD of the machine that runs this.",
        "name": "Your name",
        "name_help": "Optional. It stands beside what you do.",
        "submit": "Sign in",
        "wrong": "This is not the password.",
        "wait": "Too many wrong passwords. Try again in {wait} s.",
    },
    "zh-CN": {
        "title": "登录",
        "password": "密码",
        "password_help": "运行本程序的机器上的 CONSOLE_PASSWORD。",
        "name": "你的名字",
        "name_help": "可不填。它会显示在你的操作旁。",
        "submit": "登录",
        "wrong": "密码不对。",
        "wait": "错误次数太多。请在 {wait} 秒后再试。",
    },
}


async def _door(request: Request) -> Door:
    found: Door = request.app.state.door
    return found


async def _form(request: Request) -> dict[str, str]:
    try:
        return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), max_num_fields=10))
    except ValueError:
        raise InputInvalid(problem="This form has more fields than ours.") from None


Keeper = Annotated[Door, Depends(_door)]
Form = Annotated[dict[str, str], Depends(_form)]


@router.get("/login")
def login(request: Request, keeper: Keeper, next: str = "/") -> Response:
    if not keeper.locked or keeper.session(request.headers) is not None:
        return RedirectResponse(local(next), status_code=303)
    return _page(request, local(next))


@router.post("/login")
def sign_in(request: Request, keeper: Keeper, form: Form) -> Response:
    where = local(form.get("next", "/"))
    if not keeper.locked:
        return RedirectResponse(where, status_code=303)
    address = request.client.host if request.client else "unknown"
    words = _words(request)
    try:
        keeper.try_password(form.get("password", ""), address)
    except LoginFailed as error:
        return _page(request, where, words["wrong"], error.status)
    except LoginThrottled as error:
        wait = error.details["wait"]
        return _page(request, where, words["wait"].format(wait=wait), error.status, {"Retry-After": str(wait)})
    name = tidy_name(form.get("name", ""))
    token = keeper.sessions.open(name, f"{name or 'console'}@{address}")
    answer = RedirectResponse(where, status_code=303)
    answer.set_cookie(
        keeper.sessions.cookie, token, max_age=DAYS * 86400, httponly=True, samesite="strict", secure=_https(request)
    )
    return answer


@router.post("/logout")
def sign_out(request: Request, keeper: Keeper) -> Response:
    session = keeper.session(request.headers) if keeper.locked else None
    answer = RedirectResponse("/login", status_code=303)
    if session is not None:
        keeper.sessions.close(session, request.state.who)
        answer.delete_cookie(keeper.sessions.cookie, httponly=True, samesite="strict", secure=_https(request))
    return answer


def local(where: str) -> str:
    """A path of this console; whatever else it is becomes the first page. A browser reads `\\` as `/`."""
    try:
        parts = urlsplit(where)
    except ValueError:
        return "/"
    plain = where.isprintable() and "\\" not in where and where.startswith("/") and not where.startswith("//")
    ours = plain and not parts.scheme and not parts.netloc and parts.path not in ("/login", "/logout")
    return where if ours else "/"


def _https(request: Request) -> bool:
    """Also where a proxy does it: the browser names its own scheme, and a proxy may. Nobody gains by lying."""
    claims = (request.url.scheme, request.headers.get("x-forwarded-proto", ""), request.headers.get("origin", ""))
    return any(claim.lower().partition(":")[0] == "https" for claim in claims)


def _words(request: Request) -> dict[str, str]:
    return WORDS[language_of(request, request.app.state.room.settings)]


def _page(
    request: Request, where: str, error: str | None = None, status: int = 200, headers: dict[str, str] | None = None
) -> HTMLResponse:
    words = _words(request)
    language = language_of(request, request.app.state.room.settings)
    given: dict[str, Any] = {"words": words, "language": language, "next": where, "error": error}
    text = _template().get_template("login.html").render(**given, version=VERSION, longest=LONGEST_NAME)
    return HTMLResponse(text, status, headers)


@cache
def _template() -> Environment:
    folder = Path(__file__).parent / "templates"
    return Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)
