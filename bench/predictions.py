#!/usr/bin/env python3
"""What bench/results/*counted.md predict of GPUs, beside what bench/gpu.sh measured: it prints the table and keeps it in
its results file.

  bench/predictions.py BENCH_KERNELS    whether each predicted row is one that is measured (a test of every build)

A prediction names GPUs, as a pattern, and a row of `bench_kernels`, of its second run on a Hopper (`--generation 8`: the
kernels of older GPUs), or of `bench/step.py`. Attention's rates are TFLOP/s of causal pairs, a step's tokens a second, and of
steps whose launches are graphs, how many times the tokens of launches one by one."""
import os, re, subprocess, sys

import step

# Keys of the results file.
KERNELS, ALL_KERNELS, OLDER, STEPS = "kernels", "all_kernels", "kernels_of_generation_8", "steps"
TORCH_KERNELS = "torch_kernels"
GRAPHS = "graphs"  # a peer of the rows of steps
HOPPER = "H100|H200|GH200"

# GPUs, where it is measured, row, rate. Attention without dropout on Hopper is bench_attention_model's; the
# other rates of attention are ceilings of a model, which a ratio above 1 refutes; those of graphs are lower bounds. Products in 8
# bits and steps are those of `megalith plan` with hardware.profile=dgx_h100 or p5en.48xlarge and these shapes on one rank.
PREDICTIONS = [
    (HOPPER, KERNELS, "attention_forward/B16 T1024 H32 D64/bf16", 283),
    (HOPPER, KERNELS, "attention_forward/B4 T4096 H32 D64/bf16", 409),
    (HOPPER, KERNELS, "attention_forward/B16 T1024 H16 D128/bf16", 351),
    (HOPPER, KERNELS, "attention_forward/B4 T4096 H16 D128/bf16", 555),
    (HOPPER, KERNELS, "attention_forward/B16 T1024 H18 D112/bf16", 326),
    (HOPPER, KERNELS, "attention_forward/B4 T4096 H18 D112/bf16", 514),
    (HOPPER, KERNELS, "attention_forward/124M/bf16", 231),
    (HOPPER, KERNELS, "attention_forward/124M grouped/bf16", 278),
    (HOPPER, KERNELS, "attention_forward/1558M/bf16", 227),
    (HOPPER, KERNELS, "attention_forward/1558M grouped/bf16", 276),
    (HOPPER, KERNELS, "attention_forward/B4 T2048 H32/8 D64/bf16", 359),
    (HOPPER, KERNELS, "attention_forward/B1 T8192 H32/8 D128/bf16", 607),
    (HOPPER, KERNELS, "attention_forward/B1 T8192 H28/4 D128/bf16", 631),
    (HOPPER, KERNELS, "attention_forward/B1 T8192 H64/8 D128/bf16", 635),
    (HOPPER, KERNELS, "attention_backward/B16 T1024 H32 D64/bf16", 213),
    (HOPPER, KERNELS, "attention_backward/B4 T4096 H32 D64/bf16", 314),
    (HOPPER, KERNELS, "attention_backward/B16 T1024 H16 D128/bf16", 266),
    (HOPPER, KERNELS, "attention_backward/B4 T4096 H16 D128/bf16", 393),
    (HOPPER, KERNELS, "attention_backward/124M/bf16", 207),
    (HOPPER, KERNELS, "attention_backward/124M grouped/bf16", 211),
    (HOPPER, KERNELS, "attention_backward/1558M grouped/bf16", 208),
    (HOPPER, KERNELS, "attention_backward/B4 T2048 H32/8 D64/bf16", 259),
    (HOPPER, KERNELS, "attention_backward/B1 T8192 H32/8 D128/bf16", 418),
    (HOPPER, KERNELS, "attention_backward/B1 T8192 H28/4 D128/bf16", 409),
    (HOPPER, KERNELS, "attention_backward/B1 T8192 H64/8 D128/bf16", 422),
    (HOPPER, KERNELS, "attention_backward dropout/B16 T1024 H32 D64/bf16", 210),
    (HOPPER, KERNELS, "attention_backward dropout/B16 T1024 H16 D128/bf16", 340),
    (HOPPER, KERNELS, "fp8_product up/8B/e4m3", 1346),
    (HOPPER, KERNELS, "fp8_product backward_input up/8B/e4m3", 1385),
    (HOPPER, KERNELS, "fp8_product backward_weight up/8B/e4m3", 1364),
    (HOPPER, OLDER, "attention_forward/B16 T1024 H32 D64/bf16", 385),
    (HOPPER, OLDER, "attention_forward/B4 T4096 H32 D64/bf16", 420),
    (HOPPER, OLDER, "attention_forward/B16 T1024 H16 D128/bf16", 385),
    (HOPPER, OLDER, "attention_forward/B4 T4096 H16 D128/bf16", 420),
    (HOPPER, OLDER, "attention_backward/B16 T1024 H32 D64/bf16", 185),
    (HOPPER, OLDER, "attention_backward/B4 T4096 H32 D64/bf16", 200),
    (HOPPER, OLDER, "attention_backward/B16 T1024 H16 D128/bf16", 190),
    (HOPPER, OLDER, "attention_backward/B4 T4096 H16 D128/bf16", 210),
    ("A100", KERNELS, "attention_forward/B16 T1024 H18 D112/bf16", 220),
    ("A100", KERNELS, "attention_forward/B4 T4096 H18 D112/bf16", 240),
    ("A100", KERNELS, "attention_forward/B16 T1024 H16 D128/bf16", 220),
    ("A100", KERNELS, "attention_forward/B4 T4096 H16 D128/bf16", 240),
    ("A100", KERNELS, "attention_backward dropout/B16 T1024 H32 D64/bf16", 105),
    ("A100", KERNELS, "attention_backward dropout/B16 T1024 H16 D128/bf16", 130),
    ("H100", STEPS, "gpt2-124m-bf16", 548684),
    ("H100", STEPS, "gpt2-1558m-bf16", 41522),
    ("H100", STEPS, "llama-1b-bf16", 53868),
    ("H100", STEPS, "llama-1b-fp8", 63674),
    ("H200", STEPS, "gpt2-124m-bf16", 575921),
    ("H200", STEPS, "gpt2-1558m-bf16", 43834),
    ("H200", STEPS, "llama-1b-bf16", 57221),
    ("H200", STEPS, "llama-1b-fp8", 70647),
    (".", GRAPHS, "gpt2-124m-bf16", 1),
    (".", GRAPHS, "nanogpt-small-bf16", 1.5),
]


