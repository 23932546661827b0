"""What scripts/audit allows: python3 scripts/audit_test.py."""

import importlib.machinery
import importlib.util
import pathlib
import unittest

PATH = str(pathlib.Path(__file__).parent / "audit")
LOADER = importlib.machinery.SourceFileLoader("audit", PATH)
audit = importlib.util.module_from_spec(importlib.util.spec_from_loader("audit", LOADER))
LOADER.exec_module(audit)

ALLOWED = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"}
REGISTRY = "https://github.com/rust-lang/crates.io-index"


class Licences(unittest.TestCase):
    def test_one_choice_is_enough_and_all_of_a_sum_are_needed(self):
        for expression, expected in [
            ("MIT", True),
            ("GPL-3.0-only", False),
            ("MIT/Apache-2.0", True),
            ("GPL-3.0-only OR MIT", True),
            ("GPL-3.0-only AND MIT", False),
            ("(MIT OR GPL-3.0-only) AND Unicode-3.0", True),
            ("(MIT OR Apache-2.0) AND NCSA", False),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", True),
            ("Apache-2.0 WITH other-exception", False),
            ("MIT OR GPL-3.0-only AND LGPL-2.1-or-later", True),
        ]:
            self.assertEqual(audit.is_allowed(expression, ALLOWED), expected, expression)

    def test_each_fault_is_told(self):
        def package(name, licence="MIT", source=f"registry+{REGISTRY}"):
            return {"name": name, "version": "1.0.0", "license": licence, "source": source}

        packages = [
            package("good"),
            package("ours", source=None),
            package("bad", licence="GPL-3.0-only"),
            package("silent", licence=None),
            package("elsewhere", source="git+https://example.org/x"),
        ]
        self.assertEqual(
            audit.faults(packages, ALLOWED, {REGISTRY}),
            [
                "bad 1.0.0: licence GPL-3.0-only",
                "silent 1.0.0: licence unknown",
                "elsewhere 1.0.0: comes from git+https://example.org/x",
            ],
        )


if __name__ == "__main__":
    unittest.main()
