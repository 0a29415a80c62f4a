"""`make picture`: docs/verdict.svg and docs/failure.svg, two verdicts of real gates as a terminal shows them.

Both gates judge by a record that is frozen just before, in a copy of the product; the second one after one
constant of the learner has been changed there. What differs from one run to the next is left out: the costs,
and the record's hash in its name. So the same learner gives the same pictures.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.console import Console, Group
from rich.terminal_theme import MONOKAI
from rich.text import Text

from orchestrator.codec import decode, load_as
from orchestrator.errors import ExitCode
from orchestrator.models import RunRecord, Verdict
from orchestrator.render import headline, verdict_table
from tests.orchestrator.checkout import ROOT, Checkout

PICTURES = ROOT / "docs"
# The low part of log(2) in the learner's exp, changed in its sixth digit.
PLANTED = ("fixture/numerics/portable.py", "_LN2_LOW = -2.12194440e-4", "_LN2_LOW = -2.1219e-4")
_COLUMNS = 100

# rich's own form fetches its font from a network; this one takes what the reader has.
_SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
  <!-- Made by `make picture` from a run of the gate. -->
  <style>
    .{unique_id}-matrix {{
      font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
      font-size: {char_height}px;
      line-height: {line_height}px;
    }}
    {styles}
  </style>
  <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
  </defs>
  {chrome}
  <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
  </g>
</svg>
"""


@dataclass(frozen=True)
class Gated:
    """A gate's verdict and the run that it judged."""

    verdict: Verdict
    record: RunRecord


def draw(folder: Path) -> dict[str, str]:
    """Both pictures by file name, as SVG; the gates run in a copy of the product in an empty folder."""
    checkout = Checkout.copy(folder)
    frozen = checkout.qualgate("freeze", "--reason", "what the pictures are judged by")
    assert frozen.returncode == ExitCode.QUALIFIED, frozen.stderr
    qualified = _gate(checkout, "unchanged", ExitCode.QUALIFIED)
    checkout.edit(*PLANTED)
    disqualified = _gate(checkout, "changed", ExitCode.DISQUALIFIED)
    return {"verdict.svg": picture(qualified), "failure.svg": picture(disqualified)}


def _gate(checkout: Checkout, runs: str, expected: ExitCode) -> Gated:
    done = checkout.qualgate("gate", "--records", "qualification", "--runs-dir", runs, "--json")
    assert done.returncode == expected, done.stderr
    verdict = decode(done.stdout.encode(), "gate --json")
    assert isinstance(verdict, Verdict)
    record = load_as(checkout.folder / runs / verdict.found / "record.json", RunRecord)
    name, _, _ = verdict.expected.rpartition("-")
    return Gated(verdict.model_copy(update={"expected": f"{name}-….json"}), record)


def picture(gated: Gated) -> str:
    """What `qualgate gate` prints, as SVG."""
    table = verdict_table(gated.verdict, gated.record)
    assert isinstance(table, Group)
    *parts, costs = table.renderables
    assert isinstance(costs, Text)
    assert costs.plain.startswith("process ")
    console = Console(record=True, width=_COLUMNS, file=StringIO(), highlight=False, force_terminal=True)
    console.print("[bold]$ qualgate gate[/bold]")
    console.print(headline(gated.verdict), markup=False)
    for part in parts:
        console.print(part)
    return console.export_svg(title="qualgate", theme=MONOKAI, code_format=_SVG, unique_id="qualgate")


def main() -> None:
    """Write the pictures into docs/."""
    with tempfile.TemporaryDirectory() as folder:
        for name, svg in draw(Path(folder)).items():
            (PICTURES / name).write_text(svg, encoding="utf-8")
            print(PICTURES / name, file=sys.stderr)


if __name__ == "__main__":
    main()
