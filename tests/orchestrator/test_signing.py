"""Signatures of frozen records, checked by cryptography alone and by mutation; and the keys behind them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from orchestrator import qualification, signing
from orchestrator.codec import content_sha256, encode
from orchestrator.errors import EvidenceError, ExitCode, InputError, QualgateError, StorageError, UsageError
from orchestrator.qualification import load_folders, load_frozen, write_frozen
from orchestrator.signing import (
    PAYLOAD_TYPE,
    check_signature,
    generate_keys,
    load_private_key,
    load_public_key,
    signature_path,
    write_signature,
)
from tests.orchestrator.checkout import ROOT, Checkout, last_line

Json = dict[str, Any]
DOCUMENT = (ROOT / "docs" / "threat-model.md").read_text()


@dataclass(frozen=True)
class Signed:
    """A signed copy of a shipped record, with the keys to check it."""

    record: Path
    private: Path
    public: Path

    @property
    def signature(self) -> Path:
        return signature_path(self.record)

    @property
    def key(self) -> SSlibKey:
        return load_public_key(self.public)

    def envelope(self) -> Json:
        value: Json = json.loads(self.signature.read_bytes())
        return value

    def payload(self) -> bytes:
        return b64decode(self.envelope()["payload"])

    def check(self) -> Json:
        return check_signature(load_frozen(self.record), self.key)

    def sign_payload(self, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> None:
        """Put a payload of any kind under a good signature by the good key."""
        envelope = Envelope(payload, payload_type, {})
        envelope.sign(load_private_key(self.private))
        self.signature.write_text(json.dumps(envelope.to_dict()))


def sign(record: Path, private: Path) -> None:
    write_signature(load_frozen(record).record, record, record.read_bytes(), load_private_key(private))


def signed_copy(folder: Path, numerics: str = "portable") -> Signed:
    (shipped,) = (ROOT / "orchestrator" / "records").glob(f"digits-{numerics}-*.json")
    folder.mkdir(exist_ok=True)
    record = Path(shutil.copy(shipped, folder))
    pair = generate_keys(folder / f"{numerics}-key")
    sign(record, pair.private)
    return Signed(record, pair.private, pair.public)


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    return signed_copy(tmp_path)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    """A signed record for the tests that change copies of it many times."""
    return signed_copy(tmp_path_factory.mktemp("original"))


def refusal(signed: Signed) -> str:
    """The one line that refuses a signature as broken evidence."""
    with pytest.raises(EvidenceError) as caught:
        signed.check()
    assert caught.value.exit_code == ExitCode.EVIDENCE_BROKEN
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what is signed -------------------------------------------------------------------------------


def test_pae_is_the_example_of_the_specification() -> None:
    envelope = Envelope(b"hello world", "http://example.com/HelloWorld", {})
    assert envelope.pae() == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_the_envelope_is_verified_by_cryptography_alone(signed: Signed) -> None:
    envelope, payload = signed.envelope(), signed.payload()
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    (signature,) = envelope["signatures"]
    pae = b"DSSEv1 28 application/vnd.in-toto+json %d %b" % (len(payload), payload)
    key = load_pem_public_key(signed.public.read_bytes())
    assert isinstance(key, Ed25519PublicKey)
    key.verify(b64decode(signature["sig"]), pae)
    with pytest.raises(InvalidSignature):
        key.verify(b64decode(signature["sig"]), payload)


def test_the_statement_names_the_record_by_every_hash(signed: Signed) -> None:
    data = signed.record.read_bytes()
    record = json.loads(data)
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": signed.record.name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}}],
        "predicateType": "urn:qualgate:predicate:frozen-record:1",
        "predicate": {
            name: record[name]
            for name in ("name", "content_sha256", "frozen_at_utc", "reason", "qualgate_version")
        },
    }
    assert json.loads(signed.payload()) == statement
    assert signed.check() == statement


def test_a_signature_is_not_loaded_as_a_record(signed: Signed) -> None:
    assert signed.signature.name == f"{signed.record.name}.dsse"
    assert [file.path for file in load_folders([signed.record.parent])] == [signed.record]


def test_a_signature_is_never_replaced(signed: Signed) -> None:
    before = signed.signature.read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        sign(signed.record, signed.private)
    assert signed.signature.read_bytes() == before


# --- what is refused ------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_changed_byte_of_the_record_is_refused(original: Signed, data: st.DataObject) -> None:
    text = original.record.read_bytes()
    index = data.draw(st.integers(0, len(text) - 1), "index")
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != text[index]), "byte")
    tampered = copy_of(original, "record-bytes")
    tampered.record.write_bytes(text[:index] + bytes([byte]) + text[index + 1 :])
    refusal(tampered)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_changed_byte_of_the_signature_is_refused_or_says_the_same(
    original: Signed, data: st.DataObject
) -> None:
    text = original.signature.read_bytes()
    index = data.draw(st.integers(0, len(text) - 1), "index")
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != text[index]), "byte")
    changed = text[:index] + bytes([byte]) + text[index + 1 :]
    tampered = copy_of(original, "signature-bytes")
    tampered.signature.write_bytes(changed)
    try:
        tampered.check()
    except EvidenceError:
        return
    # Only white space between the values is free.
    assert json.loads(changed) == original.envelope()


def copy_of(signed: Signed, name: str) -> Signed:
    folder = signed.record.parent / name
    folder.mkdir(exist_ok=True)
    record = Path(shutil.copy(signed.record, folder))
    shutil.copy(signed.signature, folder)
    return Signed(record, signed.private, signed.public)


def test_a_record_that_was_changed_with_its_content_hash_is_refused(signed: Signed) -> None:
    changed = load_frozen(signed.record).record.model_copy(update={"levels": ["predictions"]})
    sound = changed.model_copy(update={"content_sha256": content_sha256(changed)})
    signed.record.write_bytes(encode(sound))
    load_frozen(signed.record)
    assert "at $.subject[0].digest.sha256" in refusal(signed)


def test_a_renamed_record_is_refused(signed: Signed) -> None:
    record = signed.record.rename(signed.record.with_name("other.json"))
    signed.signature.rename(signature_path(record))
    line = refusal(Signed(record, signed.private, signed.public))
    assert f'at $.subject[0].name: found "{signed.record.name}", expected "other.json"' in line


def test_a_file_exchanged_after_it_was_parsed_is_refused(signed: Signed) -> None:
    file = load_frozen(signed.record)
    other = file.record.model_copy(update={"content_sha256": "0" * 64})
    with pytest.raises(EvidenceError, match=r"at \$\.predicate\.content_sha256"):
        check_signature(qualification.FrozenFile(other, file.path, file.sha256), signed.key)


def test_the_signature_of_another_record_is_refused(signed: Signed, tmp_path: Path) -> None:
    other = signed_copy(tmp_path / "other", "native")
    other.signature.unlink()
    sign(other.record, signed.private)
    shutil.copy(other.signature, signed.signature)
    assert f'at $.subject[0].name: found "{other.record.name}"' in refusal(signed)


def test_a_missing_signature_is_refused(signed: Signed) -> None:
    signed.signature.unlink()
    line = refusal(signed)
    assert line.startswith(f"{signed.signature}: found no signature of {signed.record.name}")
    assert "--sign" in line


def test_another_key_is_refused_and_both_are_named(signed: Signed, tmp_path: Path) -> None:
    other = generate_keys(tmp_path / "other")
    line = refusal(Signed(signed.record, other.private, other.public))
    assert f"found key {signed.key.keyid[:12]}…, expected a signature by key {other.key_id[:12]}…" in line


def test_another_key_under_the_good_keys_id_is_refused(signed: Signed, tmp_path: Path) -> None:
    other = signed_copy(tmp_path / "other")
    envelope = other.envelope()
    envelope["signatures"][0]["keyid"] = signed.key.keyid
    signed.signature.write_text(json.dumps(envelope))
    assert "found one that does not fit the payload" in refusal(signed)


def test_a_changed_payload_is_refused(signed: Signed) -> None:
    envelope = signed.envelope()
    payload = signed.payload().replace(b'"reason": "', b'"reason": "not ')
    envelope["payload"] = b64encode(payload).decode()
    signed.signature.write_text(json.dumps(envelope))
    assert "at $.signatures: found one that does not fit the payload" in refusal(signed)


def _set(*path: str | int, value: Any) -> Callable[[Json], None]:
    def change(statement: Json) -> None:
        place: Any = statement
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "place"),
    [
        pytest.param(_set("_type", value="https://in-toto.io/Statement/v0.1"), "$._type", id="type"),
        pytest.param(_set("predicateType", value="urn:other"), "$.predicateType", id="predicate-type"),
        pytest.param(_set("subject", value=[]), "$.subject", id="no-subject"),
        pytest.param(lambda s: s["subject"].append(s["subject"][0]), "$.subject", id="two-subjects"),
        pytest.param(_set("subject", 0, "digest", value={"sha1": "0"}), "$.subject[0].digest", id="sha1"),
        pytest.param(_set("predicate", "reason", value=True), "$.predicate.reason", id="not-a-string"),
        pytest.param(_set("predicate", "extra", value=None), "$.predicate", id="extra-null"),
        pytest.param(lambda s: s["predicate"].pop("content_sha256"), "$.predicate", id="key-left-out"),
        pytest.param(lambda s: s.pop("subject"), "$", id="subject-left-out"),
    ],
)
def test_a_signed_statement_that_is_not_the_records_is_refused(
    signed: Signed, change: Callable[[Json], object], place: str
) -> None:
    statement = json.loads(signed.payload())
    change(statement)
    signed.sign_payload(json.dumps(statement).encode())
    assert f"{signed.signature} (payload): at {place}: found " in refusal(signed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda data: data + b"{}", "Extra data", id="trailing"),
        pytest.param(lambda data: data[:-3], "the end of the file", id="truncated"),
        pytest.param(
            lambda data: data.replace(b"{", b'{"_type": 0,', 1), "the key twice", id="duplicate-key"
        ),
        pytest.param(lambda _: b"[]", "at $: found []", id="no-object"),
        pytest.param(lambda _: b"\xff", "byte 0xff", id="not-utf-8"),
    ],
)
def test_a_signed_payload_that_is_no_statement_is_refused(
    signed: Signed, change: Callable[[bytes], bytes], said: str
) -> None:
    signed.sign_payload(change(signed.payload()))
    assert said in refusal(signed)


def test_a_signed_payload_of_another_type_is_refused(signed: Signed) -> None:
    signed.sign_payload(signed.payload(), "application/json")
    assert "at $.payloadType: found \"application/json\", expected 'application/vnd.in-toto+json'" in refusal(
        signed
    )


def _edited(change: Callable[[Json], object]) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        envelope = json.loads(data)
        change(envelope)
        return json.dumps(envelope).encode()

    return edit


def _loose_base64(envelope: Json) -> None:
    # 64 bytes leave four unused bits in the last digit; a lenient decoder reads the same signature.
    sig = envelope["signatures"][0]["sig"]
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    envelope["signatures"][0]["sig"] = sig[:-3] + digits[digits.index(sig[-3]) + 1] + "=="
    assert b64decode(envelope["signatures"][0]["sig"]) == b64decode(sig)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda data: data + b"{}", "Extra data", id="trailing"),
        pytest.param(lambda _: b"", "the end of the file", id="empty"),
        pytest.param(
            lambda data: data.replace(b"{", b'{"payloadType": "x",', 1), "the key twice", id="duplicate-key"
        ),
        pytest.param(_edited(lambda e: e.update(extra=1)), "at $.extra: found the key", id="extra"),
        pytest.param(_edited(lambda e: e.pop("payload")), "at $.payload: found nothing", id="no-payload"),
        pytest.param(_edited(_set("payload", value=1)), "at $.payload: found 1", id="payload-number"),
        pytest.param(_edited(_set("payload", value="Zm9v\n")), "expected base64", id="base64-newline"),
        pytest.param(_edited(_set("payload", value="Zg")), "expected base64", id="base64-no-padding"),
        pytest.param(_edited(_loose_base64), "at $.signatures[0].sig", id="base64-spare-bits"),
        pytest.param(
            _edited(_set("signatures", value=[])), "at $.signatures: found an array of 0", id="none"
        ),
        pytest.param(
            _edited(_set("signatures", 0, "keyid", value="release")),
            'at $.signatures[0].keyid: found "release"',
            id="key-id",
        ),
        pytest.param(
            _edited(_set("signatures", 0, "sig", value="AAAA")), "does not fit the payload", id="short"
        ),
        pytest.param(
            _edited(lambda e: e["signatures"].append(dict(e["signatures"][0]))),
            "expected one signature by each key",
            id="twice",
        ),
    ],
)
def test_a_malformed_envelope_is_refused(signed: Signed, change: Callable[[bytes], bytes], said: str) -> None:
    signed.signature.write_bytes(change(signed.signature.read_bytes()))
    line = refusal(signed)
    assert line.startswith(f"{signed.signature}: at $")
    assert said in line


def test_of_several_signatures_each_key_finds_its_own(signed: Signed, tmp_path: Path) -> None:
    other, third = generate_keys(tmp_path / "other"), generate_keys(tmp_path / "third")
    envelope = Envelope.from_dict(signed.envelope())
    envelope.sign(load_private_key(other.private))
    signed.signature.write_text(json.dumps(envelope.to_dict()))
    assert signed.check() == Signed(signed.record, other.private, other.public).check()
    line = refusal(Signed(signed.record, third.private, third.public))
    assert f"found key {signed.key.keyid[:12]}…, {other.key_id[:12]}…, expected" in line


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("umask", "public_mode"), [(0o000, 0o666), (0o022, 0o644), (0o077, 0o600)])
def test_a_private_key_is_its_owners_whatever_the_umask(tmp_path: Path, umask: int, public_mode: int) -> None:
    before = os.umask(umask)
    try:
        pair = generate_keys(tmp_path / "new" / "release")
    finally:
        os.umask(before)
    assert (pair.private.name, pair.public.name) == ("release", "release.pub")
    assert stat.S_IMODE(pair.private.stat().st_mode) == 0o600
    assert stat.S_IMODE(pair.public.stat().st_mode) == public_mode
    assert sorted(path.name for path in pair.private.parent.iterdir()) == ["release", "release.pub"]


def test_the_two_files_are_one_pair_in_standard_formats(tmp_path: Path) -> None:
    pair = generate_keys(tmp_path / "release")
    assert pair.private.read_text().startswith("-----BEGIN PRIVATE KEY-----\n")
    assert pair.public.read_text().startswith("-----BEGIN PUBLIC KEY-----\n")
    private = load_pem_private_key(pair.private.read_bytes(), None)
    public = load_pem_public_key(pair.public.read_bytes())
    assert isinstance(private, Ed25519PrivateKey)
    assert private.public_key() == public
    ids = {load_private_key(pair.private).public_key.keyid, load_public_key(pair.public).keyid, pair.key_id}
    assert len(ids) == 1


def test_two_pairs_differ(tmp_path: Path) -> None:
    assert generate_keys(tmp_path / "a").key_id != generate_keys(tmp_path / "b").key_id


@pytest.mark.parametrize("name", ["release", "release.pub"])
def test_keygen_replaces_neither_file_and_leaves_none(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("kept")
    with pytest.raises(UsageError, match="exists already"):
        generate_keys(tmp_path / "release")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "kept"


def test_keygen_needs_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="FOLDER/NAME"):
        generate_keys(Path())


def test_a_key_of_rfc_8032_is_read_as_its_public_half(tmp_path: Path) -> None:
    # RFC 8032, section 7.1, test 1.
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    path = tmp_path / "key"
    path.write_bytes(pem(Ed25519PrivateKey.from_private_bytes(secret)))
    signer = load_private_key(path)
    assert signer.public_key.keyval["public"] == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    assert signer.sign(b"").signature == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b"
    )


def pem(key: Any, passphrase: bytes | None = None) -> bytes:
    encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return data


def public_pem(key: Any) -> bytes:
    data: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return data


def ed25519() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def ecdsa_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param(lambda: public_pem(ed25519()), "no private key", id="public"),
        pytest.param(lambda: pem(rsa_key()), "a private key of another kind", id="rsa"),
        pytest.param(lambda: pem(ecdsa_key()), "a private key of another kind", id="ecdsa"),
        pytest.param(lambda: pem(ed25519(), b"secret"), "a key with a passphrase", id="passphrase"),
        pytest.param(lambda: pem(ed25519())[:60], "no private key", id="truncated"),
        pytest.param(lambda: b"", "no private key", id="empty"),
    ],
)
def test_what_is_no_private_key_is_wrong_use(
    tmp_path: Path, content: Callable[[], bytes], found: str
) -> None:
    path = tmp_path / "key"
    path.write_bytes(content())
    with pytest.raises(InputError) as caught:
        load_private_key(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: found {found}, expected an ed25519 private key")
    # Nothing of the file is repeated.
    assert not [word for word in path.read_text().split() if len(word) > 20 and word in line]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param(lambda: pem(ed25519()), "a private key", id="private"),
        pytest.param(lambda: pem(ed25519(), b"secret"), "a private key", id="private-passphrase"),
        pytest.param(lambda: public_pem(rsa_key()), "a public key of another kind", id="rsa"),
        pytest.param(lambda: public_pem(ecdsa_key()), "a public key of another kind", id="ecdsa"),
        pytest.param(lambda: public_pem(ed25519())[:60], "no public key", id="truncated"),
        pytest.param(lambda: b"", "no public key", id="empty"),
    ],
)
def test_what_is_no_public_key_is_wrong_use(tmp_path: Path, content: Callable[[], bytes], found: str) -> None:
    path = tmp_path / "key.pub"
    path.write_bytes(content())
    with pytest.raises(InputError, match=f"found {found}, expected an ed25519 public key"):
        load_public_key(path)


@pytest.mark.parametrize("load", [load_private_key, load_public_key])
def test_a_key_that_cannot_be_read_is_wrong_use(tmp_path: Path, load: Callable[[Path], object]) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match="cannot be read"):
            load(path)


@pytest.mark.parametrize("package", ["securesystemslib", "cryptography"])
def test_without_the_extra_one_line_says_how_to_get_it(
    signed: Signed, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for act in (generate_keys, load_private_key, load_public_key):
        with pytest.raises(UsageError, match=rf"package {package}.*; pip install 'qualgate\[sign\]'"):
            act(signed.private)


def test_judging_and_freezing_unsigned_need_no_extra() -> None:
    script = (
        "import sys; sys.modules['securesystemslib'] = sys.modules['cryptography'] = None\n"
        "from orchestrator.gate import frozen_files\n"
        "print(len(frozen_files([], None)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) >= 1


# --- both files or neither ------------------------------------------------------------------------


def test_a_record_is_frozen_with_its_signature(signed: Signed, tmp_path: Path) -> None:
    record = load_frozen(signed.record).record
    path = write_frozen(record, tmp_path / "new", load_private_key(signed.private))
    assert check_signature(load_frozen(path), signed.key)
    assert sorted((tmp_path / "new").iterdir()) == [path, signature_path(path)]


@pytest.mark.parametrize("module", [signing, qualification], ids=["signature", "record"])
def test_a_write_that_fails_leaves_neither(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    def full(path: Path, data: bytes, *, overwrite: bool) -> None:
        raise StorageError("cannot be written: No space left on device", where=str(path))

    monkeypatch.setattr(module, "write_atomically", full)
    with pytest.raises(StorageError):
        write_frozen(load_frozen(signed.record).record, tmp_path / "new", load_private_key(signed.private))
    assert list((tmp_path / "new").iterdir()) == []


def test_a_record_that_is_there_already_keeps_its_signature(signed: Signed, tmp_path: Path) -> None:
    record, signer = load_frozen(signed.record).record, load_private_key(signed.private)
    path = write_frozen(record, tmp_path / "new", signer)
    with pytest.raises(QualgateError):
        write_frozen(record, tmp_path / "new", signer)
    assert check_signature(load_frozen(path), signed.key)


# --- the commands, as the threat model shows them ------------------------------------------------------


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of the product in which every command of docs/threat-model.md has been run, as written."""
    checkout = Checkout.copy(tmp_path_factory.mktemp("documented"))
    commands = re.findall(r"^\$ (qualgate .*)$", DOCUMENT, flags=re.MULTILINE)
    assert [line.split()[1] for line in commands] == ["keygen", "freeze", "verify", "gate"]
    shell = 'qualgate() { "$0" -m orchestrator "$@"; }\nset -e\n' + "\n".join(commands)
    done = subprocess.run(
        ["bash", "-c", shell, sys.executable],
        cwd=checkout.folder, env=checkout.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mode 0600" in done.stdout
    assert "signed: signed/digits-portable-" in done.stdout
    assert "qualified: digits: level bitwise reached" in done.stdout
    shutil.rmtree(checkout.folder / "qualgate-runs")
    return checkout


def gate(checkout: Checkout, *arguments: str) -> tuple[int, str]:
    """Gate the documented case with a signature; the exit code and the line, and proof that nothing ran."""
    done = checkout.qualgate("gate", "--case", "digits", "--numerics", "portable", *arguments)
    assert not (checkout.folder / "qualgate-runs").exists()
    assert len(done.stderr.strip().splitlines()) == 1
    return done.returncode, last_line(done)


def records_beside(checkout: Checkout, name: str) -> Path:
    """Another folder with the signed record, to be damaged."""
    return Path(shutil.copytree(checkout.folder / "signed", checkout.folder / name))


def test_gate_refuses_another_key_before_anything_runs(documented: Checkout) -> None:
    assert documented.qualgate("keygen", "--out", "keys/other").returncode == 0
    code, line = gate(documented, "--records", "signed", "--require-signature", "keys/other.pub")
    assert code == 5
    assert "at $.signatures: found key" in line


def test_gate_refuses_a_missing_signature_before_anything_runs(documented: Checkout) -> None:
    folder = records_beside(documented, "unsigned")
    (signature,) = folder.glob("*.dsse")
    signature.unlink()
    key = ("--require-signature", "keys/release.pub")
    code, line = gate(documented, "--records", "unsigned", *key)
    assert (code, signature.name in line) == (5, True)
    # One signed record does not speak for another that holds the same case.
    code, line = gate(documented, "--records", "signed", "--records", "unsigned", *key)
    assert (code, "found no signature" in line) == (5, True)
    (record,) = folder.glob("*.json")
    code, line = gate(documented, "--record", str(record), *key)
    assert (code, "found no signature" in line) == (5, True)


def test_gate_refuses_a_tampered_record_before_anything_runs(documented: Checkout) -> None:
    folder = records_beside(documented, "tampered")
    (record,) = folder.glob("*.json")
    record.write_bytes(record.read_bytes() + b" ")
    code, line = gate(documented, "--records", "tampered", "--require-signature", "keys/release.pub")
    assert code == 5
    assert "at $.subject[0].digest.sha256" in line


def test_the_packages_own_records_are_signed_by_nobody(documented: Checkout) -> None:
    code, line = gate(documented, "--require-signature", "keys/release.pub")
    assert (code, "found no signature" in line) == (5, True)


def test_a_published_table_has_no_signature(documented: Checkout) -> None:
    code, line = gate(documented, "--published", "table.json", "--require-signature", "keys/release.pub")
    assert (code, "--require-signature" in line) == (2, True)


def test_freeze_reads_the_key_before_anything_runs(documented: Checkout) -> None:
    for key in ("keys/nothing", "keys/release.pub"):
        done = documented.qualgate("freeze", "--records", "new", "--reason", "never", "--sign", key)
        assert done.returncode == 2
        assert key in last_line(done)
    assert not (documented.folder / "new").exists()
    assert not (documented.folder / "qualgate-runs").exists()


def test_verify_prints_the_statement_as_json(documented: Checkout) -> None:
    (record,) = (documented.folder / "signed").glob("*.json")
    done = documented.qualgate("verify", str(record), "--key", "keys/release.pub", "--json")
    assert done.returncode == 0, done.stderr
    statement = json.loads(done.stdout)
    assert statement["subject"][0]["name"] == record.name
    assert statement["predicate"]["reason"] == "first signed record"


def test_verify_of_no_file_is_wrong_use(documented: Checkout) -> None:
    done = documented.qualgate("verify", "signed/nothing.json", "--key", "keys/release.pub")
    assert (done.returncode, "nothing.json: cannot be read" in last_line(done)) == (2, True)
