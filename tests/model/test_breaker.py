"""An error is judged once: whose trouble it is, and until when."""

import email.message
import errno
import io
import json
import pickle
import socket
import ssl
import urllib.error
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from email.utils import format_datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dalsegno.errors import DatabaseUnavailable, InputInvalid
from dalsegno.model.breaker import Breaker
from dalsegno.model.quota import QuotaReset
from dalsegno.model.signal import BODY_MAX, ProviderError, Signal
from dalsegno.model.trip import Kind, Trip

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)  # five in the morning in Los Angeles
RESET = datetime(2026, 7, 2, 7, 30, tzinfo=UTC)  # the next midnight there, and the margin
HOUR = 3600
DAY = 24 * HOUR


def judge(error: BaseException, **more: Any) -> Trip | None:
    return Breaker().judge(error, NOW, **more)


def verdict(error: BaseException, breaker: Breaker | None = None) -> tuple[str, float] | None:
    """The kind and the seconds to wait."""
    trip = (breaker or Breaker()).judge(error, NOW)
    return None if trip is None else (trip.kind.value, (trip.resume_at - NOW).total_seconds())


def at(*utc: int) -> datetime:
    return datetime(*utc, tzinfo=UTC)  # type: ignore[arg-type, misc]


QUOTA = ("quota", (RESET - NOW).total_seconds())

# --- what providers answer, after the shapes they document --------------------------------------

PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"


def google(*quota_ids: str, delay: Any = None, message: str = "You exceeded your current quota.") -> dict[str, Any]:
    details: list[dict[str, Any]] = []
    if quota_ids:
        metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
        violations = [
            {"quotaMetric": metric, "quotaId": quota, "quotaDimensions": {"model": "flash", "location": "global"}}
            for quota in quota_ids
        ]
        details.append({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations})
    links = [{"description": "Learn more", "url": "https://ai.google.dev/gemini-api/docs/rate-limits"}]
    details.append({"@type": "type.googleapis.com/google.rpc.Help", "links": links})
    if delay is not None:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    return {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}}


def openai(code: str, message: str = "It went wrong.") -> str:
    return json.dumps({"error": {"message": message, "type": code, "param": None, "code": code}})


