"""Other machines and other torch releases on this one: Debian packages, qemu and venvs in a folder of ours.

Nothing here installs into the system or needs root: packages are downloaded by apt-get with a state of its
own and unpacked. A part is used when it is there and made only when the caller asks for it; what cannot be
had is `Unavailable`, with the cause and what to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.availability import Unavailable

_GUEST_PACKAGES = ("python3-numpy", "libstdc++6")  # the library is what torch's wheels leave to the system
_NUMPY = "numpy>=2,<3"
# What `import torch` needs. Named here because pip resolves dependencies for the machine that it runs on.
_TORCH_NEEDS = (
    "typing_extensions", "filelock", "sympy", "networkx", "jinja2", "fsspec", "mpmath<1.4", "markupsafe",
)  # fmt: skip
_INSTALL_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class Machine:
    """A machine to emulate: the kernel's and qemu's name for it, Debian's name, and what it is like.

    `has_torch` says whether torch is published for it.
    """

    name: str
    debian: str
    byte_order: str
    has_torch: bool


MACHINES = (
    Machine("aarch64", "arm64", "little-endian", has_torch=True),
    Machine("s390x", "s390x", "big-endian", has_torch=False),
)


@dataclass(frozen=True)
class Guest:
    """An emulated machine that is ready: its emulator, and the folder that stands for its root."""

    machine: Machine
    qemu: Path
    root: Path

    @property
    def python_name(self) -> str:
        """The name of Debian's interpreter in the guest, such as `python3.11`."""
        return self._python.resolve().name

    @property
    def _python(self) -> Path:
        return self.root / "usr/bin/python3"

    def command(self, python: Path | None = None) -> list[str]:
        """The start of a command line: the emulator and an interpreter, the guest's own by default."""
        libraries = self.root / f"usr/lib/{self.machine.name}-linux-gnu"
        # Where Debian keeps BLAS and LAPACK; its install scripts, which nobody ran here, would link them.
        path = f"LD_LIBRARY_PATH={libraries / 'blas'}:{libraries / 'lapack'}"
        return [str(self.qemu), "-L", str(self.root), "-E", path, str(python or self._python)]


