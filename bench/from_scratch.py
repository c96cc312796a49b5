#!/usr/bin/env python3
"""GPT-2's block beside today's usual one, from scratch on a CPU: held-out losses at equal parameters and equal tokens.

    blocks.py MEGALITH DATA [--work FOLDER] [--steps 1000] [--rates 1e-3 2e-3 4e-3 8e-3] [--seeds 1 2 3] [--threads 1]

DATA is the folder that quickstart.sh makes its tokens in, runs/quickstart/data. Both models have the shape of
configs/quickstart.toml, whose other options they share:
  gpt2     layer norm, learned positions, GELU, biases
  modern   RMS norm, rotary positions, SwiGLU of 704 features (0.3 % fewer parameters than GPT-2's), no biases
Each is trained with the first seed at every learning rate (it decays to a twentieth, by a cosine), and at its best one with
the other seeds. Evaluation reads all of the held-out text. Runs that --work holds already are read, and those that were cut off go on.
"""
import argparse
import json
import os
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCKS = {
    "gpt2": [],
    "modern": ["model.norm=rms", "model.positions=rotary", "model.activation=swiglu", "model.feed_forward=704", "model.bias=false",
               "model.qkv_bias=false"],
}


def train(args, block, rate, seed):
    """What metrics.jsonl says of the run's last evaluation."""
    output = f"{args.work}/{block}-{rate:g}-{seed}"
    data = args.data
    command = [args.megalith, "train", f"{ROOT}/configs/quickstart.toml", *BLOCKS[block], f"data.train={data}/train.bin",
               f"data.validation={data}/validation.bin", f"data.tokenizer={data}/tokenizer", f"run.output={output}", "run.device=cpu",
               f"train.steps={args.steps}", f"optimizer.warmup_steps={args.steps // 20}", f"optimizer.learning_rate={rate:g}",
               f"optimizer.min_learning_rate={rate / 20:g}", f"train.evaluate_every={args.steps}",
               f"train.seed={seed}", f"data.seed={seed}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    with open(f"{output}/metrics.jsonl") as lines:
        evaluations = [row for row in map(json.loads, lines) if "validation_loss" in row]
    assert evaluations[-1]["step"] == args.steps, f"{output} ends at step {evaluations[-1]['step']}"
    return evaluations[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith")
    parser.add_argument("data")
    parser.add_argument("--work", default="runs/blocks")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 2e-3, 4e-3, 8e-3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    first, *others = args.seeds
    print("| block | learning rate | seed | held-out loss | bits per byte |\n|---|---|---|---|---|", flush=True)
    bests = {}
    for block in BLOCKS:
        found = {}

        def row(rate, seed):
            found[rate, seed] = train(args, block, rate, seed)
            print(f"| {block} | {rate:g} | {seed} | {found[rate, seed]['validation_loss']:.4f} | "
                  f"{found[rate, seed]['bits_per_byte']:.4f} |", flush=True)

        for rate in args.rates:
            row(rate, first)
        best = min(args.rates, key=lambda rate: found[rate, first]["validation_loss"])
        for seed in others:
            row(best, seed)
        bests[block] = [found[best, seed] for seed in args.seeds]
    print(f"\nBest learning rate, {len(args.seeds)} seeds, {args.steps} steps:")
    for block, rows in bests.items():
        losses = [row["validation_loss"] for row in rows]
        print(f"{block}: loss {statistics.mean(losses):.4f} ({min(losses):.4f} to {max(losses):.4f}), "
              f"{statistics.mean(row['bits_per_byte'] for row in rows):.4f} bits per byte")


if __name__ == "__main__":
    main()
