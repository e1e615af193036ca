"""When the database itself is what everything waits for: known only to whoever asks it, so never read from it."""

from __future__ import annotations

from dalsegno.insight.explain.asked import explain
from dalsegno.insight.explain.gate import Explanation, Gate, closed, explained
from dalsegno.store.outage import OUTAGES, Outage
from dalsegno.store.store import Store

UNKNOWN = "unknown"
_OPENS = {
    "database_unavailable": "the database, when it answers again; the engine tries it by itself",
    "database_full": "space on the disk that holds the database; the engine tries it by itself",
    "database_read_only": "a database that may be written; the engine tries it by itself",
}


def explain_anyway(store: Store, what: str, target: str) -> Explanation:
    """Also while the database is away: then that is the answer."""
    try:
        return with_outage(store.read(lambda tx: explain(tx, what, target)), store.outage)
    except OUTAGES as error:
        now = store.clock.now()
        outage = store.outage or Outage(error.code, str(error).partition("\n")[0], now)
        return explained(what, target, UNKNOWN, [_gate(outage)], now)


def with_outage(found: Explanation, outage: Outage | None) -> Explanation:
    """The database comes before every other gate, except for what is finished."""
    if outage is None or (found.gates[0].code == "finished" and found.gates[0].state == "closed"):
        return found
    gates = [_gate(outage), *found.gates]
    return explained(found.what, found.id, found.status, gates, found.at)


def _gate(outage: Outage) -> Gate:
    says = f"{outage.says.rstrip('.')}. Nothing begins, and what is finished is kept until it can be written"
    return closed("database", f"{says}.", _OPENS[outage.code], outage.since, reason=outage.code)
