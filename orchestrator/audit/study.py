"""A study: means, reductions and ratios, from the values that it holds itself. Pure."""

from __future__ import annotations

from statistics import fmean

from orchestrator.audit.findings import Findings
from orchestrator.models import CostRatio, StudyCost, StudyMemory, StudyReport, StudyRow, Unavailable
from orchestrator.ratios import ratio_of_means

COSTS = ("ms_per_task", "idle_adjusted_mj_per_task")


def audit_study(study: StudyReport, path: str, found: Findings) -> None:
    """Every row against its own values and the baseline's."""
    names = [row.setting for row in study.rows]
    found.equal("study.settings-once", f"{path}.rows", names, list(dict.fromkeys(names)))
    baseline = next((row for row in study.rows if row.setting == study.baseline), None)
    known = baseline is not None
    found.require("study.baseline", f"{path}.baseline", known, study.baseline, "a setting of the study")
    if baseline is None:
        return
    for index, row in enumerate(study.rows):
        place = f"{path}.rows[{index}]"
        most = study.processes
        found.at_most("study.processes", f"{place}.records", len(row.records), most, "the study's processes")
        _audit_reductions(row, baseline, f"{place}.memory", found)
        for name in COSTS:
            own, base = getattr(row, name), getattr(baseline, name)
            if isinstance(own, StudyCost):
                _audit_cost(own, base, f"{place}.{name}", is_baseline=row is baseline, found=found)


def _audit_reductions(row: StudyRow, baseline: StudyRow, path: str, found: Findings) -> None:
    own, base = row.memory, baseline.memory
    if not isinstance(own, StudyMemory) or not isinstance(base, StudyMemory):
        return
    for name in ("peak", "live"):
        derived = getattr(base, f"{name}_bytes") / getattr(own, f"{name}_bytes")
        found.equal("study.reduction", f"{path}.{name}_reduction", getattr(own, f"{name}_reduction"), derived)


def _audit_cost(
    own: StudyCost, base: StudyCost | Unavailable, path: str, *, is_baseline: bool, found: Findings
) -> None:
    found.equal("study.mean", f"{path}.mean", own.mean, fmean(own.process_values))
    found.equal("study.ratio", f"{path}.ratio", own.ratio is None, is_baseline)
    if isinstance(own.ratio, CostRatio):
        # Where a ratio was refused, the runs' records say why: they are compared by `study_runs`.
        derived = (
            base if isinstance(base, Unavailable) else ratio_of_means(own.process_values, base.process_values)
        )
        found.same_fields("study.ratio", f"{path}.ratio", own.ratio.model_dump(), derived.model_dump())
