#!/usr/bin/env python3
"""Prints a checksum for each of many trainings, so that two builds can be compared bit for bit:

    tests/checksums.py build/cpu/trainer/megalith > before; (change, build); tests/checksums.py ... > after; diff before after

Trained are the layouts of tests/end_to_end/layouts_test.cpp, and 50 steps of configs/quickstart.toml on 1, 2 and 4
ranks, in fp32 and bf16. A line holds a hash of the losses and gradient norms of all steps, one of the final weights as
exported, and the name. Needs ../shared/reference, mpirun, and dict-gcide with dictzip for the quickstart's text.
The bits depend on the processor: compare on one machine."""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
references = root.parent / "shared" / "reference"
environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")


def call(*args, folder):
    done = subprocess.run([str(a) for a in args], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, args))}\nexits with {done.returncode}:\n{done.stdout}{done.stderr}")


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def checksum(megalith, folder, ranks, config, overrides, name):
    """Trains, and prints the line."""
    call("mpirun", "--oversubscribe", "-n", ranks, megalith, "train", config, *overrides, "run.output=run", folder=folder)
    rows = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    steps = [[r["step"], r["loss"], r["grad_norm"]] for r in rows if "grad_norm" in r]
    call(megalith, "checkpoint", "export", "run", "--out", "exported", folder=folder)
    weights = (folder / "exported/model.safetensors").read_bytes()
    print(digest(json.dumps(steps).encode()), digest(weights), name, flush=True)
    call("rm", "-rf", "run", "exported", folder=folder)


def table():
    """The rows (model, ranks, words) of the layout table and what the words stand for, read from the tests."""
    rows = (root / "tests/end_to_end/layouts_test.cpp").read_text()
    rows = re.sub(r'"\s*\n\s*"', "", rows)  # a literal over two lines
    words = (root / "tests/end_to_end/layout.cpp").read_text()
    return ([(m, int(n), w) for m, n, w in re.findall(r'\{"(\w+)", (\d+),\s*"([^"]*)"\}', rows)],
            dict(re.findall(r'\{"([\w=]+)", \{"([^"]+)"\}\}', words)))


def overrides_of(words, dictionary):
    for word in words.split():
        name, equals, value = word.partition("=")
        yield dictionary[name + equals] + value.replace(",", " ")


def config_of(model, folder):
    """Writes the config of a model of the table, and the tokens of the one that no reference has."""
    if model == "odd":
        state, tokens = 1, bytearray()
        for _ in range(4 * 12 * 24 + 1):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            tokens += ((state >> 33) % 101).to_bytes(2, "little")
        (folder / "tokens.bin").write_bytes(tokens)
        text = """model.layers=8 model.hidden=48 model.heads=6 model.vocab=101 model.context=26 model.dropout=0.1
            data.train=tokens.bin batch.sequence_length=24 batch.global_batch_size=12 batch.microbatch_size=2
            optimizer.learning_rate=3e-3 optimizer.warmup_steps=2 optimizer.decay_steps=6 train.steps=6"""
    else:
        r = json.loads((references / model / "reference.json").read_text())["recipe"]
        r = {**r, "folder": references / model, "sequences": r["batch"] * r["accum"]}
        text = """model.layers={layers} model.hidden={hidden} model.heads={heads} model.vocab={vocab}
            model.context={context} data.train={folder}/tokens.bin data.shuffle=false batch.sequence_length={seq}
            batch.global_batch_size={sequences} batch.microbatch_size={batch} optimizer.learning_rate={lr}
            optimizer.min_learning_rate={min_lr} optimizer.warmup_steps={warmup} optimizer.decay_steps={decay_steps}
            optimizer.beta1={beta1} optimizer.beta2={beta2} optimizer.epsilon={eps}
            optimizer.weight_decay={weight_decay} optimizer.gradient_clip={clip} train.steps={steps}
            checkpoint.init_from={folder}""".format(**r)
    (folder / "empty.toml").write_text("")
    return "empty.toml", text.split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--filter", default="", help="only names that match this regular expression")
    args = parser.parse_args()
    rows, dictionary = table()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for compute in ["fp32", "bf16"]:
            for model, ranks, words in rows:
                name = f"{compute} {model} on {ranks}: {words}"
                if re.search(args.filter, name):
                    config, base = config_of(model, folder)
                    checksum(args.megalith, folder, ranks, config,
                             [*base, *overrides_of(words, dictionary), f"precision.compute={compute}"], name)
            for ranks in [1, 2, 4]:
                name = f"{compute} quickstart on {ranks}"
                if re.search(args.filter, name):
                    if not (folder / "text").exists():
                        call("sh", "-c", "dictzip -dc /usr/share/dictd/gcide.dict.dz | iconv -c -f UTF-8 -t UTF-8 > text; test -s text",
                             folder=folder)
                        call(args.megalith, "prepare", "--text", "text", "--tokenizer", "train:4096", "--out", "data",
                             folder=folder)
                    checksum(args.megalith, folder, ranks, root / "configs/quickstart.toml",
                             ["data.train=data/train.bin", "data.validation=", "data.tokenizer=data/tokenizer",
                              "batch.microbatch_size=1", "train.steps=50", "train.evaluate_every=0",
                              f"precision.compute={compute}"], name)


if __name__ == "__main__":
    main()
