"""From scores to a qualification's verdict. Pure, and exact: fractions until the last step.

Passed is what reaches the required accuracy in every draw; the mean over the draws is shown with the
sample standard deviation (divisor n - 1) and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import mean, stdev

from orchestrator.models import DrawAccuracy, QualificationVerdict, Score, Unavailable


def judge_scores(
    name: str, required_accuracy_percent: float, scores: Mapping[str, Score], scores_sha256: str
) -> QualificationVerdict:
    """The verdict of qualification `name` on the scores of its draws, by case name.

    `scores_sha256` is the hash of the file that holds them.
    """
    # The decimal that the protocol says, not the binary number nearest to it.
    required = Fraction(str(required_accuracy_percent))
    percents = [Fraction(100 * score.correct, score.total) for score in scores.values()]
    judged = [
        DrawAccuracy(case=case, score=score, accuracy_percent=float(percent), reached=percent >= required)
        for (case, score), percent in zip(scores.items(), percents, strict=True)
    ]
    return QualificationVerdict(
        kind="qualification-verdict",
        schema_version=1,
        name=name,
        scores_sha256=scores_sha256,
        required_accuracy_percent=required_accuracy_percent,
        draws=judged,
        score=Score(
            correct=sum(score.correct for score in scores.values()),
            total=sum(score.total for score in scores.values()),
        ),
        mean_accuracy_percent=float(mean(percents)),
        sample_sd_percent=_sample_sd(percents),
        passed=all(draw.reached for draw in judged),
    )


def _sample_sd(percents: Sequence[Fraction]) -> float | Unavailable:
    if len(percents) < 2:
        return Unavailable(unavailable="one draw has no spread", remedy="name more draws in the protocol")
    return float(stdev(percents))
