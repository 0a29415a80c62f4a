"""JSON text in and out, with what RFC 8259 leaves open decided: the strict half below any model.

Reading refuses what Python's parser lets pass silently: duplicate keys (last one wins), NaN and
Infinity, numbers that overflow to infinity, invalid UTF-8, lone surrogates, and nesting without bound.
Every refusal names the JSON path. Writing gives the canonical text.

Pure: bytes in, values out. Files are `store`'s and `codec`'s.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

MAXIMUM_BYTES = 256 * 1024 * 1024


class JsonTextError(ValueError):
    """Text that is not acceptable JSON: `path` is where (`$.a[0]`), `found` and `expected` say why."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(f"{path}: found {found}, expected {expected}")
        self.path = path
        self.found = found
        self.expected = expected


def member(path: str, key: str | int) -> str:
    """The JSON path of one member: `$.a`, `$[0]`, or `$["odd key"]` where a name needs quotes."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{json.dumps(key)}]"


class _Repeated(dict[str, Any]):
    """An object in which a key was repeated; `parse` finds its path and refuses it."""

    key: str


class _NotANumber:
    """A number that JSON does not have: NaN, Infinity, or one beyond float64."""

    def __init__(self, text: str) -> None:
        self.text = text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    repeated = _Repeated(plain)
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            repeated.key = key
            break
        seen.add(key)
    return repeated


def _float(text: str) -> float | _NotANumber:
    value = float(text)
    return value if math.isfinite(value) else _NotANumber(text)


def _integer(text: str) -> int | _NotANumber:
    # Python refuses to convert very long digit strings; no field of ours needs more than 64 bits.
    return int(text) if len(text) <= 20 else _NotANumber(text[:20] + "...")


def parse(data: bytes) -> Any:
    """Parse UTF-8 JSON text.

    Raises:
        JsonTextError: with the JSON path, or the line and column of a syntax error.
    """
    if len(data) > MAXIMUM_BYTES:
        raise JsonTextError("$", f"{len(data)} bytes", f"at most {MAXIMUM_BYTES}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise JsonTextError(
            "$", f"byte 0x{data[error.start]:02x} at offset {error.start}", "UTF-8 text"
        ) from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_float,
            parse_int=_integer,
            parse_constant=_NotANumber,
        )
        _refuse(value)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        found = "the end of the file" if error.pos >= len(text.rstrip()) else "a syntax error"
        raise JsonTextError("$", f"{found} at {place}", f"JSON ({error.msg})") from error
    except RecursionError:
        raise JsonTextError("$", "arrays or objects nested too deeply", "a record") from None
    return value


def _refuse(value: Any) -> None:
    for path, found, expected in _faults("$", value):
        raise JsonTextError(path, found, expected)


def _faults(path: str, value: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict):
        if isinstance(value, _Repeated):
            yield member(path, value.key), "the key twice", "every key once"
        for key, item in value.items():
            if not _encodable(key):
                yield path, "a key with a lone surrogate", "Unicode text"
            yield from _faults(member(path, key), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(member(path, index), item)
    elif isinstance(value, _NotANumber):
        yield path, value.text, "a finite number"
    elif isinstance(value, str) and not _encodable(value):
        yield path, "a string with a lone surrogate", "Unicode text"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} has no JSON form")


def canonical_text(value: Any) -> bytes:
    """The canonical text of a JSON value: two-space indent, ASCII escapes, final newline, UTF-8.

    Raises:
        ValueError: for NaN or Infinity.
    """
    text = json.dumps(value, indent=2, allow_nan=False, default=_refuse_constant)
    return (text + "\n").encode()
