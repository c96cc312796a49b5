#!/usr/bin/env python3
"""The order of bench/gpu.sh: cheapest and most telling first, each part within its own limit. Needs no package beside Python's own.

BUNDLE is a bundle (docker/bundle.sh --tests), as a folder or packed, or a build folder. Nothing that fails, faults or hangs
costs more than its limit, nor stops the rest; what does not fit into the time, or is not there, is listed as skipped with the
reason. The results file is written anew after each part, and the log has what a part prints while it runs.
"""
import argparse, datetime, glob, json, os, platform, re, shutil, subprocess, sys, tarfile, tempfile, time

import gpu_machine, gpu_report, parts, predictions
from parts import Part

HERE = os.path.dirname(os.path.abspath(__file__))
FORMAT = 2
NO_GPU = 3
DESCRIBE = 30  # seconds for the first answer of a GPU


def find(folder, name):
    """An executable in a bundle or a build folder."""
    for place in ["bin", "tests", "bench", "trainer"]:
        if os.access(path := os.path.join(folder, place, name), os.X_OK):
            return os.path.abspath(path)
    return None


def found(name, *patterns):
    """A tool on the PATH, or the newest that a pattern names."""
    return shutil.which(name) or next((path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)), None)


# A small model on made-up text, with the head sizes for which attention's kernels differ.
VERIFIED = """[model]
layers = 2
hidden = 256
heads = {heads}
vocab = 1000
context = 384
dropout = 0.1
[batch]
global_batch_size = 4
microbatch_size = 2
"""

# Options for models of other families, and for other ways to train.
LLAMA = ("model.norm=rms model.positions=rotary model.activation=swiglu model.feed_forward=640 model.bias=false model.qkv_bias=false "
         "model.key_value_heads=2 model.tied_head=false").split()
NEOX = "model.positions=rotary model.rotary_share=0.25 model.activation=gelu_erf model.parallel_residual=true model.tied_head=false".split()
QWEN_3 = [*LLAMA, "model.query_key_norm=true"]
ADAPTERS = [*LLAMA, "adapter.rank=8", "adapter.dropout=0.1", "data.isolate_documents=true", "data.end_of_text=3"]
MUON = ["optimizer.algorithm=muon", "optimizer.muon_learning_rate=1e-3"]

# The first call measures the rows that are predicted, and those compared with PyTorch's.
FIRST_KERNELS = (r"^(attention_(forward|backward)( dropout)?/|linear_(forward|backward_weight) (up|head)/124M|linear_forward up/1558M|"
                 r"(layernorm_backward|cross_entropy_forward_backward|adamw_update|residual_layernorm_forward|residual_rmsnorm_forward|"
                 r"rmsnorm_backward|swiglu_forward|swiglu_backward|rotate forward|head_norm_backward)/124M).*bf16$|/8B/")
FIRST_STEPS = "gpt2-124m-bf16|gpt2-1558m-bf16|llama-1b-bf16|llama-1b-fp8|nanogpt-small-bf16"
# Tests for sanitizers. Racecheck fails in kernels of cuBLASLt (CUDA 13.0, H200: "failed to handle a hardware exception").
SANITIZED = "DeviceBits*:All/DeviceOps*"
OWN_KERNELS = "All/DeviceOps*-*/linear*"
OPS = "All/DeviceOps*:DeviceCases*:DeviceWidths*:DeviceBits*:In/Streams*:DeviceHostCopies*:DeviceGraphs*:Gpu.*:Environment.*"


