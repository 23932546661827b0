"""Tests of what needs no namespace: python3 -m unittest orchestrator.tests (in peers/)."""

import contextlib
import importlib.util
import io
import json
import os
import select
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from . import build, cases, distance, inside, machine, run, stats, table


class Stats(unittest.TestCase):
    def test_a_ratio_is_of_medians_and_lies_in_its_interval(self):
        found = stats.ratio([20.0, 22.0, 21.0], [10.0, 10.5, 99.0])
        self.assertEqual(found["ratio"], 2.0)
        self.assertLessEqual(found["low"], 2.0)
        self.assertGreaterEqual(found["high"], 2.0)
        self.assertLess(found["low"], 0.3)

    def test_what_may_be_nothing_leaves_the_ratio_open_above(self):
        # A third of the resamples of the other side has a median of zero.
        found = stats.ratio([3.0] * 5, [0.0, 0.0, 2.0, 2.0, 2.0])
        self.assertEqual(found, {"ratio": 1.5, "low": 1.5, "high": None})
        self.assertEqual(stats.ratio([0.0] * 5, [0.0, 0.0, 2.0, 2.0, 2.0]), {"ratio": 0.0, "low": 0.0, "high": None})
        # One of nine hardly ever is the median.
        self.assertEqual(stats.ratio([3.0] * 9, [0.0, *[2.0] * 8])["high"], 1.5)
        runs = [{"workload": "memory-rr", "contender": name, "ns_each": value} for name, values in (
            ("millstream", [3.0] * 5), ("smoltcp", [0.0, 0.0, 2.0, 2.0, 2.0])) for value in values]
        out = io.StringIO()
        table.print_all(table.rows(runs), out)
        self.assertIn("1.50 (1.50 or more)", out.getvalue())

    def test_nothing_is_said_without_values(self):
        self.assertIsNone(stats.ratio([], [1.0]))
        self.assertIsNone(stats.ratio([1.0], [0.0]))


class Table(unittest.TestCase):
    RUNS = [
        {"round": 1, "workload": "memory-rr", "contender": "millstream", "ns_each": 300.0},
        {"round": 2, "workload": "memory-rr", "contender": "millstream", "ns_each": 400.0},
        {"round": 1, "workload": "memory-rr", "contender": "smoltcp", "ns_each": 700.0},
        {"round": 2, "workload": "memory-rr", "contender": "smoltcp", "error": "fell over"},
    ]

    def test_rows_have_ratios_and_name_failed_runs(self):
        ours, theirs = table.rows(self.RUNS)
        self.assertEqual(ours["metrics"]["ns_each"]["median"], 350.0)
        self.assertNotIn("millstream", ours["metrics"]["ns_each"])
        self.assertEqual(theirs["metrics"]["ns_each"]["millstream"]["ratio"], 0.5)
        self.assertEqual(theirs["notes"], ["1 of 2 runs failed: fell over"])
        out = io.StringIO()
        table.print_all([ours, theirs], out)
        self.assertIn("350 (300–400)", out.getvalue())
        self.assertIn("0.50 (0.43–0.57)", out.getvalue())
        out = io.StringIO()
        table.print_markdown([ours, theirs], out)
        self.assertIn("| time: below 1 is Millstream's gain | millstream | smoltcp |\n|---|---|---|\n"
                      "| `memory-rr` | 350 ns each | 0.50 (0.43–0.57) |\n", out.getvalue())
        self.assertNotIn("| rate:", out.getvalue())
        self.assertIn("| `memory-rr` | millstream | 350 (300–400) ns each | – | 2 |  | – |", out.getvalue())
        self.assertIn("|  | smoltcp | 700 (700–700) ns each | – | 1 | 0.50 (0.43–0.57) | – |", out.getvalue())


