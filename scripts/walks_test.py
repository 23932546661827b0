"""scripts/walks: lines are compared in kind; and a short walk of every page, with a command that has the clogs."""

import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(os.environ.get("MILLSTREAM_CLOGS", ROOT / "target/debug/millstream"))


def script():
    loader = importlib.machinery.SourceFileLoader("walks", str(ROOT / "scripts/walks"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("walks", loader))
    loader.exec_module(module)
    return module


def has_clogs():
    """Whether the command is there, has the clogs, and may make devices."""
    try:
        listed = subprocess.run([PROGRAM, "clog"], capture_output=True, text=True)
    except OSError:
        return False
    return "putback-walk" in listed.stdout and os.geteuid() == 0 and os.path.exists("/dev/net/tun")


class Walks(unittest.TestCase):
    def test_lines_are_compared_in_kind(self):
        walks = script()
        page = ["receive        2  2112           1  124448", "held  277.0 MiB", "any …", "flags  readable,x"]
        same = ["receive 2 2,112 1 99", "held  17 B", "flags  "]
        self.assertEqual([], walks.missing(page, same))
        self.assertEqual(["held  277.0 MiB"], walks.missing(page, [same[0], "hold 17 B", same[2]]))

    def test_commands_and_their_lines_are_found_and_shortened(self):
        walks = script()
        page = "x\n```console\n$ a --minutes 3 &\n$ sleep 60\none\n\ntwo\n$ millstream investigate x\n$ millstream clog x | head\n```\n```sh\n$ no\n```\n"
        found = walks.steps(page)
        self.assertEqual([("a --minutes 3 &", []), ("sleep 60", ["one", "two"]), ("millstream investigate x", []),
                          ("millstream clog x | head", [])], found)
        self.assertEqual(["a --minutes 0.750 &", "sleep 15.00", None, None], [walks.shorter(one) for one, _ in found])

    def test_every_walk_ends_with_the_cause_as_the_laboratory_says_it(self):
        walks = script()
        for page in (ROOT / "docs/clogs").glob("*.md"):
            found = walks.steps(page.read_text())
            if found:
                command, lines = found[-1]
                self.assertRegex(command, r"^millstream (investigate .* -- millstream clog NAME --live|clog NAME)".replace("NAME", page.stem))
                self.assertTrue(lines, page)

    @unittest.skipUnless(has_clogs(), "no command with the clogs, no root or no TUN driver")
    def test_every_page_is_walked(self):
        done = subprocess.run([ROOT / "scripts/walks", "--short", "--program", PROGRAM], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("census --exact", done.stdout)


if __name__ == "__main__":
    unittest.main()