@dataclass(frozen=True)
class Workshop:
    """Where guests and environments are kept, and whether missing ones may be downloaded.

    Args:
        folder: Keeps everything that is downloaded; nothing is written elsewhere.
        install: Whether to download what is missing.
        remedy: What the user can do to have it downloaded, for `Unavailable`.
    """

    folder: Path
    install: bool
    remedy: str

    def guest(self, machine: Machine, path_env: str) -> Guest | Unavailable:
        """The emulated machine. `path_env` is the text of PATH, on which qemu is looked for first."""
        qemu = self._qemu(machine, path_env)
        if isinstance(qemu, Unavailable):
            return qemu
        root = self._part(
            f"{machine.name}-root",
            f"{machine.debian} Python with NumPy",
            lambda folder: _unpack_debian(machine.debian, _GUEST_PACKAGES, folder),
        )
        return root if isinstance(root, Unavailable) else Guest(machine, qemu, root)

    def torch(self, release: str) -> Path | Unavailable:
        """The interpreter of a virtual environment with that torch release, such as `2.5.1`."""

        def make(folder: Path) -> None:
            _checked([sys.executable, "-m", "venv", str(folder)])
            _checked([str(folder / "bin/python"), "-m", "pip", "install", f"torch=={release}", _NUMPY])

        made = self._part(f"torch-{release}", f"torch {release}", make)
        return made if isinstance(made, Unavailable) else made / "bin/python"

    def guest_torch(self, guest: Guest, release: str) -> Path | Unavailable:
        """A program that runs the guest's Python with that torch release, to be given as `--python`."""
        name = f"torch-{release}-{guest.machine.name}"

        def make(folder: Path) -> None:
            packages = folder / "lib" / guest.python_name / "site-packages"
            _checked(_pip_for(guest, packages, (f"torch=={release}", _NUMPY, *_TORCH_NEEDS)))
            # A virtual environment by hand, as nothing of the guest's can be run by its own name.
            (folder / "bin").mkdir()
            (folder / "bin/python3").symlink_to(guest.root / "usr/bin" / guest.python_name)
            (folder / "pyvenv.cfg").write_text(f"home = {guest.root / 'usr/bin'}\n")

        made = self._part(name, f"torch {release} for {guest.machine.name}", make)
        if isinstance(made, Unavailable):
            return made
        launcher = made / "launch"
        command = guest.command(made / "bin/python3")
        # Not a shell script: a shell adds variables, and the fixture attests those that it was started with.
        launcher.write_text(
            f"#!{sys.executable} -IS\n"
            "import os, sys\n"
            f"os.execv({command[0]!r}, [*{command!r}, *sys.argv[1:]])\n"
        )
        launcher.chmod(0o755)
        return launcher

    def _qemu(self, machine: Machine, path_env: str) -> Path | Unavailable:
        names = (f"qemu-{machine.name}", f"qemu-{machine.name}-static")
        for name in names:
            if found := shutil.which(name, path=path_env):
                return Path(found)
        debian = _debian_architecture()
        if isinstance(debian, Unavailable):
            return Unavailable(f"no {names[0]} on PATH, and {debian.reason}", "apt-get install qemu-user")
        unpacked = self._part(
            "qemu", f"{names[0]} on PATH", lambda folder: _unpack_debian(debian, ["qemu-user-static"], folder)
        )
        if isinstance(unpacked, Unavailable):
            return Unavailable(unpacked.reason, f"apt-get install qemu-user, or {unpacked.remedy}")
        return unpacked / "usr/bin" / names[1]

    def _part(self, name: str, what: str, make: Callable[[Path], None]) -> Path | Unavailable:
        """The folder of that name. It is marked when it is whole; one whose making broke off is made anew."""
        target = self.folder / name
        mark = target / "complete"
        if mark.is_file():
            return target
        if not self.install:
            return Unavailable(f"no {what}", self.remedy)
        print(f"downloading into {target}", file=sys.stderr, flush=True)
        try:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            make(target)
            mark.touch()
        except (OSError, subprocess.SubprocessError) as error:
            return Unavailable(f"no {what}: {_cause(error)}", "check the network and the disk, and try again")
        return target


def _debian_architecture() -> str | Unavailable:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return Unavailable("this is no Debian system (no apt-get)", "run on Debian or a derivative")
    return _checked(["dpkg", "--print-architecture"]).strip()


def _unpack_debian(architecture: str, packages: Sequence[str], target: Path) -> None:
    """Download packages with all that they depend on and unpack them, from the sources of this system."""
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        for folder in ("lists/partial", "cache/archives/partial"):
            (state / folder).mkdir(parents=True)
        (state / "status").touch()  # nothing is installed there yet
        options = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Install-Recommends": "false",
            "APT::Update::Error-Mode": "any",  # else a network that fails is only a warning
            "APT::Sandbox::User": "",  # its user may not write to a folder of ours
            "Dir::State::lists": str(state / "lists"),
            "Dir::State::status": str(state / "status"),
            "Dir::Cache": str(state / "cache"),
            "Debug::NoLocking": "true",
        }
        apt = ["apt-get", "-qq", *(f"--option={key}={value}" for key, value in options.items())]
        _checked([*apt, "update"])
        _checked([*apt, "--yes", "--download-only", "install", *packages])
        for archive in sorted((state / "cache/archives").glob("*.deb")):
            _checked(["dpkg-deb", "--extract", str(archive), str(target)])


def _pip_for(guest: Guest, packages: Path, requirements: Sequence[str]) -> list[str]:
    """A pip command that installs the guest's wheels, without asking the guest."""
    tags = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
    return [
        sys.executable, "-m", "pip", "install", "--target", str(packages), "--no-deps",
        "--only-binary=:all:", "--python-version", guest.python_name.removeprefix("python"),
        *(f"--platform={tag}_{guest.machine.name}" for tag in tags), *requirements,
    ]  # fmt: skip


def _checked(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=_INSTALL_TIMEOUT_S,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return done.stdout


def _cause(error: Exception) -> str:
    """The last line that a program said, or what the system said of it."""
    said = getattr(error, "stderr", None)
    return said.strip().splitlines()[-1] if isinstance(said, str) and said.strip() else str(error)
