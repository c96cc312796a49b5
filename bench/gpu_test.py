#!/usr/bin/env python3
"""bench/gpu.py and bench/step.py on programs that only pretend: what they make of those that pass, fail, die, hang, lack
memory or are not there."""
import argparse, glob, json, os, re, stat, subprocess, sys, tempfile, time, unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import gpu, step  # noqa: E402

PASSES = """echo '[ RUN      ] A.one'; echo '[       OK ] A.one (3 ms)'"""
FAILS = """echo '[ RUN      ] A.two'; echo 'x.cpp:7: Failure'; echo '1 is not 2'; echo '[  FAILED  ] A.two, where GetParam() = 3 (1 ms)'; exit 1"""
SKIPS = """echo '[ RUN      ] A.three'; echo 'x.cpp:9: Skipped'; echo 'no reference'; echo ''; echo '[  SKIPPED ] A.three (0 ms)'"""
DIES = """echo '[ RUN      ] A.four'; kill -SEGV $$"""
HANGS = """(setsid sleep 987 &) ; echo '[ RUN      ] A.five'; sleep 987"""
A_GPU = """echo '{"name": "NVIDIA Pretence 9000", "runtime": "13.0"}'"""
ROW = {"op": "gelu_forward", "shape": "124M", "dtype": "bf16", "seconds": 1e-5, "bytes": 2e7, "flops": 1e8, "of_limit": 0.5}


class Gpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(self.folder + "/bin")
        os.mkdir(self.folder + "/reference")
        self.program("mpirun", PASSES, "")
        self.program("megalith", "exit 0", "")
        self.program("test_mpi", PASSES)
        self.program("bench_step", "exit 0")
        self.kernels(A_GPU)

    def program(self, name, script, place="bin"):
        path = os.path.join(self.folder, place, name)
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + script + "\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def kernels(self, describe):
        rows = json.dumps({"limits": {}, "rows": [ROW], "left_out": []})
        self.program("bench_kernels", f"""case "$*" in *--describe*) {describe};; *) echo '{rows}' > "$4";; esac""")

    def go(self, *options):
        """Exit status, results (None without a file), standard output and error."""
        out = self.folder + "/out"
        done = subprocess.run([sys.executable, HERE + "/gpu.py", self.folder, "--out", out, *options], capture_output=True,
                              text=True, timeout=60, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        files = glob.glob(out + "/*")
        self.assertLessEqual(len(files), 1, files)
        results = None
        if files:
            with open(files[0]) as file:
                results = json.load(file)
        return done.returncode, results, done.stdout, done.stderr

    def test_all_is_well(self):
        self.program("test_gpu", PASSES)
        status, results, printed, _ = self.go("--only", "kernels|NCCL")
        self.assertEqual(status, 0)
        self.assertTrue(results["passed"] and results["complete"])
        parts = {part["name"]: part for part in results["parts"]}
        self.assertEqual(parts["kernels"]["tests"], [{"name": "A.one", "outcome": "passed", "seconds": 0.003}])
        self.assertEqual(parts["NCCL, 3 ranks on one GPU"]["outcome"], "passed")
        self.assertIn(" -n 3 ", parts["NCCL, 3 ranks on one GPU"]["command"])
        self.assertEqual(parts["NCCL, a GPU each"]["why"], "there is one GPU")
        self.assertEqual(parts["training"], {"name": "training", "kind": "test", "outcome": "skipped", "why": "not asked for"})
        self.assertEqual(results["kernels"]["rows"], [ROW])
        self.assertEqual(results["device"]["name"], "NVIDIA Pretence 9000")
        self.assertIn("gelu_forward", printed)

    def test_without_a_gpu_nothing_is_written(self):
        self.program("test_gpu", PASSES)
        self.kernels("echo 'no GPU here, or no driver for it' >&2; exit 1")
        status, results, _, error = self.go()
        self.assertEqual((status, results), (3, None))
        self.assertIn("no GPU here", error)

    def test_what_fails_is_named_and_the_rest_goes_on(self):
        self.program("test_gpu", PASSES + "\n" + FAILS)
        status, results, printed, _ = self.go("--only", "^kernels$|bench kernels")
        self.assertEqual(status, 1)
        self.assertFalse(results["passed"])
        self.assertEqual(results["parts"][0]["outcome"], "failed")
        self.assertEqual(results["parts"][0]["tests"][1]["why"], "x.cpp:7: Failure\n1 is not 2")
        self.assertIn("failed: A.two", printed)
        self.assertEqual(results["kernels"]["rows"], [ROW])

    def test_a_program_that_dies_names_the_test(self):
        self.program("test_gpu", PASSES + "\n" + DIES)
        status, results, printed, _ = self.go("--only", "^kernels$")
        self.assertEqual(status, 1)
        self.assertEqual(results["parts"][0]["tests"][1]["outcome"], "died")
        self.assertIn("died: A.four", printed)

    def test_nothing_but_skipped_tests_is_no_pass(self):
        self.program("test_gpu", SKIPS)
        status, results, _, _ = self.go("--only", "^kernels$")
        self.assertEqual((status, results["parts"][0]["outcome"], results["parts"][0]["why"]), (1, "skipped", "no reference"))

    def test_what_hangs_is_ended_with_all_it_started(self):
        self.program("test_gpu", HANGS)
        start = time.monotonic()
        status, results, _, _ = self.go("--only", "^kernels$", "--minutes", "0.05")
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual((status, results["parts"][0]["outcome"]), (1, "timed out"))
        self.assertEqual(results["parts"][1]["why"], "not asked for")
        left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        self.assertNotIn("sleep 987", left)

    def test_no_time_left(self):
        self.program("test_gpu", PASSES)
        status, results, _, _ = self.go("--minutes", "0")
        self.assertEqual((status, results["parts"][0]["why"]), (1, "no time left"))
        self.assertEqual({part["outcome"] for part in results["parts"]}, {"skipped"})

    def test_colours_are_passed_over(self):
        text = "\x1b[0;32m[ RUN      ] \x1b[mA.one\r\n\x1b[0;31m[  FAILED  ] \x1b[mA.one (3 ms)\r\n"
        self.assertEqual(gpu.read_gtest(text), [{"name": "A.one", "outcome": "failed", "seconds": 0.003}])

    def test_initcheck_finds_memory_uninitialized(self):
        self.program("compute-sanitizer", """echo "$*: ${MEGALITH_LEAVE_UNINITIALIZED-initialized}"; echo '= ERROR SUMMARY: 1 error'""")
        self.program("test_gpu", PASSES)
        os.environ["PATH"] = self.folder + "/bin:" + os.environ["PATH"]
        self.addCleanup(os.environ.update, PATH=os.environ["PATH"].split(":", 1)[1])
        _, results, _, _ = self.go("--only", "check$")
        said = {part["name"]: part["output"].splitlines()[0] for part in results["parts"] if "output" in part}
        self.assertEqual({tool: line.rsplit(" ", 1)[1] for tool, line in said.items()},
                         {"memcheck": "initialized", "racecheck": "initialized", "initcheck": "1"})
        self.assertTrue(said["memcheck"].startswith("--tool memcheck --report-api-errors no "), said)

    def test_a_hang_is_named_before_its_time_is_up(self):
        with open(HERE + "/../tests/mpi/groups.cpp") as file:
            timeout = float(re.search(r"NcclOptions\{\.timeout = (\d+)\}", file.read())[1])
        options = argparse.Namespace(folder=self.folder, reference=self.folder + "/reference", device="cuda")
        for part in gpu.make_parts(options, 1, self.folder) + gpu.make_parts(options, 8, self.folder):
            if part.name.startswith("NCCL"):
                self.assertGreaterEqual(part.seconds, 4 * timeout, part.name)

    def test_what_a_sanitizer_says(self):
        part = gpu.Part("memcheck", "sanitizer", [], 60)
        judge = lambda status, text: gpu.judge(part, status, text)["outcome"]
        tests = "[ RUN      ] A.one\n[       OK ] A.one (3 ms)\n"
        self.assertEqual(judge(0, tests + "========= ERROR SUMMARY: 0 errors\n"), "passed")
        self.assertEqual(judge(0, tests + "========= ERROR SUMMARY: 3 errors\n"), "failed")
        self.assertEqual(judge(0, "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"), "failed")
        self.assertEqual(judge(0, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"), "passed")
        self.assertEqual(judge(1, "========= Error: Device not supported\n"), "skipped")
        self.assertEqual(judge(None, tests), "timed out")
        self.assertEqual(judge(1, "[ RUN      ] A.two\n[  FAILED  ] A.two (1 ms)\n========= ERROR SUMMARY: 0 errors\n"), "failed")


# Says when it begins and ends, and needs a GiB for each sequence. The peer knows its own way to say that.
STEPS = """#!/bin/sh
echo "$1 begins $2" >> "$LOG"
[ "$2" -le "$3" ] || { echo "error: $4" >&2; exit 1; }
echo '{"model_flops": 1, "floor": 1, "version": "0", "how": ""}'
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
            known = step.commands_of
            self.addCleanup(setattr, step, "commands_of", known)
            step.commands_of = lambda name, B, o, has_torch: [
                ("Megalith", [program, "ours", str(B), str(ours_fits), "this run needs 9.00 GiB", "1"]),
                ("PyTorch", [program, "theirs", str(B), str(theirs_fits), "CUDA out of memory. Tried to get 2 MiB", "2"])]
            name = "gpt2-124m-bf16" if device == "cuda" else "nanogpt-cpu-fp32"
            row = step.measure(name, argparse.Namespace(device=device, rounds=2), dict(os.environ, LOG=log), True)
            with open(log) as file:
                return row, file.read().splitlines()

    def test_on_a_gpu_one_program_after_the_other(self):
        row, log = self.measure("cuda", 32, 32)
        self.assertEqual(log, ["ours begins 32", "ours goes", "ours goes", "theirs begins 32", "theirs goes", "theirs goes"])
        self.assertEqual((row["batch"], row["seconds"], row["peers"][0]["ratio"]), (32, 1, 2))

    def test_on_the_cpu_in_turn(self):
        _, log = self.measure("cpu", 32, 32)
        self.assertEqual(log, ["ours begins 12", "theirs begins 12", "ours goes", "theirs goes", "ours goes", "theirs goes"])

    def test_a_batch_that_does_not_fit_one_is_halved_for_all(self):
        row, log = self.measure("cuda", 16, 8)
        self.assertEqual([line for line in log if "begins" in line],
                         ["ours begins 32", "ours begins 16", "theirs begins 16", "ours begins 8", "theirs begins 8"])
        self.assertEqual((row["batch"], row["tokens_per_second"], row["peers"][0]["tokens_per_second"]), (8, 8192, 4096))

    def test_what_never_fits_is_said(self):
        row, _ = self.measure("cuda", 0, 8)
        self.assertEqual(row, {"name": "gpt2-124m-bf16", "why": "error: this run needs 9.00 GiB"})
        row, _ = self.measure("cuda", 8, 0)
        self.assertEqual((row["batch"], row["peers"][0]["why"]), (1, "error: CUDA out of memory. Tried to get 2 MiB"))


if __name__ == "__main__":
    unittest.main()
