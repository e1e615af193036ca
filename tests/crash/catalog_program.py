"""What the catalog's crash tests kill: a full run, as `dalsegno run full` would do it, with its settings from the
environment.

It goes on with the job that is unfinished, resumes it where its lane was paused by a crash, and exits with 0 once the
job has ended; with 4 if it was paused for another reason.
"""

from __future__ import annotations

import os
import sys
import time

import sqlalchemy as sa

from dalsegno import Store, open_store
from dalsegno.catalog.templates import order
from dalsegno.cli.ask import act_if_alone, ask
from dalsegno.cli.toolbox import open_toolbox
from dalsegno.config.current import Current
from dalsegno.model.states import JOB_FINISHED
from dalsegno.settings import load_settings
from dalsegno.store.schema import jobs
from tests.crash.program import Journal

EXIT_PAUSED = 4
PAUSED = ("paused", "pause_requested")


def look(store: Store, job_id: int) -> sa.RowMapping:
    row = store.read(lambda tx: tx.row(sa.select(jobs).where(jobs.c.id == job_id)))
    assert row is not None
    return row


def main() -> int:
    settings = load_settings().settings
    store = open_store(settings.database_url)
    job_id = order(store, settings, "full", dedupe=True).job_id
    act_if_alone(store)
    if look(store, job_id)["status"] in PAUSED:
        ask(store, "resume", job_id=job_id, wait=0.0)
    engine = open_toolbox([]).engine(store, Current.fixed(settings))
    engine.start()
    Journal(os.environ["CRASH_JOURNAL"]).write("started")
    code, since = 0, time.monotonic()
    while (row := look(store, job_id))["status"] not in JOB_FINISHED:
        if row["status"] in PAUSED and time.monotonic() - since > 10:
            sys.stderr.write(f"paused: {row['pause_reason']}\n")
            code = EXIT_PAUSED
            break
        if row["status"] not in PAUSED:
            since = time.monotonic()
        time.sleep(0.02)
    engine.stop()
    store.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
