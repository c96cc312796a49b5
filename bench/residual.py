#!/usr/bin/env python3
"""What a residual stream in fp32 spares a deep model that computes in bf16: errors of a gradient, and losses.

    residual.py MEGALITH DATA [--layers 4 24 48] [--steps 300] [--work FOLDER] [--threads 1]

DATA is the folder that quickstart.sh makes its tokens in, runs/quickstart/data. Models are GPT-2's, 64 wide, of so many layers.
  gradient  relative error of all of one step's gradient after so many steps in fp32, against PyTorch in float64 on the same
            weights and tokens: of Megalith in fp32, in bf16, and in bf16 with precision.residual = "fp32"; and of PyTorch in fp32,
            by autocast to bf16 (whose residual stream is fp32), and with all of the model in bf16
  loss      mean of the last 20 training losses of so many steps at the last of --layers
Needs Python with torch, transformers and h5py.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import tempfile

import h5py
import numpy
import torch
import transformers

TOKENS, SEQUENCES = 128, 8
CONFIG = """[model]
layers = {layers}
hidden = 64
heads = 4
vocab = 4096
context = 128
[data]
train = "{data}/train.bin"
tokenizer = "{data}/tokenizer"
shuffle = false
[batch]
global_batch_size = 8
microbatch_size = 8
[optimizer]
learning_rate = 1e-3
warmup_steps = 20
[run]
device = "cpu"
"""
PRECISIONS = {"fp32": ["precision.compute=fp32"], "bf16": ["precision.compute=bf16"],
              "bf16, residual in fp32": ["precision.compute=bf16", "precision.residual=fp32"]}
# The first moments then hold the gradient at the weights that the run began with.
ONE_STEP = ["train.steps=1", "optimizer.warmup_steps=0", "optimizer.learning_rate=1e-300", "optimizer.min_learning_rate=0",
            "optimizer.decay=constant", "optimizer.gradient_clip=0", "optimizer.beta1=0"]


def megalith(args, *command):
    subprocess.run([args.megalith, *command], check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))


def first_moments(run):
    """{name: (out, in) or vector, flat}, of a run of one rank."""
    parts = {}
    with h5py.File(glob.glob(f"{run}/checkpoints/step-*/rank-00000.h5")[0]) as file:
        group = file["moments/first"]

        def take(name, item):
            if isinstance(item, h5py.Dataset):
                whole, _, part = name.partition("#")
                parts.setdefault(whole, {})[int(part or 0)] = numpy.array(item, dtype=numpy.float64)

        group.visititems(take)
    return {name: numpy.concatenate([of[i] for i in sorted(of)]) for name, of in parts.items()}


def of_torch(folder, tokens, dtype, autocast=False):
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(tokens[:, :-1]).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1).to(max(logits.dtype, torch.float32, key=lambda t: t.itemsize)),
                                      tokens[:, 1:].flatten()).backward()
    gradients = {}
    for name, parameter in model.transformer.named_parameters():
        gradient = parameter.grad.double().numpy()
        matrix = name.startswith("h.") and gradient.ndim == 2  # theirs are (in, out)
        gradients[name] = (gradient.T if matrix else gradient).flatten()
    return gradients


def relative_error(found, expected):
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    error = sum(((found[name] - expected[name])**2).sum() for name in expected)
    return (error / sum((g**2).sum() for g in expected.values()))**0.5


def gradients(args, work, layers):
    config = f"{work}/{layers}.toml"
    with open(config, "w") as file:
        file.write(CONFIG.format(layers=layers, data=os.path.abspath(args.data)))
    folder = f"{work}/{layers} weights"
    megalith(args, "train", config, f"train.steps={args.steps}", f"run.output={work}/{layers}")
    megalith(args, "checkpoint", "export", f"{work}/{layers}", "--out", folder)
    for name, options in PRECISIONS.items():
        megalith(args, "train", config, *ONE_STEP, *options, f"checkpoint.init_from={folder}", f"run.output={work}/{layers} {name}")
    with open(f"{work}/{layers} fp32/metrics.jsonl") as lines:
        first, end = next(row["samples"] for row in map(json.loads, lines) if "samples" in row)
    assert (first, end) == (0, SEQUENCES)
    flat = numpy.fromfile(f"{args.data}/train.bin", dtype=numpy.uint16, count=TOKENS * SEQUENCES + 1).astype(numpy.int64)
    tokens = torch.from_numpy(numpy.stack([flat[i * TOKENS:(i + 1) * TOKENS + 1] for i in range(SEQUENCES)]))
    exact = of_torch(folder, tokens, torch.float64)
    for name in PRECISIONS:
        yield f"Megalith, {name}", relative_error(first_moments(f"{work}/{layers} {name}"), exact)
    yield "PyTorch, fp32", relative_error(of_torch(folder, tokens, torch.float32), exact)
    yield "PyTorch, autocast", relative_error(of_torch(folder, tokens, torch.float32, autocast=True), exact)
    yield "PyTorch, all in bf16", relative_error(of_torch(folder, tokens, torch.bfloat16), exact)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith")
    parser.add_argument("data")
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 24, 48])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--work")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or scratch
        os.makedirs(work, exist_ok=True)
        found = {layers: dict(gradients(args, work, layers)) for layers in args.layers}
        print("| error of a gradient | " + " | ".join(f"{layers} layers" for layers in args.layers) + " |")
        print("|---" * (len(args.layers) + 1) + "|")
        for name in found[args.layers[0]]:
            print(f"| {name} | " + " | ".join(f"{found[layers][name]:.2e}" for layers in args.layers) + " |", flush=True)
        print(f"\n| loss after {args.steps} steps, {args.layers[-1]} layers | "
              + " | ".join(f"seed {seed}" for seed in args.seeds) + " |\n" + "|---" * (len(args.seeds) + 1) + "|")
        for name, options in PRECISIONS.items():
            losses = []
            for seed in args.seeds:
                output = f"{work}/{args.layers[-1]} {name}, {args.steps} steps, seed {seed}"
                megalith(args, "train", f"{work}/{args.layers[-1]}.toml", *options, f"train.steps={args.steps}",
                         f"train.seed={seed}", f"run.output={output}")
                with open(f"{output}/metrics.jsonl") as lines:
                    rows = [row["loss"] for row in map(json.loads, lines) if "grad_norm" in row]
                losses.append(statistics.mean(rows[-20:]))
            print(f"| {name} | " + " | ".join(f"{loss:.4f}" for loss in losses) + " |", flush=True)


if __name__ == "__main__":
    main()
