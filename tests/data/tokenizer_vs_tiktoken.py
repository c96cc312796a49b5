"""Encodes many texts with GPT-2's vocabulary, here and with tiktoken, and demands equal ids.

    tokenizer_vs_tiktoken.py BENCH_TOKENIZER TOKENIZER_FOLDER [TEXT...]

Texts: random code points of every kind, words and spaces mixed at random, runs of 1 MB, all code points one by one, and
the files given. Exits with 1 at the first difference, and shows it.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy
import tiktoken

# GPT-2's pattern in the form tiktoken ships: with the plain form it runs out of stack on long white space.
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
SPACES = [0x9, 0xA, 0xB, 0xC, 0xD, 0x1C, 0x1D, 0x1E, 0x1F, 0x20, 0x20, 0x20, 0x85, 0xA0, 0x1680, 0x180E, 0x2000, 0x2003,
          0x200A, 0x200B, 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]


def peer(folder):
    """tiktoken over vocab.json: ids are ranks, and the notation of bytes is undone."""
    printable = [b for b in range(256) if 33 <= b <= 126 or (b >= 161 and b != 173)]
    others = [b for b in range(256) if b not in printable]
    byte_of = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    with open(os.path.join(folder, "vocab.json"), encoding="utf-8") as file:
        names = json.load(file)
    end = names.pop("<|endoftext|>")
    ranks = {bytes(byte_of[c] for c in name): i for name, i in names.items()}
    return tiktoken.Encoding("peer", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": end})


def random_character(rng):
    kind = rng.random()
    if kind < 0.35:
        return chr(rng.randrange(0x20, 0x7F))
    if kind < 0.5:
        return chr(rng.choice(SPACES))
    if kind < 0.6:
        return rng.choice(["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'", "''", " '", "<|endoftext|>"])
    top = rng.choice([0x100, 0x800, 0x3000, 0x10000, 0x20000, 0x110000])
    code = rng.randrange(top)
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd"


def texts(files):
    rng = random.Random(1)
    for seed in range(4):
        yield f"random characters {seed}", "".join(random_character(rng) for _ in range(500_000))
    yield "random runs", "".join(random_character(rng) * rng.randrange(1, 40) for _ in range(50_000))
    words = ["the", "The", " of", "\n", "\n\n", "  ", " ", "2024", "don't", "…", "über", "мир", "世界", "\u00a0", "!?", "e\u0301"]
    yield "random words", "".join(rng.choice(words) for _ in range(500_000))
    for character in ["a", " ", "\n", "\u3000", "0", "=", "é", "世", "\u00a0", "'"]:
        yield f"a run of U+{ord(character):04X}", character * 1_000_000
        yield f"a run of U+{ord(character):04X} and a word", character * 100_001 + "end"
    yield "random letters in one run", "".join(rng.choice("etaoinshrdlu") for _ in range(1_000_000))
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    yield "all code points in order", "".join(points)
    yield "all code points between letters", "".join("a" + c for c in points)
    yield "all code points after spaces", "".join("  " + c for c in points)
    for path in files:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            yield path, file.read()


def ours(program, folder, text, work):
    source, target = os.path.join(work, "text"), os.path.join(work, "ids")
    with open(source, "wb") as file:
        file.write(text.encode())
    subprocess.run([program, folder, source, "2", "1", target], check=True, stdout=subprocess.DEVNULL)
    ids = numpy.fromfile(target, dtype=numpy.int32)
    os.remove(target)
    return ids


def main():
    program, folder, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    encoding = peer(folder)
    total = 0
    with tempfile.TemporaryDirectory() as work:
        for name, text in texts(files):
            mine = ours(program, folder, text, work)
            theirs = numpy.array(encoding.encode_ordinary(text), dtype=numpy.int32)
            if not numpy.array_equal(mine, theirs):
                n = min(len(mine), len(theirs))
                different = numpy.flatnonzero(mine[:n] != theirs[:n])
                at = int(different[0]) if len(different) else n
                show = slice(max(0, at - 3), at + 5)
                print(f"{name}: {len(mine)} tokens here, {len(theirs)} there, different from {at} on")
                print("here ", [encoding.decode_single_token_bytes(i) for i in mine[show]])
                print("there", [encoding.decode_single_token_bytes(i) for i in theirs[show]])
                return 1
            total += len(text.encode())
            print(f"equal: {name}, {len(text.encode())} bytes, {len(mine)} tokens", flush=True)
    print(f"equal everywhere, {total / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
