"""Makes a corpus, prepares it, kills that in the middle, and holds what comes out against tiktoken.

    corpus.py MEGALITH BENCH_TOKENIZER TOKENIZER [--megabytes 1000] [--documents 300000] [--threads 2] [--work FOLDER]

The corpus is a file of JSON lines, compressed with zstd: documents of very different lengths, cut from the dictionary of
Debian's dict-gcide and changed at random so that no two are equal. Needs the packages tiktoken, zstandard and numpy.

Measured, in one run: the tokenizer alone on the same text in memory (bench_tokenizer), before and after, and prepare, whole.
Prints both rates in MB/s of text, their ratio, and the most memory that prepare had resident; and the same for seconds of a
core, which other work on the machine disturbs less. Then prepares again, killed
with SIGKILL half way through, and a third time where that was; its files must be the same bytes. At last, tiktoken encodes
the same documents, and its tokens must be those of the files. Exits with 1 if one of them differs.
"""
import argparse
import filecmp
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy
import zstandard

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data"))
from tokenizer_vs_tiktoken import peer  # noqa: E402

GCIDE = "/usr/share/dictd/gcide.dict.dz"


def documents(count, megabytes):
    with gzip.open(GCIDE) as file:  # a .dz is a .gz
        source = file.read().decode(errors="replace")
    words = source[:2_000_000].split()
    rng = random.Random(1)
    mean = megabytes * 1e6 / count
    for i in range(count):
        length = int(rng.expovariate(1 / mean)) + 1
        begin = rng.randrange(len(source) - 10 * int(mean))
        text = source[begin:begin + length]
        yield f"{rng.choice(words)} {i}: {text} {' '.join(rng.choices(words, k=3))}"


def make(folder, count, megabytes):
    """The corpus and, for bench_tokenizer, its text alone."""
    corpus, plain = os.path.join(folder, "corpus.jsonl.zst"), os.path.join(folder, "plain")
    if not os.path.exists(plain):
        with open(corpus, "wb") as file, zstandard.ZstdCompressor(level=3).stream_writer(file) as out, \
                open(plain + ".new", "wb") as text:
            for i, document in enumerate(documents(count, megabytes)):
                line = json.dumps({"id": i, "text": document, "meta": {"source": "gcide"}}, ensure_ascii=i % 2 == 0)
                out.write(line.encode() + b"\n")
                text.write(document.encode())
        os.rename(plain + ".new", plain)
    return corpus, plain


def core_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tokenizer_rate(program, tokenizer, plain, threads):
    """MB/s, and seconds of a core."""
    start = core_seconds()
    row = subprocess.run([program, tokenizer, plain, str(threads), "1"], check=True, capture_output=True).stdout
    return json.loads(row)["MB/s"], core_seconds() - start


