"""Signatures of frozen records: which key says that these are the right bits.

A signature is an in-toto Statement v1 about the record's file, in a DSSE envelope signed with ed25519. It
stands beside the record as `RECORD.json.dsse`, which no loader of records takes for a record. The statement
says nothing that the record does not say: whoever checks it builds it again from the record and compares.

    DSSE v1                 https://github.com/secure-systems-lab/dsse/blob/master/protocol.md
    in-toto Statement v1    https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md

What a signature proves and what it does not is in docs/threat-model.md. securesystemslib and cryptography
are the optional extra `sign`; they load when the first key does.
"""

from __future__ import annotations

import contextlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from orchestrator.codec import check_model, parse_text, read_bytes
from orchestrator.errors import EvidenceError, InputError, UsageError
from orchestrator.hashing import bytes_sha256
from orchestrator.json_text import canonical_text, member
from orchestrator.models import QualificationRecord, Sha256, Strict
from orchestrator.store import make_folder, write_atomically

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey

    from orchestrator.qualification import FrozenFile

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:qualgate:predicate:frozen-record:1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
_OWNER_ONLY = 0o600


# --- keys -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyPair:
    """The files of a new pair of keys, and the id that signatures call it by."""

    private: Path
    public: Path
    key_id: str


def generate_keys(path: Path) -> KeyPair:
    """Make an ed25519 key pair: `path` for its owner alone, and `path` with `.pub` added for everyone.

    The private key is PKCS #8 PEM without a passphrase, the public key SubjectPublicKeyInfo PEM.

    Raises:
        UsageError: when either file exists, or the extra `sign` is not installed.
        StorageError: when they cannot be written; nothing is left of the attempt.
    """
    _require_extra()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from securesystemslib.signer import CryptoSigner

    if not path.name:
        raise UsageError(f"--out: found {path}, expected FOLDER/NAME")
    public = path.with_name(path.name + ".pub")
    key = Ed25519PrivateKey.generate()
    signer = CryptoSigner(key)
    public_pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    make_folder(path.parent)
    write_atomically(path, signer.private_bytes, overwrite=False, mode=_OWNER_ONLY)
    try:
        write_atomically(public, public_pem, overwrite=False)
    except BaseException:
        path.unlink()
        raise
    return KeyPair(path, public, signer.public_key.keyid)


