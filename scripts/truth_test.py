"""What scripts/truth makes of investigations."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
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

    def test_every_case_expects_a_cause_of_the_catalogue(self):
        causes = os.path.join(os.path.dirname(PATH), "..", "crates", "diagnose", "src", "causes")
        known = {name[:-5] for name in os.listdir(causes) if name.endswith(".toml")}
        for case in truth.CASES:
            self.assertLessEqual(case.expected, known, case.name)
        self.assertEqual(len({case.name for case in truth.CASES}), len(truth.CASES))


if __name__ == "__main__":
    unittest.main()
