#!/usr/bin/env python3
"""Holds what metrics.jsonl says the time of steps went to against the time that passed.

    bench/account.py [--program MEGALITH] [--only WORD]     trains a GPT-2 of 4.3M and one of 124M a few steps in several layouts
    bench/account.py --runs RUN...                          looks at runs that are there

Prints of each run, in %, by how much the parts of a step's time differ from its wall time, without what lies between two steps:
of the worst step, and the median; and by how much all parts of all steps differ from the time between the stamps of the first
and the last. Ends with 1 where the worst is more than 1 %.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from own_runs import OPTIMIZER, PLAIN, SHARDED, STAGES, TENSOR, mpirun, prepare
from published import ROOT

BETWEEN = ("evaluation", "sampling", "checkpoint")
SMALL = ["bench/small_gpt", "model.vocab=4096", "train.steps=60", "train.evaluate_every=20", "train.evaluate_batches=4",
         "checkpoint.every=25"]
GPT2_124M = ["configs/gpt2_124m", "batch.sequence_length=128", "model.context=1024", "batch.global_batch_size=4", "precision.compute=fp32",
             "train.steps=10", "train.evaluate_every=0", "checkpoint.every=0"]


def runs():
    """(name, ranks, recipe and overrides)"""
    both = [(1, "plain", PLAIN), (2, "plain", PLAIN), (2, "sharded", SHARDED), (2, "tensor", TENSOR), (2, "stages", STAGES),
            (4, "plain", PLAIN), (4, "sharded", SHARDED), (4, "tensor", TENSOR), (4, "stages", STAGES)]
    for name, recipe in (("4.3M", SMALL), ("124m", GPT2_124M)):
        for ranks, layout, overrides in both + ([(2, "optimizer", OPTIMIZER)] if name == "4.3M" else []):
            micro = 1 if ranks == 4 and layout in ("plain", "sharded") else 2
            yield f"{name} on {ranks}, {layout}", ranks, [*recipe, *overrides, f"batch.microbatch_size={micro}"]


def train(program, ranks, settings, data, out):
    config, *overrides = settings
    subprocess.run(mpirun(ranks, program, "train", f"{ROOT}/{config}.toml", f"data.train={data}/train.bin",
                          f"data.validation={data}/validation.bin", "data.tokenizer=", "run.device=cpu", "checkpoint.resume=never",
                          "optimizer.warmup_steps=1", "optimizer.decay_steps=0", f"run.output={out}", *overrides),
                   check=True, stdout=subprocess.DEVNULL)


def deviations(run):
    """Of each step that says where its time went; and of all of them together but for the first."""
    with open(os.path.join(run, "metrics.jsonl")) as file:
        steps = [line for line in map(json.loads, file) if "time" in line]
    if len(steps) < 2:
        sys.exit(f"{run}/metrics.jsonl has {len(steps)} steps that say where their time went, and two are needed")
    each = []
    for step in steps:
        parts = sum(seconds for name, seconds in step["time"].items() if name not in BETWEEN)
        each.append(abs(parts / step["step_seconds"] - 1))
    stamps = steps[-1]["seconds_since_start"] - steps[0]["seconds_since_start"]
    return each, abs(sum(sum(step["time"].values()) for step in steps[1:]) / stamps - 1)


def row(name, run):
    each, whole = deviations(run)
    print(f"{name:<28}{len(each):>5} steps{100 * max(each):>9.3f}{100 * statistics.median(each):>9.3f}{100 * whole:>9.3f}",
          flush=True)
    return max(*each, whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "cpu", "trainer", "megalith"))
    parser.add_argument("--only", default="", help="runs whose name has this in it")
    parser.add_argument("--runs", nargs="+")
    args = parser.parse_args()
    print(f"{'':<28}{'':>11}{'worst':>9}{'median':>9}{'whole':>9}  %")
    worst = []
    if args.runs:
        worst = [row(run, run) for run in args.runs]
    else:
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
            os.environ.setdefault(name, "1")
        with tempfile.TemporaryDirectory() as folder:
            data = os.path.dirname(prepare(args.program, folder))
            for name, ranks, settings in runs():
                if args.only not in name:
                    continue
                out = os.path.join(folder, "run")
                train(args.program, ranks, settings, data, out)
                worst.append(row(name, out))
                shutil.rmtree(out)  # its checkpoint is large
    sys.exit(1 if not worst or max(worst) > 0.01 else 0)


if __name__ == "__main__":
    main()
