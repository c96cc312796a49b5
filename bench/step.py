#!/usr/bin/env python3
"""Training steps: Megalith against PyTorch in one run, same shapes, dtype, and on the CPU threads.

A program is started and warmed up, then asked for rounds of steps; a round's figure is the median of its steps, and what
is printed is the median over rounds and the ratio. A program whose every round takes longer than the one before, and the last one
half as long again as the first, has no figure: it drifts. On the CPU rounds go in turn, so that all see the same machine, PyTorch is
the eager one (torch_step.py) and gets OMP_WAIT_POLICY=PASSIVE, without which it is several times slower on small shapes; so does
Megalith.

A GPU has not the memory for all programs at once, so there one is measured and ended before the next begins: first Megalith at
all shapes, then Megalith with run.cuda_graphs, then PyTorch, eager at all shapes before any is compiled; the file has what is
measured from the first moment. PyTorch has its fused AdamW, a vocabulary padded to 50304, and TF32 off there. GPT-2 124M in bf16
takes the 0.5M tokens a step that it is trained with, in microbatches; the other shapes one microbatch. In bf16 the compiled PyTorch
runs twice: under autocast with parameters and moments in fp32, as is usual; and with everything in bf16, moments too, which is
faster than either and less exact than Megalith, whose master weights and moments are fp32. A batch that does not fit the card is
halved, where a step has several microbatches for twice as many; where it is PyTorch's that does not fit, Megalith is measured once
more at PyTorch's, for the ratio.

usage: bench/step.py [--device cpu|cuda] [--program BENCH_STEP] [--rounds N] [--threads 2] [--only REGEX] [--seconds 200]
                     [--programs ours|peers] [--limit 120] [--json FILE]
       --programs peers goes on with the rows that --programs ours has written to FILE, where there is one
needs: bench_step built; python3 with torch (from PyPI), without which only Megalith runs
"""
import argparse, json, os, platform, re, statistics, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
GRAPHS = "Megalith, graphs"
NO_TORCH = {"name": "PyTorch", "why": "this python3 has no torch"}

SHAPES = {
    # name: layers, hidden, heads, vocab, sequence, sequences of a microbatch, microbatches a step, dtype, steps a round
    "cpu": {
        "gpt2-124m-fp32": (12, 768, 12, 50257, 256, 4, 1, "fp32", 3),
        "nanogpt-cpu-fp32": (4, 128, 4, 65, 64, 12, 1, "fp32", 60),
        "quickstart-fp32": (4, 256, 4, 4096, 256, 4, 1, "fp32", 10),
        "gpt2-124m-bf16": (12, 768, 12, 50257, 256, 4, 1, "bf16", 3),
    },
    "cuda": {
        "gpt2-124m-bf16": (12, 768, 12, 50257, 1024, 32, 16, "bf16", 2),
        "gpt2-1558m-bf16": (48, 1600, 25, 50257, 1024, 8, 1, "bf16", 4),
        "llama-1b-bf16": (16, 2048, 32, 128256, 2048, 4, 1, "bf16", 4),
        "llama-1b-fp8": (16, 2048, 32, 128256, 2048, 4, 1, "fp8", 4),
        "nanogpt-small-bf16": (4, 128, 4, 65, 64, 12, 1, "bf16", 200),
        "gpt2-124m-fp32": (12, 768, 12, 50257, 1024, 16, 1, "fp32", 4),
        "gpt2-1558m-fp32": (48, 1600, 25, 50257, 1024, 4, 1, "fp32", 2),
    },
}
# Key-value heads and features of the feed-forward layer of shapes that are Llama's (3.2 1B's here); the others are GPT-2's.
LLAMA = {"llama-1b-bf16": (8, 8192), "llama-1b-fp8": (8, 8192)}
# PyTorch's peers on a GPU: name, variant of torch_step.py, dtypes; all shapes of one before the next.
VARIANTS = [("PyTorch, eager", "eager", ("bf16", "fp32")), ("PyTorch, compiled", "compiled", ("bf16", "fp32")),
            ("PyTorch, bf16 parameters", "bf16 parameters", ("bf16",))]