def answer(status: int | None, body: Any = "", **headers: str) -> ProviderError:
    text = body if isinstance(body, str) else json.dumps(body)
    return ProviderError(status, text, {name.replace("_", "-"): value for name, value in headers.items()})


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (google(PER_DAY), QUOTA),
        (google(PER_DAY, delay="34.07s"), QUOTA),
        (google(PER_MINUTE, delay="34.07s"), ("rate_limit", 34.07)),
        (google(PER_MINUTE, delay="1m3s"), ("rate_limit", 63)),
        (google(PER_MINUTE, delay={"seconds": 34, "nanos": 500_000_000}), ("rate_limit", 34.5)),
        (google(PER_MINUTE, delay={"seconds": "34"}), ("rate_limit", 34)),
        (google(PER_MINUTE, delay="soon"), ("rate_limit", 120)),
        (google(PER_MINUTE, delay=None), ("rate_limit", 120)),
        (google("RequestsPerSecond", delay="0s"), ("rate_limit", 1)),
        (google("RequestsPerHour"), ("rate_limit", 120)),
        (google(PER_MINUTE, PER_DAY, delay="12s"), QUOTA),
        (google(PER_DAY, PER_MINUTE, delay="12s"), QUOTA),
        (google(delay="7s"), ("rate_limit", 7)),
        (google(), QUOTA),
        (google("ComputeUnits", message="Quota exceeded."), QUOTA),
        (google(message="Resource has been exhausted (e.g. check quota)."), QUOTA),
        (google(message="Quota exceeded for metric requests, limit 5 per minute."), ("rate_limit", 120)),
        (google(message="Quota exceeded for metric requests, limit 50 per day. Please retry in 34.07s."), QUOTA),
        (google(message="Please retry in 51.5s."), ("rate_limit", 51.5)),
        ({"error": {"code": 429, "errors": [{"reason": "rateLimitExceeded"}], "status": "RESOURCE_EXHAUSTED"}}, None),
        ({"error": {"details": [{"reason": "RATE_LIMIT_EXCEEDED", "metadata": {"quota_limit": PER_DAY}}]}}, QUOTA),
    ],
)
def test_google_names_the_quota_and_that_decides(body: Any, expected: tuple[str, float] | None) -> None:
    assert verdict(answer(429, body)) == (expected or ("rate_limit", 120))


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda body: answer(429, json.dumps(body)), id="JSON"),
        pytest.param(lambda body: answer(429, json.dumps([body], indent=2)), id="a list, as streams answer"),
        pytest.param(lambda body: answer(None, json.dumps([body])), id="no status"),
        pytest.param(lambda body: RuntimeError(f"429 RESOURCE_EXHAUSTED. {body}"), id="a repr in a sentence"),
        pytest.param(lambda body: RuntimeError(f"[{body}] (attempt {{3}})"), id="more braces after it"),
        pytest.param(
            lambda body: RuntimeError(f"call({{}}) said {json.dumps(body)}, giving up"), id="JSON in a sentence"
        ),
        pytest.param(lambda body: answer(429, {"error": {"message": json.dumps(body)}}), id="JSON in JSON"),
        pytest.param(
            lambda body: answer(502, {"message": f"429 from upstream: {body}"}), id="a repr in JSON, by a proxy"
        ),
        pytest.param(lambda body: answer(429, json.dumps(body)[:-4]), id="cut short"),
    ],
)
def test_googles_answer_is_found_however_it_is_wrapped(wrap: Any) -> None:
    assert verdict(wrap(google(PER_MINUTE, delay="34.07s"))) == ("rate_limit", 34.07)
    assert verdict(wrap(google(PER_MINUTE, PER_DAY, delay="34.07s"))) == QUOTA


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (answer(429, openai("insufficient_quota", "You exceeded your current quota, check your plan.")), QUOTA),
        (answer(429, openai("insufficient_quota"), Retry_After="20"), ("rate_limit", 20)),
        (answer(429, openai("rate_limit_exceeded")), ("rate_limit", 120)),
        (answer(429, openai("rate_limit_exceeded", "Quota exceeded.")), ("rate_limit", 120)),
        (answer(429, openai("requests", "Limit 3 / min. Please try again in 20s.")), ("rate_limit", 20)),
        (answer(429, openai("tokens", "on tokens per min (TPM): Please try again in 6m0s. See")), ("rate_limit", 360)),
        (answer(429, openai("tokens", "Please try again in 174ms.")), ("rate_limit", 1)),
        (
            answer(429, openai("rate_limit_exceeded", "on requests per day (RPD). Try again in 7m12s.")),
            ("rate_limit", 432),
        ),
        (answer(429, openai("rate_limit_exceeded", "on requests per day (RPD): Limit 200.")), QUOTA),
        (answer(429, openai("rate_limit_error", "exceeds 20,000 input tokens per minute")), ("rate_limit", 120)),
        (answer(429, "", retry_after_ms="1500"), ("rate_limit", 1.5)),
        (answer(429, "", retry_after_ms="1500", Retry_After="2"), ("rate_limit", 2)),
        (answer(429, "", retry_after_ms="much"), ("rate_limit", 120)),
        # only what has run out counts; of two that have, the later
        (answer(429, "", x_ratelimit_reset_requests="6m0s", x_ratelimit_remaining_requests="0"), ("rate_limit", 360)),
        (answer(429, "", x_ratelimit_reset_requests="6m0s", x_ratelimit_remaining_requests="3"), ("rate_limit", 120)),
        (answer(429, "", x_ratelimit_reset_requests="6m0s"), ("rate_limit", 120)),
        (answer(429, "", X_RateLimit_Reset_Tokens="20ms", X_RateLimit_Remaining_Tokens="0"), ("rate_limit", 1)),
        (
            answer(
                429,
                x_ratelimit_reset_requests="1s",
                x_ratelimit_remaining_requests="0",
                x_ratelimit_reset_tokens="1m30s",
                x_ratelimit_remaining_tokens="0",
            ),
            ("rate_limit", 90),
        ),
        (answer(429, "", x_ratelimit_reset_tokens="1h2m3s", x_ratelimit_remaining_tokens="0"), ("ban", 3723)),
    ],
)
def test_openai_says_it_in_a_code_and_in_headers(error: Exception, expected: tuple[str, float]) -> None:
    assert verdict(error) == expected


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("30", 30),
        (" 30 ", 30),
        ("1.5", 1.5),
        ("2.", 2),
        ("0", 1),
        ("3600", 3600),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90),
        ("Wednesday, 01-Jul-26 12:01:30 GMT", 90),
        ("Wed Jul  1 12:01:30 2026", 90),
        ("Wed, 01 Jul 2026 14:01:30 +0200", 90),
        (format_datetime(NOW - timedelta(days=1), usegmt=True), 1),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 1),
        # garbage: as if it was not there
        ("", 120),
        ("soon", 120),
        ("-5", 120),
        ("nan", 120),
        ("inf", 120),
        ("1e9", 120),
        ("0x10", 120),
        ("30, 60", 120),
        ("٣٠", 120),
        ("Wed, 99 Foo 2026 99:99:99 GMT", 120),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, wait: float) -> None:
    assert verdict(answer(429, "", Retry_After=value)) == ("rate_limit", wait)


