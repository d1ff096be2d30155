"""The programs of a real Kubernetes control plane: found, or built once from a pinned Go module."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..errors import Refused
from . import KUBERNETES as VERSION

BUILT: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
ETCD: Final = "etcd"
_MODULE: Final = Path(__file__).with_name("kube")
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"
_INSTALL_GO: Final = "Install Go 1.26 or newer, or point KUBEBUILDER_ASSETS at a folder that has them."
_INSTALL_ETCD: Final = "Install it: on Debian and Ubuntu, apt-get install etcd-server."
TOLD_EVERY_S: Final = 30.0
_BUILDING: Final = ".building-"

Say = Callable[[str], None]


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where what we build is kept."""
    cache = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".cache")
    return Path(cache) / "levers9" / "kube" / VERSION


def found(name: str, environment: Mapping[str, str]) -> str:
    """The path of a program in `$KUBEBUILDER_ASSETS`, the PATH or our cache; "" where it is in none."""
    for folder in (environment.get("KUBEBUILDER_ASSETS", ""), environment.get("PATH", os.defpath)):
        if folder and (path := shutil.which(name, path=folder)):
            return path
    return shutil.which(name, path=str(cache_folder(environment))) or ""


def missing(environment: Mapping[str, str] = os.environ) -> str:
    """Why no control plane can start at once, and what to install; "" where everything is there."""
    if not found(ETCD, environment):
        return f"etcd is not installed. {_INSTALL_ETCD}"
    lacking = [name for name in BUILT if not found(name, environment)]
    if not lacking:
        return ""
    if go_program(environment):
        return f"{', '.join(lacking)} {VERSION} are not built yet: `levers9 lab up` builds them."
    return f"{', '.join(lacking)} {VERSION} are not here and there is no Go to build them. {_INSTALL_GO}"


def go_program(environment: Mapping[str, str]) -> str:
    """The `go` command, or ""."""
    usual = os.pathsep.join((environment.get("PATH", os.defpath), "/usr/local/go/bin"))
    return shutil.which("go", path=usual) or ""


def provide(environment: Mapping[str, str], say: Say, every_s: float = TOLD_EVERY_S) -> dict[str, str]:
    """The path of each program, by name; builds what is missing. Raises `Refused` that says what to install.

    While it builds, `say` hears every so many seconds how long it has taken.
    """
    if not found(ETCD, environment):
        raise Refused("A lab needs etcd, which is not installed.", fix=_INSTALL_ETCD, code="lab_etcd")
    if not all(found(name, environment) for name in BUILT):
        go = go_program(environment)
        if not go:
            raise Refused(f"A lab needs {', '.join(BUILT)} {VERSION}.", "They are not here.", _INSTALL_GO, "lab_go")
        build(go, cache_folder(environment), environment, say, every_s)
    return {name: found(name, environment) for name in (ETCD, *BUILT)}


def build(go: str, folder: Path, environment: Mapping[str, str], say: Say, every_s: float = TOLD_EVERY_S) -> None:
    """Build the programs into a folder, which is there whole or not at all; others who build it as well wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f".{folder.name}.lock"), say):
        if all(shutil.which(name, path=str(folder)) for name in BUILT):
            return  # somebody else has built them while we waited
        for stale in folder.parent.glob(f"{_BUILDING}*"):
            shutil.rmtree(stale, ignore_errors=True)  # of a build that was killed
        with tempfile.TemporaryDirectory(prefix=_BUILDING, dir=folder.parent) as fresh:
            _compile(go, Path(fresh) / "out", environment, say, every_s)
            shutil.rmtree(folder, ignore_errors=True)
            (Path(fresh) / "out").rename(folder)


def arguments(go: str, folder: Path) -> list[str]:
    """The command that builds all three."""
    _, minor, _ = VERSION.removeprefix("v").split(".")
    stamps = (f"gitVersion={VERSION}", "gitMajor=1", f"gitMinor={minor}")
    stamped = " ".join(f"-X {_VERSION_PACKAGE}.{stamp}" for stamp in stamps)
    return [go, "build", "-trimpath", "-ldflags", f"-s -w {stamped}", "-o", f"{folder}{os.sep}", "tool"]


def _compile(go: str, folder: Path, environment: Mapping[str, str], say: Say, every_s: float) -> None:
    folder.mkdir()
    say(f"Building Kubernetes {VERSION} once; it takes some minutes.")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            arguments(go, folder),
            cwd=_MODULE,
            env={**environment, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        _wait(process, say, every_s)
        output.seek(0)
        if process.returncode:
            raise _failed(output.read().decode(errors="replace"))


def _wait(process: subprocess.Popen[bytes], say: Say, every_s: float) -> None:
    started = time.monotonic()
    try:
        while True:
            try:
                process.wait(every_s)
                return
            except subprocess.TimeoutExpired:
                say(f"Building Kubernetes {VERSION}: {time.monotonic() - started:.0f} s")
    finally:
        if process.poll() is None:  # Ctrl-C
            process.kill()
            process.wait()


def _failed(output: str) -> Refused:
    tail = " ".join(output.split()[-60:])
    return Refused("Kubernetes could not be built.", f"Go says: {tail}", _INSTALL_GO, "lab_build")


@contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another process builds Kubernetes right now; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
