"""The reversibility validation inside a result: four checks, each with what it must have found. Pure."""

from __future__ import annotations

from orchestrator.audit.findings import Findings
from orchestrator.audit.task_layout import ITEM_BYTES, STATE
from orchestrator.models import FixtureResult, FixtureResultV1, ReversibilityCheck

_EXAMPLES = 3
_CHECKS = [(dtype, depth) for dtype in ("torch.float64", "torch.float32") for depth in (1, 2)]
_EPSILON = {"torch.float64": 2.0**-52, "torch.float32": 2.0**-23}
_TOLERANCE_IN_EPSILONS = 64
"""Rounding of a few operations on numbers of size one; a wrong formula is off by far more."""


def audit_validation(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """A validation that failed is no ground to train on, so each check must hold."""
    validation, place = result.metadata.validation, f"{path}.metadata.validation"
    asked = [(check.dtype, check.depth) for check in validation.checks]
    found.equal("validation.checks", f"{place}.checks", asked, _CHECKS)
    found.equal("validation.device", f"{place}.device", validation.device, "cpu")
    for index, check in enumerate(validation.checks):
        _audit_check(check, f"{place}.checks[{index}]", found)
    passed = all(check.passed for check in validation.checks)
    found.equal("validation.passed", f"{place}.passed", validation.passed, passed)
    found.equal("validation.required", f"{place}.passed", validation.passed, True)


def _audit_check(check: ReversibilityCheck, path: str, found: Findings) -> None:
    tolerance = _TOLERANCE_IN_EPSILONS * _EPSILON[check.dtype]
    gradient, inverse = check.maximum_gradient_abs_error, check.inverse_max_abs_error
    one_state = _EXAMPLES * STATE * ITEM_BYTES[check.dtype]
    found.at_most(
        "validation.gradient-error", f"{path}.maximum_gradient_abs_error", gradient, tolerance, "rounding"
    )
    found.at_most("validation.inverse-error", f"{path}.inverse_max_abs_error", inverse, tolerance, "rounding")
    for rule, name, value, expected in (
        ("validation.forward", "forward_bitwise_equal", check.forward_bitwise_equal, True),
        ("validation.saved-storages", "saved_activation_storages", check.saved_activation_storages, 1),
        ("validation.saved-bytes", "saved_activation_bytes", check.saved_activation_bytes, one_state),
        (
            "validation.weight-references",
            "saved_parameter_references",
            check.saved_parameter_references,
            2 * check.depth,
        ),
        ("validation.check-passed", "passed", check.passed, True),
    ):
        found.equal(rule, f"{path}.{name}", value, expected)
