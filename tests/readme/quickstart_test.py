"""quickstart.sh as it is used: on texts of one's own, from anywhere, again, and for longer.

    quickstart_test.py MEGALITH

The build is done, and the model is small, as in readme_test.py; how many steps there are is the script's business.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from readme_test import SHORT, environment, prepare, write_program

PROGRAM = os.path.abspath(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = "".join((ROOT / page).read_text() for page in ("configs/README.md", "trainer/README.md", "data/README.md", "FEATURES.md"))


class Quickstart(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="megalith-quickstart-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        prepare(self.folder, PROGRAM, [setting for setting in SHORT if not setting.startswith(("train.", "optimizer."))])
        write_program(self.folder / "bin/cmake", f"echo cmake >> {self.folder}/built\n")
        (self.folder / "elsewhere").mkdir()

    def quickstart(self, *texts, at=".", minutes="0.000001", out=None):
        settings = environment(self.folder) | {"MINUTES": minutes} | ({"OUT": out} if out else {})
        if minutes is None:
            del settings["MINUTES"]
        return subprocess.run([self.folder / "quickstart.sh", *texts], cwd=self.folder / at, env=settings, capture_output=True,
                              text=True, errors="replace", timeout=240)

    def steps(self, run="runs/quickstart"):
        return int(max(path.name for path in (self.folder / run / "checkpoints").glob("step-*"))[5:])

    def succeeds(self, *texts, **how):
        done = self.quickstart(*texts, **how)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("== a sample", done.stdout)
        return done.stdout

    def test_more_minutes_are_more_steps(self):
        (self.folder / "text.txt").write_text(TEXT[:16000])
        self.assertIn("training steps 1 to 20 ", self.succeeds("text.txt"))
        self.assertEqual(self.steps(), 20)
        said = self.succeeds("text.txt", minutes="0.02")
        longer = self.steps()
        self.assertGreater(longer, 20)
        self.assertIn(f"training steps 21 to {longer} ", said)
        for minutes in (None, "0.02"):  # as it was, and the same again
            self.assertIn(f"has made {longer} steps already, and 0.02 minutes are {longer} here", self.succeeds(minutes=minutes))
        self.assertIn(f"has made {longer} steps already, and 0.000001 minutes are 20 here", self.succeeds(minutes="0.000001"))
        self.assertEqual(self.steps(), longer)

    def test_a_run_that_was_ended_goes_on_to_its_end(self):
        (self.folder / "text.txt").write_text(TEXT[:16000])
        self.succeeds("text.txt")
        (self.folder / "runs/quickstart/steps").write_text("30 0.002 0.004\n")  # it has made 20 of them
        self.assertIn("training steps 21 to 30 ", self.succeeds(minutes=None))
        self.assertEqual(self.steps(), 30)

    def test_texts_of_another_folder(self):
        (self.folder / "elsewhere/mine.txt").write_text(TEXT[:12000])
        (self.folder / "elsewhere/more").mkdir()
        (self.folder / "elsewhere/more/other.txt").write_text(TEXT[-12000:])
        said = self.succeeds("mine.txt", "more", at="elsewhere", out="run")
        self.assertEqual(self.steps("elsewhere/run"), 20)
        self.assertIn(f"{self.folder}/elsewhere/run/log.txt", said)
        self.assertIn("the run continues with it", self.succeeds("mine.txt", "more", at="elsewhere", out="run"))

    def test_other_texts_are_another_run(self):
        (self.folder / "a.txt").write_text(TEXT[:16000])
        (self.folder / "b.txt").write_text(TEXT[1:16001])
        self.succeeds("a.txt")
        for other in (["b.txt"], ["a.txt", "b.txt"]):
            done = self.quickstart(*other)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("a run on other texts", done.stderr)
            self.assertIn("OUT=", done.stderr)
            self.assertNotIn("== training", done.stdout)

    def test_small_texts_have_the_tokens_that_they_have_room_for(self):
        for number, (size, vocabulary) in enumerate([(16000, 257), (150000, 1024)]):
            text = (TEXT * 8)[:size] if size < len(TEXT) else (self.folder / "book.txt").read_text()[:size]
            (self.folder / "text.txt").write_text(text)
            self.assertIn(f"vocabulary {vocabulary},", self.succeeds("text.txt", out=f"runs/{number}"))

    def test_a_long_text_of_few_words_is_learnt_by_bytes(self):
        (self.folder / "text.txt").write_text("again and again\n" * 70000)
        self.assertIn("vocabulary 257,", self.succeeds("text.txt"))

    def test_what_cannot_be_is_said_before_the_build(self):
        (self.folder / "text.txt").write_text(TEXT[:3000])
        for texts, words in [(["text.txt"], "have 3000 bytes together"), (["no.txt"], "there is no text no.txt")]:
            done = self.quickstart(*texts)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn(words, done.stderr)
        self.assertFalse((self.folder / "built").exists())


if __name__ == "__main__":
    unittest.main()
