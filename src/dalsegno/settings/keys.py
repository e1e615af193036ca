"""How keys are called: what operators make up, what a job keeps, and what a lane may say of its own."""

from __future__ import annotations

CONCURRENCY = "MAX_CONCURRENCY_"
SOURCE = "SOURCE_"
RETENTION = "RETENTION_LANE_"
FREE = {CONCURRENCY: "max_concurrency", SOURCE: "source_options", RETENTION: "retention_lanes"}
"""Keys that an operator makes up behind a known beginning, and the field they are gathered in."""
KNOWN_OPTIONS = ("_timeout", "_hosts", "_root")
"""How keys behind SOURCE_ end that are no secrets; of the others nobody here knows."""
FROZEN = (
    "min_free_space", "name_template", "sources", "download_sources", "stall_timeout_sec", "subsonic_url",
    "subsonic_user", "feed_urls", "playlist_files", "folder_roots", "ytdlp_urls", "external_sources", "demo_url",
    "object_store", "s3_endpoint", "s3_region",
)  # fmt: skip
"""Besides the library's root, what a job keeps for life."""
KEPT = {
    "_jobs_days": "jobs", "_failed_days": "failed", "_failed_last": "failed_last", "_events_days": "events",
    "_logs_days": "logs",
}  # fmt: skip
"""How keys behind RETENTION_LANE_ end, and what they say about the lane."""
OWN = frozenset({"console_password", "requests_api_key"})
"""Secrets that others show to us, and no source's business."""
