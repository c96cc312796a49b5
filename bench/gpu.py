#!/usr/bin/env python3
"""The parts of bench/gpu.sh: runs each within its time, and writes what came of it. Needs no package beside Python's own.

FOLDER is a bundle (docker/bundle.sh --tests) or a build folder. Nothing that fails stops the rest; what does not fit
into the time, or is not there, is listed as skipped with the reason. The results file is written anew after each part.
"""
import argparse, ctypes, datetime, glob, json, os, platform, re, shutil, signal, subprocess, sys, tempfile, time

import predictions

HERE = os.path.dirname(os.path.abspath(__file__))
FORMAT = 1
TABLE = "gemm.json"
NO_GPU = 3


class Part:
    """`each`: seconds for each test, in a process of its own. One that is not `fatal` may fail and all still passes. What
    `read` returns is kept in the results by `key`. `keep`: a file that it writes, to lie beside the results; then they have
    the end of its output too."""

    def __init__(self, name, kind, command, seconds, env=None, read=None, why_not=None, each=None, fatal=True, key=None, keep=None):
        self.name, self.kind, self.command, self.seconds, self.key = name, kind, command, seconds, key
        self.env, self.read, self.why_not, self.each, self.fatal, self.keep = env or {}, read, why_not, each, fatal, keep


def end_descendants():
    """Ends whatever a part has left running; see adopt_orphans."""
    while True:
        parents = {}
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path) as file:
                    name, fields = file.read().rsplit(")", 1)
                if fields.split()[0] not in "ZX":
                    parents[int(name.split(" ")[0])] = int(fields.split()[1])
            except OSError:
                pass
        mine = {os.getpid()}
        while more := {child for child, parent in parents.items() if parent in mine} - mine:
            mine |= more
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        if len(mine) == 1:
            return
        for child in mine - {os.getpid()}:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


def adopt_orphans():
    """A process that outlives its parent becomes a child of this one, so that none is left running."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def run(command, seconds, env=None):
    """Exit status (None: out of time), output and time of a command; all that it started ends with it."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   env=dict(os.environ, **(env or {})))
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        end_descendants()
        process.poll()
        output.seek(0)
        return status, output.read().decode(errors="replace"), time.monotonic() - start


def list_tests(part, seconds):
    """The tests of a part's program by their full names; none where it cannot list them."""
    status, text, _ = run(part.command + ["--gtest_list_tests"], seconds, part.env)
    names, suite = [], ""
    for line in text.splitlines() if status == 0 else []:
        if m := re.match(r"(\S+\.)(\s|$)", line):
            suite = m[1]
        elif suite and (m := re.match(r"  (\S+)", line)):
            names.append(suite + m[1])
    return names


def run_each(part, seconds):
    """The part's tests, each in a process of its own: a kernel that faults spoils the GPU for its whole process."""
    start = time.monotonic()
    left = lambda: seconds - (time.monotonic() - start)
    names = list_tests(part, min(part.each, left()))
    if not names:
        status, text, _ = run(part.command, max(left(), 0), part.env)
        return judge(part, status, text)
    filter = next(i for i, word in enumerate(part.command) if word.startswith("--gtest_filter="))
    tests, outputs, late = [], [], False
    for name in names:
        if left() <= 0:
            tests.append({"name": name, "outcome": "skipped", "why": "no time left"})
            continue
        limit = min(part.each, left())
        late = late or limit < part.each
        command = part.command[:filter] + ["--gtest_filter=" + name] + part.command[filter + 1:]
        status, text, took = run(command, limit, part.env)
        found = read_gtest(text)[:1] or [{"name": name, "outcome": "died"}]
        if status is None:
            found = [{"name": name, "outcome": "timed out", "seconds": took}]
        elif status != 0 and found[0]["outcome"] == "passed":
            found[0].update(outcome="died", why=f"exit status {status}")
        tests += found
        if found[0]["outcome"] not in ("passed", "skipped"):
            outputs.append(f"{name}: {tail(text)}")
    count = lambda outcome: sum(t["outcome"] == outcome for t in tests)
    result = {"tests": tests}
    if outputs:
        result["output"] = "\n".join(outputs[:20])
    if wrong := count("failed") + count("died"):
        result.update(outcome="failed", why=f"{wrong} of {len(tests)} tests")
    elif not_over := count("timed out") + sum(t.get("why") == "no time left" for t in tests):
        result.update(outcome="timed out", why=f"{not_over} of {len(tests)} tests were not through")
    elif count("passed") == 0:
        result.update(outcome="skipped", why=next((t.get("why", "") for t in tests), ""))
    else:
        result["outcome"] = "passed"
    return result


