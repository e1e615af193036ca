"""Parse requests, what they found, and how many are in which state.

Two triggers keep `parse_requests.state` and `request_counts`. A later migration that rebuilds `jobs` on SQLite (batch
mode) drops the one on it, and has to create it again.
"""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from dalsegno.store.schema import UtcTime

revision = "0005"
down_revision = "0004"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")

SLOTS = 64
STATES = ("PENDING", "RUNNING", "DONE", "FAILED")
STATE = """CASE NEW.status WHEN 'queued' THEN 'PENDING'
    WHEN 'running' THEN 'RUNNING' WHEN 'pause_requested' THEN 'RUNNING' WHEN 'paused' THEN 'RUNNING'
    WHEN 'completed' THEN 'DONE' WHEN 'completed_with_errors' THEN 'DONE'
    ELSE 'FAILED' END"""


def upgrade() -> None:
    _tables()
    postgres = op.get_bind().dialect.name == "postgresql"
    counts = sa.table("request_counts", sa.column("slot"))
    op.bulk_insert(counts, [{"slot": slot} for slot in range(SLOTS if postgres else 1)])
    clock = sa.table("content_clock", sa.column("id"), sa.column("last", UtcTime()))
    op.bulk_insert(clock, [{"id": 1, "last": datetime(1970, 1, 1, tzinfo=UTC)}])
    for statement in _on_postgres() if postgres else _on_sqlite():
        op.execute(statement)


