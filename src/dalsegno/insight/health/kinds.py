"""Every code that a look at the system may find, with its sentences. docs/doctor.md is made from this.

`says` is what was seen, `fix` what mends it. A name that ends in `_bytes` or `_seconds` is told as such. What stands in
backticks is for a shell or for psql.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    group: str
    says: str
    fix: str = ""


GROUPS = {
    "engine": "Processes and their loops",
    "work": "Work that stands still",
    "database": "Database",
    "clock": "Clocks",
    "disk": "Disks",
    "files": "Files and uploads",
    "keeping": "Backups and retention",
    "settings": "Settings",
}
"""In the order in which they are told."""

KINDS = {
    # --- engine -----------------------------------------------------------------------------------
    "engine_fine": Kind(
        "engine", "%(processes)s live process(es) with %(loops)s loops, all of which come round as they should."
    ),
    "no_engine": Kind("engine", "No engine is at work on this database.", "`dalsegno serve`, or `dalsegno agent`"),
    "process_lost": Kind(
        "engine",
        "Process %(pid)s on %(node)s has given no sign for %(silent_seconds)s; its lease has ended.",
        "What it held is taken back by itself. Look into its log and the system's (`dmesg`) for why it ended, and "
        "start it again.",
    ),
    "loop_late": Kind(
        "engine",
        "Loop %(loop)s of process %(pid)s on %(node)s came round %(late_seconds)s ago; usual are %(every_seconds)s.",
        "It waits for something: look for a held transaction, a slow query or a service that lists its items for ever. "
        "If nothing helps: `kill -TERM %(pid)s` on %(node)s, and start it again.",
    ),
    "loop_failing": Kind(
        "engine",
        "Loop %(loop)s of process %(pid)s on %(node)s failed %(failures)s times in a row: %(error)s",
        "It tries again by itself. Mend what it says; the log of the process says more.",
    ),
    "version_differs": Kind(
        "engine",
        "Process %(pid)s on %(node)s runs version %(version)s, this is %(here)s.",
        "In the middle of a rolling restart that is as it should be. Otherwise install the same version on "
        "%(node)s and restart it.",
    ),
    # --- work -------------------------------------------------------------------------------------
    "work_fine": Kind("work", "Nothing is held, and nothing that could run stands still."),
    "held_all": Kind("work", "Everything is held: %(reason)s (by %(by)s).", "`dalsegno resume %(target)s`"),
    "held_service": Kind("work", "Service %(name)s is held: %(reason)s (by %(by)s).", "`dalsegno resume %(target)s`"),
    "held_lane": Kind("work", "Lane %(name)s is held: %(reason)s (by %(by)s).", "`dalsegno resume %(target)s`"),
    "breaker_open_long": Kind(
        "work",
        "Calls to %(name)s have been stopped for %(open_seconds)s: %(reason)s",
        "`dalsegno breaker probe %(name)s` tries one call; `dalsegno breaker reset %(name)s` closes it.",
    ),
    "queue_stuck": Kind(
        "work",
        "Stage %(stage)s of job %(job_id)s has %(ready)s items ready and nobody at work on them: %(gate)s",
        "%(opens)s (`dalsegno explain stage %(job_id)s/%(stage)s`)",
    ),
    "schedule_late": Kind(
        "work",
        'Schedule "%(name)s" was due %(late_seconds)s ago, and no engine has taken it up.',
        "Start an engine that keeps schedules and knows %(workflow)s: `dalsegno serve`, or `dalsegno agent` without "
        "--no-schedules.",
    ),
    "schedule_far": Kind(
        "work",
        'Schedule "%(name)s" waits for %(next_at)s, although its next time is %(comes_at)s: a clock had been ahead.',
        "An engine mends that by itself where it is sure to start nothing twice. Otherwise: "
        "`dalsegno schedule resume %(schedule_id)s`",
    ),
    "schedule_stopped": Kind(
        "work",
        'Schedule "%(name)s" was paused by the engine: %(reason)s',
        "`dalsegno schedule set %(schedule_id)s`, then `dalsegno schedule resume %(schedule_id)s`",
    ),
    "schedule_failed": Kind(
        "work",
        'The last run of schedule "%(name)s" could not start: %(problem)s',
        "Mend what it says, and try: `dalsegno schedule run %(schedule_id)s`",
    ),
    "command_waits": Kind(
        "work",
        "Command %(command)s (%(type)s) has waited for %(waits_seconds)s; engines apply commands at once.",
        "Start an engine, or restart the one whose loop commander is late.",
    ),
    # --- database ---------------------------------------------------------------------------------
    "database_fine": Kind("database", "%(kind)s %(version)s answers; %(size_bytes)s."),
    "database_absent": Kind(
        "database",
        "There is no database at %(where)s yet.",
        "The first `dalsegno serve` or `dalsegno migrate` makes it.",
    ),
    "database_away": Kind("database", "The database cannot be opened: %(problem)s", "%(help)s"),
    "database_unwritable": Kind(
        "database",
        "The database does not do what it is asked: %(problem)s",
        "Mend what it says; everything waits and goes on by itself.",
    ),
    "schema_behind": Kind(
        "database",
        "The schema is at %(found)s; this version needs %(known)s.",
        "`dalsegno migrate` (a backup is made first)",
    ),
    "schema_ahead": Kind(
        "database",
        "The schema is at %(found)s; this version knows only %(known)s.",
        "Install the version of Dal Segno that wrote it, or a newer one.",
    ),
    "transaction_held": Kind(
        "database",
        "Session %(pid)s (%(who)s) has had a transaction open for %(held_seconds)s; rows that died in the last %(age)s "
        "transactions are kept for it. It is %(state)s: %(query)s",
        "End it where it was begun, or: `SELECT pg_terminate_backend(%(pid)s);`",
    ),
    "prepared_held": Kind(
        "database",
        "The prepared transaction %(name)s is %(held_seconds)s old and keeps old rows from being cleared away.",
        "`ROLLBACK PREPARED '%(name)s';` (or COMMIT PREPARED, if whoever made it wants it)",
    ),
    "slot_holds": Kind(
        "database",
        "The replication slot %(name)s keeps the rows of the last %(age)s transactions, and nobody keeps up with it.",
        "Start what reads from it, or: `SELECT pg_drop_replication_slot('%(name)s');`",
    ),
    "writer_held": Kind(
        "database",
        "Process %(pid)s (%(program)s) has held the database's write lock for %(held_seconds)s: nobody else can write.",
        "Let it finish, or end it: `kill %(pid)s`",
    ),
    "query_running": Kind(
        "database",
        "Session %(pid)s (%(who)s) has been answering one query for %(runs_seconds)s: %(query)s",
        "`SELECT pg_cancel_backend(%(pid)s);` stops it; an index or a smaller question helps for good.",
    ),
    "query_slow": Kind(
        "database",
        "A query takes %(mean_seconds)s on average, %(calls)s times so far: %(query)s",
        "If it is ours, `VACUUM ANALYZE;` may help: the planner may think the tables smaller than they are.",
    ),
    "table_bloated": Kind(
        "database",
        "Table %(table)s has %(dead)s dead rows beside %(live)s live ones; it was last vacuumed: %(vacuumed_at)s.",
        "`VACUUM (ANALYZE) %(table)s;` If that does not help, somebody holds an old transaction: see transaction_held.",
    ),
    "autovacuum_off": Kind(
        "database",
        "Autovacuum is switched off: dead rows stay for ever.",
        "`ALTER SYSTEM SET autovacuum = on;` and `SELECT pg_reload_conf();`",
    ),
    "wraparound_near": Kind(
        "database",
        "The oldest row is %(age)s transactions old; at 2,000,000,000 the server stops taking writes.",
        "End whoever holds old transactions, then `VACUUM (FREEZE);`",
    ),
    "connections_scarce": Kind(
        "database",
        "%(used)s of the server's %(most)s connections are taken.",
        "Raise max_connections, or put PgBouncer between (and set LISTEN_DATABASE_URL past it).",
    ),
    "sessions_hidden": Kind(
        "database",
        "%(count)s sessions belong to other users; what they do is hidden from %(user)s.",
        "As a superuser: `GRANT pg_monitor TO %(user)s;`",
    ),
    "pooler_between": Kind(
        "database",
        "Connections go through a pooler such as PgBouncer, and so would LISTEN: news from other machines comes by "
        "polling, up to a second later.",
        "Nothing is lost. For news at once set LISTEN_DATABASE_URL to the server itself.",
    ),
    "file_damaged": Kind(
        "database", "The database file is damaged: %(problem)s", "Stop everything and restore the last backup."
    ),
    "file_sparse": Kind(
        "database",
        "%(free_bytes)s of the file's %(size_bytes)s hold nothing.",
        "They are used again by themselves. To give them back to the disk: stop the engine, then "
        '`sqlite3 %(path)s "PRAGMA incremental_vacuum;"`',
    ),
    "file_keeps_space": Kind(
        "database",
        "The file was made without incremental vacuum: space that becomes free is never given back to the disk.",
        'Stop the engine, then `sqlite3 %(path)s "PRAGMA auto_vacuum=INCREMENTAL; VACUUM;"`',
    ),
    "log_large": Kind(
        "database",
        "The write-ahead log has grown to %(wal_bytes)s; processes that read or write now: %(pids)s.",
        "It cannot be folded in while somebody reads an old state of it. Find who has done so for long "
        "(`ps -p %(pids)s`) and end that.",
    ),
    "disagreement": Kind(
        "database",
        "What is written down does not agree (%(kind)s, %(count)s times); %(about)s: %(first)s",
        "`dalsegno check` names all of them. %(help)s",
    ),
    # --- clocks -----------------------------------------------------------------------------------
    "clocks_fine": Kind("clock", "The clocks of all machines agree within %(most_seconds)s."),
    "clock_skew": Kind(
        "clock",
        "The clock of %(node)s is %(skew_seconds)s off the database's.",
        "Let NTP set it: `timedatectl set-ntp true`. Leases do not suffer, but times shown and schedules do.",
    ),
    "clock_here": Kind(
        "clock",
        "The clock of this machine is %(skew_seconds)s off the database's.",
        "Let NTP set it: `timedatectl set-ntp true`. Leases do not suffer, but times shown and schedules do.",
    ),
    "clock_set_back": Kind(
        "clock",
        "Something was written down %(ahead_seconds)s in the future: this machine's clock was wrong then, or is now.",
        "Check it (`timedatectl`) and let NTP set it.",
    ),
    # --- disks ------------------------------------------------------------------------------------
    "disk_fine": Kind("disk", "%(path)s (%(what)s): %(free_bytes)s free of %(total_bytes)s."),
    "disk_low": Kind(
        "disk",
        "%(path)s (%(what)s) has %(free_bytes)s free of %(total_bytes)s; %(keep_bytes)s must stay free.",
        "Free some space there, move it to a larger disk, or lower MIN_FREE_SPACE.",
    ),
    "disk_unseen": Kind(
        "disk",
        "%(path)s (%(what)s) is not there.",
        "Mount its disk, or correct the setting. For a folder that has not been used yet: nothing.",
    ),
    # --- files ------------------------------------------------------------------------------------
    "files_fine": Kind("files", "No unfinished file or upload was left behind."),
    "part_stale": Kind(
        "files",
        "%(count)s unfinished downloads under %(root)s are older than %(old_seconds)s and nothing would go on with "
        "them; %(size_bytes)s, the oldest from %(oldest_at)s.",
        "`dalsegno doctor --list part_stale | xargs -d '\\n' rm --`",
    ),
    "upload_orphaned": Kind(
        "files",
        "%(count)s multipart uploads at %(store)s were begun and nobody here remembers them, the oldest on "
        "%(oldest_at)s; the store keeps (and bills) their parts.",
        "`aws s3api abort-multipart-upload --bucket %(bucket)s --key %(key)s --upload-id %(upload)s` (the others: "
        "`dalsegno doctor --list upload_orphaned`), or a lifecycle rule of the bucket.",
    ),
    "upload_recent": Kind(
        "files",
        "%(count)s multipart uploads at %(store)s were begun within the last %(old_seconds)s and nobody here remembers "
        "them, the oldest on %(oldest_at)s; another program may still be at it.",
        "If nobody else writes there: `aws s3api abort-multipart-upload --bucket %(bucket)s --key %(key)s --upload-id "
        "%(upload)s` (the others: `dalsegno doctor --list upload_recent`).",
    ),
    "copy_stale": Kind(
        "files",
        "%(count)s half copies under %(root)s are older than %(old_seconds)s; %(size_bytes)s.",
        "`dalsegno doctor --deep --list copy_stale | xargs -d '\\n' rm --`",
    ),
    "store_unreachable": Kind(
        "files",
        "The object store %(store)s does not answer as it should: %(problem)s",
        "Check OBJECT_STORE, the S3_… keys and the network.",
    ),
    # --- keeping ----------------------------------------------------------------------------------
    "backup_fine": Kind("keeping", "The last backup is %(age_seconds)s old."),
    "backup_never": Kind("keeping", "No backup has ever been made from here.", "`dalsegno backup FILE`"),
    "backup_old": Kind(
        "keeping", "The last backup is %(age_seconds)s old.", "`dalsegno backup FILE`, best from cron or a timer."
    ),
    "moved_away": Kind(
        "keeping", "Everything in this database was moved to %(to)s.", "Set DATABASE_URL to that one and start again."
    ),
    "upgrade_kept": Kind(
        "keeping",
        "Before the schema was brought from %(found)s to %(known)s, a backup was written to %(file)s.",
        "Delete it once you are content with the new version.",
    ),
    "upgrade_unkept": Kind(
        "keeping",
        "The schema was brought from %(found)s to %(known)s without a backup: %(problem)s",
        "`dalsegno backup FILE`",
    ),
    "retention_old": Kind(
        "keeping",
        "Nothing has been looked through for old jobs, events and logs for %(age_seconds)s.",
        "An engine does so by itself: see that one runs, and which of its loops are late.",
    ),
    "default_partition": Kind(
        "keeping",
        "Rows of %(table)s have fallen into %(partition)s, because the partition of their month was not there.",
        "An engine makes partitions ahead: see that one runs. The rows are not lost.",
    ),
    # --- settings ---------------------------------------------------------------------------------
    "settings_fine": Kind("settings", "The settings file %(file)s is valid and for its owner's eyes only."),
    "settings_absent": Kind("settings", "There is no settings file at %(file)s: every setting has its default."),
    "settings_invalid": Kind(
        "settings", "The settings cannot be used: %(problem)s", "Correct it, then `dalsegno config check`."
    ),
    "secrets_readable": Kind(
        "settings", "%(file)s can be read by other users of this machine (mode %(mode)s).", "`chmod 600 %(file)s`"
    ),
    # --- the look itself --------------------------------------------------------------------------
    "look_cut": Kind(
        "engine",
        "Looking at %(subject)s took longer than %(limit_seconds)s and was cut off.",
        "Ask again; what holds it up is often told above.",
    ),
    "look_failed": Kind(
        "engine", "Looking at %(subject)s failed: %(problem)s", "Ask again; if it stays, report it with this text."
    ),
}