def read_gtest(text):
    """[{name, outcome, seconds, why}] from GoogleTest's output, also where the program did not come to its end."""
    tests, name, said = [], None, []
    for line in re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", text).splitlines():  # coloured under mpirun, which has a terminal
        if m := re.match(r"\[ RUN      \] (\S+)", line):
            name, said = m[1], []
        elif name and (m := re.match(r"\[ +(OK|FAILED|SKIPPED) +\] " + re.escape(name) + r"\b.* \((\d+) ms\)", line)):
            outcome = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[m[1]]
            tests.append({"name": name, "outcome": outcome, "seconds": int(m[2]) / 1000})
            why = [s for s in said if s and not re.match(r"\S+:\d+: Skipped", s)]
            if outcome != "passed" and why:
                tests[-1]["why"] = "\n".join(why[:12])
            name = None
        elif name:
            said.append(line)
    if name:
        tests.append({"name": name, "outcome": "died", "why": "\n".join(said[-12:])})
    return tests


def tail(text, lines=25):
    return "\n".join(text.strip().splitlines()[-lines:])


# What compute-sanitizer says where it does not take the GPU, the driver or the container, and what it says of a kernel.
REFUSED = re.compile(r"={9} .*(Device not supported|Internal Sanitizer Error|terminated before first instrumented|"
                     r"No attachable process|not permitted|[Ff]ailed to (initialize|launch|inject))")
FOUND = re.compile(r"={9} +(Invalid|Uninitialized|Misaligned|Barrier|Program hit|(Error|Warning): .*(Race|hazard))")


def judge(part, status, text):
    """{outcome, ...}: passed, failed, timed out or skipped."""
    result = {}
    if part.kind in ("test", "sanitizer"):
        result["tests"] = tests = read_gtest(text)
    if part.kind == "sanitizer":
        m = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", text)
        found = m and any(int(n) for n in re.findall(r"(\d+) (?:error|hazard|warning)", m[1]))
        if (refused := REFUSED.search(text)) and not FOUND.search(text):
            result.update(outcome="skipped", why="the tool does not work here: " + refused[0].strip("= "))
        elif found or any(t["outcome"] in ("failed", "died") for t in tests):
            result.update(outcome="failed", why=m[1] if found else "tests failed under it", output=tail(text, 60))
        elif status is None:
            result.update(outcome="timed out", why=f"{sum(t['outcome'] == 'passed' for t in tests)} tests were through")
        elif status != 0 or not m:
            result.update(outcome="skipped", why="the tool does not work here: " + tail(text, 3))
        elif not any(t["outcome"] == "passed" for t in tests):
            result.update(outcome="skipped", why="no test was run under it")
        else:
            result["outcome"] = "passed"
    elif status is None:
        result.update(outcome="timed out", why="its time was up", output=tail(text))
    elif status != 0:
        result.update(outcome="failed", why=f"exit status {status}", output=tail(text))
    elif part.kind == "test" and all(t["outcome"] == "skipped" for t in tests):
        result.update(outcome="skipped", why=next((t.get("why", "") for t in tests), "no test of that name"))
    else:
        result["outcome"] = "passed"
    return result


def find(folder, name):
    """An executable in a bundle or a build folder."""
    for place in ["bin", "tests", "bench", "trainer"]:
        if os.access(path := os.path.join(folder, place, name), os.X_OK):
            return os.path.abspath(path)
    return None


# Heads of 64, which attention takes to tensor cores.
VERIFIED = """[model]
layers = 2
hidden = 256
heads = 4
vocab = 1000
context = 128
dropout = 0.1
[batch]
global_batch_size = 4
microbatch_size = 2
"""


