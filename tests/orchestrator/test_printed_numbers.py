"""Printed numbers: every locale's form is read, and nothing is guessed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.printed_numbers import DECIMAL_MARKS, DecimalMark, possible_marks, readings

NARROW = "\u202f"
NBSP = "\u00a0"
GROUPS: dict[DecimalMark, str] = {
    ".": f", '\u2019{NBSP}{NARROW}\u2009",
    ",": f". '\u2019{NBSP}{NARROW}\u2009",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1,234,567.89", {".": "1234567.89"}, id="english"),
        pytest.param("1.234.567,89", {",": "1234567.89"}, id="german"),
        pytest.param(f"1{NBSP}234{NBSP}567,89", {",": "1234567.89"}, id="no-break-space"),
        pytest.param(f"1{NARROW}234{NARROW}567,89", {",": "1234567.89"}, id="narrow-space"),
        pytest.param("1'234'567.89", {".": "1234567.89"}, id="swiss"),
        pytest.param("429,809,710", {".": "429809710"}, id="two-groups"),
        pytest.param("1,234", {".": "1234", ",": "1.234"}, id="ambiguous"),
        pytest.param("1.234", {".": "1.234", ",": "1234"}, id="ambiguous-point"),
        pytest.param("0,123", {",": "0.123"}, id="no-group-starts-with-zero"),
        pytest.param("95.45", {".": "95.45"}, id="two-decimals"),
        pytest.param("52088576", {".": "52088576", ",": "52088576"}, id="plain"),
        pytest.param("1234.567", {".": "1234.567"}, id="four-digits-are-no-group"),
        pytest.param("1.5e+03", {".": "1500"}, id="exponent"),
        pytest.param(" 7 ", {".": "7", ",": "7"}, id="blanks-around"),
    ],
)
def test_a_number_is_read_with_every_mark_that_fits(text: str, expected: dict[DecimalMark, str]) -> None:
    assert readings(text) == {mark: Decimal(number) for mark, number in expected.items()}


@pytest.mark.parametrize(
    "text",
    ["", "n/a", "nan", "inf", "-5", "+5", "1,23,456", "1.234'567,8.9", "1,2345,678", "1,234 567", "12,34.5,6",
     "1,234e3.5", ".5", "5.", "0x10", "\u0661\u0662", "1_000", "1\n2", "1,234,567e2"],
)  # fmt: skip
def test_anything_else_is_no_number(text: str) -> None:
    assert readings(text) == {}


def grouped(digits: str, mark: str) -> str:
    return f"{int(digits):,}".replace(",", mark)


@given(
    number=st.integers(0, 10**18),
    decimals=st.text("0123456789", max_size=6),
    mark=st.sampled_from(sorted(DECIMAL_MARKS)),
    data=st.data(),
)
def test_what_a_locale_prints_is_among_its_readings(
    number: int, decimals: str, mark: DecimalMark, data: st.DataObject
) -> None:
    group = data.draw(st.sampled_from(["", *GROUPS[mark]]))
    whole = grouped(str(number), group) if group else str(number)
    text = f"{whole}{mark}{decimals}" if decimals else whole
    assert readings(text)[mark] == Decimal(f"{number}.{decimals or '0'}")


@given(st.text("0123456789.,' e-+"))
def test_two_readings_differ_only_in_a_single_mark_before_three_digits(text: str) -> None:
    found = readings(text)
    if len(set(found.values())) == 2:
        whole, _, last = text.strip().replace(",", ".").rpartition(".")
        assert whole.isdigit() and len(last) == 3
        assert found["."] in (found[","] * 1000, found[","] / 1000)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(["1,234", "95.45"], ".", id="told-by-a-decimal"),
        pytest.param(["1,234", "429.809.710"], ",", id="told-by-groups"),
        pytest.param(["1,234", "12", "A100"], ".,", id="not-told"),
        pytest.param(["429,809,710", "95,45"], "", id="contradiction"),
        pytest.param([], ".,", id="nothing"),
    ],
)
def test_numbers_tell_each_others_decimal_mark(texts: list[str], expected: str) -> None:
    assert possible_marks(texts) == set(expected)
