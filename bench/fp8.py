#!/usr/bin/env python3
"""What products in 8 bits cost in loss, and where their gradients are wrong, beside bf16 and fp32.

    fp8.py MEGALITH DATA [--steps 600 400] [--seeds 1 2 3] [--work FOLDER] [--threads 1]

DATA is the folder that quickstart.sh makes its tokens in, runs/quickstart/data. Models: the quickstart's, of 4 layers, and one of
24 layers, 128 wide; each by AdamW and by Muon, for so many steps.
  loss      on the validation text after the last step, for each seed
  gradient  of one step, at the weights that 24 layers have after their steps in fp32: the relative error of each layer's, against
            fp32's with the same weights and tokens
Needs Python with h5py.
"""
import argparse
import json
import os
import re
import subprocess
import tempfile

from residual import ONE_STEP, first_moments, relative_error

RECIPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "configs", "quickstart.toml")
MODELS = {"4 layers": [], "24 layers": ["model.layers=24", "model.hidden=128", "model.heads=2", "model.feed_forward=352"]}
OPTIMIZERS = {"AdamW": ["optimizer.algorithm=adamw", "optimizer.learning_rate=3e-3"],
              "Muon": ["optimizer.algorithm=muon", "optimizer.learning_rate=4e-3"]}
PRECISIONS = {"fp32": ["precision.compute=fp32"], "bf16": ["precision.compute=bf16"],
              "fp8": ["precision.compute=bf16", "precision.products=fp8"]}


def train(args, output, *options):
    """Returns the rows of the run's metrics; a finished run is read again."""
    said = f"{output}.said"
    if not os.path.exists(f"{output}/done"):
        with open(said, "w") as file:
            subprocess.run([args.megalith, "train", RECIPE, f"data.train={args.data}/train.bin",
                            f"data.validation={args.data}/validation.bin", f"data.tokenizer={args.data}/tokenizer",
                            "run.device=cpu", *options, f"run.output={output}"], check=True, stdout=file, stderr=file,
                           env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
        open(f"{output}/done", "w").close()
    with open(f"{output}/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


def model_of(layers, optimizer, steps):
    return [*MODELS[layers], *OPTIMIZERS[optimizer], f"train.steps={steps}", f"train.evaluate_every={steps}",
            f"checkpoint.every={steps}"]


def losses(args, work):
    for (layers, _), steps in zip(MODELS.items(), args.steps):
        for optimizer in OPTIMIZERS:
            print(f"\n| {layers}, {optimizer}, {steps} steps | " + " | ".join(f"seed {seed}" for seed in args.seeds) + " |\n"
                  + "|---" * (len(args.seeds) + 1) + "|", flush=True)
            for precision, options in PRECISIONS.items():
                found = []
                for seed in args.seeds:
                    rows = train(args, f"{work}/{layers}, {optimizer}, {precision}, seed {seed}", *options,
                                 *model_of(layers, optimizer, steps), f"train.seed={seed}")
                    found.append([row["validation_loss"] for row in rows if "validation_loss" in row][-1])
                print(f"| {precision} | " + " | ".join(f"{loss:.4f}" for loss in found) + " |", flush=True)


def part_of(name):
    """"layer N", or the name of a tensor outside the layers."""
    layer = re.match(r"h\.(\d+)\.", name)
    return f"layer {int(layer[1]) + 1}" if layer else name


def gradients(args, work):
    layers, optimizer = "24 layers", "AdamW"
    trained = f"{work}/{layers}, {optimizer}, fp32, seed {args.seeds[0]}"
    of = {}
    for precision, options in PRECISIONS.items():
        output = f"{work}/one step, {precision}"
        train(args, output, *MODELS[layers], *OPTIMIZERS[optimizer], *ONE_STEP, *options, "data.shuffle=false",
              f"checkpoint.init_from={trained}", "train.evaluate_every=0")
        of[precision] = first_moments(output)
    parts = {}
    for name in sorted(of["fp32"], key=lambda name: [int(n) for n in re.findall(r"\d+", name)]):
        parts.setdefault(part_of(name), []).append(name)
    print("\n| relative error of the gradient | bf16 | fp8 |\n|---|---|---|")
    rows = [("all", list(of["fp32"])), *parts.items()]
    for kind in ("c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"):
        rows.append((f"all {kind}", [name for name in of["fp32"] if name.endswith(f"{kind}.weight")]))
    for part, names in rows:
        errors = [relative_error(*({name: of[p][name] for name in names} for p in (precision, "fp32"))) for precision in ("bf16", "fp8")]
        print(f"| {part} | " + " | ".join(f"{error:.2e}" for error in errors) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith")
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, nargs=2, default=[600, 400])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--work")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or scratch
        os.makedirs(work, exist_ok=True)
        losses(args, work)
        gradients(args, work)


if __name__ == "__main__":
    main()
