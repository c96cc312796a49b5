#!/usr/bin/env python3
"""Checks in the machine code of an object that no loop of tile_gemm keeps a sum on the stack: blocks are cut to as many
sums as the processor has registers for (kernels/linear/tile_gemm_cpu.h).

    spills.py OBJECT...

A loop of tile_gemm is an innermost loop that broadcasts floats and has four fused multiply-adds or more, and no shift as
exp has, whose constants may be on the stack."""

import re
import subprocess
import sys


def loops(lines):
    at = {address: i for i, (address, _) in enumerate(lines)}
    for i, (address, text) in enumerate(lines):
        jump = re.match(r"j(?!mp)\w+\s+([0-9a-f]+)", text)
        begin = at.get(int(jump[1], 16)) if jump else None
        if begin is None or begin > i:
            continue
        body = [text for _, text in lines[begin : i + 1]]
        if not any(re.match(r"j|call", text) for text in body[:-1]):
            yield body


def check(path):
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    # By function: addresses begin anew in each section of an object.
    functions = [
        [(int(m[1], 16), m[2].strip()) for m in re.finditer(r"^\s*([0-9a-f]+):\s+(.*)$", part, re.M)]
        for part in re.split(r"^[0-9a-f]+ <.*>:$", listing, flags=re.M)[1:]
    ]
    products = [
        body
        for lines in functions
        for body in loops(lines)
        if sum("vfmadd" in text for text in body) >= 4
        and any("vbroadcastss" in text or "{1to" in text for text in body)
        and not any("vpslld" in text for text in body)
    ]
    spilt = [t for body in products for t in body if re.search(r"\(%r[sb]p[,)]", t) and re.search(r"%[yz]mm", t)]
    print(f"{path}: {len(products)} loops of products, {len(spilt)} vectors on the stack", *spilt, sep="\n  ")
    return len(products) >= 4 and not spilt


if __name__ == "__main__":
    sys.exit(0 if all([check(path) for path in sys.argv[1:]]) else 1)
