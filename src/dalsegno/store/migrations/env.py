"""Alembic's entry: runs inside the transaction that `store.migrate` opened."""

from alembic import context

from dalsegno.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    compare_server_default=False,
)
context.run_migrations()