def _tables() -> None:
    op.create_table(
        "parse_requests",
        sa.Column("job_id", Id, autoincrement=False, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("body", Json, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("hits", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("state", sa.Text(), server_default="PENDING", nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint(
            "(state = 'PENDING' OR state = 'RUNNING' OR state = 'DONE' OR state = 'FAILED')",
            name=op.f("ck_parse_requests_state_known"),
        ),
        sa.CheckConstraint("length(hash) = 64", name=op.f("ck_parse_requests_hash_is_hex")),
        sa.CheckConstraint("hits >= 0 AND retry_count >= 0", name=op.f("ck_parse_requests_counts_not_negative")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_parse_requests_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_parse_requests")),
    )
    op.create_index("ix_parse_requests_state", "parse_requests", ["state", "job_id"])
    op.create_index("ix_parse_requests_hash", "parse_requests", ["hash", "job_id"])
    _partial("ix_parse_requests_active_of", "parse_requests", ["created_by"], "state = 'PENDING' OR state = 'RUNNING'")
    # With a hundred thousand requests that wait, neither the scheduler nor a page must look at them all.
    _partial("ix_jobs_paused", "jobs", ["id"], "pause_reason IS NOT NULL")
    _partial("ix_stages_paused", "stages", ["id"], "pause_reason IS NOT NULL")
    _partial("ix_stages_unfinished", "stages", ["service", "id"], "finished_at IS NULL")
    _partial("ix_jobs_canceling", "jobs", ["id"], "cancel_requested_at IS NOT NULL")
    _partial("ix_jobs_scheduled", "jobs", ["scheduled_at"], "scheduled_at IS NOT NULL")
    op.create_table(
        "request_counts",
        sa.Column("slot", Id, autoincrement=False, nullable=False),
        *(
            sa.Column(name, sa.Integer(), server_default="0", nullable=False)
            for name in ("pending", "running", "done", "failed")
        ),
        sa.PrimaryKeyConstraint("slot", name=op.f("pk_request_counts")),
    )
    op.create_table(
        "contents",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("remote_id", sa.Text(), nullable=False),
        *_texts("type", "title", "title_orig", "other_title"),
        sa.Column("year", sa.Integer(), nullable=True),
        sa.Column("kinopoisk_id", sa.Text(), nullable=True),
        sa.Column("imdb_id", sa.Text(), nullable=True),
        sa.Column("shikimori_id", sa.Text(), nullable=True),
        sa.Column("ready", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_contents")),
        sa.UniqueConstraint("source", "remote_id", name=op.f("uq_contents_source_remote_id")),
    )
    op.create_index("ix_contents_updated_at", "contents", ["updated_at", "id"])
    _partial("ix_contents_ready", "contents", ["updated_at", "id"], "ready")
    _numbered("seasons", "contents", "content_id")
    _numbered("episodes", "seasons", "season_id")
    op.create_table(
        "variants",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("episode_id", Id, autoincrement=False, nullable=False),
        *_texts("translation_id", "translation_title", "translation_type", "quality", "link"),
        sa.Column("mp4_link", sa.Text(), nullable=True),
        sa.Column("decoded_at", UtcTime(), nullable=True),
        sa.Column("expires_at", UtcTime(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("missing_at", UtcTime(), nullable=True),
        sa.CheckConstraint("(mp4_link IS NULL) = (decoded_at IS NULL)", name=op.f("ck_variants_decoded_has_link")),
        sa.ForeignKeyConstraint(
            ["episode_id"], ["episodes.id"], name=op.f("fk_variants_episode_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_variants")),
        sa.UniqueConstraint("episode_id", "translation_id", name=op.f("uq_variants_episode_id_translation_id")),
    )
    op.create_table(
        "request_contents",
        sa.Column("job_id", Id, autoincrement=False, nullable=False),
        sa.Column("content_id", Id, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_request_contents_job_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["content_id"], ["contents.id"], name=op.f("fk_request_contents_content_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "content_id", name=op.f("pk_request_contents")),
    )
    op.create_index("ix_request_contents_content_id", "request_contents", ["content_id"])
    op.create_table(
        "content_clock",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("last", UtcTime(), nullable=False),
        sa.Column("ready", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_content_clock")),
    )


def _on_sqlite() -> list[str]:
    def count(by: str) -> str:
        moved = ", ".join(f"{each.lower()} = {each.lower()} {by.format(each)}" for each in STATES)
        return f"UPDATE request_counts SET {moved} WHERE slot = 0;"

    more, less = "+ (NEW.state = '{0}')", "- (OLD.state = '{0}')"

    return [
        f"""CREATE TRIGGER tr_jobs_request_state AFTER UPDATE OF status ON jobs
            WHEN NEW.lane = 'parse' AND NEW.status <> OLD.status
            BEGIN UPDATE parse_requests SET state = {STATE} WHERE job_id = NEW.id; END""",
        f"""CREATE TRIGGER tr_parse_requests_added AFTER INSERT ON parse_requests
            BEGIN {count(more)} END""",
        f"""CREATE TRIGGER tr_parse_requests_moved AFTER UPDATE OF state ON parse_requests
            WHEN NEW.state <> OLD.state BEGIN {count(more + less)} END""",
        f"""CREATE TRIGGER tr_parse_requests_gone AFTER DELETE ON parse_requests
            BEGIN {count(less)} END""",
    ]


def _on_postgres() -> list[str]:
    moved = ", ".join(
        f"{each.lower()} = {each.lower()} + (is_now IS NOT DISTINCT FROM '{each}')::int"
        f" - (was IS NOT DISTINCT FROM '{each}')::int"
        for each in STATES
    )
    return [
        f"""CREATE FUNCTION request_state() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                UPDATE parse_requests SET state = {STATE} WHERE job_id = NEW.id;
                RETURN NULL;
            END $$""",
        f"""CREATE FUNCTION request_counted() RETURNS trigger LANGUAGE plpgsql AS $$
            DECLARE
                was text := CASE WHEN TG_OP <> 'INSERT' THEN OLD.state END;
                is_now text := CASE WHEN TG_OP <> 'DELETE' THEN NEW.state END;
            BEGIN
                UPDATE request_counts SET {moved} WHERE slot = pg_backend_pid() % {SLOTS};
                RETURN NULL;
            END $$""",
        """CREATE TRIGGER tr_jobs_request_state AFTER UPDATE OF status ON jobs FOR EACH ROW
            WHEN (NEW.lane = 'parse' AND NEW.status <> OLD.status) EXECUTE FUNCTION request_state()""",
        """CREATE TRIGGER tr_parse_requests_counted AFTER INSERT OR DELETE ON parse_requests
            FOR EACH ROW EXECUTE FUNCTION request_counted()""",
        """CREATE TRIGGER tr_parse_requests_moved AFTER UPDATE OF state ON parse_requests FOR EACH ROW
            WHEN (NEW.state <> OLD.state) EXECUTE FUNCTION request_counted()""",
    ]


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), server_default="", nullable=False) for name in names]


def _numbered(table: str, parent: str, key: str) -> None:
    op.create_table(
        table,
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column(key, Id, autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        *_texts("title", "link"),
        sa.ForeignKeyConstraint([key], [f"{parent}.id"], name=op.f(f"fk_{table}_{key}"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        sa.UniqueConstraint(key, "number", name=op.f(f"uq_{table}_{key}_number")),
    )


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
