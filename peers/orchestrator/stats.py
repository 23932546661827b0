"""Medians, and bootstrap intervals of their ratios."""

import math
import random
import statistics

RESAMPLES = 2000


def summary(values):
    """Median, least, largest, number."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def ratio(ours, theirs):
    """The ratio of the medians and its 95 % bootstrap interval; None where nothing can be said. Where theirs may as well
    be nothing it has no upper limit: None, and with nothing of ours, too, it may be anything."""
    if not ours or not theirs or statistics.median(theirs) == 0:
        return None
    lows, highs, dice = [], [], random.Random(7)
    for _ in range(RESAMPLES):
        below, above = (statistics.median(dice.choices(values, k=len(values))) for values in (theirs, ours))
        lows.append(above / below if below else math.inf if above else 0.0)
        highs.append(above / below if below else math.inf)
    low, high = sorted(lows)[int(RESAMPLES * 0.025)], sorted(highs)[int((RESAMPLES - 1) * 0.975)]
    return {"ratio": statistics.median(ours) / statistics.median(theirs), "low": low,
            "high": high if math.isfinite(high) else None}
