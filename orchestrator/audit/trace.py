"""What a record says of its trace: its size from the configuration, its tensors from the depth. Pure."""

from __future__ import annotations

from orchestrator.audit.findings import Findings, fields
from orchestrator.audit.task_layout import parameter_shapes
from orchestrator.models import (
    Config,
    FixtureResult,
    FixtureResultV1,
    FrozenCase,
    FrozenTrace,
    TraceFacts,
)


def audit_trace(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """What a result says of its trace."""
    if not isinstance(result, FixtureResult) or result.trace is None:
        return
    trace, at = result.trace, f"{path}.trace"
    _audit_facts(trace, result.config, result.metadata.train_count, at, found)
    stable = f"{at}.same_process_chain_heads_matched"
    found.equal("trace.repeatable", stable, trace.same_process_chain_heads_matched, True)
    if trace.kept_step is not None:
        for name, bound in (("epoch", trace.epochs), ("step", trace.steps_per_epoch)):
            place, value = f"{at}.kept_step.{name}", getattr(trace.kept_step, name)
            found.require("trace.kept-step", place, value < bound, value, f"below {bound}")


def audit_frozen_trace(frozen: FrozenCase, path: str, found: Findings) -> None:
    """What a frozen case says of its trace."""
    if frozen.trace is not None:
        _audit_facts(frozen.trace, frozen.case.config, frozen.train_count, f"{path}.trace", found)


def _audit_facts(
    trace: TraceFacts | FrozenTrace, config: Config, train_count: int, path: str, found: Findings
) -> None:
    steps = -(-train_count // config.batch_size)
    size = {"epochs": config.epochs, "steps_per_epoch": steps}
    found.same_fields("trace.size", path, fields(trace, *size), size)
    found.same_items("trace.tensors", f"{path}.tensors", trace.tensors, _tensors(config))
    heads = f"{path}.chain_heads"
    found.equal("trace.chain-heads", heads, len(trace.chain_heads), trace.epochs)


def _tensors(config: Config) -> list[str]:
    """The tensors of one step, in the order of the computation."""
    names = list(parameter_shapes(config))
    forward = ["batch.state", "batch.labels", "core.final", "head.scores", "loss.gradient"]
    gradients = [f"gradients.{name}" for name in reversed(names)]
    updated = [f"{group}.{name}" for group in ("velocities", "parameters") for name in names]
    return [*forward, *gradients, *updated]
