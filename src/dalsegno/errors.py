"""Every error a user can meet: a stable code, an HTTP status, and a message that says what to do.

The docstring is the message; `{names}` in it are filled from the keyword arguments.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar


class DalSegnoError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(self, **details: Any) -> None:
        self.details = details
        said = inspect.cleandoc(type(self).__doc__ or "").format(**details)
        super().__init__(said.removesuffix(".") if said.endswith("?.") else said)


# --- workflows and jobs -------------------------------------------------------------------------


class WorkflowInvalid(DalSegnoError):
    """The workflow is not valid: {problem}"""

    code = "workflow_invalid"
    status = 422


class WorkflowUnknown(DalSegnoError):
    """There is no workflow "{name}".{hint}"""

    code = "workflow_unknown"
    status = 404


class ServiceUnknown(DalSegnoError):
    """No service "{name}" is registered here.{hint}
    Name the module that defines it with --services or SERVICES in dalsegno.env."""

    code = "service_unknown"
    status = 422


class InputInvalid(DalSegnoError):
    """{problem}"""

    code = "input_invalid"
    status = 422


class QueryInvalid(DalSegnoError):
    """{problem} (at character {position} of the query){hint}"""

    code = "query_invalid"
    status = 422


class PayloadTooLarge(DalSegnoError):
    """{what} is {size:,} bytes; the limit is {limit:,}. Store large data as a file and pass its path."""

    code = "payload_too_large"
    status = 413


class NotFound(DalSegnoError):
    """There is no {what} {id}."""

    code = "not_found"
    status = 404


class CommandRefused(DalSegnoError):
    """{what} {id} cannot be {verb}: it is {state}. {fix}"""

    code = "command_refused"
    status = 409


class TwinActive(DalSegnoError):
    """Job {id} cannot be reopened: job {twin} does the same work and is still active.
    Wait for it, or cancel it first."""

    code = "twin_active"
    status = 409


class JobPruned(DalSegnoError):
    """Job {id} is being removed: it is over, and kept no longer (RETENTION_JOBS_DAYS). Submit a new one."""

    code = "job_pruned"
    status = 410


class ArchiveDamaged(DalSegnoError):
    """The archive {name} is not what was put away: {problem}. Nothing was changed."""

    code = "archive_damaged"
    status = 409


class ArchiveRefused(DalSegnoError):
    """{problem}"""

    code = "archive_refused"
    status = 409


# --- schedules ------------------------------------------------------------------------------------


class CronInvalid(DalSegnoError):
    """The cron expression "{expression}" cannot be used: {problem}"""

    code = "cron_invalid"
    status = 422


class ScheduleExists(DalSegnoError):
    """There is a schedule "{name}" already. Give this one another name, or change that one."""

    code = "schedule_exists"
    status = 409


class ScheduleBusy(DalSegnoError):
    """Schedule "{name}" was not run: its job {job} is still {state}, and it is not to run beside itself.
    Wait for that job, cancel it, or let runs of this schedule queue or overlap."""

    code = "schedule_busy"
    status = 409


# --- parse requests -----------------------------------------------------------------------------


class RequestInvalid(DalSegnoError):
    """{problem}"""

    code = "request_invalid"
    status = 400


class ApiKeyNeeded(DalSegnoError):
    """{problem} Send REQUESTS_API_KEY of the machine that runs this along: curl -H 'X-API-KEY: …'"""

    code = "api_key_needed"
    status = 401


class TooManyRequests(DalSegnoError):
    """{who} has {count:,} unfinished requests, which is the limit. Wait for some of them, and try again in {wait} s."""

    code = "too_many_requests"
    status = 429


class ParseFailed(DalSegnoError):
    """Parse request {id} {problem}"""

    code = "parse_failed"
    status = 502


class UpstreamUnknown(DalSegnoError):
    """There is no search source "{name}" that can be listed here.{hint}"""

    code = "upstream_unknown"
    status = 404


class UpstreamBusy(DalSegnoError):
    """{name} is not asked now: {reason}. Try again in {wait} s."""

    code = "upstream_busy"
    status = 503


class UpstreamFailed(DalSegnoError):
    """{name} could not be asked: {problem}"""

    code = "upstream_failed"
    status = 502


# --- the database -------------------------------------------------------------------------------


class DatabaseUrlInvalid(DalSegnoError):
    """The database URL "{url}" cannot be used: {problem}
    Use sqlite:///path/to/file.db or postgresql://user:password@host:5432/name."""

    code = "database_url_invalid"
    status = 422


class DatabaseUnavailable(DalSegnoError):
    """The database does not answer: {problem}
    Check that the server runs and that DATABASE_URL is right; work goes on by itself once it is back."""

    code = "database_unavailable"
    status = 503


class DatabaseFull(DalSegnoError):
    """The disk that holds the database is full: {problem}
    Free some space: nothing that was finished is lost, and work goes on by itself."""

    code = "database_full"
    status = 507


class DatabaseReadOnly(DalSegnoError):
    """The database cannot be written: {problem}
    Give this user write access to the file and its folder, or point DATABASE_URL elsewhere."""

    code = "database_read_only"
    status = 503


class DatabaseCorrupt(DalSegnoError):
    """ "{path}" is not a healthy SQLite database: {problem}
    Move the file aside and restore a backup, or salvage it with: sqlite3 FILE .recover"""

    code = "database_corrupt"
    status = 500


