#!/usr/bin/env python3
"""What scripts/attack-cost says when it cannot count: python3 scripts/attack_cost_test.py"""

import os
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = ("bash", "dirname", "sed", "tail", "cat")


class AttackCost(unittest.TestCase):
    def ran(self, *words, cargo="exit 1", valgrind="exit 1"):
        """Exit code and lines of both outputs, where `cargo` and `valgrind` do nothing but this."""
        with tempfile.TemporaryDirectory() as folder:
            for tool in TOOLS:
                os.symlink(os.path.realpath(f"/usr/bin/{tool}"), os.path.join(folder, tool))
            binary = os.path.join(folder, "attack-1")
            for name, body in (("cargo", cargo.replace("BINARY", binary)), ("valgrind", valgrind), ("attack-1", "true")):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#!{folder}/bash\n{body}\n")
                os.chmod(path, 0o755)
            done = subprocess.run([os.path.join(folder, "bash"), os.path.join(HERE, "attack-cost"), *words], text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True, check=False, env={"PATH": folder})
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()

    BUILT = """echo '{"executable":"BINARY"}'"""

    def test_an_unknown_play_is_refused_with_those_there_are(self):
        code, out, err = self.ran("gaps", "nope")
        self.assertEqual((code, out, len(err)), (2, [], 1))
        self.assertRegex(err[0], "no play 'nope'; there are: tiny gaps .*shrink$")

    def test_a_build_that_fails_or_builds_nothing_is_an_end(self):
        code, out, err = self.ran("gaps")
        self.assertEqual((code, out, len(err)), (1, [], 1))
        self.assertIn("building failed", err[0])
        code, out, err = self.ran("gaps", cargo="echo '{}'")
        self.assertEqual((code, out, len(err)), (1, [], 1))

    def test_nothing_counted_is_no_zero(self):
        for valgrind in ("exit 1", "true", "echo 'Collected : 0' >&2"):
            code, out, err = self.ran("gaps", cargo=self.BUILT, valgrind=valgrind)
            self.assertEqual((code, len(out), len(err)), (1, 1, 1), err)

    def test_what_is_counted_is_told_by_the_segment(self):
        code, out, err = self.ran("gaps", cargo=self.BUILT,
                                  valgrind='echo "Collected : $((MILLSTREAM_SEGMENTS * 7))" >&2')
        self.assertEqual((code, out[1].split(), err), (0, ["gaps", "7", "7"], []))


if __name__ == "__main__":
    unittest.main()