@pytest.mark.parametrize("value", ["99999999", "9" * 400, "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_an_absurd_wait_is_believed_up_to_the_longest(value: str) -> None:
    assert verdict(answer(429, "", Retry_After=value)) == ("ban", 7 * DAY)
    assert verdict(answer(429, "", Retry_After=value), Breaker(longest=1800)) == ("ban", 1800)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (answer(429, google(PER_MINUTE, delay="10s"), Retry_After="40"), ("rate_limit", 40)),
        (answer(429, google(PER_MINUTE, delay="40s"), Retry_After="10"), ("rate_limit", 40)),
        (answer(429, "try again in 50 seconds", Retry_After="10"), ("rate_limit", 50)),
        (answer(429, google(PER_DAY), Retry_After="10"), QUOTA),
        (answer(429, google(PER_DAY), Retry_After=str(2 * DAY)), ("quota", 2 * DAY)),
        (answer(429, google(PER_DAY), Retry_After=str(900 * DAY)), ("quota", 7 * DAY)),
        (answer(429, google(), Retry_After="10"), ("rate_limit", 10)),
    ],
)
def test_of_two_waits_the_later_wins_and_a_day_is_never_shortened(
    error: Exception, expected: tuple[str, float]
) -> None:
    assert verdict(error) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        # the words of spec 004
        (RuntimeError("429 Quota exceeded"), QUOTA),
        (RuntimeError("RESOURCE_EXHAUSTED"), QUOTA),
        (RuntimeError("[429 Too Many Requests] You exceeded your current quota"), QUOTA),
        (RuntimeError("429 Quota exceeded for generate_content_requests_per_minute_per_project"), ("rate_limit", 120)),
        (RuntimeError("429 RESOURCE_EXHAUSTED: 2 requests per second"), ("rate_limit", 120)),
        (RuntimeError("429 RESOURCE_EXHAUSTED: your daily allowance"), QUOTA),
        (RuntimeError("rate limit: 25 requests per day"), QUOTA),
        (RuntimeError("429"), ("rate_limit", 120)),
        (RuntimeError("Got a 429 from the provider"), ("rate_limit", 120)),
        (RuntimeError("Error code: 429 - slow down"), ("rate_limit", 120)),
        (RuntimeError("HTTP Error 429: Too Many Requests"), ("rate_limit", 120)),
        (RuntimeError("429 Client Error: unknown for url: https://provider.test/"), ("rate_limit", 120)),
        (RuntimeError("request failed with status_code=429"), ("rate_limit", 120)),
        (RuntimeError("HTTP/1.1 429"), ("rate_limit", 120)),
        (RuntimeError("Rate limit hit"), ("rate_limit", 120)),
        (RuntimeError("Too many requests: retry after 35"), ("rate_limit", 35)),
        (RuntimeError("rate limited, retry after 500 ms"), ("rate_limit", 1)),
        (RuntimeError("操作频繁\uff0c请稍候再试"), ("rate_limit", 120)),
        (type("RateLimitError", (Exception,), {})("slow down"), ("rate_limit", 120)),
        (answer(429), ("rate_limit", 120)),
        (answer(429, "<html><h1>Slow down</h1></html>"), ("rate_limit", 120)),
        (answer(429, "Daily limit reached"), QUOTA),
        (answer(403, "API rate limit exceeded for this address."), ("rate_limit", 120)),
        (answer(403, "You have exceeded a secondary rate limit.", Retry_After="60"), ("rate_limit", 60)),
        (answer(403, {"error": {"code": 403, "errors": [{"reason": "quotaExceeded"}]}}), QUOTA),
        (answer(403, {"error": {"code": 403, "errors": [{"reason": "userRateLimitExceeded"}]}}), ("rate_limit", 120)),
        (answer(403, "Quota exceeded"), QUOTA),
        (answer(503, "Your requests exceed the allowable rate limit."), ("rate_limit", 120)),
        (answer(503, {"Error": {"Code": "SlowDown"}}), ("rate_limit", 120)),
        (answer(429, {"message": "You are being rate limited.", "retry_after": 64.57}), ("rate_limit", 64.57)),
        (answer(429, {"ok": False, "parameters": {"retry_after": 35}}), ("rate_limit", 35)),
    ],
)
def test_words_are_read_where_there_is_nothing_better(error: Exception, expected: tuple[str, float]) -> None:
    assert verdict(error) == expected


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.ENOENT, "No such file or directory", "/music/Rate Limit/429 Too Many Requests.flac"),
        FileNotFoundError("too many requests.flac"),
        PermissionError("HTTP 429"),
        RuntimeError("disk quota exceeded"),
        RuntimeError("quota exceeded"),
        ValueError("track 429 cannot be decoded"),
        ValueError("429 songs are missing"),
        ValueError("14290 is not a track"),
        ValueError("see https://provider.test/docs/rate-limits?status=429"),
        KeyError("title"),
        ZeroDivisionError(),
        answer(400, "the rate limit in your settings is not a number; too many requests"),
        answer(404, "The song Quota Exceeded was not found; try again in 2 days"),
        answer(403),
        answer(403, "Forbidden"),
        answer(403, "The user's storage quota has been exceeded."),
        answer(403, "<html>You have been blocked</html>"),
        answer(401, "invalid api key", Retry_After="30"),
        answer(401),
        answer(402),
        answer(418),
        answer(500, "internal error; try again in 30 seconds"),
        answer(501),
        answer(200, "not JSON"),
        answer(None, "an empty answer"),
    ],
)
def test_what_is_the_items_own_trouble_is_left_to_the_item(error: Exception) -> None:
    assert judge(error) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(429), GeneratorExit()])
def test_being_stopped_is_nobodys_trouble(error: BaseException) -> None:
    assert judge(error) is None


def test_our_own_database_being_away_closes_no_provider() -> None:
    away = DatabaseUnavailable(problem="connection refused")
    assert away.status == 503
    away.__cause__ = ConnectionRefusedError()
    assert judge(away) is None
    wrapped = RuntimeError("could not save")
    wrapped.__cause__ = away
    assert judge(wrapped) is None


# --- bans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "wait"),
    [
        (answer(403, "", Retry_After="60"), 60),
        (answer(418, "", Retry_After="60"), 60),
        (answer(418, "Way too many requests; IP banned.", Retry_After="60"), 60),
        (answer(429, "", Retry_After="3601"), 3601),
        (answer(429, "Your IP is banned for 24 hours."), DAY),
        (answer(403, "You have been blocked for 30 minutes"), 1800),
        (answer(403, "Please try again in 2 days."), 2 * DAY),
        (answer(403, "Try again in an hour."), HOUR),
        (answer(403, "suspended for 1 hour and 30 minutes"), 5400),
        (answer(403, "Wait 1 day, 2 hours before you come back"), DAY + 2 * HOUR),
        (answer(403, "A wait of 84000 seconds is required"), 84000),
        (answer(403, "您的IP已被封禁24小时"), DAY),
        (answer(403, "账号封禁 3 天"), 3 * DAY),
        (answer(403, "访问受限\uff0c请30分钟后再试"), 1800),
        (answer(403, "请在1小时30分钟之后重试"), 5400),
        (answer(429, "请求过于频繁\uff0c已封禁10分钟"), 600),
        (answer(403, "banned for 900 days"), 7 * DAY),
    ],
)
def test_a_ban_is_known_by_its_length(error: Exception, wait: float) -> None:
    assert verdict(error) == ("ban", wait)


