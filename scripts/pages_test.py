"""The Markdown files: their links, and the tests that docs/rfc.md names, are there; CHANGELOG.md says nothing twice."""

import collections
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"[a-z]+:")


def pages():
    """Every page of the project, none of what was built or fetched."""
    for found in sorted(ROOT.rglob("*.md")):
        if not {"target", "out", ".git"} & set(found.relative_to(ROOT).parts):
            yield found


def anchors(page):
    """What the headings of a page are linked by, as GitHub makes it of them."""
    seen = {}
    for heading in re.findall(r"^#+ +(.*?) *$", CODE.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        before = seen.get(name, 0)
        seen[name] = before + 1
        yield f"{name}-{before}" if before else name


def broken(page):
    """Each link of the page that leads nowhere."""
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            yield link
        elif anchor and anchor not in anchors(target):
            yield link


def missing_tests(page):
    """Each test that the page names, as `tests::path_mtu::it_shrinks` or `scoreboard::tests`, and nobody has."""
    sources = {path: path.read_text() for path in ROOT.glob("crates/*/src/**/*.rs")}
    for name in re.findall(r"`((?:\w+::)*tests(?:::\w+)*)`", page.read_text()):
        *modules, last = [word for word in name.split("::") if word != "tests"]
        files = [text for path, text in sources.items() if not modules or modules[-1] in (path.stem, path.parent.name)]
        if not any(f"fn {last}(" in text for text in files) and not any(path.stem == last for path in sources):
            yield name


class Pages(unittest.TestCase):
    def test_links_lead_somewhere(self):
        found = list(pages())
        self.assertIn(ROOT / "README.md", found)
        self.assertEqual([], [f"{page.relative_to(ROOT)}: {link}" for page in found for link in broken(page)])

    def test_the_tests_that_are_named_are_there(self):
        self.assertEqual([], list(missing_tests(ROOT / "docs/rfc.md")))

    def test_nothing_is_changed_twice(self):
        # Nor a piece of it left, as happens when two changes are merged.
        words = (ROOT / "CHANGELOG.md").read_text().split()
        runs = collections.Counter(zip(*(words[at:] for at in range(12))))
        self.assertEqual([], [" ".join(run) for run, count in runs.items() if count > 1])

    def test_anchors_are_as_github_makes_them(self):
        found = list(anchors(ROOT / "docs/notes/in-memory.md"))
        self.assertIn("in-memory-pair-bulk-and-pair-rr", found)


if __name__ == "__main__":
    unittest.main()
