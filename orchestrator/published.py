"""A published table of MNIST draws, reproduced: indices, labels, predictions and scores, draw by draw.

Level `predictions`: what a table publishes can be reached on any platform, or it cannot be reached at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cases import named_case
from orchestrator.codec import load_as
from orchestrator.environment import NumericSettings
from orchestrator.errors import UsageError
from orchestrator.hashing import array_sha256
from orchestrator.models import Difference, PublishedDraw, PublishedDraws
from orchestrator.runner import Run, RunOptions, load_dataset, new_run_folder, run_case

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class DrawVerdict:
    """One draw: how many of its published facts were compared, and which differ."""

    draw: int
    correct: int
    total: int
    compared: int
    differences: list[Difference]

    @property
    def qualified(self) -> bool:
        """Whether every published fact was reproduced."""
        return not self.differences


def shipped_tables() -> dict[str, Path]:
    """The published tables that ship with the package, by name."""
    folder = Path(str(resources.files("orchestrator.records"))) / "published"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def load_table(name_or_path: str) -> PublishedDraws:
    """Read a published table: a shipped one by its name, any other by its path.

    Raises:
        UsageError: for a name that no shipped table has.
        InputError: when the file cannot be read, or is another record.
        EvidenceError: when it is damaged.
    """
    path = Path(name_or_path)
    if path.suffix != ".json" and path.name == name_or_path:
        shipped = shipped_tables()
        if name_or_path not in shipped:
            names = ", ".join(shipped)
            raise UsageError(f"found table {name_or_path!r}, expected {names}, or a path ending in .json")
        path = shipped[name_or_path]
    return load_as(path, PublishedDraws)


def reproduce_draws(
    published: PublishedDraws,
    draws: Sequence[int],
    numerics: str,
    settings: NumericSettings,
    options: RunOptions,
    runs: Path,
    report: Callable[[DrawVerdict], None],
) -> list[DrawVerdict]:
    """Run the published draws, each in a fresh process, and compare every published fact.

    Raises:
        UsageError: for a draw that the table does not hold.
        RunError, EvidenceError: when a run fails.
    """
    table = {entry.draw: entry for entry in published.draws}
    missing = [draw for draw in draws if draw not in table]
    if missing:
        raise UsageError(f"--draws: found {missing[0]}, expected one of {sorted(table)}")
    verdicts = []
    for draw in draws or sorted(table):
        case = named_case(f"mnist-{draw}").model_copy(update={"numerics": numerics})
        dataset = load_dataset(case.data, options)
        run = run_case(case, settings, options, new_run_folder(runs, case.name), dataset)
        facts = {
            "train_indices_sha256": _hash_or_absent(dataset.train_indices),
            "test_indices_sha256": _hash_or_absent(dataset.test_indices),
        }
        verdict = judge_draw(table[draw], run, facts)
        report(verdict)
        verdicts.append(verdict)
    return verdicts


def _hash_or_absent(indices: npt.NDArray[np.int64] | None) -> str:
    return "absent" if indices is None else array_sha256(indices)


def judge_draw(published: PublishedDraw, run: Run, indices: dict[str, str]) -> DrawVerdict:
    """Compare one draw's published facts with a run. Pure."""
    found: dict[str, object] = {
        **indices,
        "train_labels_sha256": run.result.metadata.input_hashes.train_labels,
        "predictions_npy_sha256": run.result.predictions_file_sha256,
        "correct": run.score.correct,
        "total": run.score.total,
    }
    differences = [
        Difference(
            field=name,
            expected=str(getattr(published, name)),
            found=str(value),
            values_equal=None,
        )
        for name, value in found.items()
        if getattr(published, name) != value
    ]
    return DrawVerdict(
        draw=published.draw,
        correct=run.score.correct,
        total=run.score.total,
        compared=len(found),
        differences=differences,
    )
