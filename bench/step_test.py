#!/usr/bin/env python3
"""bench/step.py on programs that only pretend."""
import argparse, glob, json, os, subprocess, sys, tempfile, unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import step  # noqa: E402

# Reports its beginning and end, and needs a GiB for each sequence. The peer reports that in its own way.
STEPS = """#!/bin/sh
echo "$1 begins $2" >> "$LOG"
[ "$2" -le "$3" ] || { echo "error: $4" >&2; exit 1; }
echo '{"model_flops": 1, "floor": 1, "floor_operations": 1, "floor_bytes": 1, "version": "0", "how": ""}'
while read line; do echo "$1 goes" >> "$LOG"; echo '{"seconds": '$5'}'; done
"""


class Steps(unittest.TestCase):
    def measure(self, device, ours_fits, theirs_fits):
        """The row of a shape of 32 sequences, and who did what."""
        with tempfile.TemporaryDirectory() as folder:
            program, log = folder + "/steps", folder + "/log"
            with open(program, "w") as file:
                file.write(STEPS)
            os.chmod(program, 0o700)
            for known in ("our_command", "torch_command"):
                self.addCleanup(setattr, step, known, getattr(step, known))
            step.our_command = lambda name, B, microbatches, o: \
                [program, "ours", str(B), str(ours_fits), "this run needs 9.00 GiB", "1" if B > 8 else "4"]
            step.torch_command = lambda name, variant, B, microbatches, o: \
                [program, "theirs", str(B), str(theirs_fits), "CUDA out of memory. Tried to get 2 MiB", "2"]
            o, env = argparse.Namespace(device=device, rounds=2, limit=20, has_torch=True), dict(os.environ, LOG=log)
            if device == "cuda":
                row = step.measure_on_gpu("gpt2-124m-bf16", o, env)
                if "why" not in row:
                    step.measure_torch(row, "PyTorch, eager", "eager", o, env)
            else:
                self.addCleanup(setattr, step.subprocess, "run", subprocess.run)
                step.subprocess.run = lambda *_, **__: argparse.Namespace(stdout='{"gflops": 1}')
                row = step.measure_on_cpu("nanogpt-cpu-fp32", o, env)
            with open(log) as file:
                return row, file.read().splitlines()

    def test_on_a_gpu_one_program_after_the_other(self):
        row, log = self.measure("cuda", 32, 32)
        self.assertEqual(log, ["ours begins 32", "ours goes", "ours goes", "theirs begins 32", "theirs goes", "theirs goes"])
        self.assertEqual((row["batch"], row["seconds"], row["peers"][0]["ratio"]), (32, 1, 2))

    def test_on_the_cpu_in_turn(self):
        _, log = self.measure("cpu", 32, 32)
        self.assertEqual(log, ["ours begins 12", "theirs begins 12", "ours goes", "theirs goes", "ours goes", "theirs goes"])

    def test_a_batch_that_does_not_fit_is_halved_and_the_ratio_is_of_one_batch(self):
        row, log = self.measure("cuda", 16, 8)
        self.assertEqual([line for line in log if "begins" in line],
                         ["ours begins 32", "ours begins 16", "theirs begins 16", "theirs begins 8", "ours begins 8"])
        # 512 sequences of 1024 tokens a step all the same.
        self.assertEqual((row["batch"], row["microbatches"]), (16, 32))
        peer = row["peers"][0]
        self.assertEqual((peer["batch"], peer["microbatches"], peer["ratio"]), (8, 64, 0.5))
        self.assertEqual((row["tokens_per_second"], peer["tokens_per_second"]), (2**19, 2**18))

    def test_rounds_that_drift_have_no_figure(self):
        for rounds, drifts in (([4.8, 9.0, 14.5, 25.0], True), ([1, 1.2, 1.6], True), ([4.8, 4.97, 4.9, 5.0], False),
                               ([1, 3, 2], False), ([1, 2], False), ([1, 1.1, 1.2], False), ([2, 2, 9], False)):
            program = argparse.Namespace(name="Peer", seconds=list(rounds), why=None, facts={})
            step.refuse_drift(program)
            self.assertEqual((program.seconds == [], program.why is not None), (drifts, drifts), rounds)
        row = {"peers": [], "sequence": 1}
        step.add_peer(row, argparse.Namespace(name="Peer", seconds=[1, 2, 3], why=None, facts={}), 1, 1, 1)
        self.assertEqual(row["peers"], [{"name": "Peer", "why": "Peer drifts: its rounds took 1000, 2000, 3000 ms a step"}])

    def test_what_never_fits_is_said(self):
        row, _ = self.measure("cuda", 0, 8)
        self.assertEqual(row, {"name": "gpt2-124m-bf16", "why": "error: this run needs 9.00 GiB"})
        row, _ = self.measure("cuda", 8, 0)
        self.assertEqual((row["batch"], row["peers"][0]["why"]), (8, "error: CUDA out of memory. Tried to get 2 MiB"))

    def test_ours_are_written_before_a_peer_begins_and_one_that_hangs_costs_its_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            program, path = folder + "/bench_step", folder + "/rows.json"
            with open(program, "w") as file:
                # Each of ours records the rows' file when it begins.
                keep = f"cp {path} {folder}/ours$(ls {folder} | wc -l) 2>/dev/null\n"
                file.write(STEPS.replace('[ "$2"', keep + '[ "$2"', 1).replace('"$2" -le "$3"', "0 -eq 0").replace("'$5'", "1"))
            os.chmod(program, 0o700)
            os.mkdir(folder + "/torch")
            # A torch that logs the rows' file, and hangs.
            with open(folder + "/torch/__init__.py", "w") as file:
                file.write("import os, shutil, sys, time\n"
                           "if 'steps' in sys.argv:\n"
                           "    name = sys.argv[sys.argv.index('--variant') + 1]\n"
                           f"    shutil.copy({path!r}, {folder!r} + '/' + name + str(len(os.listdir({folder!r}))))\n"
                           "    time.sleep(987)\n")
            done = subprocess.run([sys.executable, HERE + "/step.py", "--device", "cuda", "--program", program, "--only", "124m", "--rounds",
                                   "1", "--limit", "1.5", "--json", path], capture_output=True, text=True, timeout=100,
                                  env=dict(os.environ, PYTHONPATH=folder, LOG="/dev/null"))
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(sorted(glob.glob(folder + "/ours*"))[0]) as file:
                self.assertEqual([row["name"] for row in json.load(file)["rows"]], ["gpt2-124m-bf16"], "when the second begins")
            seen = sorted(glob.glob(folder + "/eager*"))
            with open(seen[0]) as file:
                rows = json.load(file)["rows"]
            self.assertEqual([(row["name"], row["seconds"], [peer["name"] for peer in row["peers"]]) for row in rows],
                             [("gpt2-124m-bf16", 1, [step.GRAPHS]), ("gpt2-124m-fp32", 1, [step.GRAPHS])])
            with open(path) as file:
                peers = [(peer["name"], peer["why"]) for row in json.load(file)["rows"] for peer in row["peers"][1:]]
            late = "its 2 seconds were over"
            self.assertEqual(sorted(peers), [("PyTorch, bf16 parameters", late), ("PyTorch, compiled", late), ("PyTorch, compiled", late),
                                             ("PyTorch, eager", late), ("PyTorch, eager", late)])


if __name__ == "__main__":
    unittest.main()
