#!/usr/bin/env python3
"""How far the losses and gradient norms of the same steps are apart.

  losses.py CPU OTHER GPU     metrics.jsonl of fifty_steps.sh: a CPU's, the same with sums in another order, and the run that is judged

The first two differ by rounding alone. Exit status 1 where the third is more than ten times as far from
the first as the second is, or has other steps.
"""
import json, sys


def steps(path):
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    return {row["step"]: row for row in rows if "step" in row and "loss" in row}


def distance(one, two):
    """{"loss": (largest distance, its step), "grad_norm": ... relative}"""
    return {"loss": max((abs(one[s]["loss"] - two[s]["loss"]), s) for s in one),
            "grad_norm": max((abs(two[s]["grad_norm"] / one[s]["grad_norm"] - 1), s) for s in one)}


def main():
    cpu, other, judged = map(steps, sys.argv[1:4])
    if cpu.keys() != judged.keys() or cpu.keys() != other.keys() or not cpu:
        sys.exit(f"the runs have other steps: {len(cpu)}, {len(other)} and {len(judged)} of them")
    last = max(cpu)
    print(f"{len(cpu)} steps, loss {judged[min(cpu)]['loss']:.4f} to {judged[last]['loss']:.4f} (CPU {cpu[last]['loss']:.4f})")
    rounding, found = distance(cpu, other), distance(cpu, judged)
    failed = False
    for what in found:
        (far, step), (alone, _) = found[what], rounding[what]
        failed = failed or not far <= 10 * alone
        print(f"{what}: furthest from the CPU's by {far:.2e} at step {step}; rounding alone leads {alone:.2e} far")
    sys.exit(failed)


if __name__ == "__main__":
    main()