class Distance(unittest.TestCase):
    def steady(self, *seen):
        """Looks that answer with `seen` in turn, the last one for ever."""
        left = list(seen)
        return distance.Steady(lambda: left.pop(0) if len(left) > 1 else left[0], lambda _: None)

    def test_a_run_whose_cpus_were_moved_is_done_again(self):
        steady, runs = self.steady(100, 110, 120, 480, 490, 130, 110), []
        first = steady.run(lambda: runs.append(1) or {"gbps": 1.0})
        self.assertEqual(first, {"gbps": 1.0, "cpu_distance_ns": 110, "done_again": 0})
        # Near before, apart after; waited for; near both times.
        second = steady.run(lambda: runs.append(2) or {"gbps": 2.0})
        self.assertEqual((runs, second["cpu_distance_ns"], second["done_again"]), ([1, 2, 2], 130, 1))

    def test_cpus_that_stay_apart_are_noted(self):
        steady, runs = self.steady(100, 500), []
        result = steady.run(lambda: runs.append(1) or {"notes": ["another"]})
        # Three may be spent: two on doing it again, one on waiting in vain in between.
        self.assertEqual((len(runs), result["cpu_distance_ns"]), (1 + 2, 500))
        self.assertIn("apart", result["notes"][1])
        steady.run(lambda: runs.append(2) or {})
        self.assertEqual(runs, [1, 1, 1, 2])

    def test_of_many_runs_a_quarter_is_done_again(self):
        steady, runs = self.steady(100, 500), []
        for _ in range(100):
            steady.run(lambda: runs.append(1) or {})
        self.assertLess(len(runs), 100 + 100 // distance.RUNS_PART + distance.REPEATS)
        self.assertGreater(len(runs), 100)

    def test_what_was_seen_inside_a_run_counts_too(self):
        steady, runs = self.steady(100), [{"inside_ns": [90, 480]}, {"inside_ns": [110, 95]}, {"inside_ns": []}]
        first = steady.run(lambda: runs.pop(0))
        self.assertEqual(first, {"cpu_distance_inside_ns": 110, "cpu_distance_ns": 110, "done_again": 1})
        self.assertEqual(steady.nearest, 90)
        self.assertEqual(steady.run(lambda: runs.pop(0)), {"cpu_distance_ns": 100, "done_again": 0})

    def test_a_run_that_failed_is_not_done_again(self):
        steady, runs = self.steady(100, 500), []
        result = steady.run(lambda: runs.append(1) or {"error": "fell over"})
        self.assertEqual((runs, result["error"], result["cpu_distance_ns"]), ([1], "fell over", 500))

    def test_where_it_cannot_be_measured_every_run_is_as_it_was(self):
        self.assertEqual(self.steady(None).run(lambda: {"error": "x"}), {"error": "x"})


class Aside(unittest.TestCase):
    def runs(self, **contenders):
        """Runs of one workload: the distances of each contender's."""
        return [{"workload": "memory-rr", "contender": name, "ns_each": float(ns), "cpu_distance_ns": ns}
                for name, distances in contenders.items() for ns in distances]

    def test_runs_with_cpus_apart_are_set_aside_where_all_keep_enough(self):
        runs = self.runs(millstream=[100, 110, 120, 500], smoltcp=[500, 130, 120, 110])
        ours, theirs = table.rows(runs)
        self.assertEqual([ours["metrics"]["ns_each"]["max"], theirs["metrics"]["ns_each"]["max"]], [120, 130])
        self.assertEqual(theirs["notes"], ["1 of 4 runs set aside: the host kept the two CPUs apart"])

    def test_none_is_where_one_contender_would_keep_too_few(self):
        runs = self.runs(millstream=[100, 110, 120, 500], smoltcp=[500, 500, 120, 110])
        self.assertEqual(distance.set_aside(runs), (runs, {}))
        other = [{**one, "workload": "rr-one-core"} for one in self.runs(millstream=[100, 110, 120, 500])]
        counted, aside = distance.set_aside(runs + other)
        self.assertEqual((len(counted), aside), (11, {("rr-one-core", "millstream"): 1}))

    def test_runs_that_failed_or_were_not_measured_stay(self):
        runs = self.runs(millstream=[100, 110, 120, 500])
        runs += [{**runs[3], "error": "fell over"}, {"workload": "memory-rr", "contender": "smoltcp", "ns_each": 1.0}]
        self.assertEqual(distance.set_aside(runs), (runs[:3] + runs[4:], {("memory-rr", "millstream"): 1}))
        self.assertEqual(distance.set_aside(runs[5:]), (runs[5:], {}))


class Cases(unittest.TestCase):
    def test_every_workload_has_millstream_once_and_every_program_is_known(self):
        seen = {}
        for case in cases.all_cases():
            self.assertIn(case.program, build.PROGRAMS)
            key = (case.workload, case.contender)
            seen[key] = seen.get(key, 0) + 1
        self.assertEqual(set(seen.values()), {1})
        for workload, _ in seen:
            self.assertIn((workload, "millstream"), seen)

    def test_cpus_are_watched_where_there_are_two_and_their_sleep_is_not_what_is_measured(self):
        loads = {case.workload: case.watched() for case in cases.all_cases()}
        self.assertEqual(loads, {case.workload: case.watched() for case in reversed(cases.all_cases())})
        unwatched = {load for load, watched in loads.items() if not watched}
        self.assertEqual({load for load in unwatched if not load.startswith("memory-")},
                         {"rr-one-core", "rr-two-cores-sleeping", "rr-two-cores-spinning"})
        self.assertEqual({case.workload for case in cases.all_cases() if not case.two_cpus()},
                         {load for load in loads if load.startswith("memory-")} | {"rr-one-core"})

    def test_who_keeps_cpus_awake_is_named_for_it_and_compared_with_its_like(self):
        awake = [case for case in cases.all_cases() if case.awake]
        self.assertEqual({case.program for case in awake}, {"millstream", "kernel", "smoltcp"})
        plain = {(case.workload, case.contender): case for case in cases.all_cases()}
        for case in awake:
            self.assertTrue(case.contender.endswith(cases.AWAKE))
            other = plain[(case.workload, case.contender.removesuffix(cases.AWAKE))]
            self.assertEqual((*other.near, "--awake"), case.near)
            self.assertEqual((other.kind, other.rival()), (case.kind, "millstream"))
            self.assertIn((case.workload, case.rival()), plain)
        self.assertEqual({case.rival() for case in awake}, {"millstream", "millstream, CPUs kept awake"})
        self.assertFalse([case for case in cases.all_cases() if "--awake" in case.near and not case.awake])

    def test_who_has_long_super_segments_is_named_for_it_and_compared_with_its_like(self):
        big = [case for case in cases.all_cases() if case.super_bytes]
        self.assertEqual({case.program for case in big}, {"millstream", "kernel"})
        contenders = {(case.workload, case.contender) for case in cases.all_cases()}
        for case in big:
            self.assertTrue(case.contender.endswith(cases.BIG))
            self.assertIn((case.workload, case.contender.removesuffix(cases.BIG)), contenders)
            self.assertIn((case.workload, case.rival()), contenders)
        self.assertEqual({case.rival() for case in big}, {"millstream", "millstream, BIG TCP"})

    def test_awake_millstream_stands_beside_those_that_halt_too(self):
        load = "rr-two-cores-spinning"
        runs = [{"round": 1, "workload": load, "contender": name, "p50_us": p50, "p99_us": 2 * p50}
                for name, p50 in (("millstream", 60.0), ("smoltcp, own TAP", 50.0),
                                  ("millstream, CPUs kept awake", 10.0), ("smoltcp, own TAP, CPUs kept awake", 8.0))]
        found = {row["contender"]: row for row in table.rows(runs)}
        ratio = {name: row["metrics"]["p50_us"].get("millstream", {}).get("ratio") for name, row in found.items()}
        self.assertEqual(ratio, {"millstream": None, "smoltcp, own TAP": 1.2, "millstream, CPUs kept awake": 6.0,
                                 "smoltcp, own TAP, CPUs kept awake": 1.25})
        self.assertEqual(found["smoltcp, own TAP"]["notes"],
                         ["millstream, CPUs kept awake ÷ it: p50 0.20 (0.20–0.20), p99 0.20 (0.20–0.20)"])
        self.assertEqual(found["smoltcp, own TAP, CPUs kept awake"]["notes"], [])


class Machine(unittest.TestCase):
    def test_a_request_that_cannot_be_made_says_why(self):
        self.assertEqual(machine.refuses_awake("/no/such/device"), "/no/such/device: No such file or directory")
        with tempfile.NamedTemporaryFile() as file:
            self.assertEqual(machine.refuses_awake(file.name), "")


class Inside(unittest.TestCase):
    def test_a_namespace_outlasts_whoever_waits_for_its_run(self):
        for warm, window in ((0.1, 0.05), (0.5, 3600.0)):
            self.assertGreater(inside.lifetime({"warm": warm, "window": window}), warm + window + run.SLACK_S)

    def test_what_a_hypervisor_took_is_no_work(self):
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:
            file.write("cpu  100 200 300 9000 8000 400 500 7000 0 0\n")
            file.flush()
            self.assertEqual(inside.busy_seconds(file.name), 1500 / os.sysconf("SC_CLK_TCK"))


def command():
    """`peers.py` as a module."""
    spec = importlib.util.spec_from_file_location("peers", os.path.join(build.HERE, "peers.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Command(unittest.TestCase):
    def test_a_file_that_is_none_of_runs_is_refused_in_one_line(self):
        peers, good = command(), {"workload": "memory-rr", "contender": "millstream", "ns_each": 300.0}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "some.json")
            for content in ("", "[]", "{}", '{"runs": 3}', '{"runs": {"a": 1}}', '{"runs": [1]}', '{"runs": [{}]}',
                            json.dumps({"runs": [good | {"ns_each": "fast"}]}), json.dumps({"runs": [good | {"notes": 1}]}),
                            json.dumps({"runs": [good | {"workload": None}]})):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                with self.assertRaisesRegex(SystemExit, "some.json is no file of runs") as ended:
                    peers.earlier([path])
                self.assertNotIn("\n", str(ended.exception))
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"runs": [good]}, file)
            self.assertEqual(peers.earlier([path]), [good])

    def test_where_the_file_goes_is_tried_and_left_as_it_is(self):
        peers = command()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "new", "peers.json")
            peers.prepare(path)
            self.assertFalse(os.path.exists(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write("{}")
            peers.prepare(path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "{}")
            for wrong in (folder, os.path.join(path, "below.json")):
                with self.assertRaisesRegex(SystemExit, "^error: --json "):
                    peers.prepare(wrong)

    def test_an_interrupt_is_one_line_wherever_it_comes(self):
        peers = command()

        def stopped():
            raise KeyboardInterrupt

        peers.main, said = stopped, io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(peers.guarded(), 130)
        self.assertEqual(said.getvalue(), "interrupted\n")

    def test_an_interrupt_among_the_runs_keeps_those_that_were_made(self):
        peers = command()
        options = type("Options", (), {"seed": 1, "rounds": 1, "quick": False})()
        todo = [case for case in cases.all_cases() if case.workload == "memory-rr"]
        left = [{"ns_each": 1.0}]

        def one(*_):
            if not left:
                raise KeyboardInterrupt
            return left.pop()

        peers.run = type("Run", (), {"one": staticmethod(one)})
        with contextlib.redirect_stderr(io.StringIO()):
            runs, interrupted = peers.measure(todo, options, 0.1, 0.1)
        self.assertEqual((len(runs), interrupted), (1, True))


    def measured(self, path, **streams):
        """`main` with one finished run, which writes to `path`; what it returns, and what it says on standard error."""
        peers, said = command(), io.StringIO()
        peers.build = type("Build", (), {"all_of": staticmethod(lambda *_: {}), "report": staticmethod(build.report),
                                         "ROOT": build.ROOT})
        peers.measure = lambda *_: ([{"round": 1, "workload": "memory-rr", "contender": "millstream", "ns_each": 1.0}], False)
        argv, sys.argv = sys.argv, ["peers.py", "--workload", "memory-rr", "--json", path]
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(streams["stdout"]):
                return peers.guarded(), said.getvalue()
        finally:
            sys.argv = argv

    def test_what_was_measured_is_written_though_nobody_reads_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "peers.json")
            reader, writer = os.pipe()
            os.close(reader)
            with contextlib.suppress(BrokenPipeError), open(writer, "w", 1, encoding="utf-8") as closed:
                self.assertEqual(self.measured(path, stdout=closed)[0], 0)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(len(json.load(file)["runs"]), 1)

    def test_a_file_that_finds_no_room_at_the_end_is_one_line_behind_the_table(self):
        shown = io.StringIO()
        code, said = self.measured("/dev/full", stdout=shown)
        self.assertEqual((code, said), (1, "error: --json /dev/full: No space left on device\n"))
        self.assertIn("memory-rr", shown.getvalue())
        self.assertNotIn("all runs:", shown.getvalue())


class Namespaces(unittest.TestCase):
    # Starts something behind the words that it is given, and waits for it.
    PARENT = "import subprocess, sys; subprocess.run([*sys.argv[1:], 'sh', '-c', 'echo begun; exec sleep 60'])"

    def test_a_run_ends_with_whoever_was_killed_whatever_his_rights(self):
        for user in {os.geteuid(), 1000}:
            with unittest.mock.patch("os.geteuid", lambda user=user: user):
                words = run._namespaces()
            if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
                self.skipTest("namespaces are not permitted here")
            with subprocess.Popen([sys.executable, "-c", self.PARENT, *words], stdout=subprocess.PIPE) as parent:
                self.assertEqual(parent.stdout.readline(), b"begun\n")
                parent.kill()
                # The pipe is closed when the last of them has ended.
                ended = select.select([parent.stdout], [], [], 10)[0]
                self.assertTrue(ended, f"it goes on: {' '.join(words)}")


class Values(unittest.TestCase):
    COMMON = {"seconds": 0.3, "cpu_s": 0.1, "from_s": 0.0, "to_s": 0.3}

    def test_a_window_in_which_nothing_came_says_that(self):
        with self.assertRaisesRegex(inside.Failed, "^no payload in the window$"):
            inside.values({}, {"bytes": 0, **self.COMMON})
        self.assertEqual(inside.values({}, {"bytes": 10**9, **self.COMMON})["s_per_gb"], 0.1)

    def test_a_tool_that_ends_says_why(self):
        tool = subprocess.Popen(["sh", "-c", "echo first >&2; echo 'no such device' >&2; exit 1"],
                                stderr=subprocess.PIPE, text=True)
        tool.wait()
        holder = type("Holder", (), {"pid": "self"})
        with unittest.mock.patch("builtins.open", lambda *_, **__: io.StringIO("head\n")):
            with self.assertRaisesRegex(inside.Failed, "^pasta: no such device$"):
                inside.await_route(holder, tool, "pasta")
        tool.stderr.close()


class Proof(unittest.TestCase):
    JOB = {"kind": "tap", "role": "send", "offload": False, "super_bytes": 0}

    def measured(self, carried, packets):
        return {"bytes": 1_000_000_000, "device": "ms-tap", "rx_bytes": carried, "rx_packets": packets}

    def test_another_path_is_found_out(self):
        self.assertEqual(inside.proof(self.JOB, self.measured(1_040_000_000, 700_000)), [])
        for carried, packets in ((0, 0), (500_000_000, 400_000), (1_300_000_000, 900_000), (1_030_000_000, 20_000)):
            with self.assertRaises(inside.Failed):
                inside.proof(self.JOB, self.measured(carried, packets))

    def test_a_short_window_proves_the_path_too(self):
        measured = {"bytes": 6_000_000, "device": "ms-tap", "rx_bytes": 0, "rx_packets": 0}
        for carried in (0, 4_000_000, 9_000_000):
            with self.assertRaises(inside.Failed):
                inside.proof(self.JOB, measured | {"rx_bytes": carried, "rx_packets": carried // 1000})
        for carried in (5_000_000, 7_500_000):
            self.assertEqual(inside.proof(self.JOB, measured | {"rx_bytes": carried, "rx_packets": carried // 1000}), [])

    def test_offload_without_super_segments_is_noted(self):
        job = dict(self.JOB, offload=True)
        self.assertEqual(inside.proof(job, self.measured(1_010_000_000, 20_000)), [])
        self.assertTrue(inside.proof(job, self.measured(1_040_000_000, 700_000)))
        big = dict(job, kind="veth", super_bytes=262_144)
        self.assertEqual(inside.proof(big, self.measured(1_010_000_000, 6_000)), [])
        self.assertTrue(inside.proof(dict(big, kind="tap"), self.measured(1_010_000_000, 20_000)))
        self.assertTrue(inside.proof(big, self.measured(1_010_000_000, 20_000)))

    def test_a_program_of_another_version_is_named_as_the_reason(self):
        far = subprocess.Popen(["echo", '{"bytes": 1}'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        measured, _ = inside.finish(far, 5, "far end")
        self.assertEqual(measured["bytes"], 1)
        with self.assertRaisesRegex(inside.Failed, "from_s.*another version"):
            measured["from_s"]


if __name__ == "__main__":
    unittest.main()
