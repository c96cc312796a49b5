"""What `cmake --install` leaves in a folder that stands for /usr, and that the program works there from anywhere.

    install_test.py BUILD_FOLDER MEGALITH
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

MEGALITH = pathlib.Path(sys.argv.pop(2)).resolve()
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]


def said(*command, at):
    return subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=120)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="megalith-install-")
        cls.usr = pathlib.Path(cls.scratch.name) / "usr"
        cls.elsewhere = pathlib.Path(cls.scratch.name) / "elsewhere"
        cls.elsewhere.mkdir()
        done = said("cmake", "--install", BUILD, "--prefix", cls.usr, at=cls.elsewhere)
        assert done.returncode == 0, done.stdout + done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_pages_and_completions_are_those_of_the_program(self):
        for place, words in [("man/man1/megalith.1", ["manual", "man"]),
                             ("bash-completion/completions/megalith", ["completion", "bash"]),
                             ("zsh/site-functions/_megalith", ["completion", "zsh"]),
                             ("fish/vendor_completions.d/megalith.fish", ["completion", "fish"])]:
            text = (self.usr / "share" / place).read_text()
            self.assertTrue(text, place)
            self.assertEqual(text, said(MEGALITH, *words, at=self.elsewhere).stdout, place)

    def test_the_man_page_is_whole_and_the_completion_completes(self):
        self.assertGreater(len((self.usr / "share/man/man1/megalith.1").read_text()), 1000)
        script = self.usr / "share/bash-completion/completions/megalith"
        line = "megalith checkpoint ex"
        completed = said("bash", "-c", f"PATH={self.usr}/bin:$PATH; source {script}; COMP_LINE='{line}'; "
                         f"COMP_POINT={len(line)}; _megalith; echo ${{COMPREPLY[@]}}", at=self.elsewhere)
        self.assertEqual((completed.stdout, completed.stderr), ("export\n", ""))

    def test_recipes_and_profiles_are_all_there(self):
        def configs(folder):
            return {path.relative_to(folder): path.read_text() for path in folder.rglob("*.toml")}
        installed = configs(self.usr / "share/megalith/configs")
        self.assertEqual(installed, configs(ROOT / "configs"))
        self.assertGreater(len(installed), 20)

    def test_a_recipe_is_the_installed_one(self):
        # A number that only the installed file has shows which file is read.
        recipe = self.usr / "share/megalith/configs/quickstart.toml"
        plan = [self.usr / "bin/megalith", "plan", "quickstart", "--ranks", "2", "model.vocab=4096"]
        before = said(*plan, at=self.elsewhere)
        self.assertEqual(before.returncode, 0, before.stderr)
        text = recipe.read_text()
        recipe.write_text(text.replace("layers = 4", "layers = 5"))
        after = said(*plan, at=self.elsewhere)
        recipe.write_text(text)
        self.assertEqual(after.returncode, 0, after.stderr)
        self.assertNotEqual(before.stdout, after.stdout)
        self.assertEqual(before.stdout, said(*plan, at=self.elsewhere).stdout)


if __name__ == "__main__":
    unittest.main()
