#!/usr/bin/env python3
"""Training steps: Megalith against PyTorch in one run, same shapes, dtype, and on the CPU threads.

A program is started and warmed up, then asked for rounds of steps; a round's figure is the median of its steps, and what
is printed is the median over rounds and the ratio. On the CPU rounds go in turn, so that all see the same machine; a GPU
has not the memory for all programs at once, so there one is measured and ended before the next begins. PyTorch's model is a plain GPT-2: nn.Linear,
scaled_dot_product_attention, cross_entropy, clipping and AdamW as torch has them.

On the CPU PyTorch is the eager one and gets OMP_WAIT_POLICY=PASSIVE, without which it is several times slower on small
shapes; so does Megalith.

On a GPU PyTorch gets torch.compile (the whole model; beyond 12 layers block by block, for the time that compiling takes),
its fused AdamW, a vocabulary padded to 50304, and TF32 off. GPT-2 124M in bf16 takes the 0.5M tokens a step that it is
trained with, in microbatches; the other shapes one microbatch. Megalith's peer there is also itself with run.cuda_graphs. In bf16 PyTorch runs twice: under autocast with parameters and
moments in fp32, as is usual; and with everything in bf16, moments too, which is faster than either and less exact than
Megalith, whose master weights and moments are fp32. A batch that does not fit the card in one of them is halved and
measured anew, for all alike; where a step has several microbatches, with twice as many.

usage: bench/step.py [--device cpu|cuda] [--program BENCH_STEP] [--rounds N] [--threads 2] [--only NAME] [--seconds 200]
                     [--json FILE]
needs: bench_step built; python3 with torch (from PyPI), without which only Megalith runs
"""
import argparse, json, os, platform, statistics, subprocess, sys, tempfile, time

GRAPHS = "Megalith, graphs"

SHAPES = {
    # name: layers, hidden, heads, vocab, sequence, sequences of a microbatch, microbatches a step, dtype, steps a round
    "cpu": {
        "gpt2-124m-fp32": (12, 768, 12, 50257, 256, 4, 1, "fp32", 3),
        "nanogpt-cpu-fp32": (4, 128, 4, 65, 64, 12, 1, "fp32", 60),
        "gpt2-124m-bf16": (12, 768, 12, 50257, 256, 4, 1, "bf16", 3),
    },
    "cuda": {
        "gpt2-124m-bf16": (12, 768, 12, 50257, 1024, 32, 16, "bf16", 2),
        "nanogpt-small-bf16": (4, 128, 4, 65, 64, 12, 1, "bf16", 200),
        "gpt2-1558m-bf16": (48, 1600, 25, 50257, 1024, 8, 1, "bf16", 4),
        "gpt2-124m-fp32": (12, 768, 12, 50257, 1024, 16, 1, "fp32", 4),
        "gpt2-1558m-fp32": (48, 1600, 25, 50257, 1024, 4, 1, "fp32", 2),
    },
}


def torch_steps(shape, device, variant):
    """The peer: gets ready, prints one line, and another for each line of standard input."""
    import torch, torch.nn as nn, torch.nn.functional as F
    L, C, H, V, T, B, microbatches, dtype, steps = shape
    rows = V if device == "cpu" else (V + 127) // 128 * 128
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("highest")

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
            self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
            self.fc, self.out = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

        def forward(self, x):
            q, k, v = self.qkv(self.ln_1(x)).split(C, 2)
            q, k, v = (t.view(B, T, H, C // H).transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
            return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_f = nn.LayerNorm(C)

        def forward(self, h, wte, y):
            return F.cross_entropy(F.linear(self.ln_f(h), wte).view(-1, rows), y.view(-1))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(rows, C), nn.Embedding(T, C)
            self.blocks, self.head = nn.ModuleList(Block() for _ in range(L)), Head()

        def forward(self, x, y):
            h = self.wte(x) + self.wpe(torch.arange(T, device=x.device))
            for block in self.blocks:
                h = block(h)
            return self.head(h, self.wte.weight, y)

    model, how = GPT().to(device), "eager"
    if variant == "bf16 parameters":
        model.bfloat16()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=device == "cuda")
    call = model
    if variant != "eager" and L <= 12:
        call, how = torch.compile(model), "compiled as a whole"
    elif variant != "eager":
        for part in [*model.blocks, model.head]:
            part.compile()
        how = "compiled by block"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def step():
        batches = [[torch.randint(0, V, (B, T), device=device) for _ in range(2)] for _ in range(microbatches)]
        wait()
        start = time.perf_counter()
        for x, y in batches:
            with torch.autocast(device, torch.bfloat16, enabled=dtype == "bf16" and variant != "bf16 parameters"):
                loss = call(x, y) / microbatches
            loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        wait()
        return time.perf_counter() - start

    for _ in range(1 if device == "cpu" else 4):
        step()
    facts = {"version": torch.__version__, "how": how}
    if device == "cuda":
        facts["memory_in_use"] = torch.cuda.max_memory_reserved()
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"seconds": statistics.median(step() for _ in range(steps))}), flush=True)


