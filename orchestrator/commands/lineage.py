"""The life of frozen records: `supersede`, `retire`, `log`, `show` and `diff`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.console import finish, print_json, print_parts
from orchestrator.commands.options import (
    RUNS_DIR,
    IdxOption,
    JsonOption,
    PassOption,
    PythonOption,
    RunsOption,
    TimeoutOption,
    records_folders,
    run_options,
)
from orchestrator.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from orchestrator.lineage import Chain
    from orchestrator.qualification import FrozenFile

RecordArgument = Annotated[Path, typer.Argument(help="A frozen record.")]


def supersede(
    old: Annotated[Path, typer.Argument(help="The frozen record to be replaced.")],
    reason: Annotated[str, typer.Option("--reason", help="Why the new bits are the right ones.")],
    records: Annotated[
        Path | None,
        typer.Option("--records", help="The folder for the new record.", show_default="the old one's"),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", help="Fresh processes that must agree.")] = 2,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="Sign the record with this private key.")
    ] = None,
    timeout: TimeoutOption = 600.0,
    idx_dir: IdxOption = None,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    runs_dir: RunsOption = RUNS_DIR,
    as_json: JsonOption = False,
) -> None:
    """Run a frozen record's cases again, under its settings, and freeze a new record in its place."""
    from orchestrator.gate import supersede_record
    from orchestrator.qualification import load_frozen
    from orchestrator.signing import load_private_key

    options = run_options(
        repeats=1, timeout=timeout, idx_dir=idx_dir, python=python, pass_env=pass_env, echo=False
    )
    path, record = supersede_record(
        load_frozen(old),
        options,
        reason=reason,
        folder=records or old.parent,
        runs=runs,
        runs_dir=runs_dir,
        say=lambda line: print(line, file=sys.stderr, flush=True),
        signer=None if sign is None else load_private_key(sign),
    )
    if as_json:
        print_json(record.model_dump())
    else:
        print_parts(f"frozen: {path}", f"supersedes: {old}; see qualgate diff {old} {path}")


def retire(
    record: RecordArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why it is to judge nothing any more.")],
) -> None:
    """Let a frozen record judge nothing any more; the record itself stays as it is."""
    from orchestrator import qualification

    with qualification.one_freezer(record.parent, lambda line: print(line, file=sys.stderr, flush=True)):
        print_parts(f"retired: {qualification.retire(qualification.load_frozen(record), reason)}")


def log(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of frozen records.", show_default="the package's and ./qualification"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the frozen records as they supersede each other, newest first."""
    from orchestrator.lineage import chains
    from orchestrator.qualification import load_history, shipped_records
    from orchestrator.render_records import log_lines

    chosen = folders or [shipped_records(), *records_folders(None)]
    found = chains(load_history(chosen))
    if as_json:
        print_json([_chain_json(chain) for chain in found])
    elif found:
        print_parts(*log_lines(found, _is_signed))
    else:
        print_parts(f"no frozen records in {', '.join(map(str, chosen))}")


def show(record: RecordArgument, as_json: JsonOption = False) -> None:
    """Show one frozen record: its cases, platform, hashes, reason and place among the others."""
    from orchestrator.qualification import load_history, load_record
    from orchestrator.render_records import record_parts

    file = load_record(record)
    if as_json:
        print_json(file.record.model_dump())
        return
    newer = [
        other.path.name
        for other in load_history([record.parent])
        if other.record.supersedes and other.record.supersedes.file_sha256 == file.sha256
    ]
    print_parts(*record_parts(file, ", ".join(newer) or None, is_signed=_is_signed(file)))


def diff(
    old: RecordArgument,
    new: RecordArgument,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for a pull request.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say which hashes changed from one frozen record to another, and what may have changed them."""
    from orchestrator.qualification import load_frozen
    from orchestrator.record_diff import diff_records
    from orchestrator.render_records import diff_headline, diff_markdown, diff_parts

    if markdown and as_json:
        raise UsageError("--markdown and --json: expected one of them")
    found = diff_records(load_frozen(old), load_frozen(new))
    if as_json:
        rest = {name: value for name, value in asdict(found).items() if name not in ("verdicts", "settings")}
        print_json(
            {
                **rest,
                "same_bits": found.same_bits,
                "verdicts": [verdict.model_dump() for verdict in found.verdicts],
                "settings": [change.model_dump() for change in found.settings],
            }
        )
    elif markdown:
        sys.stdout.write(diff_markdown(found))
    else:
        print_parts(*diff_parts(found))
    if not found.same_bits:
        finish(ExitCode.DISQUALIFIED, diff_headline(found))


def _is_signed(file: FrozenFile) -> bool:
    from orchestrator.signing import signature_path

    return signature_path(file.path).is_file()


def _chain_json(chain: Chain) -> dict[str, Any]:
    return {
        "current": None if chain.current is None else chain.current.path.name,
        "before": chain.before,
        "forks": chain.forks,
        "records": [
            {
                "file": str(file.path),
                "file_sha256": file.sha256,
                "name": file.record.name,
                "frozen_at_utc": file.record.frozen_at_utc,
                "reason": file.record.reason,
                "retired": None if file.retirement is None else file.retirement.reason,
                "signed": _is_signed(file),
            }
            for file in chain.files
        ],
    }