def load_private_key(path: Path) -> CryptoSigner:
    """Read an ed25519 private key to sign with.

    Raises:
        InputError: when the file cannot be read or holds anything else.
        UsageError: when the extra `sign` is not installed.
    """
    _require_extra()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    try:
        key = load_pem_private_key(read_bytes(path), password=None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _not_a_private_key(path, "no private key") from error
    except TypeError as error:
        raise _not_a_private_key(path, "a key with a passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _not_a_private_key(path, "a private key of another kind")
    return CryptoSigner(key)


def load_public_key(path: Path) -> SSlibKey:
    """Read an ed25519 public key to check signatures with.

    Raises:
        InputError: when the file cannot be read or holds anything else, a private key included.
        UsageError: when the extra `sign` is not installed.
    """
    _require_extra()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    data = read_bytes(path)
    if b"PRIVATE KEY-----" in data:
        raise _not_a_public_key(path, "a private key")
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _not_a_public_key(path, "no public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _not_a_public_key(path, "a public key of another kind")
    return SSlibKey.from_crypto(key)


# The file's content, and the parser's words about it, stay out of these: it may be a secret.


def _not_a_private_key(path: Path, found: str) -> InputError:
    return InputError(
        f"found {found}, expected an ed25519 private key in PEM without a passphrase",
        where=str(path),
        remedy="make one: qualgate keygen --out FOLDER/NAME",
    )


def _not_a_public_key(path: Path, found: str) -> InputError:
    return InputError(
        f"found {found}, expected an ed25519 public key in PEM",
        where=str(path),
        remedy="name the .pub file that qualgate keygen wrote",
    )


def _require_extra() -> None:
    try:
        import cryptography  # noqa: F401
        import securesystemslib.dsse  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"signatures need the Python package {error.name}, which is not installed",
            remedy="pip install 'qualgate[sign]'",
        ) from error


# --- signing --------------------------------------------------------------------------------------


def signature_path(record: Path) -> Path:
    """Where the signature of a record's file stands."""
    return record.with_name(record.name + ".dsse")


def statement_of(record: QualificationRecord, file_name: str, file_sha256: str) -> dict[str, Any]:
    """The in-toto Statement about a frozen record: its file by hash, its content by hash, and the reason."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": file_name, "digest": {"sha256": file_sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "name": record.name,
            "content_sha256": record.content_sha256,
            "frozen_at_utc": record.frozen_at_utc,
            "reason": record.reason,
            "qualgate_version": record.qualgate_version,
        },
    }


def write_signature(record: QualificationRecord, path: Path, data: bytes, signer: CryptoSigner) -> Path:
    """Sign the record that is, or is about to be, the bytes `data` at `path`; no signature is replaced.

    Raises:
        UsageError: when there is a signature already.
        StorageError: when it cannot be written.
    """
    from securesystemslib.dsse import Envelope

    statement = statement_of(record, path.name, bytes_sha256(data))
    envelope = Envelope(canonical_text(statement), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    target = signature_path(path)
    write_atomically(target, canonical_text(envelope.to_dict()), overwrite=False)
    return target


# --- checking -------------------------------------------------------------------------------------


def _check_base64(text: str) -> str:
    # One text for one value: padding bits and foreign characters that decoders skip are refused.
    with contextlib.suppress(ValueError):
        if b64encode(b64decode(text, validate=True)).decode() == text:
            return text
    raise ValueError("base64 with padding and no other characters")


def _check_distinct(signatures: list[_Signature]) -> list[_Signature]:
    if len({signature.keyid for signature in signatures}) < len(signatures):
        raise ValueError("one signature by each key")
    return signatures


_Base64 = Annotated[str, AfterValidator(_check_base64)]


class _Signature(Strict):
    keyid: Sha256
    sig: _Base64


class _Envelope(Strict):
    """The JSON form of a DSSE envelope; the names in it are the specification's."""

    payload: _Base64
    payload_type: Literal["application/vnd.in-toto+json"] = Field(alias="payloadType")
    signatures: Annotated[list[_Signature], Field(min_length=1), AfterValidator(_check_distinct)]


def check_signature(file: FrozenFile, key: SSlibKey) -> dict[str, Any]:
    """Check that this key signed this record, and return the statement that it signed.

    The record is bound twice: its file by name and SHA-256, and what was parsed from it by its content
    hash, so that a file exchanged between two readings is noticed.

    Raises:
        EvidenceError: when the signature is missing, damaged, another key's or another record's.
        InputError: when it is there and cannot be read.
    """
    from securesystemslib.exceptions import VerificationError

    path = signature_path(file.path)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise EvidenceError(
            f"found no signature of {file.path.name}, expected one by key {_short(key.keyid)}",
            where=str(path),
            remedy="restore it, or freeze the record with --sign KEY",
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    envelope = _parse_envelope(data, str(path))
    try:
        envelope.verify([key], threshold=1)
    except VerificationError as error:
        signers = ", ".join(_short(key_id) for key_id in envelope.signatures)
        found = "one that does not fit the payload" if key.keyid in envelope.signatures else f"key {signers}"
        raise EvidenceError(
            f"at $.signatures: found {found}, expected a signature by key {_short(key.keyid)}",
            where=str(path),
            remedy="restore the file, or name the key that signed it",
        ) from error
    source = f"{path} (payload)"
    statement: dict[str, Any] = parse_text(envelope.payload, source)
    _require_equal(statement, statement_of(file.record, file.path.name, file.sha256), "$", source)
    return statement


def _parse_envelope(data: bytes, source: str) -> Envelope:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import Signature

    read = check_model(parse_text(data, source), _Envelope, source)
    signatures = {item.keyid: Signature(item.keyid, b64decode(item.sig).hex()) for item in read.signatures}
    return Envelope(b64decode(read.payload), read.payload_type, signatures)


def _require_equal(found: Any, expected: Any, path: str, source: str) -> None:
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for key, item in expected.items():
            _require_equal(found[key], item, member(path, key), source)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, item in enumerate(expected):
            _require_equal(found[index], item, member(path, index), source)
    elif found != expected:
        raise EvidenceError(
            f"at {path}: found {_text(found)}, expected {_text(expected)}",
            where=source,
            remedy="the record is not the one that was signed: restore both files",
        )


def _text(value: Any) -> str:
    text = canonical_text(value).decode().strip()
    return text if len(text) <= 160 else text[:157] + "..."


def _short(key_id: str) -> str:
    return f"{key_id[:12]}…"