def make_parts(o, gpus, work, capability=""):
    """All parts, in order of importance, for GPUs of a compute capability."""
    test_gpu, mpi = find(o.folder, "test_gpu"), find(o.folder, "test_mpi")
    kernels, step = find(o.folder, "bench_kernels"), find(o.folder, "bench_step")
    wrapped = os.path.abspath(os.path.join(o.folder, "mpirun"))
    mpirun = wrapped if os.path.exists(wrapped) else shutil.which("mpirun")
    wrapped = os.path.abspath(os.path.join(o.folder, "megalith"))
    program = wrapped if os.path.isfile(wrapped) else find(o.folder, "megalith")
    places = {"MEGALITH_PROGRAM": program, "MEGALITH_MPIRUN": mpirun, "MEGALITH_REFERENCE": o.reference}
    places = {name: place for name, place in places.items() if place}
    absent = lambda *needed: next((f"there is no {what} in {o.folder}" for what, path in needed if not path), None)

    def tests(name, filter, seconds, why_not=None, each=None):
        return Part(name, "test", [test_gpu, "--gtest_filter=" + filter], seconds, places,
                    why_not=absent(("test_gpu", test_gpu)) or why_not, each=each)

    def ranks(name, count, filter, seconds, why_not=None, fatal=True):
        command = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(count), mpi, "--gtest_filter=" + filter]
        # Of one machine; where ranks share a GPU, the tests make NCCL take them for ranks of several.
        env = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
        return Part(name, "test", command, seconds, env, fatal=fatal,
                    why_not=absent(("test_mpi", mpi), ("mpirun", mpirun)) or why_not)

    def verify(name, count, options, seconds, why_not=None):
        """Every tensor of a step of a small model with made-up text, on the GPU and on the CPU."""
        config = os.path.join(work, "verify.toml")
        with open(config, "w") as file:
            file.write(VERIFIED)
        command = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(count)] if count > 1 else []
        command += [program, "verify", config, "run.device=cuda"] + options + ["--against", "run.device=cpu", "--steps", "2"]
        return Part(name, "check", command, seconds,
                    why_not=absent(("megalith", program), *([("mpirun", mpirun)] if count > 1 else [])) or why_not)

    def bench(name, key, command, options, seconds, why_not):
        path = os.path.join(work, key + ".json")
        def read():
            with open(path) as file:
                return json.load(file)
        return Part(name, "bench", command + ["--device", o.device, "--json", path] + options, seconds, read=read,
                    why_not=why_not, key=key)

    no_kernels = absent(("bench_kernels", kernels))
    kernel_bench = lambda options, seconds: bench("bench kernels", predictions.KERNELS, [kernels], options, seconds, no_kernels)
    older_kernels = bench("bench attention of generation 8", predictions.OLDER, [kernels],
                          ["--generation", "8", "--filter", predictions.OLDER_FILTER], 40,
                          no_kernels or (None if capability.startswith("9.") else "it is for Hopper, beside its own kernels"))
    step_bench = lambda options, seconds: bench(
        "bench step", predictions.STEPS, [sys.executable, os.path.join(HERE, "step.py"), "--program", step or ""], options,
        seconds, absent(("bench_step", step)))
    if o.device == "cpu":  # to try this script
        return [tests("streams", "In/Streams.*/cpu", 60), ranks("communicators, MPI", 2, "*Conformance*mpi_world*", 60),
                kernel_bench(["--filter", "small"], 60), step_bench(["--only", "nanogpt-cpu-fp32", "--rounds", "2"], 90)]

    # The products of recipes for such GPUs; what each of them gains is the last line that the part prints.
    bundled = os.path.join(o.folder, "configs")
    configs = os.path.abspath(bundled if os.path.isdir(bundled) else os.path.join(HERE, "../configs"))
    recipes = [os.path.join(configs, name) for name in ["gpt2_124m.toml", "gpt2_1558m.toml", "10b_h100.toml"]]
    tuned = Part("tune", "bench", [kernels, "--tune", *recipes, "--seconds", "0.02", "--json", os.path.join(work, TABLE)], 120,
                 keep=os.path.join(work, TABLE), why_not=absent(("bench_kernels", kernels)) or
                 next((f"there is no {path}" for path in recipes if not os.path.exists(path)), None))
    no_reference = None if os.path.isdir(o.reference) else f"there is no reference at {o.reference}"
    no_mpirun = None if mpirun else "there is no mpirun"
    several = None if gpus > 1 else "there is one GPU"
    one_gpu = None if gpus < 2 else "there are several GPUs"
    parts = [
        tests("kernels", "All/DeviceOps*:DeviceWidths*:DeviceBits*", 150, each=30),
        tests("streams", "In/Streams*:DeviceHostCopies*:DeviceGraphs*:Gpu.*:Environment.*", 30, each=10),
        tests("training", "Of/GpuTraining*-*several_ranks*:*each_rank*", 120, no_reference or no_mpirun),
    ]
    if no_reference:
        parts += [verify(f"verify, {type}", 1, ["precision.compute=" + type], 60) for type in ["fp32", "bf16", "fp16"]]
        parts += [verify("verify, 2 ranks on one GPU", 2, ["communication.backend=mpi", "parallel.tensor_parallel_degree=2"], 60)]
    parts += [
        kernel_bench([], 90),
        step_bench(["--seconds", "150"], 240),
        older_kernels,
        tuned,
        tests("shapes of models", "ModelShapes*", 120, each=60),
        tests("ranks on one GPU, MPI", "Of/GpuTraining*several_ranks*", 90, no_reference or no_mpirun),
        tests("training, a GPU each", "Of/GpuTraining*each_rank*", 90, no_reference or no_mpirun or several),
        ranks("communicators through the host", 2, "*/self_on_gpu:*/staged_*", 60),
        ranks("NCCL, a GPU each", min(gpus, 8), "*/nccl_*", 120, several),
    ]
    sanitizer = shutil.which("compute-sanitizer") or next(iter(glob.glob("/usr/local/cuda*/bin/compute-sanitizer")), None)
    for tool in ["memcheck", "racecheck", "initcheck"]:
        # We check every call of CUDA ourselves; its libraries make some that fail, to see what there is.
        command = [sanitizer, "--tool", tool, "--report-api-errors", "no", test_gpu,
                   "--gtest_filter=DeviceBits*:All/DeviceOps*"]
        env = {"MEGALITH_LEAVE_UNINITIALIZED": "1"} if tool == "initcheck" else None
        parts.append(Part(tool, "sanitizer", command, 75, env, why_not=absent(("test_gpu", test_gpu)) or
                          (None if sanitizer else "there is no compute-sanitizer")))
    # Ranks that share a GPU take turns on it, and every transfer waits for several turns. NCCL is not made for that: where
    # it hangs, nothing else is lost, and nothing is said of ranks with a GPU each.
    parts += [ranks("NCCL, 2 ranks on one GPU", 2, "*/nccl_*", 120, one_gpu, fatal=False),
              ranks("NCCL, 3 ranks on one GPU", 3, "*/nccl_world:*/nccl_half", 120, one_gpu, fatal=False)]
    return parts