def test_up_to_an_hour_a_429_is_a_limit() -> None:
    assert verdict(answer(429, "请30分钟后再试")) == ("rate_limit", 1800)
    assert verdict(answer(429, "", Retry_After="3600")) == ("rate_limit", 3600)


# --- outages ------------------------------------------------------------------------------------


def named(name: str, *bases: type) -> Exception:
    """An error of a library that is not installed here."""
    return type(name, bases or (Exception,), {})("it broke")  # type: ignore[no-any-return]


def chained(outer: Exception, inner: BaseException, *, as_context: bool = False) -> Exception:
    outer.__cause__ = None if as_context else inner
    outer.__context__ = inner
    outer.__suppress_context__ = not as_context
    return outer


@pytest.mark.parametrize(
    "error",
    [
        *(answer(status) for status in (408, 502, 503, 504, 520, 521, 522, 523, 524, 529)),
        answer(503, {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        ConnectionResetError(),
        TimeoutError("timed out"),
        TimeoutError("timed out; retry in 5 seconds"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        socket.gaierror(-2, "Name or service not known"),
        ssl.SSLError(1, "handshake failure"),
        ssl.SSLCertVerificationError(1, "certificate has expired"),
        urllib.error.URLError(socket.gaierror(-2, "Name or service not known")),
        *(
            named(name)
            for name in (
                *("ConnectError", "ConnectTimeout", "ReadTimeout", "RemoteProtocolError", "ProtocolError"),
                *("NewConnectionError", "MaxRetryError", "APIConnectionError", "APITimeoutError", "ServerUnavailable"),
                *("ChunkedEncodingError", "ClientPayloadError", "EndpointConnectionError"),
            )
        ),
        named("ReadError", type("NetworkError", (Exception,), {})),
        named("Faulty", type("ConnectionError", (OSError,), {})),
        chained(RuntimeError("could not fetch"), ConnectionResetError()),
        chained(RuntimeError("could not fetch"), ConnectionResetError(), as_context=True),
        chained(RuntimeError("a"), chained(RuntimeError("b"), chained(RuntimeError("c"), named("ConnectTimeout")))),
        ExceptionGroup("tasks", [ConnectionResetError()]),
    ],
    ids=repr,
)
def test_one_sign_of_an_outage_counts_but_does_not_trip(error: Exception) -> None:
    trip = judge(error)
    assert trip is not None
    assert (trip.kind, trip.certain) == (Kind.OUTAGE, False)
    assert trip.resume_at == NOW + timedelta(seconds=30)


@pytest.mark.parametrize(
    "error",
    [
        answer(500),
        FileNotFoundError(),
        PermissionError(),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.EMFILE, "Too many open files"),
        urllib.error.URLError("unknown url type: gopher"),
        urllib.error.URLError(FileNotFoundError(errno.ENOENT, "no such file")),
        named("LocalProtocolError", type("ProtocolError", (Exception,), {})),
        named("ReadError"),
        chained(FileNotFoundError(errno.ENOENT, "no such file"), ConnectionResetError(), as_context=True),
        chained(RuntimeError("could not fetch"), OSError(errno.ENOSPC, "full")),
        chained(answer(404), ConnectionResetError()),
    ],
    ids=repr,
)
def test_trouble_of_this_machine_is_no_outage(error: Exception) -> None:
    assert judge(error) is None


def test_a_context_that_was_taken_off_is_not_followed() -> None:
    error = chained(ValueError("no match"), ConnectionResetError(), as_context=True)
    error.__suppress_context__ = True  # raise … from None
    assert judge(error) is None


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
def test_an_outage_whose_end_is_named_is_certain(status: int) -> None:
    trip = judge(answer(status, "", Retry_After="45"))
    assert trip == Trip(
        Kind.OUTAGE,
        NOW + timedelta(seconds=45),
        f"The provider answered HTTP {status}; the provider asked to wait 45 s.",
        certain=True,
    )


@pytest.mark.parametrize(("trips", "wait"), [(-1, 30), (0, 30), (1, 60), (2, 120), (4, 480), (5, 600), (10**9, 600)])
def test_each_outage_in_a_row_doubles_the_wait(trips: int, wait: float) -> None:
    trip = judge(answer(503), trips=trips)
    assert trip is not None
    assert trip.resume_at == NOW + timedelta(seconds=wait)


def test_a_named_wait_that_proved_too_short_gives_way_to_ours() -> None:
    waits = []
    for trips in range(3):
        trip = judge(answer(503, "", Retry_After="5"), trips=trips)
        assert trip is not None
        assert trip.certain
        waits.append((trip.resume_at - NOW).total_seconds())
    assert waits == [5, 60, 120]


# --- the sentence -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (answer(429, google(PER_DAY)), f"Daily quota used up ({PER_DAY}); it resets at midnight America/Los_Angeles."),
        (answer(429, google()), "Quota used up; it resets at midnight America/Los_Angeles."),
        (
            answer(429, openai("insufficient_quota")),
            "Quota used up (insufficient_quota); it resets at midnight America/Los_Angeles.",
        ),
        (
            answer(429, google(PER_DAY), Retry_After=str(3 * DAY)),
            f"Daily quota used up ({PER_DAY}); the provider asked to wait 3 days.",
        ),
        (
            answer(429, google(PER_MINUTE, delay="34.07s")),
            f"Rate limit reached ({PER_MINUTE}); the provider asked to wait 34 s.",
        ),
        (answer(429), "Rate limit reached; trying again in 2 min."),
        (answer(403, "banned for 24 hours"), "Shut out by the provider; the provider asked to wait 24 h."),
        (answer(503), "The provider answered HTTP 503; trying again in 30 s."),
        (
            ConnectionRefusedError(),
            "The provider cannot be reached (ConnectionRefusedError); trying again in 30 s.",
        ),
    ],
)
def test_the_reason_is_a_sentence_a_person_can_read(error: Exception, sentence: str) -> None:
    trip = judge(error)
    assert trip is not None
    assert trip.reason == sentence


