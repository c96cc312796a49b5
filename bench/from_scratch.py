#!/usr/bin/env python3
"""Compares choices by models that a CPU trains from scratch: held-out losses at equal tokens, each choice at its best rate.

    from_scratch.py blocks|optimizers MEGALITH DATA [--work FOLDER] [--steps 1000] [--seeds 1 2 3] [--threads 1]
                                                    [--picture OUT.svg] [--rounds 5]

DATA is the folder that quickstart.sh makes its tokens in, runs/quickstart/data. All models have the shape of
small_gpt.toml, whose other options they share. The comparisons are:
  blocks      GPT-2's: layer norm, learned positions, GELU, biases; and today's: RMS norm, rotary positions, SwiGLU of 704
              features (0.3 % fewer parameters), no biases
  optimizers  AdamW; and Muon, with its learning rate also for what AdamW updates beside it
Each choice is trained with the first seed at every learning rate (it decays to a twentieth, by a cosine), and at its best one with
the other seeds. Every evaluation, ten a run, reads all of the held-out text. Runs that --work holds already are read, and those
that were cut off go on. Step times are measured at the end, when the machine should be at rest: each round times 30 steps of every
choice in turn, and the medians of the rounds are printed. --picture draws the losses of all seeds against tokens and against time
(steps by that median); it needs matplotlib.
"""
import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RATES = [1e-3, 2e-3, 4e-3, 8e-3]
# The choices of each comparison: the learning rates to try, and the settings.
COMPARISONS = {
    "blocks": {
        "gpt2": (RATES, []),
        "modern": (RATES, ["model.norm=rms", "model.positions=rotary", "model.activation=swiglu", "model.feed_forward=704",
                           "model.bias=false", "model.qkv_bias=false"]),
    },
    "optimizers": {
        "adamw": ([5e-4, *RATES], []),
        "muon": ([5e-4, *RATES], ["optimizer.algorithm=muon"]),
    },
}


def rows_of(output):
    with open(f"{output}/metrics.jsonl") as lines:
        return list(map(json.loads, lines))


class Comparison:
    def __init__(self, args):
        self.args = args
        self.choices = COMPARISONS[args.comparison]

    def train(self, choice, rate, seed, output, steps, *options):
        data = self.args.data
        command = [self.args.megalith, "train", f"{ROOT}/bench/small_gpt.toml", *self.choices[choice][1], f"data.train={data}/train.bin",
                   f"data.validation={data}/validation.bin", f"data.tokenizer={data}/tokenizer", f"run.output={output}", "run.device=cpu",
                   f"train.steps={steps}", f"optimizer.warmup_steps={steps // 20}", f"optimizer.learning_rate={rate:g}",
                   f"optimizer.min_learning_rate={rate / 20:g}",
                   f"train.seed={seed}", f"data.seed={seed}", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS=str(self.args.threads)))

    def evaluations(self, choice, rate, seed):
        """[(tokens, loss, bits per byte)] of a run, which it trains where that is not done."""
        output = f"{self.args.work}/{choice}-{rate:g}-{seed}"
        self.train(choice, rate, seed, output, self.args.steps, f"train.evaluate_every={self.args.steps // 10}")
        found = {row["step"]: row for row in rows_of(output) if "validation_loss" in row}
        assert max(found) == self.args.steps, f"{output} ends at step {max(found)}"
        last = found[self.args.steps]
        print(f"| {choice} | {rate:g} | {seed} | {last['validation_loss']:.4f} | {last['bits_per_byte']:.4f} |", flush=True)
        return [(row["tokens_so_far"], row["validation_loss"], row["bits_per_byte"]) for _, row in sorted(found.items())]

    def best(self, choice):
        """The best learning rate, and what evaluations() says of it for every seed."""
        first, *others = self.args.seeds
        found = {rate: self.evaluations(choice, rate, first) for rate in self.choices[choice][0]}
        rate = min(found, key=lambda rate: found[rate][-1][1])
        return rate, [found[rate]] + [self.evaluations(choice, rate, seed) for seed in others]

    def step_seconds(self, rates):
        """Of every choice: the median over the rounds of a step's seconds."""
        seconds = {choice: [] for choice in self.choices}
        for _, choice in itertools.product(range(self.args.rounds), self.choices):
            output = f"{self.args.work}/timed"
            shutil.rmtree(output, ignore_errors=True)
            self.train(choice, rates[choice], 1, output, 30, "train.evaluate_batches=1")
            seconds[choice].append(statistics.median(row["step_seconds"] for row in rows_of(output)
                                                     if "step_seconds" in row and row["step"] > 5))
        return {choice: statistics.median(rounds) for choice, rounds in seconds.items()}


def draw(best, seconds, steps, path):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "svg.hashsalt": "megalith"})
    figure, (by_tokens, by_time) = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    for (choice, (rate, runs)), colour in zip(best.items(), ["#3b7dd8", "#d9822b"]):
        tokens = [row[0] for row in runs[0]]
        losses = list(zip(*[[loss for _, loss, _ in run] for run in runs]))
        minutes = [seconds[choice] * steps * t / tokens[-1] / 60 for t in tokens]
        for side, x in (by_tokens, [t / 1e6 for t in tokens]), (by_time, minutes):
            side.plot(x, [statistics.mean(of_seeds) for of_seeds in losses], color=colour, label=f"{choice}, learning rate {rate:g}")
            side.fill_between(x, list(map(min, losses)), list(map(max, losses)), color=colour, alpha=0.25, linewidth=0)
    by_tokens.set(xlabel="millions of tokens", ylabel="held-out loss")
    by_time.set(xlabel="minutes of training")
    by_tokens.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", choices=COMPARISONS)
    parser.add_argument("megalith")
    parser.add_argument("data")
    parser.add_argument("--work", default="runs/from_scratch")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of timing")
    parser.add_argument("--picture")
    args = parser.parse_args()
    comparison = Comparison(args)
    print(f"| {args.comparison} | learning rate | seed | held-out loss | bits per byte |\n|---|---|---|---|---|", flush=True)
    best = {choice: comparison.best(choice) for choice in comparison.choices}
    seconds = comparison.step_seconds({choice: rate for choice, (rate, _) in best.items()})
    print(f"\nBest learning rate, {len(args.seeds)} seeds, {args.steps} steps:")
    for choice, (rate, runs) in best.items():
        losses, bits = zip(*[run[-1][1:] for run in runs])
        print(f"{choice}: learning rate {rate:g}, loss {statistics.mean(losses):.4f} ({min(losses):.4f} to {max(losses):.4f}), "
              f"{statistics.mean(bits):.4f} bits per byte, {1000 * seconds[choice]:.1f} ms a step")
    if args.picture:
        draw(best, seconds, args.steps, args.picture)


if __name__ == "__main__":
    main()
