#!/usr/bin/env python3
"""Measures Millstream beside its peers: builds, runs interleaved rounds, prints a table, writes a JSON file.

Python's standard library only. docs/peers.md says how each contender is built and set, and what is measured.
"""

import argparse
import functools
import json
import os
import random
import signal
import sys
import time

from orchestrator import build, cases, distance, machine, run, table

QUICK_BUDGET_S = 165.0
FULL_ROUNDS = 7
# The exit code of whom the user has stopped.
INTERRUPTED = 130


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under 3 minutes after building")
    parser.add_argument("--only", default="", help="contenders, by parts of their names, with commas between")
    parser.add_argument("--workload", default="", help="workloads, by parts of their names, with commas between")
    parser.add_argument("--rounds", type=whole_number, help=f"rounds (full: {FULL_ROUNDS}, quick: what fits, 5 at most)")
    parser.add_argument("--window", type=window_seconds, help="measured seconds of a run (full: 2, quick: 0.3)")
    parser.add_argument("--seed", type=int, default=1, help="of the order inside rounds")
    parser.add_argument("--json", default="", help="where the JSON file goes")
    parser.add_argument("--no-build", action="store_true", help="use what is built")
    parser.add_argument("--build-only", action="store_true", help="build and end")
    parser.add_argument("--table", nargs="+", metavar="JSON", help="print the table of earlier runs, put together")
    parser.add_argument("--markdown", action="store_true", help="with --table: as Markdown")
    parser.add_argument("--list", action="store_true", help="name workloads and contenders and end")
    return parser.parse_args()


def whole_number(text):
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError("write a whole number from 1 on, as 5")
    return int(text)


def window_seconds(text):
    """A length that something can be measured in: from 0.05 s to an hour."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError("write seconds from 0.05 to 3600, as 0.5")
    return value


def chosen(all_cases, options):
    """The cases that both filters let through. The Millstream that they are compared with stays beside them."""
    def named(option, text):
        """The words of a filter, each of which is in the name of some case."""
        words = [word.strip() for word in getattr(options, option).split(",") if word.strip()]
        for word in words:
            if not any(word in text(case) for case in all_cases):
                sys.exit(f"error: --{option}: no name has '{word}' in it: `peers/peers.py --list` names all")
        return words

    def matches(text, words):
        return not words or any(word in text for word in words)

    only, loads = named("only", lambda case: case.contender), named("workload", lambda case: case.workload)
    loaded = [c for c in all_cases if matches(c.workload, loads)]
    wanted = [c for c in loaded if matches(c.contender, only)]
    rivals = {(c.workload, c.rival()) for c in wanted} | {(c.workload, "millstream") for c in loaded}
    return [c for c in loaded if c in wanted or (c.workload, c.contender) in rivals]


def measure(todo, options, window, warm):
    """Interleaved rounds until the rounds asked for, or the budget, are used up: the runs, and whether they were
    interrupted."""
    order = random.Random(options.seed)
    rounds = options.rounds or (5 if options.quick else FULL_ROUNDS)
    runs, begin, last, steady, interrupted = [], time.monotonic(), 0.0, distance.Steady(), False
    try:
        for number in range(1, rounds + 1):
            if options.quick and number > 1 and time.monotonic() - begin + last > QUICK_BUDGET_S:
                break
            round_begin = time.monotonic()
            for at, case in enumerate(order.sample(todo, len(todo)), 1):
                show(f"round {number} of {rounds}, {at}/{len(todo)}: {case.workload}, {case.contender}")
                once = functools.partial(run.one, case, warm, window)
                result = steady.run(once) if case.two_cpus() else once()
                runs.append({"round": number, "workload": case.workload, "contender": case.contender, **result})
            last = time.monotonic() - round_begin
    except KeyboardInterrupt:
        interrupted = True
        show("")
        if runs:
            print("interrupted: what was finished counts", file=sys.stderr)
    show("")
    return runs, interrupted


def show(text):
    """One line of progress, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def interrupt(*_):
    raise KeyboardInterrupt