def resident_peak(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")), 0)


def prepare(command, out, kill_after=None):
    """Seconds and the peak of resident memory; killed when its notes say that it is so far."""
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen(command + ["--out", out], stdout=subprocess.DEVNULL if kill_after else None)
    position = os.path.join(out, "prepare.partial", "position.json")
    while process.poll() is None:
        try:
            peak = max(peak, resident_peak(process.pid))
            if kill_after and os.path.exists(position):
                with open(position, encoding="ascii") as file:
                    if json.load(file)["offset"] >= kill_after:
                        process.send_signal(signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.02)
    status = process.wait()
    if status != (-signal.SIGKILL if kill_after else 0):
        sys.exit(f"prepare ended with {status}")
    return time.perf_counter() - start, peak


def read_part(out, part):
    """The documents of one part, as arrays of ids."""
    with open(os.path.join(out, part + ".idx"), "rb") as file:
        index = file.read()
    code, (sequences, _) = index[17], numpy.frombuffer(index, numpy.uint64, 2, 18)
    tokens = numpy.fromfile(os.path.join(out, part + ".bin"), numpy.uint16 if code == 8 else numpy.int32)
    lengths = numpy.frombuffer(index, numpy.int32, int(sequences), 34)
    ends = numpy.cumsum(lengths, dtype=numpy.int64)
    return [tokens[end - length:end] for end, length in zip(ends, lengths)]


def differs(encoding, corpus, out):
    """Every document of the corpus is in one of the parts, in the same order."""
    parts = [read_part(out, "train"), read_part(out, "validation")]
    at = [0, 0]
    with open(corpus, "rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8", newline="\n")
        batch = []
        number = 0

        def check():
            nonlocal number
            for ids in encoding.encode_ordinary_batch(batch, num_threads=os.cpu_count()):
                ids = numpy.array(ids + [encoding.eot_token])
                number += 1
                for p in (0, 1):
                    if at[p] < len(parts[p]) and numpy.array_equal(parts[p][at[p]], ids):
                        at[p] += 1
                        break
                else:
                    return f"document {number} is in neither part"
            batch.clear()
            return None

        for line in lines:
            batch.append(json.loads(line)["text"])
            if len(batch) == 2000:
                fault = check()
                if fault:
                    return fault
        fault = check()
        if fault:
            return fault
    if at != [len(parts[0]), len(parts[1])]:
        return f"{at} documents were found of {len(parts[0])} and {len(parts[1])}"
    print(f"tiktoken: the same tokens, {at[0]} training documents and {at[1]} held-out ones")
    return None


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("megalith")
    options.add_argument("bench_tokenizer")
    options.add_argument("tokenizer")
    options.add_argument("--megabytes", type=float, default=1000)
    options.add_argument("--documents", type=int, default=300_000)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--work", help="keep the files there; default: a folder that is removed")
    options = options.parse_args()

    if options.work:
        os.makedirs(options.work, exist_ok=True)
    else:
        scratch = tempfile.TemporaryDirectory()
        options.work = scratch.name
    corpus, plain = make(options.work, options.documents, options.megabytes)
    megabytes = os.path.getsize(plain) / 1e6
    print(f"{options.documents} documents, {megabytes:.0f} MB of text, {os.path.getsize(corpus) / 1e6:.0f} MB compressed")
    out = [os.path.join(options.work, name) for name in ("whole", "killed")]
    for folder in out:
        shutil.rmtree(folder, ignore_errors=True)
    command = [options.megalith, "prepare", "--text", corpus, "--tokenizer", options.tokenizer, "--threads",
               str(options.threads)]

    before, cores_before = tokenizer_rate(options.bench_tokenizer, options.tokenizer, plain, options.threads)
    start = core_seconds()
    seconds, peak = prepare(command, out[0])
    cores = core_seconds() - start
    after, cores_after = tokenizer_rate(options.bench_tokenizer, options.tokenizer, plain, options.threads)
    rate, alone = megabytes / seconds, (before + after) / 2
    print(f"tokenizer alone {before:.1f} and {after:.1f} MB/s, prepare {rate:.1f} MB/s: {100 * rate / alone:.0f} %; "
          f"{peak / 2**20:.0f} MiB resident, {options.threads} threads")
    print(f"seconds of a core: tokenizer alone {cores_before:.1f} and {cores_after:.1f}, prepare {cores:.1f}: "
          f"{100 * (cores_before + cores_after) / 2 / cores:.0f} %", flush=True)

    killed, _ = prepare(command, out[1], kill_after=megabytes * 1e6 / 2)
    rest, _ = prepare(command, out[1])
    print(f"killed after {killed:.1f} s, the rest took {rest:.1f} s")
    for name in ("train.bin", "train.idx", "validation.bin", "validation.idx"):
        if not filecmp.cmp(os.path.join(out[0], name), os.path.join(out[1], name), shallow=False):
            sys.exit(f"{name} differs after a kill and a restart")
    print("the same bytes as without a kill")
    fault = differs(peer(options.tokenizer), corpus, out[0])
    if fault:
        sys.exit(fault)


if __name__ == "__main__":
    main()
