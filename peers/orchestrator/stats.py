"""Medians, and bootstrap intervals of their ratios."""

import random
import statistics

RESAMPLES = 2000


def summary(values):
    """Median, least, largest, number."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def ratio(ours, theirs):
    """The ratio of the medians and its 95 % bootstrap interval; None where nothing can be said."""
    if not ours or not theirs or statistics.median(theirs) == 0:
        return None
    ratios, dice = [], random.Random(7)
    for _ in range(RESAMPLES):
        below = statistics.median(dice.choices(theirs, k=len(theirs)))
        if below:
            ratios.append(statistics.median(dice.choices(ours, k=len(ours))) / below)
    ratios.sort()
    low, high = ratios[int(len(ratios) * 0.025)], ratios[int((len(ratios) - 1) * 0.975)]
    return {"ratio": statistics.median(ours) / statistics.median(theirs), "low": low, "high": high}
