"""What scripts/truth makes of investigations."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import re
import tempfile
import time
import unittest

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "truth")
LOADER = importlib.machinery.SourceFileLoader("truth", PATH)
SPEC = importlib.util.spec_from_loader("truth", LOADER)
truth = importlib.util.module_from_spec(SPEC)
import sys
sys.dont_write_bytecode = True
LOADER.exec_module(truth)


def suspect(name, verdict=None, kind="limits"):
    return {"cause": {"id": name, "kind": kind}, "judgement": verdict and {"verdict": verdict}}


class Truth(unittest.TestCase):
    def test_the_first_cause_that_limits_counts_and_what_placement_makes_does_not(self):
        found = {"suspects": [suspect("shared-cpu", "confirmed", "separates"), suspect("wake-up-of-another-cpu", "confirmed"),
                              suspect("cpu-quota"), suspect("full-cpu", "confirmed")]}
        self.assertEqual(truth.judge(found, {"cpu-quota"}), ("cpu-quota", "associated-only", True, ["full-cpu"]))
        self.assertEqual(truth.judge({"suspects": []}, {"x"}), ("none", "-", False, []))

    def test_fewer_than_nine_in_ten_or_a_wrong_verdict_fail(self):
        def status(right, wrong=0):
            rows = [{"case": "c", "made": "a", "first": "a", "right": n < right, "wrong": [], "is_case": True} for n in range(10)]
            rows += [{"case": "w", "made": "none", "first": "b", "right": False, "wrong": ["b"], "is_case": False}] * wrong
            with contextlib.redirect_stdout(io.StringIO()):
                return truth.tell(rows, [])
        self.assertEqual([status(10), status(9), status(8), status(10, 1)], [0, 0, 1, 1])
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(truth.tell([], [("c", "no nft")]), 2)
        self.assertIn("NOT RUN: no nft", said.getvalue())

    def test_a_run_that_was_cut_goes_on_with_what_is_not_in_its_file(self):
        found = {"suspects": [suspect("send-buffer")], "not_judged": [], "median": 5.0}
        tried, fails_at = [], None

        def investigate(case, options, folder, load, with_cause):
            tried.append((case.name, with_cause))
            if len(tried) == fails_at:
                raise KeyboardInterrupt
            return found

        def run(*words):
            tried.clear()
            sys.argv = ["truth", "--json", file, "--millstream", __file__, "--cases", "send-buffer,slow-writer", *words]
            with contextlib.redirect_stdout(io.StringIO()) as said:
                truth.main()
            return said.getvalue()
        before = truth.investigate, truth.run, truth.forget_killed, os.geteuid, sys.argv, truth.why_not
        truth.investigate, truth.run, truth.forget_killed, os.geteuid = investigate, lambda words: None, lambda: None, lambda: 0
        truth.why_not = lambda case: None
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "rows.json")
            try:
                fails_at = 3
                with self.assertRaises(KeyboardInterrupt):
                    run("--go-on")
                first, fails_at = list(tried[:2]), None
                said = run("--go-on")
                self.assertEqual(len(tried), 2)
                self.assertFalse(set(tried) & set(first))
                self.assertIn("1 of 2 named", said)
                run("--go-on")
                self.assertEqual(tried, [])
                run()
                self.assertEqual(len(tried), 4)
            finally:
                truth.investigate, truth.run, truth.forget_killed, os.geteuid, sys.argv, truth.why_not = before

    def test_what_can_be_made_and_is_not_measured_or_fails_counts_as_wrong(self):
        case = truth.Case("c", ["packet-filter"], "stream")
        found = {"suspects": [suspect("send-buffer")], "not_judged": [["packet-filter", ["filter_share"]], ["x", ["y"]]]}
        row = truth.judged("c", case, True, lambda: found)
        self.assertEqual((row["first"], row["right"], row["why"]), ("not measured", False, "not measured: filter_share"))

        def fails():
            raise truth.Failed("no such file")
        row = truth.judged("c", case, True, fails)
        self.assertEqual((row["first"], row["right"], row["why"]), ("failed", False, "no such file"))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(truth.tell([row], []), 1)
        self.assertIn("0 of 1 named", said.getvalue())

        def lacks():
            raise RuntimeError("ip: not permitted")
        self.assertRaises(RuntimeError, truth.judged, "c", case, True, lacks)

    @unittest.skipIf(os.geteuid(), "PID namespaces need root")
    def test_what_runs_beside_a_case_ends_with_it_also_in_a_group_of_its_own(self):
        place = truth.Place.__new__(truth.Place)
        place.beside, place.near, place.far = [], "mst-none", "mst-none"
        mark = "86399.%d" % os.getpid()

        def runs():
            commands = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    with open("/proc/%s/cmdline" % pid, errors="backslashreplace") as file:
                        commands.append(file.read().split("\0"))
            return ["sleep", mark, ""] in commands

        def becomes(wanted):
            end = time.monotonic() + 20
            while runs() != wanted and time.monotonic() < end:
                time.sleep(0.02)
            return runs() == wanted
        # timeout makes a process group of its own.
        place.start(["sh", "-c", "timeout 100 sleep %s" % mark])
        self.assertTrue(becomes(True))
        place.close()
        self.assertTrue(becomes(False))

    def test_the_error_rate_of_counterparts_is_said_with_its_upper_end(self):
        case = {"case": "c", "made": "a", "first": "a", "right": True, "wrong": [], "is_case": True}
        without = {"case": "w", "made": "none", "first": "none", "right": False, "wrong": [], "is_case": False}

        def said(*rows):
            with contextlib.redirect_stdout(io.StringIO()) as text:
                status = truth.tell([case, *rows], [])
            return status, text.getvalue()
        status, text = said(*[without] * 10)
        self.assertEqual(status, 0)
        self.assertIn("Of 10 counterparts without a cause 0 have a confirmed one: an error rate of 0 %, at most 26 %", text)
        status, text = said(*[without] * 9, dict(without, wrong=["b"]))
        self.assertEqual(status, 1)
        self.assertIn("Of 10 counterparts without a cause 1 have a confirmed one: an error rate of 10 %, at most 39 %", text)
        status, text = said(dict(without, first="failed"))
        self.assertEqual(status, 1)
        self.assertIn("Of 0 counterparts", text)
        self.assertEqual(truth.at_most(3, 3), 1)

    def test_every_case_expects_a_cause_of_the_catalogue(self):
        causes = os.path.join(os.path.dirname(PATH), "..", "crates", "diagnose", "src", "causes")
        known = {name[:-5] for name in os.listdir(causes) if name.endswith(".toml")}
        for case in truth.CASES:
            self.assertLessEqual(case.expected, known, case.name)
        self.assertEqual(len({case.name for case in truth.CASES}), len(truth.CASES))

    def test_every_rig_has_a_cause_of_the_catalogue_and_a_row(self):
        run = os.path.join(os.path.dirname(PATH), "rigs", "run")
        loader = importlib.machinery.SourceFileLoader("rigs", run)
        rigs = importlib.util.module_from_spec(importlib.util.spec_from_loader("rigs", loader))
        loader.exec_module(rigs)
        known = {name[:-5] for name in os.listdir(os.path.join(os.path.dirname(PATH), "..", "crates", "diagnose", "src", "causes"))}
        for name, head in rigs.rigs().items():
            self.assertLessEqual(set(head["causes"].split()), known, name)
            re.compile(head["row"])
            self.assertTrue(head["what"], name)
        text = "x\n  Of the time of a 58 %: a sleeps\n  in read. The rest: b\n\n"
        self.assertEqual(rigs.first_sentence(text), "a 58 %: a sleeps in read.")


if __name__ == "__main__":
    unittest.main()
