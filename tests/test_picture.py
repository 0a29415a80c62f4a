"""The pictures in the README are those of the gate as it is: made again, they say the same."""

from __future__ import annotations

import html
import platform
import re
from pathlib import Path

import pytest

from tests.picture import PICTURES, draw


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return draw(tmp_path_factory.mktemp("picture"))


def text_of(svg: str) -> list[str]:
    """The words of a picture in their order; how they are drawn is the business of rich's version."""
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the pictures name an x86 vector unit")
@pytest.mark.parametrize("name", ["verdict.svg", "failure.svg"])
def test_a_picture_is_what_the_gate_says_now(drawn: dict[str, str], name: str) -> None:
    shown = text_of((PICTURES / name).read_text())
    assert shown == text_of(drawn[name]), "run `make picture`"
    assert len(shown) > 20


@pytest.mark.parametrize("name", ["verdict.svg", "failure.svg"])
def test_a_picture_is_complete_without_a_network(name: str) -> None:
    svg = (PICTURES / name).read_text()
    assert re.findall(r"https?://[^\s\"']+", svg) == ["http://www.w3.org/2000/svg"]
    assert "url(#qualgate-" in svg
    assert not re.search(r"url\((?!#)", svg)


def test_every_picture_is_in_the_readme_with_words_for_those_who_do_not_see_it() -> None:
    readme = (PICTURES.parent / "README.md").read_text()
    shown = re.findall(r"!\[([^\]]{20,})\]\(docs/(\w+\.svg)\)", readme)
    assert sorted(name for _, name in shown) == sorted(path.name for path in Path(PICTURES).glob("*.svg"))
