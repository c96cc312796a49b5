#!/usr/bin/env python3
"""PyTorch's side of bench/step.py: training steps of a plain GPT-2 or Llama, and the rate of a plain matrix product.

  torch_step.py steps --device cpu|cuda --shape LAYERS,HIDDEN,HEADS,VOCAB,SEQUENCE --batch B --microbatches M --dtype fp32|bf16
                      --variant eager|compiled|'bf16 parameters' --steps N [--llama KEY_VALUE_HEADS,FEATURES]
      gets ready, prints one line of JSON, and another for each line of standard input: the median of N steps in seconds
  torch_step.py gemm --dtype fp32|bf16
      prints GFLOP/s of a product of the size of GPT-2 124M's largest layer on the CPU

The model is nn.Linear, scaled_dot_product_attention, cross_entropy, clipping and AdamW as torch has them. `compiled` is
torch.compile: of the whole model, and beyond 12 layers block by block, for the time that compiling takes. bf16 is autocast with
parameters and moments in fp32; in the variant 'bf16 parameters', which is compiled, all of these are bf16. Each step has new random
tokens, and subnormal numbers are flushed to 0: with them Intel's processors take up to five times as long once gradients are small.
"""
import argparse, json, statistics, sys, time


def steps(o):
    import torch, torch.nn as nn, torch.nn.functional as F
    L, C, H, V, T = o.shape
    B, device = o.batch, o.device
    rows = V if device == "cpu" else (V + 127) // 128 * 128
    torch.manual_seed(1)
    torch.set_flush_denormal(True)
    torch.set_float32_matmul_precision("highest")

    class GptBlock(nn.Module):
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

    if o.llama:
        groups, features = o.llama
        D = C // H
        angles = torch.arange(T, device=device)[:, None] * 500000.0 ** (-torch.arange(0, D, 2, device=device) / D)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

        def rotate(t):
            turned = torch.cat((-t[..., D // 2:], t[..., :D // 2]), -1)
            return t * cos.to(t.dtype) + turned * sin.to(t.dtype)

        class LlamaBlock(nn.Module):
            def __init__(self):
                super().__init__()
                self.ln_1, self.ln_2 = nn.RMSNorm(C), nn.RMSNorm(C)
                self.qkv, self.proj = nn.Linear(C, (H + 2 * groups) * D, bias=False), nn.Linear(C, C, bias=False)
                self.fc, self.out = nn.Linear(C, 2 * features, bias=False), nn.Linear(features, C, bias=False)

            def forward(self, x):
                q, k, v = self.qkv(self.ln_1(x)).split([C, groups * D, groups * D], 2)
                q, k, v = (t.view(B, T, -1, D).transpose(1, 2) for t in (q, k, v))
                y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True, enable_gqa=True)
                x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
                gate, up = self.fc(self.ln_2(x)).chunk(2, -1)
                return x + self.out(F.silu(gate) * up)

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_f = nn.RMSNorm(C) if o.llama else nn.LayerNorm(C)

        def forward(self, h, wte, y):
            return F.cross_entropy(F.linear(self.ln_f(h), wte).view(-1, rows), y.view(-1))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(rows, C), None if o.llama else nn.Embedding(T, C)
            self.blocks = nn.ModuleList(LlamaBlock() if o.llama else GptBlock() for _ in range(L))
            self.head = Head()

        def forward(self, x, y):
            h = self.wte(x)
            if self.wpe:
                h = h + self.wpe(torch.arange(T, device=x.device))
            for block in self.blocks:
                h = block(h)
            return self.head(h, self.wte.weight, y)

    with torch.device(device):
        model, how = Model(), "eager"
    if o.variant == "bf16 parameters":
        model.bfloat16()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=device == "cuda")
    call = model
    if o.variant != "eager" and L <= 12:
        call, how = torch.compile(model), "compiled as a whole"
    elif o.variant != "eager":
        for part in [*model.blocks, model.head]:
            part.compile()
        how = "compiled by block"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def step():
        batches = [[torch.randint(0, V, (B, T), device=device) for _ in range(2)] for _ in range(o.microbatches)]
        wait()
        start = time.perf_counter()
        for x, y in batches:
            with torch.autocast(device, torch.bfloat16, enabled=o.dtype == "bf16" and o.variant != "bf16 parameters"):
                loss = call(x, y) / o.microbatches
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
        print(json.dumps({"seconds": statistics.median(step() for _ in range(o.steps))}), flush=True)


def gemm(o):
    """In bf16 the faster of bf16 and fp32, since a CPU without bf16 matrix units does better to widen."""
    import torch
    best = 0
    for t in [torch.float32] if o.dtype == "fp32" else [torch.bfloat16, torch.float32]:
        a, b = torch.randn(1024, 768, dtype=t), torch.randn(3072, 768, dtype=t)
        rates = []
        for _ in range(30):
            start = time.perf_counter()
            torch.nn.functional.linear(a, b)
            rates.append(2 * 1024 * 768 * 3072 / (time.perf_counter() - start) / 1e9)
        best = max(best, statistics.median(rates))
    print(json.dumps({"gflops": best}))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["steps", "gemm"])
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--shape", type=lambda text: [int(n) for n in text.split(",")])
    p.add_argument("--llama", type=lambda text: [int(n) for n in text.split(",")])
    p.add_argument("--batch", type=int)
    p.add_argument("--microbatches", type=int)
    p.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    p.add_argument("--variant", choices=["eager", "compiled", "bf16 parameters"], default="eager")
    p.add_argument("--steps", type=int)
    o = p.parse_args()
    {"steps": steps, "gemm": gemm}[o.what](o)


if __name__ == "__main__":
    main()