def test_nothing_a_provider_writes_can_break_the_sentence() -> None:
    trip = judge(answer(429, google("PerDay\n<script>alert(1)</script>" + "x" * 5000)))
    assert trip is not None
    assert trip.reason.startswith("Daily quota used up (PerDayscriptalert1/script")
    assert len(trip.reason) < 200


# --- the service's own word ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, ("rate_limit", 40)),
        (Kind.RATE_LIMIT, ("rate_limit", 40)),
        (Kind.QUOTA, QUOTA),
        (Kind.BAN, ("ban", 40)),
        (Kind.OUTAGE, ("outage", 40)),
        (Kind.MANUAL, ("manual", 7 * DAY)),
        (12.5, ("rate_limit", 12.5)),
        (5, ("rate_limit", 5)),
        (0.25, ("rate_limit", 0.25)),
        (-1, ("rate_limit", 0.001)),
        (10**9, ("rate_limit", 7 * DAY)),
        (float("nan"), ("rate_limit", 40)),
        (float("inf"), ("rate_limit", 40)),
        (True, ("rate_limit", 40)),
        ("nonsense", ("rate_limit", 40)),
        (Trip(Kind.BAN, NOW + timedelta(hours=2), "so"), ("ban", 2 * HOUR)),
        (Trip(Kind.BAN, NOW + timedelta(days=30), "so"), ("ban", 7 * DAY)),
        (Trip(Kind.QUOTA, NOW + timedelta(days=30), "the month is used up"), ("quota", 30 * DAY)),
        (Trip(Kind.BAN, NOW - timedelta(hours=2), "so"), ("ban", 0.001)),
        (Trip(Kind.BAN, (NOW + timedelta(hours=2)).replace(tzinfo=None), "so"), ("ban", 2 * HOUR)),
    ],
)
def test_the_services_own_classifier_is_asked_first(said: Any, expected: tuple[str, float]) -> None:
    assert verdict(answer(429, "", Retry_After="40"), Breaker(classify=lambda signal: said)) == expected


def test_a_kind_without_a_wait_takes_the_default_times() -> None:
    waits = {kind: verdict(ValueError("x"), Breaker(classify=lambda signal, kind=kind: kind)) for kind in Kind}  # type: ignore[misc]
    assert waits == {
        Kind.RATE_LIMIT: ("rate_limit", 120),
        Kind.QUOTA: QUOTA,
        Kind.BAN: ("ban", HOUR),
        Kind.OUTAGE: ("outage", 30),
        Kind.MANUAL: ("manual", 7 * DAY),
    }


def test_a_classifier_sees_the_signal_and_may_fail() -> None:
    seen = []

    def classify(signal: Signal) -> None:
        seen.append(signal)
        raise LookupError("a bug")

    error = answer(429, "slow", Retry_After="40")
    assert verdict(error, Breaker(classify=classify)) == ("rate_limit", 40)
    assert seen == [Signal(429, {"retry-after": "40"}, "slow", error)]


# --- the policy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cooldown", "outage_cooldown", "outage_cooldown_max", "longest"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e12, None, "60", True])
def test_times_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputInvalid, match=f"Breaker: {name} must be seconds above 0"):
        Breaker(**{name: value})


@pytest.mark.parametrize("value", [0, -1, 1.5, float("nan"), None, "3", True])
def test_a_threshold_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(InputInvalid, match="outage_after must be a count from 1"):
        Breaker(outage_after=value)


def test_other_nonsense_is_refused_too() -> None:
    with pytest.raises(InputInvalid, match=r"outage_cooldown_max \(5\) is below outage_cooldown \(30\)"):
        Breaker(outage_cooldown_max=5)
    with pytest.raises(InputInvalid, match="quota must be a QuotaReset"):
        Breaker(quota="midnight")  # type: ignore[arg-type]
    with pytest.raises(InputInvalid, match="classify must be a function"):
        Breaker(classify="always")  # type: ignore[arg-type]


def test_the_services_own_times_are_used() -> None:
    breaker = Breaker(cooldown=0.05, outage_cooldown=0.1, outage_cooldown_max=0.3, quota=QuotaReset("UTC", time(18)))
    assert verdict(answer(429), breaker) == ("rate_limit", 0.05)
    assert verdict(answer(503), breaker) == ("outage", 0.1)
    assert verdict(answer(429, google(PER_DAY)), breaker) == ("quota", 6.5 * HOUR)
    trip = breaker.judge(answer(429, google(PER_DAY)), NOW)
    assert trip is not None
    assert trip.reason.endswith("it resets at 18:00 UTC.")


