#!/usr/bin/env python3
"""bench/gpu.py and bench/step.py on programs that only pretend: what they make of those that pass, fail, die, hang, lack
memory or are not there."""
import argparse, glob, json, os, re, shutil, stat, subprocess, sys, tempfile, time, unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import gpu, predictions, step  # noqa: E402

PASSES = """echo '[ RUN      ] A.one'; echo '[       OK ] A.one (3 ms)'"""
FAILS = """echo '[ RUN      ] A.two'; echo 'x.cpp:7: Failure'; echo '1 is not 2'; echo '[  FAILED  ] A.two, where GetParam() = 3 (1 ms)'; exit 1"""
SKIPS = """echo '[ RUN      ] A.three'; echo 'x.cpp:9: Skipped'; echo 'no reference'; echo ''; echo '[  SKIPPED ] A.three (0 ms)'"""
DIES = """echo '[ RUN      ] A.four'; kill -SEGV $$"""
HANGS = """(setsid sleep 987 &) ; echo '[ RUN      ] A.five'; sleep 987"""
A_GPU = """echo '{"name": "NVIDIA Pretence 9000", "runtime": "13.0", "compute_capability": "8.0"}'"""
HOPPER = """echo '{"name": "NVIDIA H100 80GB HBM3", "runtime": "13.0", "compute_capability": "9.0"}'"""
# What GoogleTest lists; then one test is run at a time, and the third one of them poisons its process.
OPS = """case "$*" in
*--gtest_list_tests*) printf 'All/DeviceOps.\\n  AgreesWithItsTwin/gelu  # GetParam() = 8-byte object\\n  AgreesWithItsTwin/add\\nDeviceBits.\\n  Masks\\n';;
*=All/DeviceOps.AgreesWithItsTwin/gelu) echo '[ RUN      ] All/DeviceOps.AgreesWithItsTwin/gelu'; kill -SEGV $$;;
*=All/DeviceOps.AgreesWithItsTwin/add) echo '[ RUN      ] All/DeviceOps.AgreesWithItsTwin/add'; echo '[       OK ] All/DeviceOps.AgreesWithItsTwin/add (2 ms)';;
*=DeviceBits.Masks) echo '[ RUN      ] DeviceBits.Masks'; sleep ${MASKS:-0}; echo '[       OK ] DeviceBits.Masks (4 ms)';;
*) echo "not one test: $*"; exit 1;; esac"""
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

    def kernels(self, describe, row=ROW):
        rows = json.dumps({"limits": {}, "rows": [row], "left_out": []})
        self.program("bench_kernels", f"""case "$*" in *--describe*) {describe};; *) echo '{rows}' > "$4";; esac""")

    def go(self, *options):
        """Exit status, results (None without a file), standard output and error."""
        out = self.folder + "/out"
        done = subprocess.run([sys.executable, HERE + "/gpu.py", self.folder, "--out", out, *options], capture_output=True,
                              text=True, timeout=60, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        files = [path for path in glob.glob(out + "/*") if not path.endswith(".gemm.json")]
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

    def test_a_table_of_gemm_choices_is_kept_beside_the_results(self):
        self.program("test_gpu", PASSES)
        self.program("bench_kernels", f"""case "$*" in *--describe*) {A_GPU};;
            *--tune*) while [ "$1" != --json ]; do shift; done; echo a table > "$2"; echo row; echo 9 ms, 8 ms tuned;;
            *) exit 1;; esac""")
        status, results, printed, _ = self.go("--only", "^kernels$|^tune$")
        self.assertEqual(status, 0)
        part = next(part for part in results["parts"] if part["name"] == "tune")
        self.assertEqual((part["outcome"], part["output"]), ("passed", "row\n9 ms, 8 ms tuned"))
        self.assertIn("gpt2_124m.toml", part["command"])
        self.assertRegex(part["file"], r"^nvidia-pretence-9000-\d{8}-\d{6}\.gemm\.json$")
        with open(os.path.join(self.folder, "out", part["file"])) as file:
            self.assertEqual(file.read(), "a table\n")
        self.assertIn("9 ms, 8 ms tuned; nvidia-pretence-9000", printed)
        # Without the configs it is skipped.
        os.mkdir(self.folder + "/configs")
        for path in glob.glob(self.folder + "/out/*"):
            os.remove(path)
        _, results, _, _ = self.go("--only", "^kernels$|^tune$")
        part = next(part for part in results["parts"] if part["name"] == "tune")
        self.assertEqual(part["outcome"], "skipped")
        self.assertRegex(part["why"], r"there is no .*/configs/gpt2_124m.toml")

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

    def test_every_op_has_a_process_of_its_own(self):
        self.program("test_gpu", OPS)
        status, results, printed, _ = self.go("--only", "^kernels$")
        part = results["parts"][0]
        self.assertEqual((status, part["outcome"]), (1, "failed"))
        self.assertEqual([(t["name"], t["outcome"]) for t in part["tests"]],
                         [("All/DeviceOps.AgreesWithItsTwin/gelu", "died"), ("All/DeviceOps.AgreesWithItsTwin/add", "passed"),
                          ("DeviceBits.Masks", "passed")])
        self.assertIn("died: All/DeviceOps.AgreesWithItsTwin/gelu", printed)

    def test_an_op_that_hangs_leaves_time_to_the_others(self):
        hangs = OPS.replace("; kill -SEGV $$", "; sleep 987")
        self.program("test_gpu", hangs)
        part = gpu.Part("kernels", "test", [self.folder + "/bin/test_gpu", "--gtest_filter=All*:Device*"], 60, each=3)
        found = gpu.run_each(part, 60)
        self.assertEqual([(t["name"].rsplit("/", 1)[-1], t["outcome"]) for t in found["tests"]],
                         [("gelu", "timed out"), ("add", "passed"), ("DeviceBits.Masks", "passed")])
        self.assertEqual(found["outcome"], "timed out")
        # And what the part has no time for is told apart from what it found.
        found = gpu.run_each(part, 0.5)
        self.assertEqual([t["outcome"] for t in found["tests"]], ["timed out", "skipped", "skipped"])
        self.assertEqual(found["outcome"], "timed out")

    def test_ranks_that_share_a_gpu_are_last_and_not_fatal(self):
        self.program("test_gpu", PASSES)
        self.program("test_mpi", FAILS)
        self.program("mpirun", 'while [ "$1" != -n ]; do shift; done; shift 2; exec "$@"', "")
        status, results, printed, _ = self.go("--only", "^kernels$|^NCCL")
        outcomes = {part["name"]: part["outcome"] for part in results["parts"]}
        shared = ["NCCL, 2 ranks on one GPU", "NCCL, 3 ranks on one GPU"]
        self.assertEqual([part["name"] for part in results["parts"]][-2:], shared)
        self.assertEqual([outcomes[name] for name in shared], ["failed", "failed"])
        self.assertEqual((status, results["passed"]), (0, True))
        self.assertIn("failed: A.two", printed)
        self.program("nvidia-smi", "echo A; echo B")
        os.environ["PATH"] = self.folder + "/bin:" + os.environ["PATH"]
        self.addCleanup(os.environ.update, PATH=os.environ["PATH"].split(":", 1)[1])
        for path in glob.glob(self.folder + "/out/*"):
            os.remove(path)
        status, results, _, _ = self.go("--only", "^kernels$|^NCCL, a GPU each$")
        self.assertEqual((status, results["passed"]), (1, False))

    def test_without_a_reference_verify_compares_with_the_cpu(self):
        os.rmdir(self.folder + "/reference")
        self.program("test_gpu", PASSES)
        self.program("megalith", 'case "$*" in *fp16*) echo "wte differs"; exit 1;; esac; [ -f "$2" ]', "")
        self.program("mpirun", 'while [ "$1" != -n ]; do shift; done; shift 2; exec "$@"', "")
        options = ["--reference", self.folder + "/reference", "--only", "^training|^verify|share"]
        status, results, _, _ = self.go(*options)
        parts = {part["name"]: part for part in results["parts"]}
        self.assertIn("there is no reference", parts["training"]["why"])
        for name, words in [("verify, fp32", "precision.compute=fp32"), ("verify, bf16", "precision.compute=bf16"),
                            ("verify, 2 ranks on one GPU", "communication.backend=mpi")]:
            self.assertEqual(parts[name]["outcome"], "passed", parts[name])
            self.assertIn(words, parts[name]["command"])
            self.assertIn(" --against run.device=cpu", parts[name]["command"])
        self.assertEqual((parts["verify, fp16"]["outcome"], parts["verify, fp16"]["output"]), ("failed", "wte differs"))
        self.assertEqual(status, 1)
        os.mkdir(self.folder + "/reference")
        options = argparse.Namespace(folder=self.folder, reference=self.folder + "/reference", device="cuda")
        self.assertFalse([part.name for part in gpu.make_parts(options, 1, self.folder) if part.name.startswith("verify")])

    def test_what_is_left_out_comes_with_the_command_for_it(self):
        self.program("test_gpu", PASSES)
        _, results, printed, _ = self.go("--minutes", "0")
        rest = re.search("--only '(.*)'", printed)[1]
        left = [part["name"] for part in results["parts"] if part["why"] == "no time left"]
        self.assertIn("kernels", left)
        self.assertEqual([part["name"] for part in results["parts"] if re.search(rest, part["name"])], left)

    def test_what_was_predicted_stands_beside_what_was_measured(self):
        self.program("test_gpu", PASSES)
        row = dict(ROW, op="attention_forward", shape="B4 T4096 H32 D64", flops=2.4e14, seconds=0.5)
        self.kernels(HOPPER, row)
        status, results, printed, _ = self.go("--only", "^kernels$|bench kernels|generation 8")
        compared = {one["row"]: one for one in results["predictions"] if one["where"] == "kernels"}
        self.assertEqual(compared["attention_forward/B4 T4096 H32 D64/bf16"],
                         {"where": "kernels", "row": "attention_forward/B4 T4096 H32 D64/bf16", "predicted": 480, "measured": 480,
                          "ratio": 1})
        self.assertIsNone(compared["attention_forward/B4 T4096 H16 D128/bf16"]["measured"])
        self.assertRegex(printed, r"attention_forward/B4 T4096 H32 D64/bf16 +predicted +480 TFLOP/s, measured 480: 1.00 of it")
        self.assertRegex(printed, r"attention_forward/B4 T4096 H16 D128/bf16 +predicted +\d+ TFLOP/s, not measured")
        # A Hopper runs the older kernels as well, and no other GPU does.
        self.assertEqual(results["kernels_of_generation_8"]["rows"], [row])
        parts = lambda capability: {part.name: part for part in gpu.make_parts(
            argparse.Namespace(folder=self.folder, reference=self.folder, device="cuda"), 1, self.folder, capability)}
        older = parts("9.0")["bench attention of generation 8"]
        self.assertIsNone(older.why_not)
        self.assertIn("--generation 8", " ".join(older.command))
        self.assertIn("for Hopper", parts("8.0")["bench attention of generation 8"].why_not)
        self.assertEqual({one["where"] for one in predictions.compare("NVIDIA Pretence 9000", results)}, {"graphs"})

    def test_steps_as_graphs_are_held_against_those_launched_one_by_one(self):
        peers = [{"name": step.GRAPHS, "tokens_per_second": 300.0}, {"name": "PyTorch", "tokens_per_second": 90.0}]
        results = {"steps": {"rows": [{"name": "nanogpt-small-bf16", "tokens_per_second": 100.0, "peers": peers},
                                      {"name": "gpt2-124m-bf16", "why": "it died"}]}}
        compared = predictions.compare("NVIDIA Pretence 9000", results)
        self.assertEqual([(one["row"], one["measured"], one["ratio"]) for one in compared],
                         [("gpt2-124m-bf16", None, None), ("nanogpt-small-bf16", 3, 2)])
        self.assertRegex(list(predictions.lines(compared))[1], r"bf16, graphs +predicted +1.5 times, measured 3.00: 2.00 of it")

    def test_a_prediction_that_nobody_measures_is_named(self):
        rows = {row for _, where, row, _ in predictions.PREDICTIONS if where in (predictions.KERNELS, predictions.OLDER)}
        self.assertEqual(predictions.not_measured(rows), [])
        gone = "attention_backward/B4 T4096 H32 D64/bf16"
        self.assertEqual(predictions.not_measured(rows - {gone}), [f"kernels: {gone}", f"kernels_of_generation_8: {gone}"])

    def test_nine_minutes_are_the_default(self):
        self.assertEqual(gpu.options(["FOLDER"]).minutes, 9)

    def test_nothing_but_skipped_tests_is_no_pass(self):
        self.program("test_gpu", SKIPS)
        status, results, _, _ = self.go("--only", "^kernels$")
        self.assertEqual((status, results["parts"][0]["outcome"], results["parts"][0]["why"]), (1, "skipped", "no reference"))

    def test_what_hangs_is_ended_with_all_it_started(self):
        self.program("test_gpu", HANGS)
        start = time.monotonic()
        # Enough to begin on a machine that is busy with other tests, and far less than what it sleeps.
        status, results, _, _ = self.go("--only", "^kernels$", "--minutes", "0.15")
        self.assertLess(time.monotonic() - start, 60)
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
        with open(HERE + "/../tests/mpi/main.cpp") as file:
            timeout = float(re.search(r"longest_wait = (\d+);", file.read())[1])
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
        self.assertEqual(judge(0, tests + "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"), "failed")
        self.assertEqual(judge(0, tests + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"), "passed")
        self.assertEqual(judge(1, "========= Error: Device not supported\n"), "skipped")
        # It does not take this machine, whatever became of the tests and of its count.
        for words in ["Error: Device not supported. Please refer to the documentation", "Internal Sanitizer Error: no injection",
                      "Target application terminated before first instrumented API call"]:
            for rest in ["========= ERROR SUMMARY: 1 error\n", "[ RUN      ] A.two\nno device\n[  FAILED  ] A.two (1 ms)\n"]:
                self.assertEqual(judge(1, "========= " + words + "\n" + rest), "skipped", words)
        self.assertEqual(judge(0, "========= ERROR SUMMARY: 0 errors\n"), "skipped")  # and no test was run
        found = "========= Invalid __global__ read of size 4 bytes\n"
        self.assertEqual(judge(1, found + "========= Internal Sanitizer Error: x\n========= ERROR SUMMARY: 2 errors\n"), "failed")
        self.assertEqual(judge(None, tests), "timed out")
        self.assertEqual(judge(1, "[ RUN      ] A.two\n[  FAILED  ] A.two (1 ms)\n========= ERROR SUMMARY: 0 errors\n"), "failed")


class Build(unittest.TestCase):
    """bench/gpu.sh where it builds: on a compiler that only pretends, and a gpu.py that says what it was given."""

    def build(self, *options, cmake="exit 0"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.makedirs(folder.name + "/bench")
        os.mkdir(folder.name + "/bin")
        with open(HERE + "/gpu.sh") as ours, open(folder.name + "/bench/gpu.sh", "w") as copy:
            copy.write(ours.read())
        with open(folder.name + "/bench/gpu.py", "w") as file:
            file.write("import sys; print('gpu.py', *sys.argv[1:])")
        for name, script in [("nvidia-smi", "printf '8.0\\n9.0\\n9.0\\n'"), ("cmake", 'echo "cmake $*" >> "$LOG"; ' + cmake)]:
            with open(folder.name + "/bin/" + name, "w") as file:
                file.write("#!/bin/sh\n" + script + "\n")
            os.chmod(folder.name + "/bin/" + name, 0o700)
        log = folder.name + "/log"
        done = subprocess.run(["bash", folder.name + "/bench/gpu.sh", *options], capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, LOG=log, PATH=folder.name + "/bin:" + os.environ["PATH"]))
        with open(log) as file:
            return done, file.read()

    def test_for_the_gpus_of_this_machine_and_whatever_a_compiler_warns_of(self):
        done, log = self.build("--only", "x")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=80-real;90a-real", log)
        self.assertIn("-DCMAKE_COMPILE_WARNING_AS_ERROR=OFF", log)
        self.assertRegex(done.stdout, "gpu.py .*build/gpu --only x")

    def test_for_one_architecture(self):
        done, log = self.build("--architectures", "90a", "--only", "x")
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=90a-real ", log)
        self.assertRegex(done.stdout, "gpu.py .*build/gpu --only x")

    def test_what_the_compiler_says_is_shown_whole(self):
        errors = "\\n".join(f"x.cu({line}): error: no" for line in range(200))
        done, _ = self.build(cmake=f"""case "$*" in *--build*) echo '[1/9] Building CUDA object y'; printf '{errors}\\n'; exit 1;; esac""")
        self.assertNotEqual(done.returncode, 0)
        said = done.stdout + done.stderr
        self.assertEqual([line in said for line in (f"x.cu({n}): error: no" for n in range(200))], [True] * 200)
        self.assertNotIn("gpu.py", said)


class Bundle(unittest.TestCase):
    """A bundle on a machine with this C library."""

    def said(self, found, program="c-library.sh", needed="2.36"):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/bin")
            shutil.copy(HERE + "/../docker/c-library.sh", folder)
            with open(folder + "/c-library", "w") as file:
                file.write(needed + "\n")
            with open(folder + "/bin/getconf", "w") as file:
                file.write(f"#!/bin/sh\n[ -n '{found}' ] && echo glibc {found}\n")
            os.chmod(folder + "/bin/getconf", 0o700)
            command = [folder + "/c-library.sh"] if program == "c-library.sh" else ["bash", HERE + "/gpu.sh", folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60,
                                  env=dict(os.environ, PATH=folder + "/bin:" + os.environ["PATH"]))
            return done.returncode, done.stderr.strip()

    def test_needs_a_c_library_that_is_no_older(self):
        for found in ["2.36", "2.39", "3.0", "2.100"]:
            self.assertEqual(self.said(found), (0, ""), found)
        for found in ["2.34", "2.35", "2.9", ""]:
            status, words = self.said(found)
            self.assertEqual((status, words.count("\n")), (1, 0), found)
            self.assertIn("glibc 2.36 or later, and this machine has " + (found or "no glibc"), words)

    def test_gpu_sh_says_so_as_well(self):
        status, words = self.said("2.35", "gpu.sh")
        self.assertEqual(status, 1)
        self.assertIn("glibc 2.36 or later, and this machine has 2.35", words)


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
            step.commands_of = lambda name, B, microbatches, o, has_torch: [
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
        # 512 sequences of 1024 tokens a step all the same.
        self.assertEqual((row["batch"], row["microbatches"]), (8, 64))
        self.assertEqual((row["tokens_per_second"], row["peers"][0]["tokens_per_second"]), (2**19, 2**18))

    def test_what_never_fits_is_said(self):
        row, _ = self.measure("cuda", 0, 8)
        self.assertEqual(row, {"name": "gpt2-124m-bf16", "why": "error: this run needs 9.00 GiB"})
        row, _ = self.measure("cuda", 8, 0)
        self.assertEqual((row["batch"], row["peers"][0]["why"]), (1, "error: CUDA out of memory. Tried to get 2 MiB"))


if __name__ == "__main__":
    unittest.main()