class Program:
    """One that measures a round of steps when it is asked; see torch_step.py, and bench/step.cpp. Each answer may take `limit`
    seconds, after which the program is killed."""

    def __init__(self, name, command, env, limit):
        self.name, self.seconds, self.facts, self.why, self.limit = name, [], None, None, limit
        self.times = []  # when each round began and ended, in seconds since 1970
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors)

    def line(self):
        late = threading.Event()
        timer = threading.Timer(self.limit, lambda: (late.set(), self.process.kill()))
        timer.start()
        text = self.process.stdout.readline()
        timer.cancel()
        if text:
            return json.loads(text)
        self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        self.why = f"its {self.limit:.0f} seconds were over" if late.is_set() else \
            next((l for l in reversed(said) if "rror" in l or "needs" in l), said[-1] if said else "it died")
        return None

    def lacks_memory(self):
        return self.why is not None and ("GiB" in self.why or "out of memory" in self.why)

    def ready(self):
        self.facts = self.line()
        return self.facts is not None

    def round(self):
        if self.why:
            return
        began = time.time()
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        if answer := self.line():
            self.seconds.append(answer["seconds"])
            self.times.append((began, time.time()))

    def end(self):
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            try:
                file.close()
            except BrokenPipeError:
                pass


def our_command(name, B, microbatches, o):
    L, C, H, V, T, _, _, dtype, steps = SHAPES[o.device][name]
    options = {"run.device": o.device, "model.layers": L, "model.hidden": C, "model.heads": H, "model.vocab": V,
               "model.context": T, "batch.sequence_length": T, "batch.microbatch_size": B, "batch.global_batch_size": B * microbatches,
               "precision.compute": "bf16" if dtype == "fp8" else dtype}
    if dtype == "fp8":
        options["precision.products"] = "fp8"
    if name in LLAMA:
        groups, features = LLAMA[name]
        options |= {"model.norm": "rms", "model.positions": "rotary", "model.rotary_base": 500000, "model.activation": "swiglu",
                    "model.bias": "false", "model.qkv_bias": "false", "model.key_value_heads": groups, "model.feed_forward": features}
    return [o.program, *(f"{key}={value}" for key, value in options.items()), "--steps", str(steps), "--on-request"]


def torch_command(name, variant, B, microbatches, o):
    *shape, _, _, dtype, steps = SHAPES[o.device][name]
    return [sys.executable, os.path.join(HERE, "torch_step.py"), "steps", "--device", o.device, "--shape",
            ",".join(map(str, shape)), "--batch", str(B), "--microbatches", str(microbatches), "--dtype", dtype, "--variant", variant,
            "--steps", str(steps), *(["--llama", ",".join(map(str, LLAMA[name]))] if name in LLAMA else [])]


def in_turn(commands, o, env):
    """The programs of {name: command}, at their end: with rounds, or a reason why not. None but the first may be lost."""
    programs = []
    try:
        for name, command in commands.items():
            programs.append(Program(name, command, env, o.limit))
            if not programs[-1].ready() and len(programs) == 1:
                break
        for _ in range(o.rounds):
            for program in programs:
                program.round()
    finally:
        for program in programs:
            program.end()
    return programs


def fitting(name, command_of, B, microbatches, o, env):
    """The program at the largest batch that fits, of B sequences and halves of it; and that batch with its microbatches."""
    while True:
        program, = in_turn({name: command_of(B, microbatches)}, o, env)
        if B == 1 or not program.lacks_memory():
            return program, B, microbatches
        B //= 2
        microbatches *= 2 if microbatches > 1 else 1


def refuse_drift(program):
    """A median of rounds that become ever slower says when one stopped to measure, not how fast the program is."""
    rounds = program.seconds
    if len(rounds) > 2 and rounds == sorted(set(rounds)) and rounds[-1] > 1.5 * rounds[0]:
        program.why = f"{program.name} drifts: its rounds took {', '.join(f'{1e3 * s:.4g}' for s in rounds)} ms a step"
        program.seconds = []


