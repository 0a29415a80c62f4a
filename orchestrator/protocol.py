"""A protocol: the TOML file that says what a qualification is to do, read strictly.

A name without `.toml` and without a folder is that of a protocol that ships with the package.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from orchestrator.codec import as_input, check_model, check_schema, kind_of_model, read_bytes
from orchestrator.errors import EvidenceError, InputError, UsageError
from orchestrator.hashing import bytes_sha256
from orchestrator.json_text import member
from orchestrator.models import DigitsDraws, MnistDraws, Protocol

# What the data sources give (`orchestrator.datasets`), said before anything is loaded.
_LAST_MNIST_DRAW = 999
_MOST_DIGITS = 1796
_MOST_SYNTHETIC = 1_000_000
# Leaves room for numerics and device in the name of the frozen record.
_LONGEST_NAME = 48
# TOML's own bound.
_INTEGERS = range(-(2**63), 2**63)


@dataclass(frozen=True)
class ProtocolFile:
    """A protocol with the name of its file and that file's hash."""

    protocol: Protocol
    source: str
    sha256: str


def shipped_protocols() -> dict[str, Path]:
    """The protocols that ship with the package, by name."""
    folder = Path(str(resources.files("orchestrator"))) / "protocols"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_protocol(name_or_path: str) -> ProtocolFile:
    """Read a protocol: a shipped one by its name, any other by its path.

    Raises:
        UsageError: for a name that no shipped protocol has.
        InputError: with the place, what was found and what was expected.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml" and path.name == name_or_path:
        shipped = shipped_protocols()
        if name_or_path not in shipped:
            names = ", ".join(shipped)
            raise UsageError(f"found protocol {name_or_path!r}, expected {names}, or a path ending in .toml")
        path = shipped[name_or_path]
    data = read_bytes(path)
    return ProtocolFile(parse_protocol(data, str(path)), str(path), bytes_sha256(data))


def parse_protocol(data: bytes, source: str) -> Protocol:
    """The protocol in a TOML file's bytes; `source` names them in errors.

    Raises:
        InputError: with `source`, the place, what was found and what was expected.
    """
    value = _parse_toml(data, source)
    try:
        protocol = check_model(value, Protocol, source)
        check_schema(value, kind_of_model(Protocol), source)
    except EvidenceError as error:
        raise as_input(error) from error
    for path, found, expected in _beyond_the_schema(protocol):
        raise InputError(f"at {path}: found {found}, expected {expected}", where=source)
    return protocol


def _parse_toml(data: bytes, source: str) -> dict[str, Any]:
    try:
        value = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"found a byte that is not UTF-8 at offset {error.start}", where=source) from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", where=source) from error
    except RecursionError:
        raise InputError("at $: found arrays or tables nested too deeply", where=source) from None
    for path, found in _not_json("$", value):
        raise InputError(
            f"at {path}: found {found}, expected text, a finite number, true or false", where=source
        )
    return value


def _not_json(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Values that TOML has and a record cannot: dates, infinities, integers of more than 64 bits."""
    match value:
        case dict():
            for key, item in value.items():
                yield from _not_json(member(path, key), item)
        case list():
            for index, item in enumerate(value):
                yield from _not_json(member(path, index), item)
        case str() | bool():
            pass
        case int():
            if value not in _INTEGERS:
                yield path, "an integer of more than 64 bits"
        case float():
            if not math.isfinite(value):
                yield path, str(value)
        case _:
            yield path, str(value)


def _beyond_the_schema(protocol: Protocol) -> Iterator[tuple[str, str, str]]:
    if protocol.required_accuracy_percent > 100:
        yield "$.required_accuracy_percent", str(protocol.required_accuracy_percent), "at most 100"
    if len(protocol.name) > _LONGEST_NAME:
        yield "$.name", f"{len(protocol.name)} characters", f"at most {_LONGEST_NAME}"
    data = protocol.data
    most = _MOST_DIGITS if isinstance(data, DigitsDraws) else _MOST_SYNTHETIC
    for name in ("train_count", "query_count"):
        if (count := getattr(data, name, 0)) > most:
            yield f"$.data.{name}", str(count), f"at most {most}"
    name, numbers = ("draws", data.draws) if isinstance(data, MnistDraws) else ("seeds", data.seeds)
    for index, number in enumerate(numbers):
        if number in numbers[:index]:
            yield f"$.data.{name}[{index}]", f"{number} again", "every one once"
        if isinstance(data, MnistDraws) and number > _LAST_MNIST_DRAW:
            yield f"$.data.{name}[{index}]", str(number), f"at most {_LAST_MNIST_DRAW}"