def make_parts(o, gpus, work, capability=""):
    """All parts in their order, for GPUs of a compute capability. Those down to PyTorch's steps are for the first nine minutes:
    their limits alone add up to less. What follows is for a second call."""
    test_gpu, mpi = find(o.folder, "test_gpu"), find(o.folder, "test_mpi")
    kernels, step = find(o.folder, "bench_kernels"), find(o.folder, "bench_step")
    wrapped = os.path.abspath(os.path.join(o.folder, "mpirun"))
    mpirun = wrapped if os.path.exists(wrapped) else shutil.which("mpirun")
    wrapped = os.path.abspath(os.path.join(o.folder, "megalith"))
    program = wrapped if os.path.isfile(wrapped) else find(o.folder, "megalith")
    places = {"MEGALITH_PROGRAM": program, "MEGALITH_MPIRUN": mpirun, "MEGALITH_REFERENCE": o.reference}
    places = {name: place for name, place in places.items() if place}
    absent = lambda *needed: next((f"there is no {what} in {o.folder}" for what, path in needed if not path), None)
    on_gpu = None if o.device == "cuda" else "it needs a GPU"
    last = lambda lines: lambda text: parts.tail(text, lines)
    python = lambda script: [sys.executable, os.path.join(HERE, script)]

    def tests(name, filter, seconds, why_not=None, apart=0):
        return Part(name, "test", [test_gpu, "--gtest_filter=" + filter], seconds, places,
                    why_not=absent(("test_gpu", test_gpu)) or why_not, apart=apart)

    def ranks(name, count, filter, seconds, why_not=None, fatal=True):
        command = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(count), mpi, "--gtest_filter=" + filter]
        # On one machine; if ranks share a GPU, the tests make NCCL take them for ranks of several.
        env = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
        return Part(name, "test", command, seconds, env, fatal=fatal,
                    why_not=absent(("test_mpi", mpi), ("mpirun", mpirun)) or why_not)

    def verify(name, count, heads, options, seconds, why_not=None):
        """Every tensor of two steps, on the device and on the CPU: the one check that shares nothing with our tests' twins."""
        config = os.path.join(work, f"verify-{heads}.toml")
        with open(config, "w") as file:
            file.write(VERIFIED.format(heads=heads))
        command = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(count)] if count > 1 else []
        command += [program, "verify", config, "run.device=" + o.device, *options, "--against", "run.device=cpu", "--steps", "2"]
        return Part(name, "check", command, seconds, shows=last(3),
                    why_not=absent(("megalith", program), *([("mpirun", mpirun)] if count > 1 else [])) or why_not)

    def rows(name, key, command, seconds, why_not=None, resume=None, shows=None):
        path = os.path.join(work, key + ".json")
        def read():
            with open(path) as file:
                return json.load(file)
        return Part(name, "bench", command + ["--device", o.device, "--json", path], seconds, read=read, key=key,
                    why_not=why_not, resume=resume, shows=shows)

    def kernel_rows(name, key, options, seconds, why_not=None):
        """Continues after a row that faults or hangs, and joins the files of all starts."""
        path, before = os.path.join(work, key + ".json"), os.path.join(work, key + ".before.json")
        load = lambda path: json.load(open(path)) if os.path.exists(path) else {"rows": [], "left_out": []}

        def read():
            first, rest = load(before), load(path)
            return {**first, **rest, "rows": first["rows"] + rest["rows"], "left_out": first["left_out"] + rest["left_out"]}

        def resume():
            if not os.path.exists(path):
                return None
            so_far = read()
            if not (lost := so_far.pop("running", None)):
                return None
            if not any(row["row"] == lost for row in so_far["left_out"]):
                so_far["left_out"].append({"row": lost, "why": "the program ended in it"})
            with open(before, "w") as file:
                json.dump(so_far, file)
            os.remove(path)
            return part.command + ["--after", lost]

        part = rows(name, key, [kernels, *options], seconds, absent(("bench_kernels", kernels)) or why_not, resume)
        part.read = read
        return part

    def steps(name, key, options, seconds, why_not=None):
        return rows(name, key, python("step.py") + ["--program", step or "", *options], seconds,
                    absent(("bench_step", step)) or why_not, shows=last(12))

    ncu = found("ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda*/bin/ncu")

    def profile(op):
        # Setting clocks would take longer than the profile itself.
        sections = ["SpeedOfLight", "SchedulerStats", "WarpStateStats", "MemoryWorkloadAnalysis", "Occupancy"]
        command = [ncu, "--clock-control", "none", "--kernel-name", f"regex:{op}_kernel", "--launch-skip", "2", "--launch-count", "1",
                   *(word for section in sections for word in ("--section", section)), "--page", "details", kernels, "--device", "cuda",
                   "--seconds", "0.01", "--filter", f"^attention_{op}/B4 T4096 H16 D128/bf16"]
        telling = re.compile(r"Context|Duration|Throughput|Registers Per|Local|No Eligible|[Bb]ank [Cc]onflict|Tensor")
        return Part(f"ncu, attention_{op}", "bench", command, 20, fatal=False,
                    shows=lambda text: "\n".join([line[:110] for line in text.splitlines() if telling.search(line)][:9]),
                    why_not=absent(("bench_kernels", kernels)) or on_gpu or (None if ncu else "there is no ncu"))

    sanitizer = found("compute-sanitizer", "/usr/local/cuda*/bin/compute-sanitizer")

    def sanitized(name, tool, filter, seconds):
        # We check every CUDA call ourselves. Its libraries probe with calls that fail, and their kernels are not ours.
        command = [sanitizer, "--tool", tool, "--kernel-name", "kns=megalith", "--report-api-errors", "no", test_gpu,
                   "--gtest_filter=" + filter]
        env = {"MEGALITH_LEAVE_UNINITIALIZED": "1"} if tool == "initcheck" else None
        return Part(name, "sanitizer", command, seconds, env, why_not=absent(("test_gpu", test_gpu)) or on_gpu or
                    (None if sanitizer else "there is no compute-sanitizer"))

    fifty = os.path.abspath(os.path.join(o.folder, "fifty_steps"))
    run = os.path.join(work, "run")
    fifty_steps = Part("fifty steps", "check",
                       [os.path.join(HERE, "fifty_steps.sh"), "train", program, fifty, run, o.device], 20 if o.device == "cuda" else 300, shows=last(3),
                       keep={os.path.join(run, "metrics.jsonl"): "train.jsonl"}, why_not=absent(("megalith", program)) or
                       (None if os.path.isdir(fifty) else f"there are no steps of a CPU at {fifty}"))

    bundled = os.path.join(o.folder, "configs")
    configs = os.path.abspath(bundled if os.path.isdir(bundled) else os.path.join(HERE, "../configs"))
    # The products of recipes for such GPUs; the last line that the part prints is the gain of each.
    recipes = [os.path.join(configs, name) for name in ["gpt2_124m.toml", "gpt2_1558m.toml", "10b_h100.toml"]]
    table = os.path.join(work, "gemm.json")
    tune = Part("tune", "bench", [kernels, "--tune", *recipes, "--seconds", "0.02", "--json", table], 120, keep={table: "gemm.json"},
                shows=last(40), why_not=absent(("bench_kernels", kernels)) or on_gpu or
                next((f"there is no {path}" for path in recipes if not os.path.exists(path)), None))

    gaps = Part("gaps between kernels", "bench", [*python("gaps.py"), step or ""], 60, fatal=False, shows=last(13),
                why_not=absent(("bench_step", step)) or on_gpu)

    no_reference = None if os.path.isdir(o.reference) else f"there is no reference at {o.reference}"
    no_mpirun = None if mpirun else "there is no mpirun"
    several = None if gpus > 1 else "there is one GPU"
    one_gpu = on_gpu or (None if gpus < 2 else "there are several GPUs")
    hopper = None if capability.startswith("9.") else "it compares with Hopper's own kernels"
    no_fp8 = "the GPU has no products in 8 bits" if capability and float(capability) < 8.9 else None
    telling = "Of/GpuTraining.{}*/small"
    courses = ":".join(map(telling.format, ["fp32_takes", "bf16_stays", "the_same_bits_as_graphs", "too_little"]))
    here = [] if o.device == "cuda" else ["--filter", "small"]
    here_steps = ["--only", FIRST_STEPS] if o.device == "cuda" else ["--only", "nanogpt-cpu-fp32", "--rounds", "2"]
    return [
        verify("verify, bf16, heads of 64", 1, 4, ["precision.compute=bf16"], 35),
        verify("verify, bf16, heads of 128", 1, 2, ["precision.compute=bf16"], 6),
        kernel_rows("kernels", predictions.KERNELS, ["--seconds", "0.06", *(here or ["--filter", FIRST_KERNELS])], 30),
        verify("verify, products in 8 bits", 1, 4, ["precision.compute=bf16", "precision.products=fp8", *LLAMA], 6, no_fp8),
        verify("verify, fp32", 1, 4, ["precision.compute=fp32"], 6),
        verify("verify, fp16", 1, 4, ["precision.compute=fp16"], 6),
        verify("verify, Llama's kind, residuals in fp32", 1, 4, ["precision.compute=bf16", "precision.residual=fp32", *LLAMA], 6),
        verify("verify, Qwen 3's kind, heads of 128", 1, 2, ["precision.compute=bf16", *QWEN_3], 6),
        verify("verify, NeoX's kind", 1, 4, ["precision.compute=bf16", *NEOX], 6),
        verify("verify, adapters, documents", 1, 4, ["precision.compute=bf16", *ADAPTERS], 6),
        verify("verify, Muon", 1, 4, ["precision.compute=bf16", *MUON], 6),
        tests("training", courses, 40, no_reference or no_mpirun or on_gpu),
        tests("ops", OPS, 60, on_gpu, apart=30),
        tests("families and Muon", "*GpuFamilies*:*GpuMuon*", 50, no_reference or no_mpirun or on_gpu),
        rows("PyTorch's kernels", predictions.TORCH_KERNELS, python("torch_kernels.py"), 30),
        steps("steps", predictions.STEPS, [*here_steps, "--programs", "ours", "--limit", "40", "--seconds", "99"], 104),
        fifty_steps,
        profile("forward"),
        profile("backward"),
        sanitized("memcheck", "memcheck",
                  "All/DeviceOps*/attention*:All/DeviceOps*/cross*:All/DeviceOps*/embedding*:DeviceBits.AttentionOfGroups*", 15),
        # The rest of the first nine minutes.
        steps("PyTorch's steps", predictions.STEPS, [*here_steps, "--programs", "peers", "--limit", "90"], 240, on_gpu),
        # What no call has had time for yet.
        gaps,
        # Ranks that share a GPU take turns on it, and every transfer waits for several turns. NCCL is not made for that: where
        # it hangs, nothing else is lost, and nothing is said of ranks with a GPU each.
        ranks("NCCL, 2 ranks on one GPU", 2, "*/nccl_*", 120, one_gpu, fatal=False),
        tests("training, everything else", "Of/GpuTraining*-*several_ranks*:*each_rank*:" + courses, 120,
              no_reference or no_mpirun or on_gpu),
        tune,
        tests("shapes of models", "ModelShapes*", 120, on_gpu),
        kernel_rows("all kernels", predictions.ALL_KERNELS, here, 150, on_gpu),
        kernel_rows("attention of generation 8", predictions.OLDER,
                    ["--seconds", "0.05", "--generation", "8", "--filter", predictions.OLDER_FILTER], 20, hopper),
        steps("steps in fp32", "steps_in_fp32", ["--only", "fp32", "--limit", "90", "--seconds", "150"], 240, on_gpu),
        verify("verify, 2 ranks on one GPU", 2, 4, ["communication.backend=mpi", "parallel.tensor_parallel_degree=2"], 60),
        tests("ranks on one GPU, MPI", "Of/GpuTraining*several_ranks*", 90, no_reference or no_mpirun or on_gpu),
        tests("training, a GPU each", "Of/GpuTraining*each_rank*", 90, no_reference or no_mpirun or on_gpu or several),
        ranks("communicators, MPI", 2, "*Conformance*mpi_world*", 60),
        ranks("communicators through the host", 2, "*/self_on_gpu:*/staged_*", 60, on_gpu),
        ranks("NCCL, a GPU each", min(gpus, 8), "*/nccl_*", 120, on_gpu or several),
        *(sanitized(name, tool, filter, 75) for name, tool, filter in
          [("memcheck, all ops", "memcheck", SANITIZED), ("racecheck", "racecheck", OWN_KERNELS), ("initcheck", "initcheck", OWN_KERNELS)]),
        ranks("NCCL, 3 ranks on one GPU", 3, "*/nccl_world:*/nccl_half", 120, one_gpu, fatal=False)]


