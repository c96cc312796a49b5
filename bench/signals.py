"""Sends signals to runs at random moments, and counts what is saved and what is lost.

    signals.py MEGALITH [--signals 200] [--seed 1] [--grace 10] [--mpirun mpirun] [--work FOLDER]

Each layout is a run of its own on the CPU, which is started, sent a signal, and started again, the signals dealt out over the
layouts; at last it is trained to its end, and must then be the run that no signal was sent to: metrics and files of every rank,
to the last bit. A signal goes to mpirun, to one rank, to every rank or to mpirun's process group, as a terminal's ctrl-C does,
at a moment drawn from before the first step to some hundred steps later, in one of three while a checkpoint is being saved.
Open MPI kills its ranks --grace seconds after it got SIGTERM or SIGINT. Unless told otherwise it leaves them one: --grace 1
shows what that loses, beside whatever else the machine does.

Prints a row for each kind of signal: how many, how many came before the first step, how many runs saved the step that they
had reached, how many of those were lost and how many steps, and how long it took. Exits with 1 if a step was lost, a
log does not say how the run ended, or a run is not the one that it should be.
"""
import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from small_jobs import LAYOUTS, Job, course, finish, newest, write_inputs

KINDS = [(name, target) for target in ("mpirun", "a rank", "all ranks") for name in ("TERM", "INT", "USR1", "USR2")]
KINDS.append(("INT", "the group"))


def last_line(folder):
    with open(folder + "/log.txt") as file:
        return file.read().rstrip("\n").split("\n")[-1][20:]


def one_signal(args, name, kind, grace, rng):
    """What became of a run that got it: a word, the steps that are lost, seconds."""
    job = Job(args, name, grace=grace)
    before = newest(job.folder)
    job.wait_for_a_moment(rng)
    job.wait_for(job.ranks)  # before, mpirun has nobody to tell
    begin = time.monotonic()
    stepped = job.stepped()
    job.send(*kind, rng)
    try:
        job.process.wait(60)
    except subprocess.TimeoutExpired:
        print(f"  {name}, SIG{kind[0]} to {kind[1]} is not heeded\n{job.said()}", flush=True)
        job.end()
        return "hangs", 0, 60
    seconds = time.monotonic() - begin
    if not stepped and not job.stepped() and newest(job.folder) == before:
        return "before a step", 0, seconds
    trained, last = course(job.folder)[-1][0], last_line(job.folder)
    lost = trained - newest(job.folder)
    if lost == 0 and last.startswith("ended: ") and f"step {newest(job.folder)} is in a checkpoint" in last:
        return "saved", 0, seconds
    print(f"  {name}, SIG{kind[0]} to {kind[1]}, grace {grace}: status {job.process.returncode}, trained {trained}, "
          f"newest {newest(job.folder)}: {last}\n{job.said()}", flush=True)
    return ("lost, and said so" if last.startswith("ended: ") else "lost without a word"), lost, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith")
    parser.add_argument("--signals", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--grace", type=int, default=10)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--work")
    args = parser.parse_args()
    args.megalith = os.path.abspath(args.megalith)
    args.work = os.path.abspath(args.work or tempfile.mkdtemp(prefix="megalith-signals-"))
    args.overrides = []
    rng = random.Random(args.seed)
    write_inputs(args.work, rng)

    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    lost, bad = 0, False
    for i in range(args.signals):
        name = list(LAYOUTS)[i % len(LAYOUTS)]
        kind = KINDS[i // len(LAYOUTS) % len(KINDS)]
        what, steps, seconds = one_signal(args, name, kind, args.grace, rng)
        rows[f"SIG{kind[0]} to {kind[1]}"][what].append(seconds)
        lost += steps
        bad |= what not in ("saved", "before a step")
    columns = ["before a step", "saved", "lost, and said so", "lost without a word", "hangs"]
    print(f"\n| signal | sent | {' | '.join(columns)} | seconds, median and most |")
    print("|---" * (len(columns) + 3) + "|")
    for kind, found in sorted(rows.items()):
        seconds = sorted(s for what in found.values() for s in what)
        print(f"| {kind} | {len(seconds)} | " + " | ".join(str(len(found[c])) for c in columns)
              + f" | {seconds[len(seconds) // 2]:.2f}, {seconds[-1]:.2f} |")
    print(f"\n{lost} steps lost\n")
    for name in LAYOUTS:
        bad |= not finish(args, name)
    sys.exit(1 if bad else 0)


main()
