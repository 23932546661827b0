"""What machine this is, and whether it is idle."""

import os
import platform
import time

from .inside import busy_seconds

# Other work that is worth a note, in CPUs.
BUSY_CPUS = 0.2


def refuses_awake(path="/dev/cpu_dma_latency"):
    """Why no request for CPUs that do not halt can be made here; nothing when it can."""
    try:
        with open(path, "r+b", buffering=0):
            return ""
    except OSError as why:
        return f"{path}: {why.strerror}"


def idle():
    """Who puts idle CPUs to rest: driver and governor."""
    found = []
    for name in ("current_driver", "current_governor"):
        try:
            with open(f"/sys/devices/system/cpu/cpuidle/{name}", encoding="ascii") as file:
                found.append(file.read().strip())
        except OSError:
            found.append("unknown")
    return " / ".join(found)


def facts():
    """Processor, kernel, and what else ran before the first run."""
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    before, begin = busy_seconds(), time.monotonic()
    time.sleep(0.3)
    busy = (busy_seconds() - before) / (time.monotonic() - begin)
    notes = []
    if busy > BUSY_CPUS:
        notes.append(f"{busy:.1f} CPUs were busy with other work before the first run: do not trust the figures")
    if (os.cpu_count() or 1) < 2:
        notes.append("one CPU: near and far end share it in every workload")
    return {"cpu": model, "cpuidle": idle(), "cpus": os.cpu_count(), "kernel": platform.release(),
            "busy_before_cpus": round(busy, 2), "notes": notes}