def prepare(path):
    """Tries out that the JSON file can be written: that is better known before the measuring than after it. What it
    holds stays until there is something new."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        existed = os.path.lexists(path)
        with open(path, "a", encoding="utf-8"):
            pass
        if not existed:
            os.remove(path)
    except OSError as error:
        sys.exit(f"error: --json {path}: {error.strerror}")


def is_run(one):
    """Whether something read from a file is a run of which a table can be made."""
    def has(key, kind, default):
        value = one.get(key, default)
        return isinstance(value, kind) and not isinstance(value, bool)

    return (isinstance(one, dict) and has("workload", str, None) and has("contender", str, None)
            and has("error", str, "") and all(has(key, (int, float), 0) for key in (*table.METRICS, "cpu_distance_ns"))
            and has("notes", list, []) and all(isinstance(note, str) for note in one.get("notes", [])))


def earlier(paths):
    """The runs of several JSON files, or an end in one line for one that has none."""
    runs = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)["runs"]
            if not isinstance(found, list) or not all(map(is_run, found)):
                raise ValueError("something else")
            runs += found
        except OSError as error:
            sys.exit(f"error: {path}: {error.strerror}")
        except (ValueError, KeyError, TypeError, RecursionError):
            sys.exit(f"error: {path} is no file of runs: name what an earlier `peers.py` wrote, as out/peers.json")
    return runs


def to_reader(write):
    """Has `write` print to standard output, until whoever reads has seen enough."""
    try:
        write(sys.stdout)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter's own flush at its end is not to fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"error: standard output: {error.strerror}", file=sys.stderr)
            return 1
    return 0


def keep(path, found):
    """Writes the JSON file; whether that could be done."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    except OSError as error:
        print(f"error: --json {path}: {error.strerror}", file=sys.stderr)
        return False
    return True


def main():
    options = arguments()
    if options.table:
        write = table.print_markdown if options.markdown else table.print_all
        rows = table.rows(earlier(options.table))
        return to_reader(lambda out: write(rows, out))
    if options.list:
        names = [f"{case.workload:28} {case.contender}\n" for case in cases.all_cases()]
        return to_reader(lambda out: out.writelines(names))
    path = options.json or os.path.join(build.ROOT, "out", "peers.json")
    if not options.build_only:
        prepare(path)
    candidates = chosen(cases.all_cases(), options)
    absent = build.all_of({case.program for case in candidates}, not options.no_build)
    if options.build_only:
        return to_reader(lambda out: build.report(absent, out))
    for needed in ("kernel", "millstream"):
        if needed in absent:
            print(f"error: {needed}: {absent[needed]}", file=sys.stderr)
            return 1
    todo = [case for case in candidates if case.program not in absent]
    refused = machine.refuses_awake()
    if refused and any(case.awake for case in todo):
        absent["what keeps CPUs awake"] = refused
        todo = [case for case in todo if not case.awake]
    window = options.window or (0.3 if options.quick else 2.0)
    warm = 0.1 if options.quick else 0.5
    facts = machine.facts()
    runs, interrupted = measure(todo, options, window, warm)
    if not runs:
        if interrupted:
            raise KeyboardInterrupt
        print("error: no run was made; nothing is written", file=sys.stderr)
        return 1
    rows = table.rows(runs)
    # First of all: the table may have no reader any more.
    kept = keep(path, {"machine": facts, "seed": options.seed, "window_s": window, "warm_s": warm, "absent": absent,
                       "table": rows, "runs": runs})

    def write(out):
        table.print_all(rows, out)
        build.report(absent, out)
        for note in facts["notes"]:
            print(f"note: {note}", file=out)
        if kept:
            print(f"all runs: {os.path.relpath(path)}", file=out)

    code = to_reader(write)
    if interrupted:
        return INTERRUPTED
    return code if kept and any("error" not in one for one in runs) else 1


def guarded():
    """`main`, which an interrupt ends with one line wherever it comes."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        return main()
    except KeyboardInterrupt:
        show("")
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(guarded())
