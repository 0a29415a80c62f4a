"""Case names and configuration files: what they mean, and who is told when they mean nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cases import DEFAULT_CASE, config_text, named_case, same_computation, with_config
from orchestrator.errors import ExitCode, InputError, UsageError
from orchestrator.models import Case, DigitsSource, MnistSource, SyntheticSource
from tests import strategies as samples

PUBLISHED_CONFIG_SHA256 = "a4cf957d95e7b2d33db7a3121a0ae00609cd278f79026e4436549103647c618f"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("digits", DigitsSource(kind="digits", seed=2026091400, train_count=1297)),
        ("mnist-0", MnistSource(kind="mnist", draw=0)),
        ("mnist-17", MnistSource(kind="mnist", draw=17)),
        ("synthetic-1000-500", SyntheticSource(kind="synthetic", seed=11, train_count=1000, query_count=500)),
    ],
)
def test_a_name_says_which_data(name: str, source: object) -> None:
    case = named_case(name)
    assert (case.name, case.data, case.numerics) == (name, source, "native")
    assert Case.model_validate(case.model_dump()) == case


def test_the_default_case_needs_no_download() -> None:
    assert isinstance(named_case(DEFAULT_CASE).data, DigitsSource)


@pytest.mark.parametrize(
    "name",
    [
        "", "Digits", " digits", "digits\n", "mnist", "mnist-", "mnist--1", "mnist-0x1", "mnist-1000",
        "mnist-\u0661", "mnist-0\n", "synthetic", "synthetic-0-5", "synthetic-5-0", "synthetic-5",
        "synthetic-10000000-5", "synthetic-1\u0661-5", "cifar-0",
        # One draw has one name: a second one would look for a second frozen record.
        "mnist-00", "mnist-07", "synthetic-05-5",
    ],
    ids=repr,
)  # fmt: skip
def test_an_unknown_name_is_wrong_use_and_the_names_are_listed(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        named_case(name)
    assert caught.value.exit_code is ExitCode.USAGE
    assert str(caught.value).startswith(f"--case: found {name!r}, expected one of digits, mnist-DRAW")
    assert len(str(caught.value).splitlines()) == 1


# --- the configuration's text --------------------------------------------------------------------


def test_the_mnist_configuration_has_the_published_hash() -> None:
    assert hashlib.sha256(config_text(named_case("mnist-0").config)).hexdigest() == PUBLISHED_CONFIG_SHA256
    assert samples.seed_run()["result"]["config_file_sha256"] == PUBLISHED_CONFIG_SHA256


def test_every_constant_is_in_the_configurations_hash() -> None:
    config = named_case("mnist-0").config
    values = config.model_dump()
    texts = {config_text(config.model_copy(update={key: value + 1})) for key, value in values.items()}
    assert len(texts | {config_text(config)}) == len(values) + 1 == 9


# --- a configuration of one's own ----------------------------------------------------------------


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_a_file_replaces_the_configuration_under_a_name_that_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "c.json", {**samples.CONFIG, "depth": 3})
    case = with_config(named_case("mnist-0"), path)
    assert (case.name, case.config.depth) == ("mnist-0.custom", 3)
    assert Case.model_validate(case.model_dump()) == case
    assert not same_computation(case, named_case("mnist-0"))


def test_a_file_that_says_the_same_changes_nothing(tmp_path: Path) -> None:
    case = named_case("mnist-0")
    assert with_config(case, write(tmp_path / "c.json", samples.CONFIG)) is case


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"depth": 0}, "$.depth"),
        ({"depth": 2.0}, "$.depth"),
        ({"depth": "2"}, "$.depth"),
        ({"batch_size": True}, "$.batch_size"),
        ({"learning_rate": 0}, "$.learning_rate"),
        ({"momentum": -0.9}, "$.momentum"),
        ({"alpha": None}, "$.alpha"),
        ({"dropout": 0.1}, "$.dropout"),
        ({"alpha": float("nan")}, "$.alpha"),
    ],
    ids=str,
)
def test_a_wrong_configuration_is_wrong_use_with_file_and_path(
    change: dict[str, Any], place: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "c.json", {**samples.CONFIG, **change})
    with pytest.raises(InputError) as caught:
        with_config(named_case("digits"), path)
    assert caught.value.exit_code is ExitCode.USAGE
    assert str(caught.value).startswith(f"{path}: at {place}: found ")


def test_a_configuration_without_a_constant_is_wrong_use(tmp_path: Path) -> None:
    values = {key: value for key, value in samples.CONFIG.items() if key != "seed"}
    path = write(tmp_path / "c.json", values)
    with pytest.raises(InputError, match=r"at \$\.seed: found nothing, expected the required key"):
        with_config(named_case("digits"), path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'], ids=repr)
def test_a_file_that_is_no_configuration_at_all_is_wrong_use(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        with_config(named_case("digits"), path)
    assert str(caught.value).startswith(f"{path}: at $: found ")


def test_a_configuration_file_that_is_missing_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        with_config(named_case("digits"), tmp_path / "none.json")


# --- what is the same ----------------------------------------------------------------------------


def test_a_computation_is_told_by_what_it_computes_and_not_by_its_name() -> None:
    case = named_case("mnist-0")
    assert same_computation(case, case.model_copy(update={"name": "other"}))
    assert not same_computation(case, named_case("mnist-1"))
    assert not same_computation(case, named_case("digits"))
