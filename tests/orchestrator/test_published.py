"""The published table that ships with the package: the A100's facts, unchanged."""

from __future__ import annotations

import pytest

from orchestrator.errors import UsageError
from orchestrator.published import load_table, shipped_tables
from tests.orchestrator.checkout import SHARED
from tests.strategies import DRAWS


def test_the_shipped_table_says_whose_facts_it_holds() -> None:
    table = load_table("mnist-medium-a100")
    assert "A100-SXM4-40GB" in table.note
    assert [draw.draw for draw in table.draws] == [0, 1, 2, 3, 4, 5]
    assert load_table(str(DRAWS)) == table


def test_the_shipped_table_is_the_published_file_byte_for_byte() -> None:
    published = SHARED / "seed" / "mnist-medium-draws.json"
    if not published.is_file():
        pytest.skip("../shared/seed is not there")
    assert shipped_tables()["mnist-medium-a100"].read_bytes() == published.read_bytes()


def test_an_unknown_table_lists_the_shipped_ones() -> None:
    with pytest.raises(UsageError, match=r"expected mnist-medium-a100, or a path"):
        load_table("mnist")
