#!/usr/bin/env python3
"""Which model and optimizer read a text best after some minutes on this machine, for configs/quickstart.toml.

  quickstart_tries.py MEGALITH TEXT [--minutes 4] [--seeds 1] [--only WORD...]

Each try is the recipe with some keys changed. A few steps give the seconds of one, and the minutes give the number of
steps; the learning rate warms up over a twentieth of them and decays over all. The score is the bits per byte of the
validation text after the last step. Results: bench/results/quickstart_tries.md. Nothing else should run meanwhile."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

GPT2 = ["model.norm=layer", "model.bias=true", "model.qkv_bias=true", "model.activation=gelu", "model.positions=learned",
        "model.feed_forward=0"]
LLAMA = ["model.norm=rms", "model.bias=false", "model.qkv_bias=false", "model.activation=swiglu",
         "model.positions=rotary"]
MUON = ["optimizer.algorithm=muon"]


def shape(layers, hidden, heads, feed_forward=0):
    return [f"model.layers={layers}", f"model.hidden={hidden}", f"model.heads={heads}",
            f"model.feed_forward={feed_forward}"]


def rate(highest, lowest=None):
    return [f"optimizer.learning_rate={highest}", f"optimizer.min_learning_rate={lowest or highest / 20}"]


def batch(sequences, length=256):
    return [f"batch.global_batch_size={sequences}", f"batch.microbatch_size={max(1, sequences // 2)}",
            f"model.context={length}", f"batch.sequence_length={length}"]


TRIES = [  # name, vocabulary, overrides
    ("GPT-2's block, AdamW", 4096, GPT2 + shape(4, 256, 4) + ["optimizer.algorithm=adamw"] + rate(2e-3)),
    ("Muon", 4096, GPT2 + shape(4, 256, 4) + MUON + rate(2e-3)),
    ("Llama's block", 4096, LLAMA + shape(4, 256, 4, 704) + ["optimizer.algorithm=adamw"] + rate(2e-3)),
    ("Llama's block, Muon", 4096, LLAMA + shape(4, 256, 4, 704) + MUON + rate(2e-3)),
    ("rate 4e-3", 4096, LLAMA + shape(4, 256, 4, 704) + MUON + rate(4e-3)),
    ("8 sequences, rate 4e-3", 4096, LLAMA + shape(4, 256, 4, 704) + MUON + rate(4e-3) + batch(8)),
    ("16 sequences, rate 4e-3", 4096, LLAMA + shape(4, 256, 4, 704) + MUON + rate(4e-3) + batch(16)),
    ("vocabulary 2048", 2048, LLAMA + shape(4, 256, 4, 704) + MUON + rate(4e-3) + batch(8)),
    ("vocabulary 8192", 8192, LLAMA + shape(4, 256, 4, 704) + MUON + rate(4e-3) + batch(8)),
    ("width 192", 4096, LLAMA + shape(4, 192, 4, 512) + MUON + rate(4e-3) + batch(8)),
    ("width 320", 4096, LLAMA + shape(4, 320, 5, 864) + MUON + rate(4e-3) + batch(8)),
    ("6 layers", 4096, LLAMA + shape(6, 256, 4, 704) + MUON + rate(4e-3) + batch(8)),
    ("3 layers", 4096, LLAMA + shape(3, 256, 4, 704) + MUON + rate(4e-3) + batch(8)),
    ("rate 8e-3", 4096, LLAMA + shape(4, 256, 4, 704) + MUON + rate(8e-3) + batch(8)),
    ("sequences of 128", 4096, LLAMA + shape(4, 256, 4, 704) + MUON + rate(4e-3) + batch(16, 128)),
]


def lines_of(folder):
    with open(f"{folder}/metrics.jsonl") as file:
        return [json.loads(line) for line in file]


class Machine:
    def __init__(self, args, work):
        self.args, self.work = args, work

    def prepare(self, vocabulary):
        data = f"{self.work}/{vocabulary}"
        if not os.path.exists(data):
            subprocess.run([self.args.megalith, "prepare", "--text", self.args.text, "--tokenizer", f"train:{vocabulary}",
                            "--validation", "0.01", "--out", data], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        return data

    def train(self, data, overrides, steps, warmup):
        out = tempfile.mkdtemp(dir=self.work)
        done = subprocess.run(
            [self.args.megalith, "run", "-n", "2", "train", "configs/quickstart.toml", f"data.train={data}/train.bin",
             f"data.validation={data}/validation.bin", f"data.tokenizer={data}/tokenizer", "train.evaluate_every=0",
             "train.evaluate_batches=100000", "checkpoint.every=0", f"train.steps={steps}",
             f"optimizer.warmup_steps={warmup}", f"run.output={out}", *overrides], capture_output=True, text=True,
            cwd=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return lines_of(out)

    def seconds_of_a_step(self, data, overrides):
        lines = self.train(data, overrides, 24, 0)
        return statistics.median([line["step_seconds"] for line in lines if "step_seconds" in line][8:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith")
    parser.add_argument("text")
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[])
    args = parser.parse_args()
    args.megalith, args.text = os.path.abspath(args.megalith), os.path.abspath(args.text)
    print("| try | parameters | ms a step | steps | bits per byte |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as work:
        machine = Machine(args, work)
        for name, vocabulary, overrides in TRIES:
            if args.only and name not in args.only:
                continue
            data = machine.prepare(vocabulary)
            seconds = machine.seconds_of_a_step(data, overrides)
            steps = int(60 * args.minutes / seconds)
            scores = []
            for seed in range(1, args.seeds + 1):
                lines = machine.train(data, [*overrides, f"train.seed={seed}", f"data.seed={seed}"], steps, steps // 20)
                scores.append(next(line["bits_per_byte"] for line in reversed(lines) if "bits_per_byte" in line))
            parameters = next(line["start"]["parameters"] for line in lines if "start" in line)
            print(f"| {name} | {parameters / 1e6:.2f} M | {1e3 * seconds:.0f} | {steps} | "
                  f"{', '.join(f'{score:.4f}' for score in scores)} |", flush=True)


if __name__ == "__main__":
    main()