def gemm_rate(dtype):
    """GFLOP/s of a plain library GEMM of the model's largest layer shape: what a step made of nothing else would reach.
    For bf16 the faster of bf16 and fp32, since a CPU without bf16 matrix units does better to widen."""
    import torch
    best = 0
    for t in [torch.float32] if dtype == "fp32" else [torch.bfloat16, torch.float32]:
        a, b = torch.randn(1024, 768, dtype=t), torch.randn(3072, 768, dtype=t)
        rates = []
        for _ in range(30):
            start = time.perf_counter()
            torch.nn.functional.linear(a, b)
            rates.append(2 * 1024 * 768 * 3072 / (time.perf_counter() - start) / 1e9)
        best = max(best, statistics.median(rates))
    print(json.dumps({"gflops": best}))


class Program:
    """One that measures a round of steps when it is asked; see the end of torch_steps, and bench/step.cpp."""

    def __init__(self, name, command, env):
        self.name, self.seconds, self.facts, self.why = name, [], None, None
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors)

    def line(self):
        text = self.process.stdout.readline()
        if text:
            return json.loads(text)
        self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        self.why = next((l for l in reversed(said) if "rror" in l or "needs" in l), said[-1] if said else "it died")
        return None

    def lacks_memory(self):
        return self.why is not None and ("GiB" in self.why or "out of memory" in self.why)

    def ready(self):
        self.facts = self.line()
        return self.facts is not None

    def round(self):
        if self.why:
            return
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        if answer := self.line():
            self.seconds.append(answer["seconds"])

    def end(self):
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            try:
                file.close()
            except BrokenPipeError:
                pass


def commands_of(name, B, microbatches, o, has_torch):
    """[(program, its command)], ours first."""
    L, C, H, V, T, _, _, dtype, steps = SHAPES[o.device][name]
    commands = [("Megalith", [o.program, "--device", o.device, "--layers", str(L), "--hidden", str(C), "--heads", str(H),
                              "--vocab", str(V), "--sequence", str(T), "--batch", str(B), "--microbatches", str(microbatches),
                              "--compute", dtype, "--steps", str(steps), "--on-request"])]
    if o.device == "cuda":
        commands.append((GRAPHS, commands[0][1] + ["--graphs"]))
    variants = ["eager"] if o.device == "cpu" else ["autocast", "bf16 parameters"] if dtype == "bf16" else ["fp32"]
    for v in variants if has_torch else []:
        commands.append(("PyTorch" + ("" if v == "eager" else ", " + v),
                         [sys.executable, os.path.abspath(__file__), "--device", o.device, "--peer", name, "--variant", v,
                          "--batch", str(B), "--microbatches", str(microbatches)]))
    return commands


def run_programs(commands, o, env, all_must_fit):
    """The programs, at their end: with rounds, or a reason why not. Starts no more when the row is lost."""
    all_programs = []
    for group in [commands] if o.device == "cpu" else [[command] for command in commands]:
        programs = []
        try:
            for name, command in group:
                programs.append(Program(name, command, env))
                all_programs.append(programs[-1])
                if not programs[-1].ready() and (len(all_programs) == 1 or all_must_fit and programs[-1].lacks_memory()):
                    return all_programs
            for _ in range(o.rounds):
                for program in programs:
                    program.round()
        finally:
            for program in programs:
                program.end()
    return all_programs


