"""What scripts/mutants draws, asks for and says, without building anything: python3 scripts/mutants_test.py."""

import importlib.machinery
import importlib.util
import json
import pathlib
import re
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parent / "mutants"
loader = importlib.machinery.SourceFileLoader("mutants", str(SCRIPT))
mutants = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
loader.exec_module(mutants)


class Drawing(unittest.TestCase):
    def test_shares_are_in_proportion_and_add_up(self):
        self.assertEqual(mutants.shares({"a": 600, "b": 300, "c": 100}, 10), {"a": 6, "b": 3, "c": 1})
        for sample in range(0, 60):
            shares = mutants.shares({"a": 7, "b": 30, "c": 13}, sample)
            self.assertEqual(sum(shares.values()), min(sample, 50))
            self.assertTrue(all(abs(shares[n] - min(sample, 50) * of / 50) < 1
                                for n, of in {"a": 7, "b": 30, "c": 13}.items()), shares)

    def test_no_more_is_drawn_than_there_is(self):
        self.assertEqual(mutants.shares({"a": 2, "b": 0}, 200), {"a": 2, "b": 0})
        self.assertEqual(mutants.shares({}, 200), {})

    def test_the_seed_decides(self):
        names = {"a": [f"a{i}" for i in range(100)], "b": [f"b{i}" for i in range(50)]}
        drawn = mutants.draw(names, 30, 1)
        self.assertEqual({crate: len(of) for crate, of in drawn.items()}, {"a": 20, "b": 10})
        shuffled = {crate: list(reversed(of)) for crate, of in names.items()}
        self.assertEqual(mutants.draw(shuffled, 30, 1), drawn)
        self.assertNotEqual(mutants.draw(names, 30, 2), drawn)
        for crate, of in drawn.items():
            self.assertEqual(len(set(of)), len(of))
            self.assertLessEqual(set(of), set(names[crate]))


class Asking(unittest.TestCase):
    def test_a_pattern_is_for_one_name(self):
        names = [
            "crates/tcp/src/rtt.rs:71:9: replace RttEstimator::smooth with ()",
            "crates/tcp/src/rtt.rs:71:9: replace Range<u8>::f -> Option<(u64, u64)> with Some((0, 1))",
            "crates/tcp/src/rtt.rs:71:29: replace + with - in <impl A for B<'_>>::f",
            "crates/tcp/src/rtt.rs:71:29: replace + with * in <impl A for B<'_>>::f",
            "crates/tcp/src/rtt.rs:71:29: replace match guard n > 0 && m[1] with true in f",
            "crates/tcp/src/rtt.rs:71:29: replace |= with ^= in f",
            "crates/tcp/src/rtt.rs:71:29: delete ! in f -> Vec<u8>",
        ]
        for name in names:
            self.assertEqual([other for other in names if re.search(mutants.pattern(name), other)], [name])

    def test_the_lines_asked_for_are_the_new_ones(self):
        with tempfile.TemporaryDirectory() as root:
            (pathlib.Path(root) / "a.rs").write_text("one\ntwo\nthree\nfour\n")
            text = mutants.changes(["a.rs:2:1: x", "a.rs:2:5: y", "a.rs:4:1: z"], pathlib.Path(root))
        self.assertEqual(text.splitlines(), ["--- a/a.rs", "+++ b/a.rs", "@@ -1,0 +2 @@", "+two", "@@ -2,0 +4 @@", "+four"])

    def test_what_it_cannot_do_is_said_in_a_line(self):
        with self.assertRaisesRegex(mutants.Trouble, "nothing is installed where CI is set"):
            with tempfile.TemporaryDirectory() as nothing:
                tools, mutants.TOOLS = mutants.TOOLS, pathlib.Path(nothing)
                try:
                    mutants.find_tool({"PATH": nothing, "CI": "1"})
                finally:
                    mutants.TOOLS = tools


class Saying(unittest.TestCase):
    def outcomes(self, *kinds):
        mutant = lambda i, kind: {"scenario": {"Mutant": {"name": f"m{i}"}}, "summary": kind}
        baseline = {"scenario": "Baseline", "summary": "Success"}
        return json.dumps({"outcomes": [baseline, *(mutant(i, kind) for i, kind in enumerate(kinds))]})

    def test_the_baseline_is_no_mutant(self):
        text = self.outcomes("CaughtMutant", "MissedMutant", "Unviable", "Timeout")
        found = mutants.read_outcomes(text)
        self.assertEqual(found, [("m0", "caught"), ("m1", "missed"), ("m2", "unviable"), ("m3", "time-out")])
        self.assertEqual(mutants.summary(found), "1 caught, 1 missed, 1 unviable, 1 time-out: 66.7 % of 3 noticed")

    def test_an_outcome_that_is_not_known_is_not_passed_over(self):
        with self.assertRaises(mutants.Trouble):
            mutants.read_outcomes(self.outcomes("Success"))

    def test_without_any_there_is_no_share(self):
        self.assertIsNone(mutants.noticed([("m", "unviable")]))
        self.assertEqual(mutants.noticed([("m", "time-out"), ("n", "caught")]), 100)


if __name__ == "__main__":
    unittest.main()