def library(name, function):
    """Version and place of a library that is opened at run time. Gives the loader its folder where it knows none."""
    packages = [os.path.join(p, "nvidia/*/lib") for p in sys.path + glob.glob(os.path.join(sys.prefix, "lib*/python3*/*-packages"))]
    elsewhere = [f for folder in ["/usr/local/cuda*/lib64"] + packages for f in glob.glob(os.path.join(folder, name))]
    for path in [name] + elsewhere:
        try:
            handle = ctypes.CDLL(path)
        except OSError as error:
            why = str(error)
            continue
        if path != name:
            known = os.environ.get("LD_LIBRARY_PATH")
            os.environ["LD_LIBRARY_PATH"] = os.path.dirname(path) + (":" + known if known else "")
        if function == "cublasLtGetVersion":
            handle.cublasLtGetVersion.restype = ctypes.c_size_t
            version = handle.cublasLtGetVersion()
        else:
            number = ctypes.c_int()
            getattr(handle, function)(ctypes.byref(number))
            version = number.value
        return {"version": version, "path": next((l.split()[-1] for l in open("/proc/self/maps") if name in l), path)}
    return {"version": None, "why": why}


def command_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def describe_machine():
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    release = dict(l.rstrip().split("=", 1) for l in open("/etc/os-release") if "=" in l)
    return {"processor": cpu, "cores": len(os.sched_getaffinity(0)),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": release.get("PRETTY_NAME", "").strip('"'), "kernel": platform.release()}


def describe_gpus():
    fields = ["name", "driver_version", "memory.total", "compute_cap", "power.limit", "clocks.max.sm"]
    text = command_line(["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader"])
    return [dict(zip(fields, map(str.strip, line.split(",")))) for line in text.splitlines()]


def commit_of(folder):
    path = os.path.join(folder, "commit")
    if os.path.exists(path):
        return open(path).read().strip()
    commit = command_line(["git", "-C", HERE, "rev-parse", "HEAD"])
    changed = command_line(["git", "-C", HERE, "status", "--porcelain", "--untracked-files=no"])
    return (commit or "unknown") + (" with changes" if changed else "")


def write(path, results):
    with open(path + ".part", "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)


def report(results):
    """The short table: the benches in bf16, then all parts."""
    kernels, steps = results.get("kernels", {}), results.get("steps", {})
    if limits := kernels.get("limits"):
        print(f"products of large matrices in bf16 {limits['bf16_flops'] / 1e12:.3f} TFLOP/s, in f32 "
              f"{limits['f32_flops'] / 1e12:.3f}; a large copy {limits['copy_bytes'] / 1e9:.0f} GB/s")
    for row in kernels.get("rows", []):
        if row["dtype"] == "bf16":
            print(f"{row['op']:31} {row['shape']:16} {1e6 * row['seconds']:9.1f} us {row['bytes'] / row['seconds'] / 1e9:6.0f} GB/s "
                  f"{row['flops'] / row['seconds'] / 1e12:6.1f} TFLOP/s {row['of_limit']:5.2f} of limit")
    for row in kernels.get("left_out", []):
        print(f"{row['row']}: left out: {row['why']}")
    for row in steps.get("rows", []):
        if "why" in row:
            print(f"{row['name']}: {row['why']}")
            continue
        peers = "".join(f"; {p['name']} " + (f"{p['tokens_per_second']:.0f}" if "tokens_per_second" in p else p["why"])
                        for p in row["peers"])
        mfu = f", MFU {100 * row['mfu']:.1f} %" if row["mfu"] else ""
        print(f"{row['name']}: {row['tokens_per_second']:.0f} tokens/s{mfu}, {row['of_floor']:.2f} of its floor{peers}")
    for line in predictions.lines(results["predictions"]):
        print(line)
    for part in results["parts"]:
        tests = part.get("tests", [])
        count = lambda *outcomes: sum(t["outcome"] in outcomes for t in tests)
        counted = f"{count('passed')} passed, {count('failed', 'died', 'timed out')} failed, {count('skipped')} skipped" if tests else ""
        print(f"{part['name']:32} {part['outcome']:10} {part.get('seconds', 0):6.1f} s  {counted}".rstrip())
        if "file" in part:
            print("    " + part["output"].splitlines()[-1] + "; " + part["file"])
        if part["outcome"] != "passed" and part.get("why"):
            print("    " + part["why"].strip().replace("\n", "\n    "))
        for test in tests:
            if test["outcome"] in ("failed", "died", "timed out"):
                print(f"    {test['outcome']}: {test['name']}")


def options(arguments=None):
    p = argparse.ArgumentParser(prog="bench/gpu.sh", description=__doc__.replace("FOLDER", "BUNDLE"),
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", metavar="BUNDLE", help="a bundle, or a build folder")
    p.add_argument("--minutes", type=float, default=9, help="for everything (default: 9)")
    p.add_argument("--out", default=os.path.join(HERE, "results"), help="folder of the results file")
    p.add_argument("--reference", help="folder of the reference runs (default: BUNDLE/reference, ../shared/reference)")
    p.add_argument("--only", help="regular expression: parts to run; the others are listed as skipped")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: tries this script, with a few parts")
    return p.parse_args(arguments)


def main():
    o = options()
    start = time.monotonic()
    if not o.reference:
        bundled = os.path.join(o.folder, "reference")
        o.reference = bundled if os.path.isdir(bundled) else os.path.join(HERE, "../../shared/reference")
    o.reference = os.path.abspath(o.reference)
    adopt_orphans()
    os.environ.update({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_WAIT_POLICY": "PASSIVE",
                       "OMPI_MCA_btl_vader_single_copy_mechanism": "none"})  # which containers often forbid

    describe = find(o.folder, "bench_kernels")
    if not describe:
        sys.exit(f"{o.folder} has no bench_kernels; name a bundle made with docker/bundle.sh --tests, or a build folder")
    status, text, _ = run([describe, "--device", o.device, "--describe"], 60)
    if status != 0:
        print("no GPU here that answers" if status is None else tail(text, 3), file=sys.stderr)
        sys.exit(NO_GPU)
    device = json.loads(text)

    now = datetime.datetime.now(datetime.timezone.utc)
    results = {"format": FORMAT, "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": commit_of(o.folder),
               "machine": describe_machine(), "device": device, "gpus": describe_gpus(),
               "versions": {"cublasLt": library("libcublasLt.so." + device["runtime"].split(".")[0], "cublasLtGetVersion"),
                            "nccl": library("libnccl.so.2", "ncclGetVersion"),
                            "python": platform.python_version()} if o.device == "cuda" else {},
               "passed": False, "complete": False, "parts": []}
    os.makedirs(o.out, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", device["name"].lower()).strip("-")
    path = os.path.join(o.out, f"{name}-{now.strftime('%Y%m%d-%H%M%S')}.json")

    with tempfile.TemporaryDirectory(prefix="megalith-gpu-") as work:
        for part in make_parts(o, len(results["gpus"]), work, device.get("compute_capability", "")):
            entry = {"name": part.name, "kind": part.kind} | ({} if part.fatal else {"fatal": False})
            left = 60 * o.minutes - (time.monotonic() - start)
            why_not = part.why_not or ("not asked for" if o.only and not re.search(o.only, part.name) else None) or \
                ("no time left" if left < 2 else None)
            if why_not:
                entry.update(outcome="skipped", why=why_not)
            else:
                print(f"{part.name} ...", file=sys.stderr, flush=True)
                entry["command"] = " ".join(part.command)
                limit = min(part.seconds, left)
                if part.each:
                    began = time.monotonic()
                    entry.update(run_each(part, limit))
                    entry["seconds"] = time.monotonic() - began
                else:
                    status, text, entry["seconds"] = run(part.command, limit, part.env)
                    entry.update(judge(part, status, text))
                    if part.keep:
                        entry["output"] = tail(text, 40)
                if entry["outcome"] == "timed out" and limit < part.seconds:
                    entry["why"] = f"only {limit:.0f} seconds were left"
                try:
                    if part.read:
                        results[part.key] = part.read()
                except (OSError, ValueError) as error:
                    entry.setdefault("why", f"left no rows: {error}")
                if part.keep and os.path.exists(part.keep):
                    entry["file"] = os.path.basename(path)[:-len(".json")] + "." + TABLE
                    shutil.copyfile(part.keep, os.path.join(o.out, entry["file"]))
            results["parts"].append(entry)
            results["seconds"] = time.monotonic() - start
            write(path, results)
    judged = [part for part in results["parts"] if part["kind"] != "bench" and part.get("fatal", True)]
    # A sanitizer that is slow says nothing against a kernel.
    wrong = [part for part in judged if part["outcome"] == "failed" or
             (part["outcome"] == "timed out" and part["kind"] != "sanitizer")]
    results["predictions"] = predictions.compare(device["name"], results)
    results.update(passed=not wrong and any(part["outcome"] == "passed" for part in judged), complete=True)
    write(path, results)
    report(results)
    rest = [part["name"] for part in results["parts"] if part.get("why") == "no time left" or
            part.get("why", "").startswith("only ")]
    if rest:
        print("for the rest, the same with --only '" + "|".join(f"^{re.escape(name)}$" for name in rest) + "'")
    print(f"{'all that ran passed' if results['passed'] else 'NOT PASSED'}; {path}")
    sys.exit(0 if results["passed"] else 1)


if __name__ == "__main__":
    main()