class DatabaseOnNetworkShare(DalSegnoError):
    """ "{path}" is on a network share ({filesystem}). SQLite's locks are not reliable there; the file would be damaged.
    Put the database on a local disk, or use PostgreSQL: DATABASE_URL=postgresql://…"""

    code = "database_on_network_share"
    status = 422


class EngineAlreadyRunning(DalSegnoError):
    """Another engine (process {pid}) already works on {path}. SQLite takes one engine at a time.
    Stop that one first, or hand it the work: dalsegno submit, run, pause, resume and retry talk to it."""

    code = "engine_already_running"
    status = 409


class SchemaNewer(DalSegnoError):
    """The database has schema {found}, which this version of Dal Segno does not know (it knows {known}).
    Install the version that wrote it, or newer. Nothing was changed."""

    code = "schema_newer"
    status = 503


class SchemaMissing(DalSegnoError):
    """The database has schema {found}; this version needs {known}. Run: dalsegno migrate"""

    code = "schema_missing"
    status = 503


class UpgradeNeedsRoom(DalSegnoError):
    """The schema has to be brought from {found} to {known}, and there is no room for the backup that is made first:
    {problem}. Free some space, or do it without one: dalsegno migrate --without-backup. Nothing was changed."""

    code = "schema_needs_room"
    status = 507


class UpgradeNeedsBackup(DalSegnoError):
    """The schema has to be brought from {found} to {known}, and no backup can be made first: {problem}
    Mend that, or make one by other means and run: dalsegno migrate --without-backup. Nothing was changed."""

    code = "schema_needs_backup"
    status = 503


class EngineAtWork(DalSegnoError):
    """{database} is in use: {who}. Stop it first and try again. Nothing was changed."""

    code = "engine_at_work"
    status = 409


# --- backups and moves --------------------------------------------------------------------------


class BackupRefused(DalSegnoError):
    """No backup is written to {path}: {problem}"""

    code = "backup_refused"
    status = 409


class BackupNoRoom(DalSegnoError):
    """There is no room for {path}: {problem}
    Nothing was left behind. Free some space, or write it to another disk."""

    code = "backup_no_room"
    status = 507


class BackupDamaged(DalSegnoError):
    """{path} cannot be used: {problem}"""

    code = "backup_damaged"
    status = 422


class PoolerBetween(DalSegnoError):
    """{database} is reached through PgBouncer or another pooler, and {problem}. PostgreSQL's own programs would leave
    the settings of their session to whoever comes next.
    Give the way to the server itself: LISTEN_DATABASE_URL=postgresql://…"""

    code = "pooler_between"
    status = 409


class ToolMissing(DalSegnoError):
    """PostgreSQL's own program {tool} is needed, {problem}
    Install PostgreSQL's client programs of version {wanted} or newer, or name their folder: PG_BIN=/path/to/bin"""

    code = "tool_missing"
    status = 503


class ToolFailed(DalSegnoError):
    """{tool} failed: {problem}"""

    code = "tool_failed"
    status = 500


class RestoreRefused(DalSegnoError):
    """{database} was not touched: {problem}"""

    code = "restore_refused"
    status = 409


class MoveFailed(DalSegnoError):
    """The move to {target} was given up, and nothing was kept of it: {problem}"""

    code = "move_failed"
    status = 500


class SettingInvalid(DalSegnoError):
    """{key}: {problem}"""

    code = "setting_invalid"
    status = 422


# --- the console --------------------------------------------------------------------------------


class HostRefused(DalSegnoError):
    """This console does not answer to the name "{host}". Use the address that it printed when it started,
    or add the name to CONSOLE_HOSTS."""

    code = "host_refused"
    status = 421


class OriginRefused(DalSegnoError):
    """A page of another site ({origin}) asked for this change, so it was not made."""

    code = "origin_refused"
    status = 403


class LoginNeeded(DalSegnoError):
    """This console has a password. Sign in at /login, or send it along: curl -u console:PASSWORD"""

    code = "login_needed"
    status = 401


class LoginFailed(DalSegnoError):
    """This is not the password. It is CONSOLE_PASSWORD of the machine that runs the console."""

    code = "login_failed"
    status = 401


class LoginThrottled(DalSegnoError):
    """Too many wrong passwords. Try again in {wait} s."""

    code = "login_throttled"
    status = 429


class ReadOnly(DalSegnoError):
    """This console only shows. To change something, start it without --read-only and without CONSOLE_READ_ONLY."""

    code = "read_only"
    status = 403


# --- the settings file ----------------------------------------------------------------------------


class ConfigInvalid(DalSegnoError):
    """These settings cannot be used: {problem}"""

    code = "config_invalid"
    status = 422


class ConfigChanged(DalSegnoError):
    """The settings file has changed since you looked at it{now}. Nothing was saved.
    Look at it again and make your change there."""

    code = "config_changed"
    status = 409


class ConfigNotWritable(DalSegnoError):
    """{file} cannot be written: {problem} {fix}"""

    code = "config_not_writable"
    status = 409


class ConfigNowhere(DalSegnoError):
    """This process was started without a settings file, so there is none to save. Start it with --env-file."""

    code = "config_nowhere"
    status = 409
