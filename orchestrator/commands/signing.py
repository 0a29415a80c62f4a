"""`qualgate keygen` and `qualgate verify`: keys, and the signatures of frozen records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.console import print_json, print_parts
from orchestrator.commands.options import JsonOption


def keygen(
    out: Annotated[Path, typer.Option("--out", help="FOLDER/NAME of the private key; .pub is added.")],
    as_json: JsonOption = False,
) -> None:
    """Make an ed25519 key pair to sign frozen records with."""
    from orchestrator.signing import generate_keys

    pair = generate_keys(out)
    if as_json:
        print_json({"private": str(pair.private), "public": str(pair.public), "key_id": pair.key_id})
    else:
        print_parts(
            f"private key: {pair.private} (mode 0600; keep it out of the repository)",
            f"public key: {pair.public} (give it to everyone who checks)",
            f"key id: {pair.key_id}",
        )


def verify(
    record: Annotated[Path, typer.Argument(help="A frozen record; its signature stands beside it.")],
    key: Annotated[Path, typer.Option("--key", help="The public key that must have signed it.")],
    as_json: JsonOption = False,
) -> None:
    """Check that a key signed a frozen record, and that neither was changed since."""
    from orchestrator.qualification import load_frozen
    from orchestrator.signing import check_signature, load_public_key

    public = load_public_key(key)
    statement = check_signature(load_frozen(record), public)
    if as_json:
        print_json(statement)
    else:
        print_parts(
            f"signed: {record} by key {public.keyid}",
            f"reason: {statement['predicate']['reason']}",
        )
