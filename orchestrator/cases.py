"""The named cases, and what a case's name or file means.

A case says what is computed: data, configuration, numerics. Where it is computed is the platform's.
"""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.codec import as_input, check_model, parse_text, read_bytes
from orchestrator.errors import EvidenceError, UsageError
from orchestrator.json_text import canonical_text
from orchestrator.models import (
    Case,
    Config,
    DataSource,
    DigitsDraws,
    DigitsSource,
    MnistDraws,
    MnistSource,
    NumericsName,
    Protocol,
    SyntheticDraws,
    SyntheticSource,
)

DEFAULT_CASE = "digits"

# The published configuration of the MNIST-medium qualification.
_MNIST_CONFIG = Config(
    alpha=0.5,
    batch_size=128,
    momentum=0.9,
    weight_decay=0.0,
    seed=11,
    depth=2,
    epochs=2,
    learning_rate=0.1,
)

# 1,297 images are eleven batches an epoch, so the small set needs more epochs to be learned well.
_DIGITS_CONFIG = _MNIST_CONFIG.model_copy(update={"epochs": 10})
_DIGITS = DigitsSource(kind="digits", seed=2026091400, train_count=1297)
_SYNTHETIC_SEED = 11

_NAMES = "digits, mnist-DRAW (mnist-0), synthetic-TRAIN-QUERY (synthetic-1000-500)"


def named_case(name: str) -> Case:
    """The case of that name.

    Raises:
        UsageError: for an unknown name.
    """
    if name == "digits":
        return _case(name, _DIGITS, _DIGITS_CONFIG)
    if match := re.fullmatch(r"mnist-(0|[1-9][0-9]{0,2})", name):
        return _case(name, MnistSource(kind="mnist", draw=int(match[1])), _MNIST_CONFIG)
    if match := re.fullmatch(r"synthetic-([1-9][0-9]{0,6})-([1-9][0-9]{0,6})", name):
        source = SyntheticSource(
            kind="synthetic",
            seed=_SYNTHETIC_SEED,
            train_count=int(match[1]),
            query_count=int(match[2]),
        )
        return _case(name, source, _MNIST_CONFIG)
    raise UsageError(f"--case: found {name!r}, expected one of {_NAMES}")


def _case(name: str, data: DataSource, config: Config) -> Case:
    return Case(name=name, data=data, config=config, numerics="native")


def cases_of_protocol(protocol: Protocol) -> list[Case]:
    """The cases of a protocol, in the order of its draws."""
    return [_case_of_source(source, protocol.config, protocol.numerics) for source in _sources(protocol)]


def _sources(protocol: Protocol) -> list[DataSource]:
    match protocol.data:
        case DigitsDraws(seeds=seeds, train_count=train):
            return [DigitsSource(kind="digits", seed=seed, train_count=train) for seed in seeds]
        case MnistDraws(draws=draws):
            return [MnistSource(kind="mnist", draw=draw) for draw in draws]
        case SyntheticDraws(seeds=seeds, train_count=train, query_count=queries):
            return [
                SyntheticSource(kind="synthetic", seed=seed, train_count=train, query_count=queries)
                for seed in seeds
            ]


def _case_of_source(data: DataSource, config: Config, numerics: NumericsName) -> Case:
    """A case under the name that its data has on the command line; another configuration shows in it."""
    known = _MNIST_CONFIG
    match data:
        case DigitsSource():
            known = _DIGITS_CONFIG
            name = "digits" if data == _DIGITS else f"digits-{data.seed}-{data.train_count}"
        case MnistSource():
            name = f"mnist-{data.draw}"
        case SyntheticSource():
            name = f"synthetic-{data.train_count}-{data.query_count}"
            name = name if data.seed == _SYNTHETIC_SEED else f"{name}-{data.seed}"
    name = name if config == known else f"{name}.custom"
    # Not validated: an audit derives the cases of a protocol that has numbers out of range, too.
    return Case.model_construct(name=name, data=data, config=config, numerics=numerics)


def with_config(case: Case, path: Path) -> Case:
    """The case with the configuration of a file, under a name that says so.

    Raises:
        InputError: when the file cannot be read or is not a configuration.
    """
    try:
        value = parse_text(read_bytes(path), str(path))
        config = check_model(value, Config, str(path))
    except EvidenceError as error:
        raise as_input(error) from error
    if config == case.config:
        return case
    return case.model_copy(update={"config": config, "name": f"{case.name}.custom"})


def config_text(config: Config) -> bytes:
    """The configuration file of a config: the text whose SHA-256 is `config_file_sha256`."""
    return canonical_text(config.model_dump())


def same_computation(first: Case, second: Case) -> bool:
    """Whether two cases compute the same, whatever they are called."""
    return (first.data, first.config, first.numerics) == (
        second.data,
        second.config,
        second.numerics,
    )
