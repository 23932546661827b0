"""Runs whose two CPUs the host of a virtual machine had moved apart are done again, whoever ran."""

import collections
import math
import subprocess
import time

from .build import CPU_DISTANCE

# Two CPUs are apart from so many times the least distance seen on: those of different caches or sockets.
APART_TIMES = 3.5
# A run waits so long for its CPUs to be near, and is done again so often when they were not.
PATIENCE_S = 3.0
PAUSE_S = 0.05
REPEATS = 3
# Runs are set aside only where every contender of a workload keeps so many.
RUNS_KEPT = 3
# Beyond these, one in so many of all runs until then is done again, or waits in vain.
RUNS_PART = 4


def measured():
    """Nanoseconds that a cache line takes from CPU 0 to CPU 1 and back; None where that cannot be told."""
    try:
        done = subprocess.run([CPU_DISTANCE, "0", "1"], capture_output=True, text=True, timeout=5, check=True)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


class Steady:
    """What all runs of an invocation have seen of the distance."""

    def __init__(self, look=measured, sleep=time.sleep):
        self._look, self._sleep, self.nearest = look, sleep, None
        # So often may a run be done again. It grows with the runs: how many there will be is not known beforehand.
        self._left = REPEATS

    def _saw(self, *distances):
        """Remembers the least."""
        self.nearest = min([*distances, *filter(None, [self.nearest])], default=None)

    def look(self):
        """Measures; None where that cannot be done."""
        distance = self._look()
        if distance is not None:
            self._saw(distance)
        return distance

    def apart(self, distance):
        """Whether they are too far apart to be compared with the nearest."""
        return distance is not None and self.nearest is not None and distance > APART_TIMES * self.nearest

    def _wait(self):
        distance = self.look()
        for _ in range(int(PATIENCE_S / PAUSE_S) if self._left >= 1 else 0):
            if not self.apart(distance):
                return distance
            self._sleep(PAUSE_S)
            distance = self.look()
        self._left -= self.apart(distance) and self._left >= 1
        return distance

    def run(self, attempt):
        """Results of `attempt`, done with CPUs near each other if they can be had; with what was seen of them. Of what
        was measured nothing decides over doing it again, and a run that failed is not."""
        self._left += 1 / RUNS_PART
        for repeat in range(REPEATS + 1):
            before = self._wait()
            result = attempt()
            inside = result.pop("inside_ns", [])
            self._saw(*inside)
            seen = [distance for distance in (before, self.look(), *inside) if distance is not None]
            if "error" in result or not any(map(self.apart, seen)) or repeat == REPEATS or self._left < 1:
                break
            self._left -= 1
        if inside:
            result = result | {"cpu_distance_inside_ns": max(inside)}
        if seen:
            result = result | {"cpu_distance_ns": max(seen), "done_again": repeat}
            if self.apart(max(seen)):
                note = f"the host kept the two CPUs apart in some runs ({APART_TIMES} times the nearest or more)"
                result["notes"] = [*result.get("notes", []), note]
        return result


def set_aside(runs):
    """The runs that count, and for each workload and contender how many others there are: those whose CPUs were apart,
    of all contenders of a workload or of none, so that what is compared was measured alike."""
    nearest = min((one["cpu_distance_ns"] for one in runs if "cpu_distance_ns" in one), default=None)

    def key(one):
        return one["workload"], one["contender"]

    def count(some):
        return collections.Counter(map(key, some))

    whole = [one for one in runs if "error" not in one]
    apart = [one for one in whole if one.get("cpu_distance_ns", 0) > APART_TIMES * (nearest or math.inf)]
    left = count(whole) - count(apart)
    few = {one["workload"] for one in apart if left[key(one)] < RUNS_KEPT}
    aside = [one for one in apart if one["workload"] not in few]
    return [one for one in runs if all(one is not other for other in aside)], count(aside)
