"""What the runs say: rows with medians, spreads and ratios to Millstream, and their table as text."""

from . import distance, stats
from .cases import AWAKE, all_cases

# Of each kind of run: (key, heading, digits), the first one the main one.
METRICS = {
    "gbps": ("Gbit/s", 3), "s_per_gb": ("s/GB", 3), "ns_per_packet": ("ns/packet", 3),
    "p50_us": ("p50 µs", 3), "p99_us": ("p99 µs", 3), "per_s": ("1/s", 4),
    "us_cpu": ("CPU µs each", 3), "ns_each": ("ns each", 4),
}

# The main results that are read the same way, and how.
GLANCES = (
    ("rate: above 1 is Millstream's gain", ("gbps",)),
    ("time: below 1 is Millstream's gain", ("ns_each", "p50_us")),
)

# What a workload's name does not say.
REMARKS = {
    "user-mode-send": "(no user-mode network in Millstream yet: its bulk over TAP, and the kernel's over veth)",
    "bulk-send-large-calls": "(as with offloads, by calls of 1 MiB instead of 128 KiB at either end)",
    "rr-two-cores-spinning": "(the near end polls, the far end sleeps)",
}
REMARKS["user-mode-receive"] = REMARKS["user-mode-send"]
REMARKS["bulk-receive-large-calls"] = REMARKS["bulk-send-large-calls"]


def rows(runs):
    """One row for each workload and contender, in the order of the cases."""
    counted, aside = distance.set_aside(runs)
    found = {}
    for one in counted:
        found.setdefault((one["workload"], one["contender"]), []).append(one)
    result = []
    for case in all_cases():
        mine = found.get((case.workload, case.contender))
        if mine:
            row = _row(case, mine, found.get((case.workload, case.rival()), []))
            others = aside[case.workload, case.contender]
            if others:
                row["notes"].append(f"{others} of {others + len(mine)} runs set aside: the host kept the two CPUs apart")
            awake = found.get((case.workload, f"millstream{AWAKE}"))
            if awake and not case.awake:
                row["notes"].append(_beside_awake(awake, mine))
            result.append(row)
    return result


def _beside_awake(ours, runs):
    """Millstream with CPUs kept awake beside a contender whose CPUs halt."""
    parts = []
    for key in ("p50_us", "p99_us"):
        found = stats.ratio([one[key] for one in ours if key in one], [one[key] for one in runs if key in one])
        if found:
            parts.append(f"{METRICS[key][0].split()[0]} {_ratio({'millstream': found})}")
    return f"millstream{AWAKE} ÷ it: {', '.join(parts) or 'nothing to compare'}"


def _row(case, runs, ours):
    row = {"workload": case.workload, "contender": case.contender, "metrics": {}, "notes": []}
    errors = [one["error"] for one in runs if "error" in one]
    if errors:
        row["notes"].append(f"{len(errors)} of {len(runs)} runs failed: {errors[0]}")
    for note in sorted({note for one in runs for note in one.get("notes", [])}):
        row["notes"].append(note)
    for key in METRICS:
        values = [one[key] for one in runs if key in one]
        if values:
            metric = stats.summary(values)
            if case.contender != "millstream":
                metric["millstream"] = stats.ratio([one[key] for one in ours if key in one], values)
            row["metrics"][key] = metric
    return row


def print_all(all_rows, out):
    """The table: a block for each workload."""
    print("÷: Millstream's median divided by the contender's, with a 95 % bootstrap interval; with CPUs kept awake, or "
          "with BIG TCP, on both sides where the contender has that", file=out)
    last = None
    for row in all_rows:
        if row["workload"] != last:
            last = row["workload"]
            _heading(last, [one for one in all_rows if one["workload"] == last], out)
        _line(row, out)
    print(file=out)


def print_markdown(all_rows, out):
    """The same as Markdown: the ratios at a glance, then all contenders with their first two results."""
    for heading, keys in GLANCES:
        _glance([row for row in all_rows if next(iter(row["metrics"]), None) in keys], heading, out)
    _in_full(all_rows, out)


def _glance(some_rows, heading, out):
    """A line for each workload: Millstream's median, and what of each contender's it is."""
    cells, contenders = {}, []
    for row in some_rows:
        key, metric = next(iter(row["metrics"].items()))
        name = row["contender"].split(",")[0]
        line = cells.setdefault(row["workload"], {})
        if row["contender"] == "millstream":
            line[name] = [f"{_short(metric['median'], METRICS[key][1])} {METRICS[key][0]}"]
        elif name != "millstream" and AWAKE not in row["contender"]:
            line.setdefault(name, []).append(_ratio(metric))
            contenders += [name] if name not in contenders else []
    if not cells:
        return
    names = ["millstream", *contenders]
    print(f"| {heading} | {' | '.join(names)} |\n|{'---|' * (1 + len(names))}", file=out)
    for workload, line in cells.items():
        print(f"| `{workload}` | {' | '.join('; '.join(line.get(name, ['–'])) for name in names)} |", file=out)
    print(file=out)


def _in_full(all_rows, out):
    """A line for each contender: its first two results, and Millstream's medians divided by them."""
    print("| workload | contender | main result | cost or tail | n | Millstream ÷ it (95 %) | and its cost or tail |", file=out)
    print("|---|---|---|---|---|---|---|", file=out)
    last = None
    for row in all_rows:
        workload = f"`{row['workload']}`" if row["workload"] != last else ""
        last = row["workload"]
        found = list(row["metrics"].items())[:2]
        values = [f"{_spread(metric, METRICS[key][1])} {METRICS[key][0]}" for key, metric in found]
        ratios = [_ratio(metric) for _, metric in found]
        number = found[0][1]["n"] if found else 0
        cells = [workload, row["contender"], *_two(values), str(number), *_two(ratios)]
        print(f"| {' | '.join(cells)} |", file=out)


def _two(cells):
    return (cells + ["–", "–"])[:2]


def _heading(workload, block, out):
    keys = next((list(one["metrics"]) for one in block if one["metrics"]), [])
    print(f"\n{workload} {REMARKS.get(workload, '')}".rstrip(), file=out)
    cells = "".join(f"{METRICS[key][0] + ' (min–max)':>28}" for key in keys)
    ratios = "".join(f"{'÷ ' + METRICS[key][0] + ' (95 %)':>28}" for key in keys[:2])
    print(f"  {'':34}{cells}    n{ratios}", file=out)


def _line(row, out):
    cells, ratios, number = "", "", 0
    for at, (key, metric) in enumerate(row["metrics"].items()):
        cells += f"{_spread(metric, METRICS[key][1]):>28}"
        number = metric["n"]
        if at < 2:
            ratios += f"{_ratio(metric):>28}"
    print(f"  {row['contender']:34}{cells}{number:>5}{ratios}".rstrip(), file=out)
    for note in row["notes"]:
        print(f"      {note}", file=out)


def _spread(metric, digits):
    """`median (least–most)`."""
    return f"{_short(metric['median'], digits)} ({_short(metric['min'], digits)}–{_short(metric['max'], digits)})"


def _ratio(metric):
    """`ratio (low–high)`, or nothing for Millstream itself."""
    other = metric.get("millstream")
    if not other:
        return ""
    span = f"{other['low']:.2f}" + (" or more" if other["high"] is None else f"–{other['high']:.2f}")
    return f"{other['ratio']:.2f} ({span})"


def _short(value, digits):
    """So many significant digits, without an exponent."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e" in text or abs(value) >= 10 ** digits else text
