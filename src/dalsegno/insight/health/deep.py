"""What takes its time, and is looked at only when asked for: every page of the file, all that is written down."""

from __future__ import annotations

from dalsegno.insight.agreement import Agreement
from dalsegno.insight.health.finding import Finding, found
from dalsegno.store.store import Tx


def look(tx: Tx) -> list[Finding]:
    if tx.shared:
        return []
    problem = str(tx.conn.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    return [] if problem == "ok" else [found("file_damaged", "error", "file", problem=problem)]


def disagreements(report: Agreement) -> list[Finding]:
    """One of each kind, with the first that was met."""
    first = {each.kind: each for each in reversed(report.named)}
    return [
        found(
            "disagreement", "error", f"agreement:{kind}", kind=kind, count=report.found[kind], about=each.subject,
            first=each.says, help=each.fix,
        )
        for kind, each in sorted(first.items())
    ]  # fmt: skip
