"""What scripts/house sees: python3 scripts/house_test.py."""

import importlib.machinery
import importlib.util
import pathlib
import tempfile
import unittest

PATH = str(pathlib.Path(__file__).parent / "house")
LOADER = importlib.machinery.SourceFileLoader("house", PATH)
house = importlib.util.module_from_spec(importlib.util.spec_from_loader("house", LOADER))
LOADER.exec_module(house)

# Two crates that keep to every rule: `top` stands on `base`, and in `base` the room `roof` on the room `cellar`.
GOOD = {
    "crates/base/Cargo.toml": '[package]\nname = "x-base"\n',
    "crates/base/src/lib.rs": "mod cellar;\nmod roof;\n",
    "crates/base/src/cellar.rs": "pub struct Wine;\n",
    "crates/base/src/roof.rs": "use crate::cellar::Wine;\npub fn look(_: Wine) {}\n",
    "crates/top/Cargo.toml": '[package]\nname = "x-top"\n[dependencies]\nx-base = {}\n',
    "crates/top/src/lib.rs": "mod engine;\n",
    "crates/top/src/engine.rs": "pub struct Engine;\nimpl Engine {\n    fn turn(&self) {}\n}\n",
}


def rules(**exceptions):
    return {
        "limits": {"file_lines": 20, "function_lines": 6, "type_methods": 1, "type_files": 1},
        "homes": {"top::Engine": ["engine.rs"]},
        "floors": {"crates": [["top"], ["base"]], "base": [["roof"], ["cellar"]]},
        "exceptions": exceptions,
    }


def look(changes, **exceptions):
    """Returns what is found in the two crates after `changes` (path to text)."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in {**GOOD, **changes}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return house.check(root, rules(**exceptions))


class Found(unittest.TestCase):
    def one(self, changes, *words, **exceptions):
        found = look(changes, **exceptions)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_nothing_where_all_is_right(self):
        self.assertEqual(look({}), [])

    def test_an_arrow_up_between_rooms(self):
        up = {"crates/base/src/cellar.rs": "pub struct Wine;\nuse crate::lofts::Beam;\n", "crates/base/src/lofts.rs": "pub struct Beam;\n"}
        self.assertIn("base: lofts has no floor", look(up)[0])
        up = {"crates/base/src/cellar.rs": "pub struct Wine;\nfn f() {\n    super::roof::look(Wine)\n}\n"}
        found = look(up)
        self.assertTrue(any("cellar uses roof, which stands above it" in line for line in found), found)
        self.assertTrue(any("cellar, roof use each other in a circle" in line for line in found), found)

    def test_an_arrow_that_a_face_hands_on(self):
        found = look({
            "crates/base/src/lib.rs": "mod cellar;\nmod roof;\npub use roof::look;\n",
            "crates/base/src/cellar.rs": "pub struct Wine;\nuse crate::{look};\n",
        })  # fmt: skip
        self.assertTrue(any("cellar uses roof" in line for line in found), found)

    def test_an_arrow_up_between_crates(self):
        self.one({"crates/base/Cargo.toml": '[package]\nname = "x-base"\n[dependencies]\nx-top = {}\n'}, "base uses top, which stands above")

    def test_a_use_in_tests_is_none(self):
        self.assertEqual(look({"crates/base/src/cellar.rs": "pub struct Wine;\n#[cfg(test)]\nmod tests {\n    use crate::roof;\n}\n"}), [])

    def test_a_method_outside_its_home(self):
        stray = {"crates/top/src/lib.rs": "mod engine;\nmod far;\n", "crates/top/src/far.rs": "impl Engine {\n    pub fn far(&self) {}\n}\n"}
        self.one(stray, "top/far.rs: 1 methods of Engine", "engine.rs")
        self.assertEqual(look(stray, methods={"top/far.rs": 1}), [])
        self.one(stray, "lower its exception of 2", methods={"top/far.rs": 2})
        stray["crates/top/src/far.rs"] = "impl Engine {\n    pub fn far(&self) {}\n    fn more() {}\n}\n"
        self.one(stray, "2 methods of Engine, 1 are excepted", methods={"top/far.rs": 1})

    def test_a_type_of_many_methods_in_many_files(self):
        part = "impl Wide {\n    fn f() {}\n}\n"
        self.one({"crates/top/src/a.rs": part, "crates/top/src/b.rs": part}, "top::Wide: 2 methods in 2 files")

    def test_a_type_with_a_home_of_many_methods(self):
        two = "impl Engine {\n    fn f() {}\n    fn g() {}\n}\n"
        self.one({"crates/top/src/engine.rs": two}, "top::Engine: 2 methods in 1 files")

    def test_lengths(self):
        body = "fn long() {\n" + "    step();\n" * 6 + "}\n"
        self.one({"crates/top/src/a.rs": body}, "top/a.rs long: 8 lines, at most 6")
        self.assertEqual(look({"crates/top/src/a.rs": "fn short() -> u8 {\n    1\n}\n\ntrait T {\n    fn only_told(\n        a: u8,\n    );\n}\n"}), [])
        self.one({"crates/top/tests/a.rs": "\n" * 21}, "crates/top/tests/a.rs: 21 lines, at most 20")

    def test_a_comment_without_a_subject(self):
        self.one({"crates/top/src/a.rs": "/// How many there are.\nfn f() {}\n"}, "top: 1 doc comments without a subject")

    def test_a_comment_past_column_100(self):
        words = "// " + "many words " * 9
        self.one({"crates/top/src/a.rs": f"{words}\nfn f() {{}}\n"}, "top: 1 comments past column 100, at most 0: wrap them")

    def test_an_exception_that_nothing_needs(self):
        self.one({}, "nothing needs the exception", circles=["base: cellar roof"])
        self.one({}, "nothing needs the exception", methods={"top/gone.rs": 1})


if __name__ == "__main__":
    unittest.main()
