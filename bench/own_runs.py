#!/usr/bin/env python3
"""Holds predicted step times against runs on this machine's CPU.

    bench/own_runs.py [--program MEGALITH] [--rounds N] [--only PATTERN] [--json FILE] [--keep FOLDER]

`megalith measure` makes a profile of this machine with 1 rank, with 2 and with 4. A GPT-2 of 4.3M parameters (small_gpt.toml), one of 124M
parameters and nanoGPT's small CPU recipe then train a few steps on as many ranks in several layouts, all of them in turn,
several rounds; the fastest quarter of each one's steps is what counts, since what else the machine does only takes time. Some
runs also train with Muon.
What `measure` leaves as guesses is fitted to three of the runs on up to 2 ranks (CALIBRATED), the same numbers for all three
profiles; all other runs are predicted with them.
The JSON has `rows`: run, predicted and measured seconds, whether it was calibrated on.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile

from published import ROOT, percentile, text_of, with_numbers

# The start is this machine's measured rates; these are the shares of them that a step gets.
KEYS = "calibrated.gemm,calibrated.node_link,calibrated.microbatch,stack.elementwise,stack.attention_share"

# nanoGPT's README, "I only have a macbook": 4 layers of 128, 12 x 64 tokens; bytes in place of its 65 characters.
NANOGPT = ["model.layers=4", "model.hidden=128", "model.heads=4", "model.vocab=258", "model.context=64",
           "batch.sequence_length=64", "batch.global_batch_size=12"]
SMALL = ["model.vocab=4096", "batch.global_batch_size=8"]
GPT2_124M = ["batch.sequence_length=128", "batch.global_batch_size=4", "precision.compute=fp32"]
MODELS = {"4.3M": ("bench/small_gpt", SMALL, 25), "nanogpt": ("bench/small_gpt", NANOGPT, 60),
          "124m": ("configs/gpt2_124m", GPT2_124M, 6)}

PLAIN = ["parallel.sharding_strategy=no_shard"]
SHARDED = ["parallel.sharding_strategy=full_shard"]
OPTIMIZER = ["parallel.sharding_strategy=shard_optimizer"]
TENSOR = ["parallel.tensor_parallel_degree=2", "parallel.sharding_strategy=no_shard"]
STAGES = ["parallel.pipeline_parallel_degree=2", "parallel.sharding_strategy=no_shard"]


MUON = {("4.3M", 1, "plain"), ("4.3M", 2, "plain"), ("4.3M", 2, "sharded"), ("4.3M", 2, "tensor"),
        ("4.3M", 4, "sharded"), ("124m", 1, "plain"), ("124m", 2, "sharded")}


def runs():
    """(name, model, ranks, overrides)"""
    found = []
    for model in MODELS:
        size = {"4.3M": 2, "nanogpt": 3, "124m": 1}[model]
        for ranks, layout, overrides in [(1, "plain", PLAIN), (1, "small", PLAIN), (2, "plain", PLAIN),
                                         (2, "sharded", SHARDED), (2, "optimizer", OPTIMIZER), (2, "tensor", TENSOR),
                                         (2, "stages", STAGES), (4, "plain", PLAIN), (4, "sharded", SHARDED),
                                         (4, "tensor", TENSOR + ["parallel.sharding_strategy=full_shard"])]:
            micro = 1 if layout == "small" else size
            if model == "124m" and (layout in ("small", "stages", "optimizer") or (ranks, layout) == (4, "plain")):
                continue  # they take long
            options = overrides + [f"batch.microbatch_size={micro}"]
            found.append((f"{model} on {ranks}, {layout}", model, ranks, options))
            if (model, ranks, layout) in MUON:
                found.append((f"{model} on {ranks}, {layout}, Muon", model, ranks, options + ["optimizer.algorithm=muon"]))
    return found


CALIBRATED = ["4.3M on 2, sharded", "nanogpt on 1, plain", "124m on 2, plain"]


def mpirun(ranks, *command):
    # mpirun binds each of two ranks to a core, and a single rank too. So that one is started without mpirun, with each
    # thread bound to a core, or two threads may share a core for long.
    return ["mpirun", "--oversubscribe", "-n", str(ranks), *command] if ranks > 1 else ["env", "OMP_PROC_BIND=true", *command]


def prepare(program, folder):
    with open(os.path.join(folder, "text"), "w") as file:
        for i in range(60000):
            file.write(f"line {i * i}\n")
    data = os.path.join(folder, "data")
    subprocess.run([program, "prepare", "--text", os.path.join(folder, "text"), "--tokenizer", "bytes", "--out", data],
                   check=True, stdout=subprocess.DEVNULL)
    return os.path.join(data, "train.bin")


def train(program, run, out, profile, data):
    _, model, ranks, overrides = run
    base, shape, steps = MODELS[model]
    settings = [f"data.train={data}", "data.validation=", "data.tokenizer=", f"train.steps={steps}", "train.evaluate_every=0",
                "checkpoint.every=0", "checkpoint.resume=never", f"hardware.profile={profile}", "run.device=cpu",
                "optimizer.warmup_steps=1", f"run.output={out}", *shape, *overrides]
    subprocess.run(mpirun(ranks, program, "train", os.path.join(ROOT, base + ".toml"), *settings), check=True,
                   stdout=subprocess.DEVNULL)


def lines_of(path):
    """The lines of metrics.jsonl with the constants of a start, and those of its steps."""
    lines = text_of(path).splitlines()
    steps = [line for line in lines if "step_seconds" in json.loads(line)]
    return [line for line in lines if "start" in json.loads(line)], steps


def keep_fastest(path):
    starts, steps = lines_of(path)
    steps.sort(key=lambda line: json.loads(line)["step_seconds"])
    with open(path, "w") as file:
        file.write("\n".join(starts[:1] + steps[:max(1, len(steps) // 4)]) + "\n")


def calibrate(program, folders, keys, out):
    subprocess.run([program, "plan", "--calibrate", *folders, "--fit", keys, "--json", out], check=True,
                   stdout=subprocess.DEVNULL)
    with open(out) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "cpu", "trainer", "megalith"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="a regular expression: names of the runs to predict, in addition to those for calibration")
    parser.add_argument("--json")
    parser.add_argument("--keep", help="folder for the runs and the profile; default: they are removed")
    args = parser.parse_args()
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        os.environ.setdefault(name, "1")
    folder = args.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    try:
        chosen = [run for run in runs() if run[0] in CALIBRATED or re.search(args.only, run[0])]
        report(measure(args.program, chosen, args.rounds, os.path.abspath(folder)), args.json)
    finally:
        if not args.keep:
            shutil.rmtree(folder)


def measure(program, chosen, rounds, folder):
    profiles = {ranks: os.path.join(folder, f"this_{ranks}.toml") for ranks in (1, 2, 4)}
    for ranks, profile in profiles.items():
        subprocess.run(mpirun(ranks, program, "measure", "--write", profile), check=True)
    data = prepare(program, folder)
    folders = {run[0]: os.path.join(folder, run[0].replace(", ", "-").replace(" ", "-")) for run in chosen}
    for number in range(rounds):
        for run in chosen:
            out = f"{folders[run[0]]}-round-{number}"
            train(program, run, out, profiles[run[2]], data)
            os.makedirs(folders[run[0]], exist_ok=True)
            shutil.copy(os.path.join(out, "config.toml"), folders[run[0]])
            starts, steps = lines_of(os.path.join(out, "metrics.jsonl"))
            with open(os.path.join(folders[run[0]], "metrics.jsonl"), "a") as file:
                file.write("\n".join(starts + steps[2:]) + "\n")  # without what is slow at the start
            shutil.rmtree(out)  # its checkpoint is large
    for path in folders.values():
        keep_fastest(os.path.join(path, "metrics.jsonl"))
    scratch = os.path.join(folder, "out.json")
    fitted = calibrate(program, [folders[name] for name in CALIBRATED], KEYS, scratch)["fitted"]
    for f in fitted:
        print(f"{f['key']:<30}{f['before']:>10.4g} -> {f['after']:<10.4g}")
    numbers = {f["key"]: f["after"] for f in fitted}
    stack = {key.split(".")[1]: value for key, value in numbers.items() if key.startswith("stack.")}
    for profile in profiles.values():
        text = text_of(profile)
        with open(profile, "w") as file:
            file.write(with_numbers(text, numbers) + "\n[stack]\n" + "".join(f"{k} = {v}\n" for k, v in stack.items()))
    found = calibrate(program, list(folders.values()), "none", scratch)["runs"]
    return [dict(run=name, predicted=r["predicted"], measured=r["measured"], calibrated=name in CALIBRATED)
            for name, r in zip(folders, found)]


def report(rows, path):
    for r in rows:
        print(f"{r['run']:<26}{r['measured']:>9.4f} s measured {r['predicted']:>9.4f} s predicted "
              f"{100 * (r['predicted'] / r['measured'] - 1):>+7.1f} %{'  calibrated on' if r['calibrated'] else ''}")
    errors = [abs(r["predicted"] / r["measured"] - 1) for r in rows if not r["calibrated"]]
    print(f"{len(errors)} others: median error {100 * percentile(errors, 0.5):.1f} %, 90th percentile "
          f"{100 * percentile(errors, 0.9):.1f} %, largest {100 * max(errors):.1f} %")
    if path:
        with open(path, "w") as file:
            json.dump({"rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