# --- the reset of a quota -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset", "now", "expected"),
    [
        # an ordinary day
        (QuotaReset(), at(2026, 7, 1, 12), at(2026, 7, 2, 7, 30)),
        (QuotaReset(), at(2026, 1, 1, 12), at(2026, 1, 2, 8, 30)),
        (QuotaReset(), at(2026, 7, 1, 6, 59, 59), at(2026, 7, 1, 7, 30)),
        # just after the reset the counters lag: its margin, not a day
        (QuotaReset(), at(2026, 7, 1, 7, 0), at(2026, 7, 1, 7, 30)),
        (QuotaReset(), at(2026, 7, 1, 7, 5), at(2026, 7, 1, 7, 30)),
        (QuotaReset(), at(2026, 7, 1, 7, 29, 59), at(2026, 7, 1, 7, 30)),
        # after the margin the quota is a new one, and used up
        (QuotaReset(), at(2026, 7, 1, 7, 30), at(2026, 7, 2, 7, 30)),
        (QuotaReset(), at(2026, 7, 1, 7, 31), at(2026, 7, 2, 7, 30)),
        (QuotaReset(margin=timedelta(0)), at(2026, 7, 1, 7), at(2026, 7, 2, 7)),
        (QuotaReset(margin=timedelta(0)), at(2026, 7, 1, 6, 59), at(2026, 7, 1, 7)),
        # a margin across the day's end, and one longer than a day
        (QuotaReset("UTC", time(23, 50)), at(2026, 7, 1, 0, 10), at(2026, 7, 1, 0, 20)),
        (QuotaReset("UTC", margin=timedelta(hours=30)), at(2026, 7, 2, 5), at(2026, 7, 2, 6)),
        # Los Angeles, 8 March: a day of 23 hours
        (QuotaReset(), at(2026, 3, 8, 7, 59), at(2026, 3, 8, 8, 30)),
        (QuotaReset(), at(2026, 3, 8, 9), at(2026, 3, 9, 7, 30)),
        (QuotaReset(at=time(2, 30)), at(2026, 3, 8, 9), at(2026, 3, 8, 11)),  # 02:30 does not exist: 03:30
        # Los Angeles, 1 November: a day of 25 hours
        (QuotaReset(), at(2026, 11, 1, 6, 59), at(2026, 11, 1, 7, 30)),
        (QuotaReset(), at(2026, 11, 1, 7, 30), at(2026, 11, 2, 8, 30)),
        (QuotaReset(at=time(1, 30)), at(2026, 11, 1, 8), at(2026, 11, 1, 9)),  # 01:30 comes twice: the first
        (QuotaReset(at=time(1, 30)), at(2026, 11, 1, 9), at(2026, 11, 2, 10)),
        # midnight does not exist: the moment the clock jumped from it to one
        (QuotaReset("America/Santiago"), at(2025, 9, 7, 3), at(2025, 9, 7, 4, 30)),
        (QuotaReset("Asia/Beirut"), at(2025, 3, 29, 21), at(2025, 3, 29, 22, 30)),
        (QuotaReset("Africa/Cairo"), at(2025, 4, 24, 21), at(2025, 4, 24, 22, 30)),
        # the hour before midnight comes twice: there is one midnight, after the second
        (QuotaReset("America/Santiago"), at(2025, 4, 6, 2, 30), at(2025, 4, 6, 4, 30)),
        (QuotaReset("Asia/Beirut"), at(2025, 10, 25, 20, 30), at(2025, 10, 25, 22, 30)),
        (QuotaReset("Africa/Cairo"), at(2025, 10, 30, 20, 30), at(2025, 10, 30, 22, 30)),
        # midnight itself comes twice: the first, and not again
        (QuotaReset("America/Havana"), at(2025, 11, 2, 3, 30), at(2025, 11, 2, 4, 30)),
        (QuotaReset("America/Havana"), at(2025, 11, 2, 4, 45), at(2025, 11, 3, 5, 30)),
        # a whole day that does not exist
        (QuotaReset("Pacific/Apia"), at(2011, 12, 30, 9), at(2011, 12, 30, 10, 30)),
        (QuotaReset("Pacific/Apia"), at(2011, 12, 30, 11), at(2011, 12, 31, 10, 30)),
        # now may be told in any zone, or in none, which is UTC
        (QuotaReset(), datetime(2026, 7, 1, 23, 59, tzinfo=ZoneInfo("America/Los_Angeles")), at(2026, 7, 2, 7, 30)),
        (QuotaReset(), at(2026, 7, 1, 12).replace(tzinfo=None), at(2026, 7, 2, 7, 30)),
    ],
)
def test_a_quota_resets_at_the_wall_clock_of_its_provider(reset: QuotaReset, now: datetime, expected: datetime) -> None:
    found = reset.after(now)
    assert found == expected
    assert found.tzinfo is UTC


