#!/usr/bin/env python3
"""Solves for the fastest order of small pipelines with two halves of backward, exactly, as a mixed-integer program (HiGHS). The orders
that the trainer makes are held against these by tests/pure/schedule_halves_test.cpp. Needs scipy; takes two minutes.

Of the program: each stage does one thing at a time; forwards, halves for inputs and halves for weights each keep the order of their
microbatches; a stage begins forward k + H after the half for weights of microbatch k, where H is how many it may hold.
"""
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

SMALL, LARGE = (104, 112, 108), (156, 168, 162)  # two layers, three layers: forward, half for inputs, half for weights
PIPELINES = [  # microbatches, and the times of each stage; the last has a head
    (6, [SMALL, LARGE, LARGE, (138, 112, 108)]), (6, [LARGE, LARGE, SMALL, (167, 112, 108)]),
    (6, [LARGE, LARGE, SMALL, (165, 168, 162)]), (6, [LARGE, SMALL, LARGE, (233, 168, 162)]),
    (8, [LARGE, LARGE, SMALL, (182, 112, 108)]), (8, [SMALL, SMALL, LARGE, (195, 112, 108)])]


def most_held(stages):
    """By stage, as the trainer bounds it: what 1F1B has alive on the stage with most, in microbatches and in layers."""
    memory = max((len(stages) - s) * times[2] for s, times in enumerate(stages))
    return [min(len(stages), memory // times[2]) for times in stages]


def fastest(microbatches, stages, seconds=60):
    """The end of the last stage in the fastest order, and a proven lower bound of it."""
    held, m, late = most_held(stages), microbatches, sum(microbatches * sum(times) for times in stages)
    start, orders, rows = {}, [], []
    for s in range(len(stages)):
        for kind in range(3):
            for k in range(m):
                start[kind, s, k] = len(start)
    start["end"] = len(start)
    count = len(start)

    def after(first, then, time):
        rows.append(({start[then]: 1, start[first]: -1}, time))

    def either(a, time_a, b, time_b):
        nonlocal count
        order, count = count, count + 1
        orders.append(order)
        rows.append(({start[b]: 1, start[a]: -1, order: -late}, time_a - late))
        rows.append(({start[a]: 1, start[b]: -1, order: late}, time_b))

    F, B, W = range(3)
    for s, times in enumerate(stages):
        for k in range(m):
            for kind in range(3 if k else 0):
                after((kind, s, k - 1), (kind, s, k), times[kind])
            after((B, s, k), (W, s, k), times[B])
            after((W, s, k), "end", times[W])
            if s:
                after((F, s - 1, k), (F, s, k), stages[s - 1][F])
            if s + 1 < len(stages):
                after((B, s + 1, k), (B, s, k), stages[s + 1][B])
            else:
                after((F, s, k), (B, s, k), times[F])
            if k + held[s] < m:
                after((W, s, k), (F, s, k + held[s]), times[W])
            for j in range(k):
                either((F, s, k), times[F], (B, s, j), times[B])
                either((B, s, k), times[B], (W, s, j), times[W])
                if k < j + held[s]:
                    either((F, s, k), times[F], (W, s, j), times[W])
    matrix, least = lil_matrix((len(rows), count)), np.array([time for _, time in rows], float)
    for i, (row, _) in enumerate(rows):
        for column, factor in row.items():
            matrix[i, column] = factor
    whole, upper, cost = np.zeros(count), np.full(count, float(late)), np.zeros(count)
    whole[orders], upper[orders], cost[start["end"]] = 1, 1, 1
    found = milp(cost, constraints=LinearConstraint(matrix.tocsr(), least, np.inf), integrality=whole, bounds=Bounds(0, upper),
                 options={"time_limit": seconds})
    return found.fun, found.mip_dual_bound


if __name__ == "__main__":
    for microbatches, stages in PIPELINES:
        end, bound = fastest(microbatches, stages)
        print(f"{microbatches} microbatches, {stages}: {end:.0f}, at least {bound:.0f}", flush=True)
