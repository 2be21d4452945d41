"""An aarch64 Python in a folder: Debian's packages and wheels, unpacked, run by qemu.

`apt-get` is asked with a state of its own, so that this machine's packages and architectures stay
as they are; `dpkg -x` unpacks, no package's script runs.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("python3", "libstdc++6")
WHEELS = (
    "numpy", "ml_dtypes", "llvmlite", "onnx", "onnxruntime", "rich", "click", "psutil",
    "pytest", "hypothesis", "islpy",
)  # fmt: skip
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
QEMU = "qemu-aarch64-static"


class Missing(Exception):
    """What this machine lacks."""


@dataclass(frozen=True)
class Emulated:
    """The folder, and the command in it that is an aarch64 Python."""

    folder: Path

    @staticmethod
    def made(folder: Path, fresh: bool = False) -> Emulated:
        """Fetch and unpack what is not there yet. Raises Missing."""
        folder = folder.absolute()
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        made = Emulated(folder)
        ready = folder / "ready"
        if not ready.exists():
            if platform.system() != "Linux" or not Path("/etc/debian_version").exists():
                raise Missing("fetches Debian's packages for arm64, and this is no Debian")
            for tool in ("apt-get", "dpkg-deb"):
                if shutil.which(tool) is None:
                    raise Missing(f"there is no {tool}")
            made.fetch()
            ready.touch()
        return made

    def fetch(self) -> None:
        root = self.folder / "root"
        root.mkdir(parents=True, exist_ok=True)
        for package in self.packages():
            _done(["dpkg-deb", "-x", str(package), str(root)])
        qemu = self.qemu(root)
        (python,) = [p for p in (root / "usr/bin").glob("python3.*") if p.name[8:].isdigit()]
        self.wheels(python.name.removeprefix("python"))
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        command = self.folder / "python"
        command.write_text(
            "#!/bin/sh\n"  # tests that start sys.executable start this: the host runs it
            f"export PYTHONHOME='{root}/usr' HOME='{home}' OPENBLAS_NUM_THREADS=1\n"
            f"export PYTHONPATH='{self.folder}/site'${{PYTHONPATH:+:$PYTHONPATH}}\n"
            f"exec '{qemu}' -L '{root}' -0 \"$0\" '{python}' \"$@\"\n",
            "utf-8",
        )
        command.chmod(0o755)

    def packages(self) -> list[Path]:
        """The packages for arm64 with all that they depend on."""
        state, cache = self.folder / "apt/state", self.folder / "apt/cache"
        for inside in (state / "lists/partial", cache / "archives/partial"):
            inside.mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        options = {
            "Dir::State": state, "Dir::State::status": state / "status", "Dir::Cache": cache,
            "APT::Architecture": "arm64", "APT::Architectures": "arm64",
        }  # fmt: skip
        given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        _done(["apt-get", *given, "update"])
        wanted = ["install", "-y", "--download-only", "--no-install-recommends", *PACKAGES]
        _done(["apt-get", *given, *wanted])
        return sorted((cache / "archives").glob("*.deb"))

    def qemu(self, root: Path) -> Path:
        """The emulator of this machine, or Debian's, unpacked."""
        found = shutil.which(QEMU)
        if found:
            return Path(found)
        place = self.folder / "qemu"
        place.mkdir(exist_ok=True)
        _done(["apt-get", "download", "qemu-user-static"], cwd=place)
        for package in place.glob("qemu-user-static_*.deb"):
            _done(["dpkg-deb", "-x", str(package), str(place)])
        return place / "usr/bin" / QEMU

    def wheels(self, version: str) -> None:
        platforms = [part for name in PLATFORMS for part in ("--platform", f"{name}_aarch64")]
        options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", version]
        target = ["--target", str(self.folder / "site"), "-c", "requirements/ci.txt"]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        _done([*pip, "-q", *platforms, *options, *target, *WHEELS])

    def run(
        self, arguments: list[str], seconds: int, shown: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run the emulated Python in this tree, without the tools of this machine.

        Its C compiler would be found, and makes code for this machine's processor.
        """
        nothing = self.folder / "no_tools"
        nothing.mkdir(exist_ok=True)
        return subprocess.run(
            [str(self.folder / "python"), *arguments], timeout=seconds, text=True, check=False,
            capture_output=not shown, env={"PATH": str(nothing), "PYTHONPATH": "src:."},
        )  # fmt: skip


def _done(command: list[str], cwd: Path | None = None) -> None:
    made = subprocess.run(command, cwd=cwd, text=True, capture_output=True, check=False)
    if made.returncode:
        said = (made.stderr or made.stdout).strip().splitlines()
        raise Missing(f"`{' '.join(command[:4])} ...` failed: {said[-1] if said else 'no reason'}")
