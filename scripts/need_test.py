"""What scripts/need decides, on machines made of fakes, where nothing is installed: python3 scripts/need_test.py."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

NEED = pathlib.Path(__file__).parent / "need"
MACHINES = tempfile.TemporaryDirectory()

# apt-get tells what it was asked for; it makes the commands named in `installs`, unless it `fails` as often as that says.
APT_GET = """
echo "apt-get $*" >>"$HERE/log"
case $1 in
update) if [ -e "$HERE/news" ]; then cp "$HERE/news" "$HERE/candidate"; fi ;;
install)
  left=$(cat "$HERE/fails")
  [ "$left" = 0 ] || { echo $((left - 1)) >"$HERE/fails"; exit 100; } ;;
esac
"""


def tearDownModule():
    MACHINES.cleanup()


class Machine:
    """A PATH with the tools that the script itself needs, and what a test adds."""

    def __init__(self, user=0, apt=True, sudo=False, fails=0, candidate="(none)", news=None, **commands):
        self.path = pathlib.Path(tempfile.mkdtemp(dir=MACHINES.name))
        for tool in ("bash", "cat", "cp", "grep", "head", "sed", "sort"):
            (self.path / tool).symlink_to(shutil.which(tool))
        self.write("log", "")
        self.write("fails", f"{fails}\n")
        self.write("candidate", candidate)
        if news is not None:
            self.write("news", news)
        self.command("id", f"echo {user}")
        if apt:
            self.command("apt-get", APT_GET)
            self.command("apt-cache", 'echo "$3:"; echo "  Candidate: $(cat "$HERE/candidate")"')
        if sudo:
            self.command("sudo", '[ "$1" = -n ] && shift; echo "sudo $*" >>"$HERE/log"; "$@"')
        for name, version in commands.items():
            self.command(name, f'echo "{name} {version} (of some day 2099-12-31)"')

    def write(self, name, text):
        (self.path / name).write_text(text)

    def command(self, name, body):
        self.write(name, f"#!{self.path}/bash\nHERE={self.path}\n{body}\n")
        (self.path / name).chmod(0o755)

    def need(self, *needs, soft=False):
        """Exit code, what was said, and what was asked of the package manager."""
        environment = {"PATH": str(self.path), "SOFT": "1" if soft else "0", "LC_ALL": "C"}
        done = subprocess.run([str(NEED), *needs], env=environment, capture_output=True, text=True, timeout=60)
        asked = [line for line in (self.path / "log").read_text().splitlines() if line != "sudo true"]
        return done.returncode, done.stdout + done.stderr, asked


INSTALL = "apt-get install -y -qq --no-install-recommends"


class Decisions(unittest.TestCase):
    def test_what_is_here_is_left_alone(self):
        self.assertEqual(Machine(cc="12").need("cc:gcc"), (0, "", []))
        self.assertEqual(Machine(cargo="1.90.0").need("cargo:cargo:1.90"), (0, "", []))
        self.assertEqual(Machine(cargo="1.101.0").need("cargo:cargo:1.90"), (0, "", []))
        self.assertEqual(Machine().need(), (0, "", []))

    def test_all_that_is_missing_is_installed_at_once(self):
        code, said, asked = Machine(cc="12").need("cargo:rust", "cc:gcc", "ping:iputils-ping")
        self.assertEqual((code, said), (0, "need: installing rust iputils-ping\n"))
        self.assertEqual(asked, [f"{INSTALL} rust iputils-ping"])

    def test_lists_of_packages_are_fetched_where_installing_fails_without(self):
        code, _, asked = Machine(fails=1).need("cc:gcc")
        self.assertEqual((code, asked), (0, [f"{INSTALL} gcc", "apt-get update -qq", f"{INSTALL} gcc"]))
        code, said, _ = Machine(fails=2).need("cc:gcc")
        self.assertEqual(code, 1)
        self.assertIn("installing failed: please install gcc and try again", said)

    def test_an_old_one_is_refused_and_nothing_installed(self):
        for version in ("1.63.0", "1.9.7", "1.89.1"):
            code, said, asked = Machine(cargo=version).need("cargo:cargo:1.90", "cc:gcc")
            self.assertEqual((code, asked), (1, []))
            self.assertIn(f"cargo 1.90 or newer is needed, and {version} is here; https://rustup.rs", said)

    def test_what_the_system_offers_is_not_installed_when_it_is_too_old(self):
        code, said, asked = Machine(candidate="1.63.0-1").need("cargo:cargo:1.90")
        self.assertEqual((code, asked), (1, []))
        self.assertIn("this system's package is 1.63.0-1; https://rustup.rs", said)
        code, _, asked = Machine(candidate="1.93.0-1").need("cargo:cargo:1.90")
        self.assertEqual((code, asked), (0, [f"{INSTALL} cargo"]))
        # Known only once the lists are there.
        code, said, asked = Machine(fails=1, news="1.63.0-1").need("cargo:cargo:1.90")
        self.assertEqual((code, asked), (1, [f"{INSTALL} cargo", "apt-get update -qq"]))
        self.assertIn("this system's package is 1.63.0-1", said)

    def test_who_may_not_install_is_told_what_to(self):
        for machine, why in ((Machine(user=1000), "installing needs root"), (Machine(apt=False), "has no apt-get")):
            code, said, asked = machine.need("cc:gcc", "ping:iputils-ping")
            self.assertEqual((code, asked), (1, []))
            self.assertIn(f"{why}: please install gcc iputils-ping and try again", said)

    def test_a_user_with_sudo_installs_by_it(self):
        code, _, asked = Machine(user=1000, sudo=True).need("cc:gcc")
        self.assertEqual((code, asked), (0, [f"sudo {INSTALL} gcc", f"{INSTALL} gcc"]))

    def test_who_can_do_without_goes_on(self):
        for machine in (Machine(user=1000), Machine(apt=False), Machine(fails=2), Machine(cc="1.0")):
            code, said, _ = machine.need("cc:gcc:12", soft=True)
            self.assertEqual(code, 0)
            self.assertTrue(said.splitlines()[-1].startswith("need: "), said)


if __name__ == "__main__":
    unittest.main()
