#!/usr/bin/env python3
"""Which model and optimizer read a text best after some minutes on this machine, for configs/quickstart.toml.

  quickstart_tries.py MEGALITH TEXT [--minutes 4] [--seeds 1] [--only NAME...]

Each try is the recipe with some keys changed. First the tries are timed in turn, several rounds of them, and the fastest
round of each gives the seconds of its step: nothing else should run meanwhile. The minutes then give the number of steps,
over which the learning rate warms up for a twentieth and decays to the end; how fast these steps run does not change their
result. The score is the bits per byte of the validation text after the last one. Results: results/quickstart_tries.md."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

ROUNDS = 3
GPT2 = ["model.norm=layer", "model.bias=true", "model.qkv_bias=true", "model.activation=gelu", "model.positions=learned",
        "model.feed_forward=0"]
LLAMA = ["model.norm=rms", "model.bias=false", "model.qkv_bias=false", "model.activation=swiglu",
         "model.positions=rotary"]


def shape(layers, hidden, heads, feed_forward=0):
    return [f"model.layers={layers}", f"model.hidden={hidden}", f"model.heads={heads}",
            f"model.feed_forward={feed_forward}"]


def rate(highest, lowest=None):
    return [f"optimizer.learning_rate={highest}", f"optimizer.min_learning_rate={lowest or highest / 20}"]


def batch(sequences, length=256):
    return [f"batch.global_batch_size={sequences}", f"batch.microbatch_size={max(1, sequences // 2)}",
            f"model.context={length}", f"batch.sequence_length={length}"]


def llama(layers, hidden, algorithm, sequences, highest, length=256):
    feed_forward = {128: 352, 192: 512, 256: 704, 320: 864}[hidden]
    return LLAMA + shape(layers, hidden, hidden // 64, feed_forward) + [f"optimizer.algorithm={algorithm}"] + \
        rate(highest) + batch(sequences, length)


TRIES = [  # name, vocabulary, overrides
    ("the recipe", 4096, []),
    ("the recipe, vocabulary 2048", 2048, []),
    ("the recipe, vocabulary 8192", 8192, []),
    ("GPT-2's block, AdamW, 4 x 256, 4 sequences of 256, 2e-3", 4096,
     GPT2 + shape(4, 256, 4) + ["optimizer.algorithm=adamw"] + rate(2e-3) + batch(4)),
    ("AdamW, 4 x 256, 4 of 256, 2e-3", 4096, llama(4, 256, "adamw", 4, 2e-3)),
    ("Muon, 4 x 256, 4 of 256, 2e-3", 4096, llama(4, 256, "muon", 4, 2e-3)),
    ("Muon, 4 x 256, 8 of 256, 4e-3", 4096, llama(4, 256, "muon", 8, 4e-3)),
    ("AdamW, 4 x 192, 4 of 256, 3e-3", 4096, llama(4, 192, "adamw", 4, 3e-3)),
    ("Muon, 4 x 192, 4 of 256, 4e-3", 4096, llama(4, 192, "muon", 4, 4e-3)),
    ("Muon, 4 x 192, 4 of 256, 8e-3", 4096, llama(4, 192, "muon", 4, 8e-3)),
    ("Muon, 4 x 192, 2 of 256, 4e-3", 4096, llama(4, 192, "muon", 2, 4e-3)),
    ("Muon, 4 x 192, 8 of 128, 4e-3", 4096, llama(4, 192, "muon", 8, 4e-3, 128)),
    ("Muon, 3 x 192, 4 of 256, 4e-3", 4096, llama(3, 192, "muon", 4, 4e-3)),
    ("Muon, 3 x 192, 8 of 128, 8e-3", 4096, llama(3, 192, "muon", 8, 8e-3, 128)),
    ("AdamW, 3 x 192, 8 of 128, 4e-3", 4096, llama(3, 192, "adamw", 8, 4e-3, 128)),
    ("Muon, 3 x 256, 8 of 128, 4e-3", 4096, llama(3, 256, "muon", 8, 4e-3, 128)),
    ("Muon, 3 x 192, 8 of 128, 4e-3, vocabulary 2048", 2048, llama(3, 192, "muon", 8, 4e-3, 128)),
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
        lines = self.train(data, [*overrides, "data.validation="], 32, 0)
        return statistics.median([line["step_seconds"] for line in lines if "step_seconds" in line][8:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith")
    parser.add_argument("text")
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], help="names of tries")
    args = parser.parse_args()
    args.megalith, args.text = os.path.abspath(args.megalith), os.path.abspath(args.text)
    print("| try | parameters | ms a step | steps | bits per byte |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as work:
        machine = Machine(args, work)
        tries = [(name, machine.prepare(vocabulary), overrides) for name, vocabulary, overrides in TRIES
                 if not args.only or name in args.only]
        times = [[machine.seconds_of_a_step(data, overrides) for _, data, overrides in tries] for _ in range(ROUNDS)]
        for (name, data, overrides), seconds in zip(tries, zip(*times)):
            steps = int(60 * args.minutes / min(seconds))
            scores = []
            for seed in range(1, args.seeds + 1):
                lines = machine.train(data, [*overrides, f"train.seed={seed}", f"data.seed={seed}"], steps, steps // 20)
                scores.append(next(line["bits_per_byte"] for line in reversed(lines) if "bits_per_byte" in line))
            parameters = next(line["start"]["parameters"] for line in lines if "start" in line)
            print(f"| {name} | {parameters / 1e6:.2f} M | {1e3 * min(seconds):.0f} to {1e3 * max(seconds):.0f} | {steps} | "
                  f"{', '.join(f'{score:.4f}' for score in scores)} |", flush=True)


if __name__ == "__main__":
    main()