def write(path, results):
    with open(path + ".part", "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)


def options(arguments=None):
    p = argparse.ArgumentParser(prog="bench/gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", metavar="BUNDLE", help="a bundle, packed or not, or a build folder")
    p.add_argument("--minutes", type=float, default=9, help="for everything (default: 9)")
    p.add_argument("--out", default=os.environ.get("OUT") or os.path.join(HERE, "results"),
                   help="folder of the results (default: $OUT where that is set, else bench/results)")
    p.add_argument("--reference", help="folder of the reference runs (default: BUNDLE/reference, ../shared/reference)")
    p.add_argument("--only", help="regular expression: parts to run; the others are listed as skipped")
    p.add_argument("--limit-factor", type=float, default=1, metavar="F", help="gives each part F times its limit (default: 1)")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: tries the order, as far as it needs no GPU")
    return p.parse_args(arguments)


def unpack(archive, work):
    with tarfile.open(archive) as packed:
        packed.extractall(work)
        return os.path.join(work, packed.getnames()[0].split("/")[0])


def run_all(o, start, work):
    if os.path.isfile(o.folder):
        o.folder = unpack(o.folder, work)
    if os.access(check := os.path.join(o.folder, "c-library.sh"), os.X_OK) and \
            (said := subprocess.run([check], capture_output=True, text=True)).returncode:
        sys.exit(said.stderr.strip())
    if not o.reference:
        bundled = os.path.join(o.folder, "reference")
        o.reference = bundled if os.path.isdir(bundled) else os.path.join(HERE, "../../shared/reference")
    o.reference = os.path.abspath(o.reference)
    loopback = gpu_machine.raise_loopback()
    os.environ.update({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_WAIT_POLICY": "PASSIVE",
                       "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # which containers often forbid
                       "PYTHONUNBUFFERED": "1"})

    describe = find(o.folder, "bench_kernels")
    if not describe:
        sys.exit(f"{o.folder} has no bench_kernels; name a bundle made with docker/bundle.sh --tests, or a build folder")
    status, text, _ = parts.run([describe, "--device", o.device, "--describe"], DESCRIBE)
    if status != 0:
        print("no GPU here that answers" if status is None else parts.tail(text, 3), file=sys.stderr)
        # A program that does not start says nothing about the GPU.
        sys.exit(NO_GPU if status in (None, 1) else 1)
    device = json.loads(text)

    now = datetime.datetime.now(datetime.timezone.utc)
    results = {"format": FORMAT, "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": gpu_machine.commit_of(o.folder),
               "machine": gpu_machine.describe_machine() | ({"loopback": loopback} if loopback else {}), "device": device,
               "gpus": gpu_machine.describe_gpus(),
               "versions": {"cublasLt": gpu_machine.library("libcublasLt.so." + device["runtime"].split(".")[0], "cublasLtGetVersion"),
                            "nccl": gpu_machine.library("libnccl.so.2", "ncclGetVersion"),
                            "python": platform.python_version()} if o.device == "cuda" else {},
               "passed": False, "complete": False, "parts": []}
    os.makedirs(o.out, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", device["name"].lower()).strip("-")
    stem = os.path.join(o.out, f"{name}-{now.strftime('%Y%m%d-%H%M%S')}")
    path, log = stem + ".json", stem + ".log.txt"
    clocks = gpu_machine.watch_clocks(stem + ".smi.csv") if o.device == "cuda" else None

    for part in make_parts(o, len(results["gpus"]), work, device.get("compute_capability", "")):
        entry = {"name": part.name, "kind": part.kind} | ({} if part.fatal else {"fatal": False})
        left = 60 * o.minutes - (time.monotonic() - start)
        why_not = part.why_not or ("not asked for" if o.only and not re.search(o.only, part.name) else None) or \
            ("no time left" if left < 2 else None)
        if why_not:
            entry.update(outcome="skipped", why=why_not)
        else:
            print(f"{time.monotonic() - start:4.0f} s {part.name}", file=sys.stderr, flush=True)
            entry["command"] = " ".join(part.command)
            with open(log, "a") as file:
                file.write(f"\n## {part.name}: {entry['command']}\n")
            limit = min(o.limit_factor * part.seconds, left)
            part.apart *= o.limit_factor
            entry.update(parts.run_part(part, limit, log))
            if entry["outcome"] == "timed out" and limit == left:
                entry["why"] = f"only {limit:.0f} seconds were left"
            try:
                if part.read:
                    results[part.key] = part.read()
            except (OSError, ValueError) as error:
                entry.setdefault("why", f"left no rows: {error}")
            for kept, ending in part.keep.items():
                if os.path.exists(kept):
                    entry["file"] = f"{os.path.basename(stem)}.{ending}"
                    shutil.copyfile(kept, f"{stem}.{ending}")
        results["parts"].append(entry)
        results["seconds"] = time.monotonic() - start
        write(path, results)
    if clocks:
        clocks.kill()
        results["clocks"] = gpu_report.clocks_of(stem + ".smi.csv")
        gpu_report.add_clocks_of_steps(results, stem + ".smi.csv")
    judged = [part for part in results["parts"] if part["kind"] != "bench" and part.get("fatal", True)]
    # A sanitizer that is slow says nothing against a kernel.
    wrong = [part for part in judged if part["outcome"] == "failed" or
             (part["outcome"] == "timed out" and part["kind"] != "sanitizer")]
    results["predictions"] = predictions.compare(device["name"], results)
    results.update(passed=not wrong and any(part["outcome"] == "passed" for part in judged), complete=True)
    write(path, results)
    print(gpu_report.text(results, path))
    sys.exit(0 if results["passed"] else 1)


def main():
    o = options()
    start = time.monotonic()
    if o.device == "cuda":
        gpu_machine.warm("libcublasLt.so.*", "libnccl.so.2", "libtorch_c*.so")
    parts.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="megalith-gpu-") as work:
        run_all(o, start, work)


if __name__ == "__main__":
    main()
