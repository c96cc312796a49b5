"""Ours against tiktoken: the same text, vocabulary and number of threads, in turn in one run. Prints one table.

    tokenizer.py BENCH_TOKENIZER FOLDER... [--text FILE] [--threads 1 2] [--repeats 5]

Each FOLDER holds vocab.json and merges.txt. The text is by default the dictionary of Debian's dict-gcide. tiktoken gets
its own form of GPT-2's pattern, which is its fastest, and one equal part of the text a thread (encode_ordinary_batch);
the time is that of the call, without loading. Each repeat measures one and then the other; the ratio is of the medians.
"""
import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data"))
from tokenizer_vs_tiktoken import peer  # noqa: E402

GCIDE = "/usr/share/dictd/gcide.dict.dz"


def parts_of(text, count):
    """Stretches of about equal length, cut before a space."""
    parts, begin = [], 0
    for i in range(1, count):
        cut = text.rfind(" ", begin, len(text) * i // count)
        parts.append(text[begin:cut])
        begin = cut
    return parts + [text[begin:]]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program")
    options.add_argument("folders", nargs="+")
    options.add_argument("--text")
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--repeats", type=int, default=5)
    options = options.parse_args()

    if options.text:
        with open(options.text, "rb") as file:
            raw = file.read()
    else:
        with gzip.open(GCIDE) as file:  # a .dz is a .gz
            raw = file.read()
    text = raw.decode(errors="replace")
    raw = text.encode()
    print(f"{len(raw) / 1e6:.1f} MB of text, {os.cpu_count()} cores, median of {options.repeats}")
    print(f"{'vocabulary':>10} {'threads':>7} {'ours MB/s':>10} {'tiktoken MB/s':>14} {'ratio':>6} {'tokens':>10}")
    with tempfile.TemporaryDirectory() as work:
        source = os.path.join(work, "text")
        with open(source, "wb") as file:
            file.write(raw)
        for folder in options.folders:
            encoding = peer(folder)
            for threads in options.threads:
                parts = parts_of(text, threads)
                mine, theirs = [], []
                for _ in range(options.repeats):
                    command = [options.program, folder, source, str(threads), "1"]
                    row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                    mine.append(row["MB/s"])
                    start = time.perf_counter()
                    ids = encoding.encode_ordinary_batch(parts, num_threads=threads)
                    theirs.append(len(raw) / 1e6 / (time.perf_counter() - start))
                    if row["tokens"] != sum(map(len, ids)):
                        sys.exit(f"{folder}: {row['tokens']} tokens here, {sum(map(len, ids))} there")
                a, b = statistics.median(mine), statistics.median(theirs)
                print(f"{encoding.n_vocab:>10} {threads:>7} {a:>10.1f} {b:>14.1f} {a / b:>6.1f} {row['tokens']:>10}")


if __name__ == "__main__":
    main()