def our_row(name, program, B, microbatches, o):
    L, C, H, V, T, _, _, dtype, _ = SHAPES[o.device][name]
    refuse_drift(program)
    if not program.seconds:
        return {"name": name, "why": program.why}
    seconds, facts = statistics.median(program.seconds), program.facts
    return {"name": name, "layers": L, "hidden": C, "heads": H, "vocab": V, "sequence": T, "batch": B, "microbatches": microbatches,
            "dtype": dtype, "seconds": seconds, "rounds": program.seconds, "times": program.times, "tokens_per_second": B * microbatches * T / seconds,
            "mfu": facts["model_flops"] / seconds / facts["peak_flops"] if "peak_flops" in facts else None,
            "of_floor": facts["floor"] / seconds, **facts, "peers": []}


def add_peer(row, program, B, microbatches, ours):
    """`ours`: seconds of Megalith's step at this batch."""
    refuse_drift(program)
    if not program.seconds:
        row["peers"].append({"name": program.name, "why": program.why})
        return
    seconds = statistics.median(program.seconds)
    row["peers"].append({"name": program.name, "batch": B, "microbatches": microbatches, "seconds": seconds, "rounds": program.seconds, "times": program.times,
                         "tokens_per_second": B * microbatches * row["sequence"] / seconds, "ratio": seconds / ours,
                         **{fact: program.facts[fact] for fact in ("version", "how", "memory_in_use") if fact in program.facts}})


def measure_on_cpu(name, o, env):
    _, _, _, _, _, B, microbatches, _, _ = SHAPES[o.device][name]
    commands = {"Megalith": our_command(name, B, microbatches, o)}
    if o.has_torch:
        commands["PyTorch"] = torch_command(name, "eager", B, microbatches, o)
    ours, *peers = in_turn(commands, o, env)
    row = our_row(name, ours, B, microbatches, o)
    if "why" in row:
        return row
    for peer in peers:
        add_peer(row, peer, B, microbatches, row["seconds"])
    if not o.has_torch:
        row["peers"].append(NO_TORCH)
    else:
        command = [sys.executable, os.path.join(HERE, "torch_step.py"), "gemm", "--dtype", row["dtype"]]
        rate = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)["gflops"]
        row.update(gemm_gflops=rate, gemm_share=row["model_flops"] / row["seconds"] / 1e9 / rate)
    return row


def measure_on_gpu(name, o, env):
    _, _, _, _, _, B, microbatches, _, _ = SHAPES[o.device][name]
    return our_row(name, *fitting("Megalith", lambda *batch: our_command(name, *batch, o), B, microbatches, o, env), o)


def measure_graphs(row, o, env):
    batch = row["batch"], row["microbatches"]
    program, = in_turn({GRAPHS: our_command(row["name"], *batch, o) + ["run.cuda_graphs=true"]}, o, env)
    add_peer(row, program, *batch, row["seconds"])


def measure_torch(row, peer, variant, o, env):
    program, *batch = fitting(peer, lambda *batch: torch_command(row["name"], variant, *batch, o), row["batch"],
                              row["microbatches"], o, env)
    ours = row["seconds"]
    if program.seconds and batch[0] != row["batch"]:
        again, = in_turn({"Megalith": our_command(row["name"], *batch, o)}, o, env)
        if not again.seconds:
            row["peers"].append({"name": peer, "why": f"Megalith at its batch of {batch[0]}: {again.why}"})
            return
        ours = statistics.median(again.seconds)
    add_peer(row, program, *batch, ours)


