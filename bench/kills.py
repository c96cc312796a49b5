"""Kills runs with -9 at random moments while they save beside their steps, and counts what is lost.

    kills.py MEGALITH [--kills 1000] [--seed 1] [--mpirun mpirun] [--work FOLDER]

Each layout is a run of its own on the CPU, which saves every fifth step, is started, killed and started again, the kills dealt
out over the layouts. A kill hits every rank at once, one rank or mpirun, at a moment drawn from before the first step to some
hundred steps later, in one of three while a checkpoint is being written. After it every checkpoint that there is must be
whole, by `megalith checkpoint verify`, and none older than what the run has said it saved or what was there before. At last
each run is trained to its end and must then be the run that nobody killed: metrics and files of every rank, to the last bit.
With --work a folder of an earlier call is gone on with.

Prints a row for each layout: kills, how many came before the first step, after how many mpirun waited for ever, as Open MPI 4's
may for ranks that die before MPI_Init is over, how many left a checkpoint half written, one half removed, how many checkpoints
were lost, and how many steps were made twice. Exits with 1 if a checkpoint was lost, mpirun hung after a step, or a run is not
the one that it should be.
"""
import argparse
import collections
import glob
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from small_jobs import LAYOUTS, Job, finish, newest, write_inputs


def reported(said):
    """The last step that the run has said is in a checkpoint."""
    return max((int(step) for step in re.findall(r"^step (\d+)  checkpoint \S+\n", said, re.M)), default=0)


def trained(said):
    return max((int(step) for step in re.findall(r"^step (\d+)/", said, re.M)), default=0)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def one_kill(args, name, rng):
    """The events, as words, and the errors, as lines."""
    job = Job(args, name, grace=1)  # for so long Open MPI leaves the ranks that a killed one leaves behind
    before = newest(job.folder)
    job.wait_for_a_moment(rng)
    target = rng.choice(["all ranks", "all ranks", "a rank", "mpirun"])
    ranks = job.ranks()
    if not ranks:
        target = "mpirun"
    job.send("KILL", target, rng)
    wrong, met = [], []
    try:
        job.process.wait(60)
    except subprocess.TimeoutExpired:
        if job.stepped():
            wrong.append(f"mpirun lives on after {target} was killed")
        met.append("mpirun hung")
        job.end()
    begin = time.monotonic()
    while any(lives(rank) for rank in ranks):
        if time.monotonic() - begin > 30:
            wrong.append(f"ranks live on after {target} was killed")
            break
        time.sleep(0.01)

    said = job.said()
    if not job.stepped():
        met.append("before a step")
    if glob.glob(job.folder + "/checkpoints/.step-*.partial"):
        met.append("half written")
    if glob.glob(job.folder + "/checkpoints/.step-*.removed"):
        met.append("half removed")
    safe = max(before, reported(said))
    if newest(job.folder) < safe:
        wrong.append(f"the newest checkpoint is of step {newest(job.folder)}, and {safe} was there")
    for path in sorted(glob.glob(job.folder + "/checkpoints/step-*")):
        verified = subprocess.run([args.megalith, "checkpoint", "verify", path], capture_output=True, text=True)
        if verified.returncode != 0 or "." in os.path.basename(path):
            wrong.append(f"{path}: {verified.stdout}{verified.stderr}")
    for line in wrong:
        print(f"  {name}, {target}: {line}\n{said}", flush=True)
    return met, wrong, max(0, trained(said) - newest(job.folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--work")
    args = parser.parse_args()
    args.megalith = os.path.abspath(args.megalith)
    args.work = os.path.abspath(args.work or tempfile.mkdtemp(prefix="megalith-kills-"))
    # Wide enough that a rank's file is written in several parts (kernels/system/large_write.h).
    args.overrides = ["model.hidden=192", "checkpoint.every=5", "checkpoint.asynchronous=true", "checkpoint.settle=0",
                      "train.log_every=1"]
    if not os.path.exists(args.work + "/config.toml"):
        write_inputs(args.work, random.Random(1))
    rng = random.Random(args.seed)

    rows = collections.defaultdict(collections.Counter)
    for i in range(args.kills):
        name = list(LAYOUTS)[i % len(LAYOUTS)]
        met, wrong, again = one_kill(args, name, rng)
        rows[name].update(met + ["kills"] + ["lost"] * bool(wrong))
        rows[name]["made twice"] += again
    columns = ["kills", "before a step", "mpirun hung", "half written", "half removed", "lost", "made twice"]
    print(f"\n| layout | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for name, found in rows.items():
        print(f"| {name} | " + " | ".join(str(found[c]) for c in columns) + " |")
    print("| all | " + " | ".join(str(sum(found[c] for found in rows.values())) for c in columns) + " |\n")
    bad = any(found["lost"] for found in rows.values())
    for name in LAYOUTS:
        if os.path.isdir(f"{args.work}/{name.replace(' ', '-')}"):
            bad |= not finish(args, name)
    sys.exit(1 if bad else 0)


main()
