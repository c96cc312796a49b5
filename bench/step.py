#!/usr/bin/env python3
"""Training steps on the CPU: Megalith against PyTorch (eager), in turn in one run, same shapes, dtype and threads.

Each round starts both programs once; a round's figure is the median of its steps, and what is printed is the median over
rounds and the ratio. PyTorch gets OMP_WAIT_POLICY=PASSIVE, without which it is several times slower on small shapes;
so does Megalith. PyTorch's model is a plain GPT-2: nn.Linear, scaled_dot_product_attention, cross_entropy, clipping and
AdamW as torch has them.

usage: bench/step.py [--program build/cpu/bench/bench_step] [--rounds 5] [--threads 2] [--only NAME]
needs: python3 with torch (from PyPI), and the `cpu` preset built
"""
import argparse, json, os, platform, re, statistics, subprocess, sys, time

SHAPES = {
    # name: layers, hidden, heads, vocab, sequence, batch, dtype, steps a round
    "gpt2-124m-fp32": (12, 768, 12, 50257, 256, 4, "fp32", 3),
    "nanogpt-cpu-fp32": (4, 128, 4, 65, 64, 12, "fp32", 60),
    "gpt2-124m-bf16": (12, 768, 12, 50257, 256, 4, "bf16", 3),
}


def torch_steps(shape):
    import torch, torch.nn as nn, torch.nn.functional as F
    L, C, H, V, T, B, dtype, steps = shape
    torch.manual_seed(1)

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

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
            self.blocks, self.ln_f = nn.ModuleList(Block() for _ in range(L)), nn.LayerNorm(C)

        def forward(self, x, y):
            h = self.wte(x) + self.wpe(torch.arange(T))
            for block in self.blocks:
                h = block(h)
            return F.cross_entropy(F.linear(self.ln_f(h), self.wte.weight).view(-1, V), y.view(-1))

    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    seconds = []
    for i in range(steps + 1):
        x, y = torch.randint(0, V, (B, T)), torch.randint(0, V, (B, T))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": statistics.median(seconds[1:]), "version": torch.__version__}))


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


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default=os.path.join(here, "../build/cpu/bench/bench_step"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", choices=SHAPES)
    p.add_argument("--peer", help=argparse.SUPPRESS)
    p.add_argument("--gemm", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        return torch_steps(SHAPES[a.peer])
    if a.gemm:
        return gemm_rate(a.gemm)

    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads), OMP_WAIT_POLICY="PASSIVE")
    run = lambda command: subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    print(f"{cpu}, {a.threads} threads, {a.rounds} rounds")
    print(f"{'shape':20} {'Megalith tok/s':>15} {'PyTorch tok/s':>15} {'ratio':>7} {'GEMM share':>11}   "
          "(share of the rate of a step that is all GEMM)")
    for name, shape in SHAPES.items():
        if a.only and name != a.only:
            continue
        L, C, H, V, T, B, dtype, steps = shape
        ours, theirs, gemm = [], [], []
        for _ in range(a.rounds):
            text = run([a.program, "--layers", str(L), "--hidden", str(C), "--heads", str(H), "--vocab", str(V), "--sequence",
                        str(T), "--batch", str(B), "--compute", dtype, "--steps", str(steps)])
            ours.append(float(re.match(r"([0-9.]+) seconds", text)[1]))
            peer = json.loads(run([sys.executable, __file__, "--peer", name]))
            theirs.append(peer["seconds"])
            gemm.append(json.loads(run([sys.executable, __file__, "--gemm", dtype]))["gflops"])
        mine, peer_seconds = statistics.median(ours), statistics.median(theirs)
        flops = B * T * (6 * (12 * L * C * C + V * C) + 6 * L * C * T)
        share = flops / mine / 1e9 / statistics.median(gemm)
        print(f"{name:20} {B * T / mine:15.0f} {B * T / peer_seconds:15.0f} {peer_seconds / mine:7.2f} {share:11.2f}   "
              f"PyTorch {peer['version']}, plain GEMM {statistics.median(gemm):.0f} GFLOP/s")


main()
