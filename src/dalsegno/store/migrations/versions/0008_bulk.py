"""Commands that skip items and change priorities, and what each command about many items has changed."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

BULK = ("bulk_retry", "bulk_force_retry", "bulk_cancel", "bulk_skip", "bulk_priority")
COMMANDS = (
    "pause", "resume", "cancel", "retry_item", "force_retry_item", "set_priority", "pause_stage", "resume_stage",
    *BULK,
)  # fmt: skip


def upgrade() -> None:
    with op.batch_alter_table("commands") as commands:
        commands.drop_constraint(op.f("ck_commands_type_known"), type_="check")
        commands.create_check_constraint(op.f("ck_commands_type_known"), _any(COMMANDS))
        commands.drop_constraint(op.f("ck_commands_has_target"), type_="check")
        commands.create_check_constraint(
            op.f("ck_commands_has_target"), f"job_id IS NOT NULL OR item_id IS NOT NULL OR {_any(BULK)}"
        )
    _of_a_command("bulk_items", "stage_id", "seq")
    _of_a_command("bulk_jobs", "job_id")


def _of_a_command(table: str, *columns: str) -> None:
    names = ("command_id", *columns)
    op.create_table(
        table,
        *(sa.Column(name, Id, autoincrement=False, nullable=False) for name in names),
        sa.PrimaryKeyConstraint(*names, name=op.f(f"pk_{table}")),
        sqlite_with_rowid=False,
    )


def _any(names: tuple[str, ...]) -> str:
    return "(" + " OR ".join(f"type = '{name}'" for name in names) + ")"
