"""The commands `dalsegno bench …`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Measure the engine on a database of its own.")

Database = Annotated[str, typer.Option(help="An empty database: sqlite:///file.db or postgresql://…")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def engine(
    database: Database,
    items: Annotated[int, typer.Option(min=1, help="No-op items to run.")] = 20_000,
    workers: Annotated[int, typer.Option(min=1, help="Worker threads.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Items per second in and through one process, and milliseconds from submit to handler on an idle engine."""
    from dalsegno.bench.engine import measure  # noqa: PLC0415 - keeps `--help` fast
    from dalsegno.store.open import open_store  # noqa: PLC0415

    store = open_store(database)
    try:
        figures = measure(store, items, workers=workers)
    finally:
        store.close()
    if as_json:
        typer.echo(json.dumps(figures))
        return
    typer.echo(f"enqueue  {figures['enqueue_per_s']:>9,} items/s")
    typer.echo(f"drain    {figures['drain_per_s']:>9,} items/s")
    typer.echo(f"pickup   {figures['pickup_ms']['p50']:>9} ms median, {figures['pickup_ms']['p99']} ms p99")


@app.command()
def claim(
    database: Database,
    pending: Annotated[int, typer.Option(min=1, help="Pending items of the large stage.")] = 1_000_000,
    blocked: Annotated[int, typer.Option(min=0, help="Items that wait behind a stage that never ends.")] = 0,
    active_jobs: Annotated[int, typer.Option(min=0, help="One-item jobs of another service beside it.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Milliseconds to claim 100 items with a thousand pending and with many."""
    from dalsegno.bench.claim import measure  # noqa: PLC0415
    from dalsegno.store.open import open_store  # noqa: PLC0415

    store = open_store(database)
    try:
        figures = measure(store, pending, blocked=blocked, active_jobs=active_jobs)
    finally:
        store.close()
    if as_json:
        typer.echo(json.dumps(figures))
        return
    for count, spent in figures["claim_ms"].items():
        typer.echo(f"{int(count):>12,} pending  {spent:>8} ms a claim of 100")


@app.command()
def pools(
    resolve_s: Annotated[float, typer.Option(min=0.001, help="Seconds it takes to resolve an item.")] = 0.8,
    transfer_s: Annotated[float, typer.Option(min=0.001, help="Seconds it takes to transfer it.")] = 0.01,
    workers: Annotated[int, typer.Option(min=2, help="Workers of the service.")] = 10,
    items: Annotated[
        int | None, typer.Option(min=1, help="Run so many items each, instead of as many as fit in eight rounds.")
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(help="An empty database: sqlite:///file.db or postgresql://… (default: one to throw away)"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Items per second of mixed workers, of two pools of fixed size, and of elastic pools, for one ratio of phases."""
    import tempfile  # noqa: PLC0415

    from dalsegno.bench.pools import measure  # noqa: PLC0415
    from dalsegno.store.open import open_store  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="dalsegno-bench-") as folder:
        store = open_store(database or f"sqlite:///{folder}/bench.db")
        try:
            figures = measure(
                store, resolve_s, transfer_s, workers=workers, items=items, say=lambda line: typer.echo(line, err=True)
            )
        finally:
            store.close()
    if as_json:
        typer.echo(json.dumps(figures))
        return
    for name in ("mixed", "fixed", "elastic_equal", "elastic", "limit"):
        typer.echo(f"{name:<14}{figures[f'{name}_per_s']:>9,.2f} items/s")


@app.command()
def limits(
    database: Database,
    rate: Annotated[int, typer.Option(min=1, help="Calls that may begin within the window.")] = 50,
    window: Annotated[float, typer.Option(min=0.1, help="Seconds of the sliding window.")] = 1.0,
    workers: Annotated[int, typer.Option(min=1, help="Workers that want a permit.")] = 8,
    as_json: AsJson = False,
) -> None:
    """The share of an allowed rate that a backlog uses, over ten windows."""
    from dalsegno.bench.limits import measure  # noqa: PLC0415
    from dalsegno.store.open import open_store  # noqa: PLC0415

    store = open_store(database)
    try:
        figures = measure(store, rate, window, workers=workers)
    finally:
        store.close()
    if as_json:
        typer.echo(json.dumps(figures))
        return
    typer.echo(f"used     {figures['utilisation']:>9.2%} of the rate, {figures['granted']:,} permits")
    typer.echo(f"at most  {figures['most_in_a_window']:>9,} in any window of {window:g} s; {rate:,} are allowed")
