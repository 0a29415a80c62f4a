"""Strict JSON text: what a lenient parser would let pass is refused at its path, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator import json_text
from orchestrator.json_text import JsonTextError, canonical_text, member, parse
from tests.strategies import finite_floats, json_values, keys, scalars

Steps = list[str | int]

# A way down into a tree: a name is an object's member, a number the length of an array before the item.
ways = st.lists(keys | st.integers(0, 3), max_size=6)
containers = st.lists(scalars, max_size=3) | st.dictionaries(keys, scalars, max_size=3)


def refused(text: bytes) -> JsonTextError:
    with pytest.raises(JsonTextError) as caught:
        parse(text)
    return caught.value


def bury(text: str, way: Steps) -> tuple[str, str]:
    """The text at the end of a way, with neighbours on both sides, and its JSON path."""
    path = "$"
    for step in way:
        path = member(path, step)
    for step in reversed(way):
        if isinstance(step, int):
            text = "[" + "0, " * step + text + ', {"x": null}]'
        else:
            text = "{" + json.dumps(step + "!") + ": 1, " + json.dumps(step) + ": " + text + "}"
    return text, path


def same(first: Any, second: Any) -> bool:
    """Equality that tells 1 from 1.0 and True, 0.0 from -0.0, and one key order from another."""
    return repr(first) == repr(second)


@given(json_values)
def test_a_written_value_is_read_back_without_losing_a_digit_a_type_or_the_order(value: Any) -> None:
    assert same(parse(canonical_text(value)), value)


@given(finite_floats)
def test_floats_keep_their_shortest_digits(value: float) -> None:
    assert canonical_text(value) == f"{value!r}\n".encode()


@given(json_values)
def test_the_canonical_text_is_its_own_canonical_text(value: Any) -> None:
    text = canonical_text(value)
    assert canonical_text(parse(text)) == text
    assert text.isascii() and text.endswith(b"\n") and not text.endswith(b"\n\n")


def test_the_canonical_text_has_two_spaces_a_level_and_a_final_newline() -> None:
    assert canonical_text({"b": [1, 2.50], "a": "\u00e9"}) == (
        b'{\n  "b": [\n    1,\n    2.5\n  ],\n  "a": "\\u00e9"\n}\n'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [-float("inf")]}], ids=repr)
def test_writing_refuses_what_is_no_number(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_text(value)


@pytest.mark.parametrize("value", [b"x", {1, 2}, object], ids=["bytes", "set", "class"])
def test_writing_refuses_what_has_no_json_form(value: Any) -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        canonical_text({"a": value})


# --- refusals, at any depth ----------------------------------------------------------------------


@given(ways, keys, scalars, scalars)
def test_a_repeated_key_is_found_at_any_depth(way: Steps, key: str, first: Any, second: Any) -> None:
    # Equal values do not excuse it: which of two editors wrote the second is not known.
    name = json.dumps(key)
    text, path = bury(f"{{{name}: {json.dumps(first)}, {name}: {json.dumps(second)}}}", way)
    error = refused(text.encode())
    assert (error.path, error.found) == (member(path, key), "the key twice")


def test_a_key_repeated_in_another_spelling_is_the_same_key() -> None:
    assert refused(b'{"ab": 1, "\\u0061b": 2}').path == "$.ab"


def test_the_same_key_in_two_objects_is_no_repetition() -> None:
    assert parse(b'[{"a": {"a": 1}}, {"a": 2}]') == [{"a": {"a": 1}}, {"a": 2}]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "123456789e400"])
@given(way=ways)
def test_a_number_that_json_or_float64_lacks_is_found_at_any_depth(number: str, way: Steps) -> None:
    text, path = bury(number, way)
    error = refused(text.encode())
    assert (error.path, error.found, error.expected) == (path, number, "a finite number")


@pytest.mark.parametrize("digits", [21, 400, 5000, 100_000])
def test_a_huge_integer_is_refused_without_being_converted(digits: int) -> None:
    # Python gives up on 4,300 digits with a message of its own, and below that takes quadratic time.
    error = refused(b'{"a": [' + b"9" * digits + b"]}")
    assert error.path == "$.a[0]"
    assert len(str(error)) < 120


@pytest.mark.parametrize(
    "value", [-(2**63), 2**63 - 1, 2**64 - 1], ids=["int64-min", "int64-max", "uint64-max"]
)
def test_integers_of_64_bits_are_kept(value: int) -> None:
    assert parse(str(value).encode()) == value


@pytest.mark.parametrize("half", ["\\ud800", "\\udfff", "x\\udc00y", "\\udc00\\ud800"])
@given(way=ways)
def test_a_lone_surrogate_in_a_string_is_found_at_any_depth(half: str, way: Steps) -> None:
    text, path = bury(f'"{half}"', way)
    error = refused(text.encode())
    assert (error.path, error.found) == (path, "a string with a lone surrogate")


@given(ways)
def test_a_lone_surrogate_in_a_key_is_found_at_any_depth(way: Steps) -> None:
    text, path = bury('{"\\ud800": 1}', way)
    error = refused(text.encode())
    assert (error.path, error.found) == (path, "a key with a lone surrogate")


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse(b'"\\ud83d\\ude00"') == "\U0001f600"


# --- refusals of the text ------------------------------------------------------------------------


@given(containers, st.data())
def test_truncated_text_is_refused_with_its_line_and_column(value: Any, data: st.DataObject) -> None:
    text = canonical_text(value).rstrip()
    assume(len(text) > 1)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    error = refused(cut)
    line = int(error.found.split(" line ")[1].split()[0])
    column = int(error.found.split(" column ")[1])
    lines = cut.decode().split("\n")
    assert 1 <= line <= len(lines)
    assert 1 <= column <= len(lines[line - 1]) + 1


def test_truncated_text_is_told_from_a_syntax_error() -> None:
    assert refused(b'{\n  "a": 1,\n').found == "the end of the file at line 3 column 1"
    assert refused(b'{\n  "a" 1\n}').found == "a syntax error at line 2 column 7"


@pytest.mark.parametrize("text", [b"", b" \n", b"\t"], ids=["nothing", "blank", "tab"])
def test_an_empty_file_is_refused(text: bytes) -> None:
    assert refused(text).found.startswith("the end of the file at line ")


@pytest.mark.parametrize(
    "text",
    [
        b"{} {}",
        b"[1,]",
        b'{"a": 1,}',
        b"{'a': 1}",
        b"[01]",
        b"[1.]",
        b"[.5]",
        b"[+1]",
        b"// x\n1",
        b'"\t"',
        b"nul",
    ],
    ids=repr,
)
def test_what_is_nearly_json_is_refused(text: bytes) -> None:
    assert " line 1 column " in refused(text).found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(b'{"a": "\xff"}', "byte 0xff at offset 7", id="latin-1"),
        pytest.param(b'"\xc0\xaf"', "byte 0xc0 at offset 1", id="overlong"),
        pytest.param(b'"\xed\xa0\x80"', "byte 0xed at offset 1", id="encoded-surrogate"),
        pytest.param(b'{"a": "\xc3', "byte 0xc3 at offset 7", id="cut-character"),
        pytest.param('{"a": 1}'.encode("utf-16"), "byte 0xff at offset 0", id="utf-16"),
    ],
)
def test_what_is_not_utf8_is_refused_with_its_offset(text: bytes, found: str) -> None:
    error = refused(text)
    assert (error.path, error.found, error.expected) == ("$", found, "UTF-8 text")


def test_a_byte_order_mark_is_refused() -> None:
    assert "BOM" in refused(b'\xef\xbb\xbf{"a": 1}').expected


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'], ids=["arrays", "objects", "both"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_nesting_without_bound_is_refused_and_not_followed(opening: bytes, closed: bool) -> None:
    depth = 100_000
    closing = opening.translate(bytes.maketrans(b"[{", b"]}"), b'"a:')[::-1]
    text = opening * depth + (b"1" + closing * depth if closed else b"")
    assert refused(text).found == "arrays or objects nested too deeply"


def test_a_file_beyond_the_bound_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MAXIMUM_BYTES", 8)
    error = refused(b"\xff" * 9)
    assert (error.found, error.expected) == ("9 bytes", "at most 8")
    assert parse(b"12345678") == 12345678


def test_the_first_fault_is_the_one_that_is_told() -> None:
    assert refused(b'{"a": [1, NaN], "b": Infinity}').path == "$.a[1]"


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("a", "$.a"),
        ("_a1", "$._a1"),
        (0, "$[0]"),
        ("0", '$["0"]'),
        ("weights.0", '$["weights.0"]'),
        ("", '$[""]'),
        ('a"b', '$["a\\"b"]'),
        ("a\nb", '$["a\\nb"]'),
        ("a-b", '$["a-b"]'),
    ],
)
def test_a_path_quotes_what_is_no_plain_name(key: str | int, path: str) -> None:
    assert member("$", key) == path


@given(st.lists(keys | st.integers(0, 9), max_size=3), st.lists(keys | st.integers(0, 9), max_size=3))
def test_different_places_have_different_paths(first: Steps, second: Steps) -> None:
    paths = []
    for way in (first, second):
        path = "$"
        for step in way:
            path = member(path, step)
        paths.append(path)
    assert (paths[0] == paths[1]) == (first == second)
