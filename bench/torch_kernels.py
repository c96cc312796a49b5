#!/usr/bin/env python3
"""PyTorch's attention (flash, cuDNN) and matrix products on this GPU, by the names of bench_kernels' rows and counted as there:
attention's causal pairs alone, two products of them forward and five backward. Nothing is compiled; it takes seconds.

  torch_kernels.py [--device cpu|cuda] [--json FILE]      cpu: tries this script at small shapes

FILE gets {"version", "rows": [{"row", "by", "tflops" or "why"}]}, written anew after each row. Exit status 77: there is no torch.
"""
import argparse, json, os, statistics, sys, time

ATTENTION = {"B16 T1024 H32 D64": (16, 1024, 32, 64), "B4 T4096 H32 D64": (4, 4096, 32, 64), "B16 T1024 H16 D128": (16, 1024, 16, 128),
             "B4 T4096 H16 D128": (4, 4096, 16, 128), "124M": (16, 1024, 12, 64), "1558M": (8, 1024, 25, 64)}
PRODUCTS = {"up/124M": (16384, 768, 3072), "head/124M": (16384, 768, 50304), "up/1558M": (8192, 1600, 6400)}  # rows, in, out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    p.add_argument("--json")
    o = p.parse_args()
    try:
        import torch, torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError as error:
        print(f"this python3 has no torch: {error}")
        sys.exit(77)
    on_cpu = o.device == "cpu"
    results = {"version": torch.__version__, "rows": []}

    def seconds(call):
        for _ in range(3):
            call()
        times = []
        for _ in range(7):
            if on_cpu:
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
                continue
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(200000)  # so that all is launched before the first begins
            begin.record()
            for _ in range(3):
                call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 3e3)
        return statistics.median(times)

    def row(name, by, measure):
        try:
            found = {"tflops": measure() / 1e12}
        except Exception as error:  # whatever a backend does not take
            found = {"why": str(error).splitlines()[0][:100]}
        results["rows"].append({"row": name, "by": by, **found})
        print(f"{name:50} {by:6} " + (f"{found['tflops']:.0f} TFLOP/s" if "tflops" in found else found["why"]), flush=True)
        if o.json:
            with open(o.json + ".part", "w") as file:
                json.dump(results, file, indent=1)
            os.replace(o.json + ".part", o.json)

    random = lambda *shape: torch.randn(*shape, device=o.device, dtype=torch.bfloat16)
    backends = [("math", SDPBackend.MATH)] if on_cpu else [("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)]
    for shape, (B, T, H, D) in ({"B1 T64 H2 D64": (1, 64, 2, 64)} if on_cpu else ATTENTION).items():
        q, k, v = (random(B, H, T, D).requires_grad_() for _ in range(3))
        product = B * H * D * T * (T + 1)
        for by, backend in backends:
            with sdpa_kernel(backend):
                attention = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
                row(f"attention_forward/{shape}/bf16", by, lambda: 2 * product / seconds(attention))

                def backward():
                    out = attention()
                    gradient = torch.randn_like(out)
                    return 5 * product / seconds(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
                row(f"attention_backward/{shape}/bf16", by, backward)
    for shape, (rows, width, outputs) in ({"small": (64, 32, 48)} if on_cpu else PRODUCTS).items():
        x, w, b, dy = random(rows, width), random(outputs, width), random(outputs), random(rows, outputs)
        flops = 2 * rows * width * outputs
        row(f"linear_forward {shape}/bf16", "linear", lambda: flops / seconds(lambda: F.linear(x, w, b)))
        row(f"linear_backward_weight {shape}/bf16", "matmul", lambda: flops / seconds(lambda: dy.T @ x))


if __name__ == "__main__":
    main()
