"""The verdict: the one place where an outcome becomes a state."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dalsegno.engine.grouping import fingerprint
from dalsegno.engine.item import storable
from dalsegno.engine.logbridge import masked
from dalsegno.engine.submit import to_json
from dalsegno.errors import DalSegnoError
from dalsegno.model.backoff import Backoff
from dalsegno.model.outcome import Done, Fail, Interrupted, Outcome, PauseJob, Release, Retry, Skip, Throttled, Wait
from dalsegno.model.states import ItemStatus
from dalsegno.store.hot import Settled

if TYPE_CHECKING:
    from dalsegno.engine.item import Item

UNSTORABLE = "outcome_unstorable"
TRACE = 16_000
SUCCEEDED = ItemStatus.SUCCEEDED.value


@dataclass(frozen=True, slots=True)
class Rules:
    """How failures are judged."""

    backoff: Backoff = field(default_factory=Backoff)
    rng: random.Random | None = None
    secrets: Sequence[str] = ()
    """Texts that no stored error may show."""


def decide(item: Item, outcome: Outcome, now: datetime, rules: Rules) -> Settled:
    """Where the item goes. An outcome that means nothing (a delay of infinity) fails it for good."""
    claimed = item.claimed
    if type(outcome) is Done and outcome.result is None and claimed.lease == 1:  # the common case, one row less
        return Settled(claimed.id, claimed.lease, claimed.stage_id, claimed.job_id, SUCCEEDED, item.started_at)
    try:
        row = _decide(item, outcome, now, rules)
    except Exception as error:
        text = ascii(f"{type(outcome).__name__} that cannot be used: {type(error).__name__}: {error}")
        row = _decide(item, Fail(text, code=UNSTORABLE), now, rules)
    return row if row.error_code is None else grouped(row, item.stage.service)


def grouped(row: Settled, service: str) -> Settled:
    """With the group that its error belongs to."""
    assert row.error_code is not None
    return row._replace(fingerprint=fingerprint(service, row.error_code, row.error_message or ""))


def _decide(item: Item, outcome: Outcome, now: datetime, rules: Rules) -> Settled:
    claimed = item.claimed
    row = Settled(
        claimed.id,
        claimed.lease,
        claimed.stage_id,
        claimed.job_id,
        ItemStatus.PENDING,
        item.started_at,
        attempt=claimed.attempt,
        interruptions=claimed.interruptions,
    )
    match outcome:
        case Done(result) | Skip(_, result) if (unfit := _unfit(result)) is not None:
            return _decide(item, unfit, now, rules)
        case Done(result):
            return row._replace(status=ItemStatus.SUCCEEDED, interruptions=0, result=to_json(result, "its result"))
        case Skip(reason, result):
            return row._replace(
                status=ItemStatus.SKIPPED,
                interruptions=0,
                result=to_json(result, "its result"),
                data=json.dumps({"reason": reason}),
            )
        case Retry(error, code, delay, trace):
            failures = claimed.attempt + 1
            row = row._replace(attempt=failures, interruptions=0, error_code=code, error_message=_text(error, rules))
            row = row if trace is None else row._replace(trace=_text(trace, rules, TRACE))
            if failures >= item.stage.max_attempts:
                return row._replace(status=ItemStatus.FAILED, data=json.dumps({"attempt": failures}))
            wait = rules.backoff.delay(failures, rules.rng) if delay is None else delay
            return row._replace(
                due_at=now + timedelta(seconds=wait),
                data=json.dumps({"attempt": failures, "retry_in": round(wait, 3)}),
            )
        case Fail(error, code):
            failures = claimed.attempt + 1
            return row._replace(
                status=ItemStatus.FAILED,
                attempt=failures,
                error_code=code,
                error_message=_text(error, rules),
                data=json.dumps({"attempt": failures}),
            )
        case Throttled(until, reason, counts):
            if counts and claimed.interruptions + 1 >= item.stage.max_interruptions:
                return interrupted(row, reason, "throttled", item.stage.max_interruptions)
            data = json.dumps({"throttled": reason, "until": until.isoformat()})
            return row._replace(due_at=until, interruptions=claimed.interruptions + counts, data=data)
        case Wait(name, reason):
            return row._replace(waits_for=name, data=json.dumps({"waits_for": name, "reason": reason}))
        case Release(reason):
            return row._replace(data=json.dumps({"released": reason}))
        case PauseJob(reason, code):
            return row._replace(status=ItemStatus.INTERRUPTED, error_code=code, error_message=_text(reason, rules))
        case Interrupted(reason, code):
            return interrupted(row, reason, code, item.stage.max_interruptions)


def interrupted(row: Settled, reason: str, code: str, most: int) -> Settled:
    """An interruption costs no attempt, but a poison item must not loop for ever."""
    count = row.interruptions + 1
    if count >= most:
        text = f"interrupted {count} times in a row without progress; last: {reason}"
        return row._replace(
            status=ItemStatus.FAILED, interruptions=count, error_code="interrupted_too_often", error_message=text
        )
    return row._replace(
        status=ItemStatus.INTERRUPTED,
        interruptions=count,
        error_code=code,
        error_message=reason,
        data=json.dumps({"interruptions": count}),
    )


def _unfit(result: Any) -> Fail | None:
    """Why a result cannot be stored; it would fail the same way every time."""
    try:
        to_json(result, "its result")
    except DalSegnoError as error:
        return Fail(str(error), error.code)
    return None


def _text(error: str, rules: Rules, longest: int = 4000) -> str:
    return storable(masked(str(error), rules.secrets))[:longest]