ZONES = [
    *("America/Los_Angeles", "UTC", "Asia/Shanghai", "Asia/Kolkata", "Europe/Berlin", "Australia/Lord_Howe"),
    *("America/Santiago", "Asia/Beirut", "Africa/Cairo", "America/Havana", "America/Asuncion", "Pacific/Apia"),
]
MOMENTS = st.integers(1_330_000_000, 2_200_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
MARGINS = st.timedeltas(timedelta(0), timedelta(hours=12))


@given(
    now=MOMENTS,
    zone=st.sampled_from(ZONES),
    clock=st.times(),
    margin=MARGINS,
)
@example(now=at(2025, 9, 7, 3), zone="America/Santiago", clock=time(0), margin=timedelta(0))
def test_the_reset_is_the_next_one_and_at_its_time(now: datetime, zone: str, clock: time, margin: timedelta) -> None:
    found = QuotaReset(zone, clock, margin).after(now)
    assert now < found <= now + timedelta(hours=25) + margin
    local = (found - margin).astimezone(ZoneInfo(zone))
    jumped = local.utcoffset() != (local.astimezone(UTC) - timedelta(hours=3)).astimezone(ZoneInfo(zone)).utcoffset()
    assert local.time() == clock or jumped


@given(now=MOMENTS, zone=st.sampled_from(ZONES))
def test_waiting_for_every_reset_is_waiting_once_a_day(now: datetime, zone: str) -> None:
    reset = QuotaReset(zone)
    first = reset.after(now)
    second = reset.after(first)
    assert timedelta(hours=23) <= second - first <= timedelta(hours=25)
    assert second.astimezone(ZoneInfo(zone)).date() - first.astimezone(ZoneInfo(zone)).date() == timedelta(days=1)


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("America/Los_Angles", 'Did you mean "America/Los_Angeles"?'),
        ("US/Pacfic", 'Did you mean "US/Pacific"?'),
        ("America", "no time zone"),
        ("", "no time zone"),
        ("../etc/passwd", "no time zone"),
        ("/etc/localtime", "no time zone"),
        ("a\0b", "no time zone"),
        (None, "no time zone"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_one_that_was_meant(zone: Any, hint: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        QuotaReset(zone)
    assert hint in str(caught.value)


def test_a_reset_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputInvalid, match="margin must not be negative"):
        QuotaReset(margin=timedelta(minutes=-1))
    with pytest.raises(InputInvalid, match="time of day without a zone"):
        QuotaReset(at=time(8, tzinfo=UTC))
    with pytest.raises(InputInvalid, match="time of day without a zone"):
        QuotaReset(at="08:00")  # type: ignore[arg-type]


# --- what libraries raise -----------------------------------------------------------------------


class Answer:
    """A response: whatever attributes a library gives it. Like the one of requests, it is false when it is bad."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __bool__(self) -> bool:
        return False


class Unread(Answer):
    """A stream nobody read."""

    @property
    def text(self) -> str:
        raise RuntimeError("Attempted to access streaming response content, without having called `read()`.")

    content = text


class LibraryError(Exception):
    def __init__(self, message: str = "it broke", **attributes: Any) -> None:
        super().__init__(message)
        self.__dict__.update(attributes)


HEADERS = {"Retry-After": "40"}


def urllib_error() -> urllib.error.HTTPError:
    headers = email.message.Message()
    headers["Retry-After"] = "40"
    return urllib.error.HTTPError("https://provider.test", 429, "Too Many Requests", headers, io.BytesIO(b"slow"))


@pytest.mark.parametrize(
    ("error", "body"),
    [
        pytest.param(answer(429, "slow", Retry_After="40"), "slow", id="ours"),
        pytest.param(
            LibraryError(response=Answer(status_code=429, headers=HEADERS, text="slow")), "slow", id="httpx, requests"
        ),
        pytest.param(LibraryError(response=Unread(status_code=429, headers=HEADERS)), "", id="httpx, a stream"),
        pytest.param(
            LibraryError(status_code=429, body={"code": "x"}, response=Unread(headers=HEADERS)),
            '{"code": "x"}',
            id="openai",
        ),
        pytest.param(
            LibraryError(
                code=429,
                status="RESOURCE_EXHAUSTED",
                details={"error": {}},
                response=Answer(headers=HEADERS, text=dict.get),
            ),
            '{"error": {}}',
            id="google-genai",
        ),
        pytest.param(LibraryError(status=429, headers=HEADERS, message="slow"), "", id="aiohttp"),
        pytest.param(LibraryError(response=Answer(status=429, headers=HEADERS, data=b"slow")), "slow", id="urllib3"),
        pytest.param(
            LibraryError(
                response={
                    "Error": {"Code": "Throttling"},
                    "ResponseMetadata": {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": "40"}},
                }
            ),
            '{"Error": {"Code": "Throttling"}}',
            id="botocore",
        ),
        pytest.param(
            LibraryError(response=Answer(status_code="429", headers={b"Retry-After": b"40"}, content=b"\xff")),
            "�",
            id="bytes",
        ),
        pytest.param(chained(RuntimeError("wrapped"), answer(429, "slow", Retry_After="40")), "slow", id="wrapped"),
        pytest.param(
            chained(ValueError("a"), chained(KeyError("b"), answer(429, "slow", Retry_After="40"), as_context=True)),
            "slow",
            id="wrapped twice",
        ),
    ],
)
def test_status_headers_and_body_are_found_wherever_a_library_keeps_them(error: Exception, body: str) -> None:
    signal = Signal.of(error)
    assert signal == Signal(429, {"retry-after": "40"}, body, error)
    assert verdict(error) == ("rate_limit", 40)


def test_the_body_urllib_reads_only_once_is_still_there_for_the_next_who_asks() -> None:
    with urllib_error() as error:
        assert [Signal.of(error).body for _ in range(2)] == ["slow", "slow"]
        assert verdict(error) == ("rate_limit", 40)
    with urllib_error() as closed:
        closed.close()
        assert verdict(closed) == ("rate_limit", 40)


def test_the_outer_error_speaks_if_it_has_anything_to_say() -> None:
    assert Signal.of(chained(answer(404), answer(429))).status == 404
    assert Signal.of(chained(named("ConnectTimeout"), answer(429), as_context=True)).status is None


def test_errors_that_wrap_each_other_in_a_circle_come_to_an_end() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert Signal.of(first) == Signal(None, {}, "", first)


@pytest.mark.parametrize("body", ["x" * 10_000_000, b"x" * 10_000_000, {"x": "y" * 10_000_000}, ["y" * 10_000_000]])
def test_a_huge_body_is_cut(body: Any) -> None:
    assert len(Signal.of(LibraryError(status=500, body=body)).body) == BODY_MAX


def test_a_provider_error_survives_the_way_to_another_process() -> None:
    error = answer(429, "slow", Retry_After="40")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.status, copy.body, copy.headers, str(copy)) == (429, "slow", HEADERS, str(error))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProviderError(), "The provider answered an error"),
        (ProviderError(503), "The provider answered HTTP 503"),
        (ProviderError(503, "x" * 999), "The provider answered HTTP 503: " + "x" * 200),
        (ProviderError(503, "x", message="No lyrics today"), "No lyrics today"),
    ],
)
def test_a_provider_error_can_be_read(error: ProviderError, text: str) -> None:
    assert str(error) == text


# --- whatever comes -----------------------------------------------------------------------------


class Odd(Exception):
    """Every attribute a judge may ask for raises, and so does reading it."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return Odd
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("unspeakable")


class Endless(Mapping[str, str]):
    def __getitem__(self, key: str) -> str:
        return "0"

    def __iter__(self) -> Any:
        while True:
            yield "x"

    def __len__(self) -> int:
        return 1


cyclic: dict[str, Any] = {}
cyclic["error"] = cyclic


@pytest.mark.parametrize(
    "error",
    [
        Odd(),
        LibraryError(status=Answer(), headers=Answer(), body=Answer(), response=Answer()),
        LibraryError(status=True, code=-1, status_code="many"),
        LibraryError(status=10**400, body=10**400),
        LibraryError(status=404, headers=Endless()),
        LibraryError(status=404, headers=[("a", "b")], body=cyclic),
        LibraryError(response={}),
        LibraryError(response={"ResponseMetadata": None, 1: 2}),
        LibraryError(response={"ResponseMetadata": {"HTTPStatusCode": None, "HTTPHeaders": 3}}),
        LibraryError(exceptions=(), reason="none", __cause__="none"),
        OSError([], {}),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_odd_errors_are_nobodys_trouble(error: Exception) -> None:
    assert judge(error) is None


@pytest.mark.parametrize(
    "body",
    [
        "{" * BODY_MAX,
        "[" * BODY_MAX,
        '{"a":' * (BODY_MAX // 5),
        "{'a':" * (BODY_MAX // 5) + "}" * 100,
        "{" + "-" * BODY_MAX + "1}",
        "{" + "1+" * (BODY_MAX // 2) + "1}",
        "{[]: 1}",
        '{"code": ' + "9" * 10_000 + "}",
        "9" * BODY_MAX,
        "try " * (BODY_MAX // 4),
        "1 hour, " * (BODY_MAX // 8),
        "\n" * BODY_MAX,
        "\0" * BODY_MAX,
        "\ud800{",
        '"{\\"a\\": \\"{\\"}"',
    ],
    ids=lambda body: repr(body[:12]),
)
@pytest.mark.timeout(10)
def test_a_hostile_body_neither_breaks_nor_stalls_the_judge(body: str) -> None:
    assert judge(answer(404, body)) is None
    trip = judge(answer(429, body))
    assert trip is not None
    assert trip.resume_at > NOW


PHRASES = st.sampled_from(
    [
        *("quota exceeded", "RESOURCE_EXHAUSTED", "429", "per day", "per minute", "rate limit", "banned for 24 hours"),
        *(
            "try again in ",
            "9" * 30,
            " days",
            "封禁24小时",
            "{'error': ",
            '{"code": 429, ',
            '"retryDelay": "34s"}',
            "}",
        ),
        *(json.dumps(google(PER_DAY, delay="3s")), str(google(PER_MINUTE, delay="9999h"))),
    ]
)
TEXTS = st.lists(PHRASES | st.text(max_size=20), max_size=8).map("".join)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=20)
KEYS = st.sampled_from(["error", "code", "status", "reason", "details", "quotaId", "retryDelay", "retry_after"]) | TEXTS
BODIES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
NAMES = st.sampled_from(
    [
        *("Retry-After", "retry-after-ms", "x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"),
        *("X-RateLimit-Reset-Tokens", "X-RateLimit-Remaining-Tokens"),
    ]
)
VALUES = st.sampled_from(["0", "1", "6m0s", "Wed, 01 Jul 2026 12:01:30 GMT", "9" * 40]) | TEXTS
STATUSES = st.none() | st.sampled_from([200, 401, 403, 404, 408, 418, 429, 500, 502, 503, 529]) | SCALARS


@given(
    status=STATUSES,
    body=BODIES,
    headers=st.dictionaries(NAMES, VALUES | SCALARS, max_size=4) | SCALARS,
    message=TEXTS,
    cause=st.sampled_from([None, ConnectionResetError(), FileNotFoundError(), answer(429, google(PER_DAY))]),
    trips=st.integers(),
    longest=st.floats(0.01, 30 * DAY),
)
def test_the_judge_never_raises_and_never_waits_for_ever(
    status: Any, body: Any, headers: Any, message: str, cause: Any, trips: int, longest: float
) -> None:
    breaker = Breaker(longest=longest)
    response = Answer(status_code=status, headers=headers, text=body)
    for error in (
        LibraryError(message, status=status, headers=headers, body=body),
        LibraryError(message, response=response, details=body),
        LibraryError(message, response=body),
        LibraryError(message),
    ):
        error.__cause__ = cause
        signal = Signal.of(error)
        assert len(signal.body) <= BODY_MAX
        assert all(name == name.lower() for name in signal.headers)
        trip = breaker.judge(error, NOW, trips=trips)
        if trip is None:
            continue
        latest = NOW + timedelta(seconds=longest) + timedelta(microseconds=1)
        assert NOW < trip.resume_at <= (max(latest, RESET) if trip.kind is Kind.QUOTA else latest)
        assert trip.reason.endswith(".")
        assert "\n" not in trip.reason
        assert trip.certain or trip.kind is Kind.OUTAGE


@given(delay=st.floats(0, 1e9), after=st.integers(0, 10**9))
def test_a_daily_quota_is_never_shortened(delay: float, after: int) -> None:
    trip = judge(answer(429, google(PER_DAY, delay=f"{delay:.3f}s"), Retry_After=str(after)))
    assert trip is not None
    assert trip.kind is Kind.QUOTA
    assert trip.resume_at >= RESET
