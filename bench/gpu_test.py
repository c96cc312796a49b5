#!/usr/bin/env python3
"""bench/gpu.py on programs that only pretend: what it makes of those that pass, fail, die, hang, print too much or are not
there."""
import argparse, glob, json, os, re, shutil, stat, subprocess, sys, tempfile, time, unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import gaps, gpu, gpu_report, parts, predictions, step  # noqa: E402

NAP = f"987.{os.getpid()}"  # seconds, as no other process sleeps
PASSES = """echo '[ RUN      ] A.one'; echo '[       OK ] A.one (3 ms)'"""
FAILS = """echo '[ RUN      ] A.two'; echo 'x.cpp:7: Failure'; echo '1 is not 2'; echo '[  FAILED  ] A.two, where GetParam() = 3 (1 ms)'; exit 1"""
SKIPS = """echo '[ RUN      ] A.three'; echo 'x.cpp:9: Skipped'; echo 'no reference'; echo ''; echo '[  SKIPPED ] A.three (0 ms)'"""
DIES = """echo '[ RUN      ] A.four'; kill -SEGV $$"""
HANGS = f"""(setsid sleep {NAP} &) ; echo '[ RUN      ] A.five'; sleep {NAP}"""
A_GPU = """echo '{"name": "NVIDIA Pretence 9000", "runtime": "13.0", "compute_capability": "8.0"}'"""
HOPPER = """echo '{"name": "NVIDIA H100 80GB HBM3", "runtime": "13.0", "compute_capability": "9.0"}'"""
# Lists tests like GoogleTest, then runs one at a time; the third one poisons its process.
OPS = """case "$*" in
*--gtest_list_tests*) printf 'All/DeviceOps.\\n  AgreesWithItsTwin/gelu  # GetParam() = 8-byte object\\n  AgreesWithItsTwin/add\\nDeviceBits.\\n  Masks\\n';;
*=All/DeviceOps.AgreesWithItsTwin/gelu) echo '[ RUN      ] All/DeviceOps.AgreesWithItsTwin/gelu'; kill -SEGV $$;;
*=All/DeviceOps.AgreesWithItsTwin/add) echo '[ RUN      ] All/DeviceOps.AgreesWithItsTwin/add'; echo '[       OK ] All/DeviceOps.AgreesWithItsTwin/add (2 ms)';;
*=DeviceBits.Masks) echo '[ RUN      ] DeviceBits.Masks'; sleep ${MASKS:-0}; echo '[       OK ] DeviceBits.Masks (4 ms)';;
*) echo "not one test: $*"; exit 1;; esac"""
JSON_PLACE = 'while [ "$1" != --json ]; do shift; done;'
ROW = {"op": "gelu_forward", "shape": "124M", "dtype": "bf16", "seconds": 1e-5, "bytes": 2e7, "flops": 1e8, "of_limit": 0.5}


def part_of(results, name):
    return next(part for part in results["parts"] if part["name"] == name)


