"""`qualgate data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.console import print_json, print_parts
from orchestrator.commands.options import (
    IdxOption,
    JsonOption,
    download_progress,
)


def data(
    source: Annotated[str, typer.Argument(help="digits, mnist or synthetic.")] = "digits",
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.")] = Path("data"),
    draw: Annotated[int, typer.Option("--draw", help="MNIST: which draw.")] = 0,
    idx_dir: IdxOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The split's or generator's seed.")] = None,
    train: Annotated[int | None, typer.Option("--train", help="Training images.")] = None,
    query: Annotated[int, typer.Option("--query", help="Synthetic: query images.")] = 500,
    as_json: JsonOption = False,
) -> None:
    """Write an input archive, its query labels and a manifest."""
    from orchestrator.data_command import source_of, write_data
    from orchestrator.runner import RunOptions

    options = RunOptions(idx_dir=idx_dir, progress=download_progress)
    manifest = write_data(source_of(source, draw, seed, train, query), options, out)
    if as_json:
        print_json(manifest.model_dump())
    else:
        print_parts(
            f"{out / manifest.archive_file}: {manifest.train_count} training and "
            f"{manifest.test_count} query images"
        )
