"""Stages by what people look for in them, however many are done: something left, something wrong, a service."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    _partial("ix_stages_left", "status IN ('pending', 'running', 'pause_requested', 'paused', 'failed')")
    _partial("ix_stages_trouble", "failed > 0 OR interrupted > 0")
    op.create_index("ix_stages_service", "stages", ["service", "id"])


def _partial(name: str, where: str) -> None:
    op.create_index(name, "stages", ["id"], sqlite_where=sa.text(where), postgresql_where=sa.text(where))
