"""One run: in namespaces of its own that end with it, whatever happens.

The run's process is the first of a PID namespace: when it ends, or is killed, or its parent dies, the kernel
kills everything in it, and the network namespaces go with their last process. Nothing has a name outside.
"""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys

from . import build, inside

# What set-up and end may take beside warm-up and window.
SLACK_S = 15.0


def one(case, warm, window):
    """Runs `case`; a dictionary of measured values, or {"error": why}."""
    job = dataclasses.asdict(case) | {
        "command": case.command(), "far": build.PROGRAMS["kernel"].path, "warm": warm, "window": window,
        "watch": build.CPU_DISTANCE if case.watched() else ""}
    process = subprocess.Popen(
        [*_namespaces(), sys.executable, "-I", inside.__file__, json.dumps(job)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True)
    try:
        out, err = process.communicate(timeout=warm + window + SLACK_S)
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {warm + window + SLACK_S:.0f} s"}
    finally:
        _end(process)
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": _last_line(err) or f"exit code {process.returncode}"}


def _namespaces():
    """The command that makes the namespaces around what follows it."""
    command = []
    if os.geteuid() != 0:
        command += ["unshare", "--user", "--map-root-user"]
    if shutil.which("setpriv"):
        # Behind that: who gets other rights has it taken from him.
        command += ["setpriv", "--pdeathsig", "KILL"]
    command += ["unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child=KILL"]
    return command


def _end(process):
    """Ends a run that has not ended by itself."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