class OnStandIns(unittest.TestCase):
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
        self.program("bench_kernels", f"""case "$*" in *--describe*) {describe};; *) {JSON_PLACE} echo '{rows}' > "$2";; esac""")

    def go(self, *options):
        """Exit status, results (None without a file), standard output and error."""
        out = self.folder + "/out"
        done = subprocess.run([sys.executable, HERE + "/gpu.py", self.folder, "--out", out, *options], capture_output=True,
                              text=True, timeout=100, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        self.assertLess(len(done.stdout) + len(done.stderr), 10000)
        files = [path for path in glob.glob(out + "/*.json") if not path.endswith(".gemm.json")]
        self.assertLessEqual(len(files), 1, files)
        results = None
        if files:
            with open(files[0]) as file:
                results = json.load(file)
        return done.returncode, results, done.stdout, done.stderr


class Gpu(OnStandIns):
    def test_all_is_well(self):
        self.program("test_gpu", PASSES)
        status, results, printed, _ = self.go("--only", "^ops|^kernels|NCCL")
        self.assertEqual(status, 0)
        self.assertTrue(results["passed"] and results["complete"])
        parts = {part["name"]: part for part in results["parts"]}
        self.assertEqual(parts["ops"]["tests"], [{"name": "A.one", "outcome": "passed", "seconds": 0.003}])
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
            *--tune*) {JSON_PLACE} echo a table > "$2"; echo row; echo 9 ms, 8 ms tuned;;
            *) exit 1;; esac""")
        status, results, printed, _ = self.go("--only", "^ops$|^tune$")
        self.assertEqual(status, 0)
        part = next(part for part in results["parts"] if part["name"] == "tune")
        self.assertEqual((part["outcome"], part["output"]), ("passed", "row\n9 ms, 8 ms tuned"))
        self.assertIn("gpt2_124m.toml", part["command"])
        self.assertRegex(part["file"], r"^nvidia-pretence-9000-\d{8}-\d{6}\.gemm\.json$")
        with open(os.path.join(self.folder, "out", part["file"])) as file:
            self.assertEqual(file.read(), "a table\n")
        self.assertRegex(printed, "tune +passed .* nvidia-pretence-9000")
        # Without the configs it is skipped.
        os.mkdir(self.folder + "/configs")
        for path in glob.glob(self.folder + "/out/*"):
            os.remove(path)
        _, results, _, _ = self.go("--only", "^ops$|^tune$")
        part = next(part for part in results["parts"] if part["name"] == "tune")
        self.assertEqual(part["outcome"], "skipped")
        self.assertRegex(part["why"], r"there is no .*/configs/gpt2_124m.toml")

    def test_without_a_gpu_nothing_is_written(self):
        self.program("test_gpu", PASSES)
        self.kernels("echo 'no GPU here, or no driver for it' >&2; exit 1")
        status, results, _, error = self.go()
        self.assertEqual((status, results), (3, None))
        self.assertIn("no GPU here", error)

    def test_a_program_that_does_not_start_says_nothing_about_a_gpu(self):
        self.kernels("echo 'bench_kernels: error while loading shared libraries: libopen-rte.so.40' >&2; exit 127")
        status, results, _, error = self.go()
        self.assertEqual((status, results), (1, None))
        self.assertIn("error while loading shared libraries", error)

    def test_a_packed_bundle_and_the_folder_that_out_names(self):
        self.program("test_gpu", PASSES)
        packed = self.folder + ".tar.xz"
        self.addCleanup(os.remove, packed)
        subprocess.run(["tar", "-C", os.path.dirname(self.folder), "-cJf", packed, os.path.basename(self.folder)], check=True)
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(["bash", HERE + "/gpu.sh", packed, "--only", "^ops$"], capture_output=True, text=True, timeout=60,
                                  env=dict(os.environ, OUT=out, PYTHONDONTWRITEBYTECODE="1"))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(glob.glob(out + "/*.json")), 1)

    def test_what_fails_is_named_and_the_rest_goes_on(self):
        self.program("test_gpu", PASSES + "\n" + FAILS)
        status, results, printed, _ = self.go("--only", "^ops$|^kernels$")
        self.assertEqual(status, 1)
        self.assertFalse(results["passed"])
        ops = part_of(results, "ops")
        self.assertEqual(ops["outcome"], "failed")
        self.assertEqual(ops["tests"][1]["why"], "x.cpp:7: Failure\n1 is not 2")
        self.assertIn("failed: A.two", printed)
        self.assertEqual(results["kernels"]["rows"], [ROW])

    def test_a_program_that_dies_names_the_test(self):
        self.program("test_gpu", PASSES + "\n" + DIES)
        status, results, printed, _ = self.go("--only", "^ops$")
        self.assertEqual(status, 1)
        self.assertEqual(part_of(results, "ops")["tests"][1]["outcome"], "died")
        self.assertIn("died: A.four", printed)

    def test_what_a_fault_has_spoilt_is_run_again_apart(self):
        self.program("test_gpu", OPS)
        status, results, printed, _ = self.go("--only", "^ops$")
        part = part_of(results, "ops")
        self.assertEqual((status, part["outcome"], part["why"]), (1, "failed", "1 of 3 tests"))
        self.assertEqual([(t["name"], t["outcome"]) for t in part["tests"]],
                         [("All/DeviceOps.AgreesWithItsTwin/gelu", "died"), ("All/DeviceOps.AgreesWithItsTwin/add", "passed"),
                          ("DeviceBits.Masks", "passed")])
        self.assertIn("died: All/DeviceOps.AgreesWithItsTwin/gelu", printed)

    def test_an_error_that_stays_spoils_what_follows_and_no_finding_before(self):
        """The first finds a wrong number, the second throws, the third fails in the same process alone."""
        self.program("test_gpu", """ok() { echo "[ RUN      ] A.$1"; echo "[       OK ] A.$1 (1 ms)"; }
            no() { echo "[ RUN      ] A.$1"; echo "$2"; echo "[  FAILED  ] A.$1 (1 ms)"; }
            thrown='C++ exception with description "cudaMalloc failed: an illegal memory access" thrown in the test body.'
            case "$*" in *--gtest_list_tests*) printf 'A.\\n  wrong\\n  throws\\n  spoilt\\n';;
            *=A.wrong) ok wrong;;
            *=A.throws) no throws "$thrown at ${CUDA_LAUNCH_BLOCKING-once}"; exit 1;; *=A.spoilt) ok spoilt;;
            *) no wrong '1 is not 2'; no throws "$thrown"; no spoilt "$thrown"; exit 1;; esac""")
        _, results, _, _ = self.go("--only", "^ops$")
        found = {t["name"]: t for t in part_of(results, "ops")["tests"]}
        self.assertEqual({name: t["outcome"] for name, t in found.items()},
                         {"A.wrong": "failed", "A.throws": "failed", "A.spoilt": "passed"})
        self.assertTrue(found["A.throws"]["why"].endswith("at 1"), found)

    def test_one_that_fails_beside_others_alone_has_failed(self):
        self.program("test_gpu", OPS.replace("AgreesWithItsTwin/gelu'; kill -SEGV $$", "AgreesWithItsTwin/gelu'; "
                                             "echo '[       OK ] All/DeviceOps.AgreesWithItsTwin/gelu (2 ms)'")
                     .replace('*) echo "not one test: $*"; exit 1;;', "*) echo '[ RUN      ] All/DeviceOps.AgreesWithItsTwin/gelu'; kill -SEGV $$;;"))
        status, results, _, _ = self.go("--only", "^ops$")
        gelu = next(t for t in part_of(results, "ops")["tests"] if t["name"].endswith("gelu"))
        self.assertEqual((status, gelu["outcome"]), (1, "failed"))
        self.assertIn("it passes alone", gelu["why"])

    def test_an_op_that_hangs_leaves_time_to_the_others(self):
        self.program("test_gpu", OPS.replace("; kill -SEGV $$", f"; sleep {NAP}").replace('*) echo "not one test: $*"; exit 1;;', f"*) sleep {NAP};;"))
        part = parts.Part("ops", "test", [self.folder + "/bin/test_gpu", "--gtest_filter=All*:Device*"], 2, apart=6)
        found = parts.run_part(part, 2, self.folder + "/log")
        self.assertEqual([(t["name"].rsplit("/", 1)[-1], t["outcome"]) for t in found["tests"]],
                         [("gelu", "timed out"), ("add", "passed"), ("DeviceBits.Masks", "passed")])
        self.assertEqual(found["outcome"], "timed out")

    def test_a_bench_goes_on_behind_a_row_that_faults(self):
        """The first row is measured, the second is left out by a GPU that is lost, the third dies, the fourth is measured."""
        rows = lambda *names: [dict(ROW, shape=name) for name in names]
        first = {"limits": {}, "rows": rows("one"), "left_out": [{"row": "two", "why": "misaligned"}], "running": "two"}
        second = {"limits": {}, "rows": [], "left_out": [], "running": "three"}
        third = {"limits": {}, "rows": rows("four"), "left_out": []}
        self.program("bench_kernels", f"""case "$*" in *--describe*) {A_GPU};;
            *'--after three'*) {JSON_PLACE} echo '{json.dumps(third)}' > "$2";;
            *'--after two'*) {JSON_PLACE} echo '{json.dumps(second)}' > "$2"; kill -SEGV $$;;
            *) {JSON_PLACE} echo '{json.dumps(first)}' > "$2"; echo 'bench_kernels: cudaMemGetInfo failed'; exit 1;; esac""")
        _, results, printed, _ = self.go("--only", "^kernels$")
        self.assertEqual([row["shape"] for row in results["kernels"]["rows"]], ["one", "four"])
        self.assertEqual(results["kernels"]["left_out"],
                         [{"row": "two", "why": "misaligned"}, {"row": "three", "why": "the program ended in it"}])
        self.assertEqual(part_of(results, "kernels")["outcome"], "failed")
        self.assertEqual(part_of(results, "kernels")["faults"], ["bench_kernels: cudaMemGetInfo failed", ""])
        self.assertIn("three: left out: the program ended in it", printed)

    def test_ranks_that_share_a_gpu_are_last_and_not_fatal(self):
        self.program("test_gpu", PASSES)
        self.program("test_mpi", FAILS)
        self.program("mpirun", 'while [ "$1" != -n ]; do shift; done; shift 2; exec "$@"', "")
        status, results, printed, _ = self.go("--only", "^ops$|^NCCL")
        outcomes = {part["name"]: part["outcome"] for part in results["parts"]}
        shared = ["NCCL, 2 ranks on one GPU", "NCCL, 3 ranks on one GPU"]
        self.assertEqual([outcomes[name] for name in shared], ["failed", "failed"])
        self.assertEqual((status, results["passed"]), (0, True))
        self.assertIn("failed: A.two", printed)
        self.program("nvidia-smi", "echo A; echo B")
        os.environ["PATH"] = self.folder + "/bin:" + os.environ["PATH"]
        self.addCleanup(os.environ.update, PATH=os.environ["PATH"].split(":", 1)[1])
        for path in glob.glob(self.folder + "/out/*"):
            os.remove(path)
        status, results, _, _ = self.go("--only", "^ops$|^NCCL, a GPU each$")
        self.assertEqual((status, results["passed"]), (1, False))

    def test_verify_compares_with_the_cpu(self):
        self.program("test_gpu", PASSES)
        self.program("megalith", 'case "$*" in *fp16*) echo "wte differs"; exit 1;; esac; [ -f "$2" ]', "")
        self.program("mpirun", 'while [ "$1" != -n ]; do shift; done; shift 2; exec "$@"', "")
        os.rmdir(self.folder + "/reference")
        status, results, _, _ = self.go("--reference", self.folder + "/reference", "--only", "^training|^verify|share")
        self.assertIn("there is no reference", part_of(results, "training")["why"])
        for name, words in [("verify, fp32", "precision.compute=fp32"), ("verify, bf16, heads of 128", "precision.compute=bf16"),
                            ("verify, 2 ranks on one GPU", "communication.backend=mpi")]:
            part = part_of(results, name)
            self.assertEqual(part["outcome"], "passed", part)
            self.assertIn(words, part["command"])
            self.assertIn(" --against run.device=cpu", part["command"])
        part = part_of(results, "verify, fp16")
        self.assertEqual((part["outcome"], part["output"]), ("failed", "wte differs"))
        self.assertEqual(status, 1)

    def test_what_is_left_out_comes_with_the_command_for_it(self):
        self.program("test_gpu", PASSES)
        _, results, printed, _ = self.go("--minutes", "0")
        rest = re.search("--only '(.*)'", printed)[1]
        left = [part["name"] for part in results["parts"] if part["why"] == "no time left"]
        self.assertIn("kernels", left)
        self.assertEqual([part["name"] for part in results["parts"] if re.search(rest, part["name"])], left)

    def test_what_was_predicted_stands_beside_what_was_measured(self):
        self.program("test_gpu", PASSES)
        predicted = next(rate for _, where, row, rate in predictions.PREDICTIONS
                         if (where, row) == (predictions.KERNELS, "attention_forward/B4 T4096 H32 D64/bf16"))
        row = dict(ROW, op="attention_forward", shape="B4 T4096 H32 D64", flops=predicted / 2 * 1e12, seconds=0.5)
        self.kernels(HOPPER, row)
        status, results, printed, _ = self.go("--only", "^ops$|^kernels$|generation 8")
        compared = {one["row"]: one for one in results["predictions"] if one["where"] == "kernels"}
        self.assertEqual(compared["attention_forward/B4 T4096 H32 D64/bf16"],
                         {"where": "kernels", "row": "attention_forward/B4 T4096 H32 D64/bf16", "predicted": predicted,
                          "measured": predicted, "ratio": 1})
        self.assertIsNone(compared["attention_forward/B4 T4096 H16 D128/bf16"]["measured"])
        self.assertRegex(printed, f"attention_forward/B4 T4096 H32 D64/bf16 +predicted +{predicted} TFLOP/s, measured {predicted}: 1.00 of it")
        self.assertRegex(printed, r"attention_forward/B4 T4096 H16 D128/bf16 +predicted +\d+ TFLOP/s, not measured")
        # A Hopper runs the older kernels as well, and no other GPU does.
        self.assertEqual(results["kernels_of_generation_8"]["rows"], [row])
        known = lambda capability: {part.name: part for part in gpu.make_parts(
            argparse.Namespace(folder=self.folder, reference=self.folder, device="cuda"), 1, self.folder, capability)}
        older = known("9.0")["attention of generation 8"]
        self.assertIsNone(older.why_not)
        self.assertIn("--generation 8", " ".join(older.command))
        self.assertIn("Hopper's own kernels", known("8.0")["attention of generation 8"].why_not)
        self.assertEqual({one["where"] for one in predictions.compare("NVIDIA Pretence 9000", results)}, {"graphs"})

    def test_clocks_of_a_step_are_those_of_its_rounds(self):
        path = self.folder + "/smi.csv"
        with open(path, "w") as file:
            file.write("timestamp, clocks.current.sm [MHz], power.draw [W], utilization.gpu [%]\n")
            for second, mhz in enumerate([1980, 1500, 1400, 1980]):
                file.write(f"2026/11/27 15:00:0{second}.250, {mhz} MHz, 700.0 W, 99 %\n")
            file.write("2026/11/27 15:00:0")  # cut off
        began = gpu_report.time_of({"timestamp": "2026/11/27 15:00:01.000"})
        results = {"steps": {"rows": [{"name": "a", "times": [(began, began + 1), (began + 1, began + 2)], "peers": [{"times": []}]}]}}
        gpu_report.add_clocks_of_steps(results, path)
        row, = results["steps"]["rows"]
        self.assertEqual(row["clocks"]["sm_mhz"], {"least": 1400, "median": 1450, "most": 1500})
        self.assertEqual(gpu_report.during(row), ", 1450 MHz, 700 W")
        self.assertNotIn("clocks", row["peers"][0])
        self.assertEqual(gpu_report.clocks_of(path)["sm_mhz"]["most"], 1980)

    def test_gaps_between_kernels_are_those_of_the_last_round(self):
        self.program("nsys", """case $1 in profile) cat > "$(dirname "$0")/asked";; stats) echo 'Processing [x.sqlite] with ...'
            echo 'Start (ns),Duration (ns),Strm,Name'
            echo '0,1000,7,"void megalith::(anonymous namespace)::first<float>(int)"'
            echo '1500,1000,7,"second(int)"'
            echo '900000,2000,7,"void megalith::cuda::attention::first<float>(int)"'
            echo '900500,4500,13,"copy"'
            echo '900600,100,7,"inside"'
            echo '905000,1000,7,"second(int)"'
            echo '909000,1000,7,"second(int)"';; esac""")
        path = dict(os.environ, PATH=self.folder + "/bin:" + os.environ["PATH"])
        done = subprocess.run([sys.executable, HERE + "/gaps.py", "bench_step"], env=path, capture_output=True, text=True)
        self.assertEqual(done.stdout, "0.01 ms with 5 launches and copies: none runs for 0.00 ms (30.0 %), in 1 pause\n"
                         "   0.003 ms in    1 x    3.0 us: second -> second\n", done.stderr)
        with open(self.folder + "/bin/asked") as file:
            self.assertEqual(file.read(), "go\ngo\n")
        rows = gaps.read_trace("Start (ns),Duration (ns),Name\n5,1,a\n")
        self.assertEqual((gaps.last_round(rows), gaps.gaps_of(rows)), (rows, []))

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

    def test_the_first_parts_have_their_time_in_nine_minutes_whatever_hangs(self):
        self.assertEqual(gpu.options(["FOLDER"]).minutes, 9)
        options = argparse.Namespace(folder=self.folder, reference=self.folder, device="cuda")
        all_parts = gpu.make_parts(options, 1, self.folder, "9.0")
        first = all_parts[:[part.name for part in all_parts].index("PyTorch's steps")]
        self.assertLessEqual(gpu.DESCRIBE + sum(part.seconds + part.apart for part in first), 9 * 60)

    def test_of_a_report_that_is_too_long_the_end_is_kept(self):
        wrong = [{"name": f"A.{n}", "outcome": "failed", "why": "1 is not 2"} for n in range(5)]
        results = {"passed": False, "predictions": [], "kernels": {"rows": [dict(ROW, op=f"op {n}") for n in range(400)]},
                   "parts": [{"name": "ops", "kind": "test", "outcome": "failed", "command": "x", "seconds": 1, "why": "5 of 9",
                              "tests": wrong}]}
        lines = gpu_report.text(results, "a.json").splitlines()
        self.assertLess(sum(map(len, lines)) + len(lines), 8000)
        self.assertRegex(lines[0], r"^\(\d+ more lines are in the file\)$")
        self.assertEqual(lines[-1], "NOT PASSED; a.json")
        self.assertEqual([line.split(":")[1] for line in lines if line.startswith("    failed")], [f" A.{n}" for n in range(5)])
        self.assertTrue(any("op 399 " in line for line in lines), "the last rows, which come before")
        self.assertFalse(any("op 0 " in line for line in lines))

    def test_nothing_but_skipped_tests_is_no_pass(self):
        self.program("test_gpu", SKIPS)
        status, results, _, _ = self.go("--only", "^ops$")
        self.assertEqual((status, part_of(results, "ops")["outcome"], part_of(results, "ops")["why"]), (1, "skipped", "no reference"))

    def test_what_hangs_is_ended_with_all_it_started(self):
        self.program("test_gpu", HANGS)
        start = time.monotonic()
        # Enough to begin on a machine that is busy with other tests, and far less than it sleeps.
        status, results, _, _ = self.go("--only", "^ops$", "--minutes", "0.15")
        self.assertLess(time.monotonic() - start, 60)
        self.assertEqual((status, part_of(results, "ops")["outcome"]), (1, "timed out"))
        left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        self.assertNotIn(f"sleep {NAP}", left)

    def test_no_time_left(self):
        self.program("test_gpu", PASSES)
        status, results, _, _ = self.go("--minutes", "0")
        self.assertEqual((status, part_of(results, "ops")["why"]), (1, "no time left"))
        self.assertEqual({part["outcome"] for part in results["parts"]}, {"skipped"})

    def test_colours_are_passed_over(self):
        text = "\x1b[0;32m[ RUN      ] \x1b[mA.one\r\n\x1b[0;31m[  FAILED  ] \x1b[mA.one (3 ms)\r\n"
        self.assertEqual(parts.read_gtest(text), [{"name": "A.one", "outcome": "failed", "seconds": 0.003}])

    def test_initcheck_finds_memory_uninitialized(self):
        self.program("compute-sanitizer", """echo "$*: ${MEGALITH_LEAVE_UNINITIALIZED-initialized}"; echo '= ERROR SUMMARY: 1 error'""")
        self.program("test_gpu", PASSES)
        os.environ["PATH"] = self.folder + "/bin:" + os.environ["PATH"]
        self.addCleanup(os.environ.update, PATH=os.environ["PATH"].split(":", 1)[1])
        _, results, _, _ = self.go("--only", "check")
        said = {part["name"]: part["output"].splitlines()[0] for part in results["parts"] if "output" in part}
        self.assertEqual({tool: line.rsplit(" ", 1)[1] for tool, line in said.items()},
                         {"memcheck": "initialized", "memcheck, all ops": "initialized", "racecheck": "initialized", "initcheck": "1"})
        self.assertTrue(said["memcheck"].startswith("--tool memcheck --kernel-name kns=megalith --report-api-errors no "), said)

    def test_a_hang_is_named_before_its_time_is_up(self):
        with open(HERE + "/../tests/mpi/main.cpp") as file:
            timeout = float(re.search(r"longest_wait = (\d+);", file.read())[1])
        options = argparse.Namespace(folder=self.folder, reference=self.folder + "/reference", device="cuda")
        for part in gpu.make_parts(options, 1, self.folder) + gpu.make_parts(options, 8, self.folder):
            if part.name.startswith("NCCL"):
                self.assertGreaterEqual(part.seconds, 4 * timeout, part.name)

    def test_what_a_sanitizer_says(self):
        part = parts.Part("memcheck", "sanitizer", [], 60)
        judge = lambda status, text: parts.judge(part, status, text)["outcome"]
        tests = "[ RUN      ] A.one\n[       OK ] A.one (3 ms)\n"
        self.assertEqual(judge(0, tests + "========= ERROR SUMMARY: 0 errors\n"), "passed")
        self.assertEqual(judge(0, tests + "========= ERROR SUMMARY: 3 errors\n"), "failed")
        self.assertEqual(judge(0, tests + "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"), "failed")
        self.assertEqual(judge(0, tests + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"), "passed")
        self.assertEqual(judge(1, "========= Error: Device not supported\n"), "skipped")
        # It refuses this machine, whatever the results of the tests.
        for words in ["Error: Device not supported. Please refer to the documentation", "Internal Sanitizer Error: no injection",
                      "Target application terminated before first instrumented API call"]:
            for rest in ["========= ERROR SUMMARY: 1 error\n", "[ RUN      ] A.two\nno device\n[  FAILED  ] A.two (1 ms)\n"]:
                self.assertEqual(judge(1, "========= " + words + "\n" + rest), "skipped", words)
        self.assertEqual(judge(0, "========= ERROR SUMMARY: 0 errors\n"), "skipped")  # and no test was run
        found = "========= Invalid __global__ read of size 4 bytes\n"
        self.assertEqual(judge(1, found + "========= Internal Sanitizer Error: x\n========= ERROR SUMMARY: 2 errors\n"), "failed")
        self.assertEqual(judge(None, tests), "timed out")
        self.assertEqual(judge(1, "[ RUN      ] A.two\n[  FAILED  ] A.two (1 ms)\n========= ERROR SUMMARY: 0 errors\n"), "failed")


# Stand-ins for a whole call. The GPU's program of tests dies in one op of many and passes each alone; what trains writes losses.
EVERYTHING = {
    "test_gpu": OPS.replace('*) echo "not one test: $*"; exit 1;;',
                            """*All/DeviceOps*) echo '[ RUN      ] All/DeviceOps.AgreesWithItsTwin/gelu'; kill -SEGV $$;;
                            *) echo '[ RUN      ] Of/GpuTraining.x'; echo '[       OK ] Of/GpuTraining.x (9 ms)';;"""),
    "bench_step": """echo '{"model_flops": 1e12, "peak_flops": 1e15, "floor": 0.5, "floor_operations": 0.4, "floor_bytes": 0.1, \
        "memory_planned": 2e10, "memory_in_use": 3e10}'; while read line; do echo '{"seconds": 1.0}'; done""",
    "ncu": """i=0; while [ $i -lt 20000 ]; do echo "kernel Context $i, Duration us 3, which fills a line and then some more of it"; i=$((i+1)); done""",
    "compute-sanitizer": f"sleep {NAP}",
    "nvidia-smi": """case "$*" in *-lms*) echo 'timestamp, clocks.current.sm [MHz], power.draw [W], utilization.gpu [%]'
        while :; do echo "$(date '+%Y/%m/%d %H:%M:%S.%3N'), 1980 MHz, 612.5 W, 99 %"; sleep 0.2; done;; *) echo 'NVIDIA H100 80GB HBM3, 580, 81559 MiB, 9.0, 700 W, 1980 MHz';; esac""",
}


class WholeCall(OnStandIns):
    """The order, with a part that fails, one that faults, one that hangs and one that prints too much."""

    def setUp(self):
        super().setUp()
        for name, script in EVERYTHING.items():
            self.program(name, script)
        self.kernels(HOPPER)
        loss = lambda shift: "".join(json.dumps({"step": n, "loss": 5 - 0.01 * n + shift, "grad_norm": 1 + shift}) + "\n" for n in range(50))
        os.mkdir(self.folder + "/fifty_steps")
        for name, shift in [("cpu", 0), ("other", 1e-6), ("gpu", 1e-3)]:
            with open(f"{self.folder}/fifty_steps/{name}.jsonl", "w") as file:
                file.write(loss(shift))
        self.program("megalith", f"""case "$*" in *compute=fp32*) echo "wte differs from step 1 on"; exit 1;; esac
            for word; do case $word in run.output=*) mkdir -p "${{word#run.output=}}"
            cp {self.folder}/fifty_steps/gpu.jsonl "${{word#run.output=}}/metrics.jsonl";; esac; done""", "")
        os.environ["PATH"] = self.folder + "/bin:" + os.environ["PATH"]
        self.addCleanup(os.environ.update, PATH=os.environ["PATH"].split(":", 1)[1])

    def test_all_else_is_there_in_its_time(self):
        start = time.monotonic()
        status, results, printed, said = self.go("--limit-factor", "0.1", "--minutes", "1.2")
        self.assertLess(time.monotonic() - start, 90)
        self.assertEqual((status, results["complete"], results["passed"]), (1, True, False))
        outcomes = {part["name"]: part["outcome"] for part in results["parts"] if "command" in part}
        first = ["verify, bf16, heads of 64", "verify, bf16, heads of 128", "kernels", "verify, products in 8 bits", "verify, fp32", "verify, fp16",
                 "verify, Llama's kind, residuals in fp32", "verify, Qwen 3's kind, heads of 128", "verify, NeoX's kind",
                 "verify, adapters, documents", "verify, Muon", "training", "ops", "families and Muon", "PyTorch's kernels",
                 "steps", "fifty steps", "ncu, attention_forward", "ncu, attention_backward", "memcheck"]
        self.assertEqual(list(outcomes)[:len(first)], first)
        wrong = {name: outcome for name, outcome in list(outcomes.items())[:len(first)] if outcome != "passed"}
        self.assertEqual(wrong, {"verify, fp32": "failed", "ops": "failed", "PyTorch's kernels": "skipped", "fifty steps": "failed",
                                 "memcheck": "timed out"})
        self.assertEqual(results["clocks"]["watts"]["median"], 612.5)
        self.assertEqual({test["outcome"] for test in part_of(results, "ops")["tests"]}, {"died", "passed"})
        for words in ["wte differs from step 1 on", "died: All/DeviceOps.AgreesWithItsTwin/gelu", "furthest from the CPU's by 1.00e-03",
                      "memory planned 18.63 GiB, in use 27.94", "TIMED OUT: memcheck"]:
            self.assertIn(words, printed)
        self.assertRegex(printed.splitlines()[-1], "^NOT PASSED; .*json$")
        with open(glob.glob(self.folder + "/out/*.log.txt")[0]) as file:
            log = file.read()
        self.assertIn("kernel Context 19999", log)
        self.assertEqual([name for name in outcomes if f"## {name}: " not in log], [])
        self.assertEqual(len(glob.glob(self.folder + "/out/*.train.jsonl")), 1)
        self.assertLessEqual(len(os.listdir(self.folder + "/out")), 8)

    def test_what_was_found_is_there_when_it_is_cut_off(self):
        """In the part that hangs, by a signal that is not reported."""
        process = subprocess.Popen([sys.executable, HERE + "/gpu.py", self.folder, "--out", self.folder + "/out", "--only", "verify, bf16|memcheck"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.program("compute-sanitizer", f"echo this far; while :; do sleep 1; done # {self.folder}")
        for line in process.stderr:
            if "memcheck" in line:
                break
        log, patience = "", time.monotonic() + 20
        while "this far" not in log and time.monotonic() < patience:
            with open(glob.glob(self.folder + "/out/*.log.txt")[0]) as file:
                log = file.read()
        process.kill()
        process.wait()
        process.stderr.close()
        self.addCleanup(subprocess.run, ["pkill", "-f", self.folder])
        self.assertEqual(subprocess.run(["pgrep", "-f", self.folder + "/bin/nvidia-smi"], capture_output=True).stdout, b"")
        self.assertIn("this far", log)
        with open(glob.glob(self.folder + "/out/*.json")[0]) as file:
            results = json.load(file)
        self.assertEqual((results["complete"], part_of(results, "verify, bf16, heads of 64")["outcome"]), (False, "passed"))


class Build(unittest.TestCase):
    """bench/gpu.sh where it builds: with a fake compiler, and a gpu.py that prints its arguments."""

    def build(self, *options, cmake="exit 0"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.makedirs(folder.name + "/bench")
        os.mkdir(folder.name + "/bin")
        with open(HERE + "/gpu.sh") as ours, open(folder.name + "/bench/gpu.sh", "w") as copy:
            copy.write(ours.read())
        with open(folder.name + "/bench/gpu.py", "w") as file:
            file.write("import sys; print('gpu.py', *sys.argv[1:])")
        with open(folder.name + "/bench/fifty_steps.sh", "w") as file:
            file.write('#!/bin/sh\necho "fifty_steps.sh $*" >> "$LOG"\n')
        os.chmod(folder.name + "/bench/fifty_steps.sh", 0o700)
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
        self.assertRegex(log, "fifty_steps.sh prepare .*build/gpu/trainer/megalith .*build/gpu/fifty_steps")
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


if __name__ == "__main__":
    unittest.main()
