"""What changed from one frozen record to another: which hashes, and what may have changed them."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.fingerprint import changes
from orchestrator.models import FrozenCase, StackChange, Verdict
from orchestrator.qualification import FrozenFile
from orchestrator.trace_file import load_trace
from orchestrator.verdict import Evidence, evidence_of_frozen, judge


@dataclass(frozen=True)
class RecordDiff:
    """The differences of two frozen records, the old one first.

    `verdicts` has one item a case that both hold, in the new one's order, each judged bit for bit. `settings`
    are switches, data and levels that differ, by case. `reason` is the new record's, and `succeeds` whether
    it names the old one as its predecessor.
    """

    old: str
    new: str
    reason: str
    succeeds: bool
    verdicts: tuple[Verdict, ...]
    removed_cases: tuple[str, ...]
    added_cases: tuple[str, ...]
    settings: tuple[StackChange, ...]

    @property
    def same_bits(self) -> bool:
        """Whether both hold the same cases with the same bits, whatever else changed."""
        return not (self.removed_cases or self.added_cases) and all(
            verdict.level_reached == "bitwise" for verdict in self.verdicts
        )


def diff_records(old: FrozenFile, new: FrozenFile) -> RecordDiff:
    """Compare two frozen records; cases belong together by name.

    Raises:
        EvidenceError: when a trace is not the one that its record names.
    """
    before = {frozen.case.name: frozen for frozen in old.record.cases}
    after = {frozen.case.name: frozen for frozen in new.record.cases}
    both = [name for name in after if name in before]
    settings: list[StackChange] = changes({"levels": old.record.levels}, {"levels": new.record.levels})
    for name in both:
        settings += changes(_settings(name, before[name]), _settings(name, after[name]))
    supersedes = new.record.supersedes
    return RecordDiff(
        old=old.path.name,
        new=new.path.name,
        reason=new.record.reason,
        succeeds=supersedes is not None and supersedes.file_sha256 == old.sha256,
        verdicts=tuple(
            judge(_evidence(old, before[name]), _evidence(new, after[name]), "bitwise") for name in both
        ),
        removed_cases=tuple(name for name in before if name not in after),
        added_cases=tuple(name for name in after if name not in before),
        settings=tuple(settings),
    )


def _evidence(file: FrozenFile, frozen: FrozenCase) -> Evidence:
    trace = load_trace(file.path.parent, frozen.trace)
    return evidence_of_frozen(file.record, frozen, file.path.name, trace)


def _settings(name: str, frozen: FrozenCase) -> dict[str, object]:
    values: dict[str, object] = {**frozen.settings.model_dump(), "data": frozen.case.data.model_dump()}
    return {f"{name}: {key}": value for key, value in values.items()}