def print_row(row):
    if "why" in row:
        print(f"{row['name']:20} {row['why']}")
        return
    gib = lambda fact: f"{row[fact] / 2**30:.1f} GiB" if fact in row else "?"
    mfu = f"  MFU {100 * row['mfu']:.1f} %" if row["mfu"] else ""
    memory = f"  memory planned {gib('memory_planned')}, in use {gib('memory_in_use')}" if "memory_in_use" in row else ""
    print(f"{row['name']:20} batch {row['batch'] * row['microbatches']:3}  {row['tokens_per_second']:9.0f} tokens/s{mfu}{memory}  "
          f"floors: operations {1e3 * row['floor_operations']:.2f} ms, bytes {1e3 * row['floor_bytes']:.2f} ms, "
          f"{row['of_floor']:.2f} of the larger op by op", flush=True)
    for peer in row["peers"]:
        print_peer(peer)
    if "gemm_share" in row:
        print(f"    {row['gemm_share']:.2f} of the rate of a step that is all GEMM ({row['gemm_gflops']:.0f} GFLOP/s)")


def print_peer(peer):
    print(f"    {peer['name']:28} " + (f"{peer['tokens_per_second']:9.0f} tokens/s  ratio {peer['ratio']:.2f}  "
                                       f"{peer.get('version', '')}, {peer.get('how', '')}".strip(", ") if "seconds" in peer
                                       else peer["why"]), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", choices=SHAPES, default="cpu")
    p.add_argument("--program", help="default: build/cpu or build/cuda, bench/bench_step")
    p.add_argument("--rounds", type=int, help="default: 5 on the CPU, 3 on a GPU")
    p.add_argument("--threads", type=int, default=2, help="on the CPU")
    p.add_argument("--only", default=".", help="regular expression: shapes")
    p.add_argument("--seconds", type=float, default=1e9, help="no measurement begins when this has passed")
    p.add_argument("--limit", type=float, default=120, help="seconds that a program may take to get ready, and for a round")
    p.add_argument("--programs", choices=["ours", "peers"], help="on a GPU: only Megalith, or only PyTorch next to rows of FILE")
    p.add_argument("--json", help="file for the rows")
    o = p.parse_args()
    o.program = o.program or os.path.join(HERE, "../build", o.device, "bench/bench_step")
    o.rounds = o.rounds or (5 if o.device == "cpu" else 3)
    start = time.monotonic()
    env = dict(os.environ, OMP_WAIT_POLICY="PASSIVE")
    if o.device == "cpu":
        env["OMP_NUM_THREADS"] = str(o.threads)
        cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
        print(f"{cpu}, {o.threads} threads, {o.rounds} rounds")
    results = {"rows": []}

    def write():
        if o.json:
            with open(o.json + ".part", "w") as file:
                json.dump(results, file, indent=1)
            os.replace(o.json + ".part", o.json)

    def in_time():
        return time.monotonic() - start <= o.seconds

    names = [name for name in SHAPES[o.device] if re.search(o.only, name)]
    if o.programs == "peers" and not os.path.exists(o.json):
        o.programs = None
    if o.programs == "peers":
        with open(o.json) as file:
            results = json.load(file)
    o.has_torch = o.programs != "ours" and subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    if o.programs != "peers":
        measure = measure_on_cpu if o.device == "cpu" else measure_on_gpu
        for name in names:
            results["rows"].append(measure(name, o, env) if in_time() else {"name": name, "why": "no time left"})
            print_row(results["rows"][-1])
            write()
    if o.device == "cpu":
        return

    rows = [row for row in results["rows"] if row["name"] in names and "why" not in row]
    # (name of the peer, its rows, how one is measured), in the order of reporting
    peers = [] if o.programs == "peers" else [(GRAPHS, rows, lambda row: measure_graphs(row, o, env))]
    for peer, variant, dtypes in VARIANTS if o.has_torch else []:
        peers.append((peer, [row for row in rows if row["dtype"] in dtypes],
                      lambda row, peer=peer, variant=variant: measure_torch(row, peer, variant, o, env)))
    for peer, its_rows, measure in peers:
        for row in its_rows:
            if in_time():
                measure(row)
            else:
                row["peers"].append({"name": peer, "why": "no time left"})
            print(row["name"])
            print_peer(row["peers"][-1])
            write()
    if o.programs != "ours" and not o.has_torch:
        for row in rows:
            row["peers"].append(NO_TORCH)
        print(f"PyTorch: {NO_TORCH['why']}")
        write()


if __name__ == "__main__":
    main()
