"""The pages that there are. What is more particular comes first: /jobs/new before /jobs/{id}."""

from __future__ import annotations

from dalsegno.web.console import (
    audit,
    bulk,
    common,
    config,
    dashboard,
    exceptions,
    item,
    job,
    job_acts,
    jobs,
    limits,
    logs,
    playlists,
    requests,
    revisions,
    schedule_form,
    schedules,
    songs,
    system,
    workflows,
)

PAGES = (
    dashboard.router, common.router, playlists.router, songs.router, bulk.router, item.router,
    jobs.router, job.router, job_acts.router, schedule_form.router, schedules.router, requests.router,
    exceptions.router, logs.router, audit.router, workflows.router, limits.router, system.router,
    config.router, revisions.router,
)  # fmt: skip