def measure(name, o, env, has_torch):
    """One row."""
    L, C, H, V, T, B, microbatches, dtype, steps = SHAPES[o.device][name]
    while True:
        ours, *peers = run_programs(commands_of(name, B, microbatches, o, has_torch), o, env, B > 1)
        if B == 1 or not any(program.lacks_memory() for program in [ours, *peers]):
            break
        B //= 2
        microbatches *= 2 if microbatches > 1 else 1
    tokens = B * microbatches * T
    if not ours.seconds:
        return {"name": name, "why": ours.why}
    seconds, facts = statistics.median(ours.seconds), ours.facts
    row = {"name": name, "layers": L, "hidden": C, "heads": H, "vocab": V, "sequence": T, "batch": B, "microbatches": microbatches,
           "dtype": dtype, "seconds": seconds, "rounds": ours.seconds, "tokens_per_second": tokens / seconds,
           "mfu": facts["model_flops"] / seconds / facts["peak_flops"] if "peak_flops" in facts else None,
           "of_floor": facts["floor"] / seconds, **facts, "peers": []}
    if not has_torch:
        row["peers"].append({"name": "PyTorch", "why": "this python3 has no torch"})
    for peer in peers:
        if not peer.seconds:
            row["peers"].append({"name": peer.name, "why": peer.why})
            continue
        theirs = statistics.median(peer.seconds)
        row["peers"].append({"name": peer.name, "seconds": theirs, "rounds": peer.seconds,
                             "tokens_per_second": tokens / theirs, "ratio": theirs / seconds,
                             **{fact: peer.facts[fact] for fact in ("version", "how", "memory_in_use") if fact in peer.facts}})
    return row


def print_row(row):
    if "why" in row:
        print(f"{row['name']:20} {row['why']}")
        return
    mfu = f"  MFU {100 * row['mfu']:.1f} %" if row["mfu"] else ""
    memory = f"  {row['memory_in_use'] / 2**30:.1f} GiB" if "memory_in_use" in row else ""
    print(f"{row['name']:20} batch {row['batch'] * row['microbatches']:3}  {row['tokens_per_second']:9.0f} tokens/s{mfu}{memory}  "
          f"floors: operations {1e3 * row['floor_operations']:.2f} ms, bytes {1e3 * row['floor_bytes']:.2f} ms, "
          f"{row['of_floor']:.2f} of the larger op by op")
    for peer in row["peers"]:
        print(f"    {peer['name']:28} " + (f"{peer['tokens_per_second']:9.0f} tokens/s  ratio {peer['ratio']:.2f}  "
                                           f"{peer.get('version', '')}, {peer.get('how', '')}".strip(", ") if "seconds" in peer else peer["why"]))
    if "gemm_share" in row:
        print(f"    {row['gemm_share']:.2f} of the rate of a step that is all GEMM ({row['gemm_gflops']:.0f} GFLOP/s)")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", choices=SHAPES, default="cpu")
    p.add_argument("--program", help="default: build/cpu or build/cuda, bench/bench_step")
    p.add_argument("--rounds", type=int, help="default: 5 on the CPU, 3 on a GPU")
    p.add_argument("--threads", type=int, default=2, help="on the CPU")
    p.add_argument("--only", help="a shape")
    p.add_argument("--seconds", type=float, default=1e9, help="no shape begins when this has passed")
    p.add_argument("--json", help="file for the rows")
    for hidden in ["--peer", "--variant", "--gemm"]:
        p.add_argument(hidden, help=argparse.SUPPRESS)
    for hidden in ["--batch", "--microbatches"]:
        p.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    o = p.parse_args()
    shapes = SHAPES[o.device]
    if o.peer:
        shape = list(shapes[o.peer])
        shape[5:7] = o.batch, o.microbatches
        return torch_steps(shape, o.device, o.variant)
    if o.gemm:
        return gemm_rate(o.gemm)
    o.program = o.program or os.path.join(here, "../build", o.device, "bench/bench_step")
    o.rounds = o.rounds or (5 if o.device == "cpu" else 3)
    start = time.monotonic()
    env = dict(os.environ, OMP_WAIT_POLICY="PASSIVE")
    if o.device == "cpu":
        env["OMP_NUM_THREADS"] = str(o.threads)
        cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
        print(f"{cpu}, {o.threads} threads, {o.rounds} rounds")
    has_torch = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    results = {"rows": []}
    for name in shapes:
        if o.only and name != o.only:
            continue
        if time.monotonic() - start > o.seconds:
            row = {"name": name, "why": "no time left"}
        else:
            row = measure(name, o, env, has_torch)
        if o.device == "cpu" and has_torch and "why" not in row:
            command = [sys.executable, __file__, "--gemm", row["dtype"]]
            rate = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)["gflops"]
            row.update(gemm_gflops=rate, gemm_share=row["model_flops"] / row["seconds"] / 1e9 / rate)
        print_row(row)
        results["rows"].append(row)
        if o.json:
            with open(o.json + ".part", "w") as file:
                json.dump(results, file, indent=1)
            os.replace(o.json + ".part", o.json)


if __name__ == "__main__":
    main()
