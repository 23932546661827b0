"""Building the contenders. What cannot be had is absent, with the reason; that fails nobody."""

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(HERE)
TARGET = os.path.join(HERE, "target")
# A build that takes longer has failed.
PATIENCE_S = 1800


@dataclass(frozen=True)
class Program:
    """A contender's near end: where it lies, and how it is built."""
    path: str
    # Run in this directory below peers/.
    directory: str
    command: tuple
    # Commands that building or running needs, with their Debian packages.
    needs: tuple = ()


def _rust(name):
    # Wherever cargo is told to build by its environment or configuration.
    command = ("cargo", "build", "--locked", "--release", "--quiet", "--target-dir", TARGET, "-p", f"peer-{name}")
    return Program(os.path.join(TARGET, "release", f"peer-{name}"), ".", command, ("cargo:cargo", "cc:gcc"))


def _debian(command, package):
    return Program(command, ".", (), (f"{command}:{package}",))


PROGRAMS = {
    "kernel": _rust("kernel"),
    "millstream": _rust("millstream"),
    "smoltcp": _rust("smoltcp"),
    "gvisor": Program(os.path.join(TARGET, "peer-gvisor"), "gvisor",
                      ("go", "build", "-trimpath", "-o", os.path.join(TARGET, "peer-gvisor"), "."),
                      ("go:golang-go",)),
    "lwip": Program(os.path.join(TARGET, "peer-lwip"), "lwip", ("./build", TARGET),
                    ("cc:gcc", "dpkg-source:dpkg-dev")),
    "iperf3": _debian("iperf3", "iperf3"),
    "pasta": _debian("pasta", "passt"),
    "slirp4netns": _debian("slirp4netns", "slirp4netns"),
}

# Tells how far apart two CPUs are; comes with Millstream's near end.
CPU_DISTANCE = os.path.join(TARGET, "release", "cpu-distance")

# What every run needs.
TOOLS = ("ip:iproute2", "ethtool:ethtool", "unshare:util-linux", "taskset:util-linux")


def all_of(names, really):
    """Builds the programs called `names` (always the kernel's too); returns who is absent, and why."""
    os.makedirs(TARGET, exist_ok=True)
    _need(TOOLS)
    absent = {}
    for name in sorted({"kernel", "millstream", *names}):
        reason = _build(PROGRAMS[name], name, really)
        if reason:
            absent[name] = reason
    return absent


def report(absent, out):
    """Names who is absent."""
    for name, reason in absent.items():
        print(f"absent: {name}: {reason}", file=out)


def _build(program, name, really):
    """None, or why the program is not to be had."""
    if really:
        if not _need(program.needs):
            return f"needs {', '.join(need.split(':')[1] for need in program.needs)}"
        if program.command:
            # Whoever reads may have seen enough.
            with contextlib.suppress(BrokenPipeError):
                print(f"building {name}", flush=True)
            reason = _run(program)
            if reason:
                return reason
    return None if shutil.which(program.path) else "not built"


def _run(program):
    try:
        done = subprocess.run(program.command, cwd=os.path.join(HERE, program.directory), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
    return f"building failed: {errors[0].strip() if errors else done.returncode}"


def _need(commands):
    """Installs Debian packages whose commands are missing; whether all are there now."""
    missing = [need for need in commands if not shutil.which(need.split(":")[0])]
    if missing:
        subprocess.run([os.path.join(ROOT, "scripts", "need"), *missing], check=False)
    return all(shutil.which(need.split(":")[0]) for need in commands)
