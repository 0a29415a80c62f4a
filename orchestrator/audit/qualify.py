"""A qualification's plan and verdict: each derived again from what it says itself. Pure."""

from __future__ import annotations

from orchestrator.accuracy import judge_scores
from orchestrator.audit.findings import Findings
from orchestrator.cases import cases_of_protocol
from orchestrator.codec import content_sha256
from orchestrator.models import QualificationPlan, QualificationVerdict


def audit_plan(plan: QualificationPlan, path: str, found: Findings) -> None:
    """The plan's own hash, and cases and settings that follow from its protocol."""
    derived = content_sha256(plan)
    found.equal("plan.content-hash", f"{path}.content_sha256", plan.content_sha256, derived)
    found.same_items("plan.cases", f"{path}.cases", plan.cases, cases_of_protocol(plan.protocol))
    for name in ("device", "workspace", "threads"):
        planned, asked = getattr(plan.settings, name), getattr(plan.protocol, name)
        found.equal("plan.settings", f"{path}.settings.{name}", planned, asked)


def audit_qualification_verdict(verdict: QualificationVerdict, path: str, found: Findings) -> None:
    """Every number and judgement, from the scores of the draws."""
    scores = {draw.case: draw.score for draw in verdict.draws}
    found.equal("accuracy.draws-once", f"{path}.draws", len(verdict.draws), len(scores))
    if len(verdict.draws) != len(scores):
        return
    derived = judge_scores(verdict.name, verdict.required_accuracy_percent, scores, verdict.scores_sha256)
    found.same_items("accuracy.draw", f"{path}.draws", verdict.draws, derived.draws)
    for name in ("score", "mean_accuracy_percent", "sample_sd_percent", "passed"):
        found.equal("accuracy.total", f"{path}.{name}", getattr(verdict, name), getattr(derived, name))
