"""Protocols: the shipped ones, what a file may hold, and every refusal with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cases import cases_of_protocol, named_case
from orchestrator.errors import InputError, UsageError
from orchestrator.models import Protocol
from orchestrator.protocol import load_protocol, parse_protocol, shipped_protocols
from tests import strategies as samples

SOUND = """\
kind = "protocol"
schema_version = 1
name = "small"
numerics = "portable"
device = "cpu"
workspace = ":16:8"
threads = 1
processes = 2
required_accuracy_percent = 40.5

[data]
kind = "synthetic"
seeds = [11, 12]
train_count = 300
query_count = 100

[config]
alpha = 0.5
batch_size = 128
momentum = 0.9
weight_decay = 0.0
seed = 11
depth = 2
epochs = 2
learning_rate = 0.1
"""


def refusal(text: str) -> str:
    with pytest.raises(InputError) as refused:
        parse_protocol(text.encode(), "p.toml")
    return str(refused.value)


def test_a_protocol_says_what_its_file_says() -> None:
    protocol = parse_protocol(SOUND.encode(), "p.toml")
    assert protocol.required_accuracy_percent == 40.5
    assert [case.name for case in cases_of_protocol(protocol)] == [
        "synthetic-300-100",
        "synthetic-300-100-12",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param("threads = 1", "", "at $.threads: found nothing, expected the required", id="missing"),
        pytest.param("threads = 1", "thread = 1", "at $.thread", id="unknown"),
        pytest.param("[config]", "[config]\nbeta = 1", "at $.config.beta: found the key", id="in-table"),
        pytest.param("seed = 11", "seed = 11.0", "at $.config.seed: found 11.0", id="float-for-integer"),
        pytest.param("threads = 1", "threads = true", "at $.threads: found true", id="bool-for-integer"),
        pytest.param("processes = 2", "processes = 1", "at $.processes: found 1", id="one-process"),
        pytest.param("seeds = [11, 12]", "seeds = []", "at $.data.seeds", id="no-draws"),
        pytest.param(
            "seeds = [11, 12]", "seeds = [11, 11]", "at $.data.seeds[1]: found 11 again", id="draw-twice"
        ),
        pytest.param(
            "train_count = 300", "train_count = 1000001", "at $.data.train_count: found 1000001, expected",
            id="too-large",
        ),
        pytest.param('"synthetic"', '"imagenet"', "at $.data.kind: found \"imagenet\"", id="unknown-source"),
        pytest.param('"synthetic"', '"mnist"', "at $.data", id="other-source"),
        pytest.param("40.5", "100.5", "at $.required_accuracy_percent: found 100.5", id="above-100"),
        pytest.param("40.5", "-1", "at $.required_accuracy_percent: found -1", id="below-0"),
        pytest.param("40.5", "nan", "at $.required_accuracy_percent: found nan", id="nan"),
        pytest.param("40.5", "inf", "at $.required_accuracy_percent: found inf", id="infinity"),
        pytest.param("40.5", "2026-09-15", "at $.required_accuracy_percent: found 2026-09-15", id="date"),
        pytest.param("seed = 11", "seed = 9223372036854775808", "more than 64 bits", id="huge-integer"),
        pytest.param("threads = 1", "threads = 1\nthreads = 2", "not TOML: Cannot overwrite", id="key-twice"),
        pytest.param("threads = 1", "threads = ", "not TOML: Invalid value (at line 7", id="syntax"),
        pytest.param('"small"', '"' + "x" * 49 + '"', "at $.name: found 49 characters", id="long-name"),
        pytest.param('"small"', '"Small"', "at $.name", id="name"),
    ],
)  # fmt: skip
def test_a_fault_is_refused_with_file_and_place(old: str, new: str, said: str) -> None:
    assert SOUND.count(old) == 1 or old in ("seed = 11", '"synthetic"')
    line = refusal(SOUND.replace(old, new))
    assert line.startswith("p.toml: ")
    assert said in line


def test_a_byte_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InputError, match="not UTF-8 at offset 2"):
        parse_protocol(b"# \xff", "p.toml")


def test_nesting_without_bound_is_refused() -> None:
    assert "p.toml" in refusal("a = " + "[" * 100_000)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_end_in_another_error(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_protocol(data, "p.toml")


@given(st.sampled_from(sorted(samples.protocol())), samples.json_values)
def test_no_value_ends_in_another_error(key: str, value: object) -> None:
    # A JSON scalar or array of scalars is TOML as well, but for null.
    text = json.dumps(value)
    replaced = re.sub(rf"(?m)^{key} = .*$", lambda _: f"{key} = {text}", SOUND)
    try:
        parse_protocol(replaced.encode(), "p.toml")
    except InputError as error:
        assert "p.toml" in str(error)


# --- shipped protocols ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped_protocols())
def test_a_shipped_protocol_asks_for_the_named_cases(name: str) -> None:
    file = load_protocol(name)
    for case in cases_of_protocol(file.protocol):
        assert case == named_case(case.name).model_copy(update={"numerics": file.protocol.numerics})


def test_mnist_medium_is_eleven_draws_with_the_published_accuracy() -> None:
    protocol = load_protocol("mnist-medium").protocol
    assert [case.name for case in cases_of_protocol(protocol)] == [f"mnist-{draw}" for draw in range(11)]
    published = samples.published_draws()
    assert protocol.required_accuracy_percent == published["required_accuracy_percent"]


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(UsageError, match=r"expected digits, .*mnist-medium, or a path"):
        load_protocol("digit")


def test_a_path_is_read_and_hashed(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SOUND)
    first = load_protocol(str(path))
    path.write_text(SOUND + "# a comment\n")
    second = load_protocol(str(path))
    assert first.protocol == second.protocol
    assert first.sha256 != second.sha256


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read"):
        load_protocol(str(tmp_path / "none.toml"))


def test_the_json_form_has_the_same_fields() -> None:
    assert Protocol.model_validate(samples.synthetic_protocol()).data.kind == "synthetic"
