"""Numbers as programs print them for people, in any locale: read without guessing. Pure.

`1,234,567.89`, `1.234.567,89`, `1 234 567,89` (with any of the spaces that locales use) and `1'234'567.89`
each read in one way only. `1,234` reads in two: which one is meant is told by the other numbers that the
same program printed, and where they do not tell it, by nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Final, Literal

DecimalMark = Literal[".", ","]
DECIMAL_MARKS: Final[frozenset[DecimalMark]] = frozenset((".", ","))

# Space, no-break space, thin space, narrow no-break space; apostrophe, plain and typographic.
_GROUP_ONLY: Final = " \u00a0\u2009\u202f'\u2019"


def _pattern(mark: DecimalMark) -> re.Pattern[str]:
    other = "," if mark == "." else "."
    grouped = rf"[1-9][0-9]{{0,2}}(?P<mark>[{_GROUP_ONLY}{other}])[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*"
    return re.compile(
        rf"(?:(?P<grouped>{grouped})|(?P<plain>[0-9]+))"
        rf"(?:[{mark}](?P<fraction>[0-9]+))?"
        r"(?(plain)(?P<exponent>[eE][-+]?[0-9]{1,2})?)"
    )


_PATTERNS: Final = {mark: _pattern(mark) for mark in DECIMAL_MARKS}


def readings(text: str) -> dict[DecimalMark, Decimal]:
    """A text's number, of at least 0, by the decimal mark that it is read with; empty for no number."""
    found = {}
    for mark, pattern in _PATTERNS.items():
        match = pattern.fullmatch(text.strip())
        if match is not None:
            whole = match["plain"] or re.sub(r"[^0-9]", "", match["grouped"])
            found[mark] = Decimal(f"{whole}.{match['fraction'] or '0'}{match['exponent'] or ''}")
    return found


def possible_marks(texts: Iterable[str]) -> set[DecimalMark]:
    """The decimal marks under which every number among the texts can be read.

    Texts that are no numbers say nothing. Empty when the numbers contradict each other.
    """
    marks = set(DECIMAL_MARKS)
    for text in texts:
        if found := readings(text):
            marks &= found.keys()
    return marks