def measured(results):
    """{(where, row): rate} of a results file."""
    rates = {}
    for key, where in (ALL_KERNELS, KERNELS), (KERNELS, KERNELS), (OLDER, OLDER):
        for row in results.get(key, {}).get("rows", []):
            rates[where, f"{row['op']}/{row['shape']}/{row['dtype']}"] = row["flops"] / row["seconds"] / 1e12
    for row in results.get(STEPS, {}).get("rows", []):
        if "tokens_per_second" in row:
            rates[STEPS, row["name"]] = row["tokens_per_second"]
        for peer in row.get("peers", []):
            if peer["name"] == step.GRAPHS and "tokens_per_second" in peer:
                rates[GRAPHS, row["name"]] = peer["tokens_per_second"] / row["tokens_per_second"]
    return rates


def compare(gpu, results):
    """[{where, row, predicted, measured, ratio}] for a GPU's name; measured and ratio are None of a row that was not run."""
    rates = measured(results)
    found = []
    for gpus, where, row, rate in PREDICTIONS:
        if re.search(gpus, gpu):
            got = rates.get((where, row))
            found.append({"where": where, "row": row, "predicted": rate, "measured": got, "ratio": got and got / rate})
    return found


def lines(compared):
    for one in compared:
        unit = {STEPS: "tokens/s", GRAPHS: "times"}.get(one["where"], "TFLOP/s")
        row = one["row"] + {OLDER: ", generation 8", GRAPHS: ", graphs"}.get(one["where"], "")
        measured = f"{one['measured']:{'.2f' if one['where'] == GRAPHS else '.0f'}}" if one["measured"] else None
        yield f"{row:48} predicted {one['predicted']:7g} {unit}, " + \
            (f"measured {measured}: {one['ratio']:.2f} of it" if measured else "not measured")


def not_measured(kernel_rows):
    """Predicted rows that no bench has."""
    rows = {KERNELS: kernel_rows, OLDER: [row for row in kernel_rows if re.search(OLDER_FILTER, row)],
            STEPS: list(step.SHAPES["cuda"]), GRAPHS: list(step.SHAPES["cuda"])}
    return [f"{where}: {row}" for _, where, row, _ in PREDICTIONS if row not in rows[where]]


OLDER_FILTER = "^attention.*bf16"

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if not os.path.exists(sys.argv[1]):
        print(f"{sys.argv[1]} is not built: skipped")
        sys.exit(77)
    listed = subprocess.run([sys.argv[1], "--device", "cuda", "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    if missing := not_measured(listed):
        sys.exit("predicted in bench/predictions.py, and no bench has such a row:\n" + "\n".join(missing))
    print(f"{len(PREDICTIONS)} predictions, each a row that is measured")
