"""What saves cost the steps of a run, and how fast they write, against the disk itself.

    saves.py MEGALITH [--only 4.3M|124m] [--saves 4] [--mpirun mpirun] [--work FOLDER]

Trains a GPT-2 of 4.3M (small_gpt.toml) and one of 124M on made-up tokens with ranks of one thread. Two ranks use both processors, and save
asynchronously and with checkpoint.asynchronous = false; one rank leaves a processor free, as runs on GPUs do. A plain writer of a
few lines writes the bytes of a checkpoint into the same folder: 16 MiB at a time into reserved space, through the system's cache
and past it, from normal and from huge pages, with one flush at the end. It runs before and after each training, and during
another training of the same ranks that saves nothing.

Prints for each run the medians over its saves. The last save, which ends the run, does not count. (The seconds of a write are the
mean of the middle half instead, since the files' times are exact to 4 ms only.)
  step     seconds of a step while nothing is saved
  stall    seconds in which the steps stand still for a save: copy, agreements and, unless it is asynchronous, the writing; in %
           of a step, and of all steps from one save to the next
  lost     the same, plus what the writing takes from steps that it overlaps with: time from save to save beyond that of the
           same number of steps without a save
  write    MB/s from the creation of the first rank's file to the last one's name, flushed; and in % of the plain writer's
           fastest way, on an idle machine (there from normal pages, as `dd oflag=direct` writes) and during the steps
"""
import argparse
import glob
import json
import mmap
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from small_jobs import environment

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EVERY = {"4.3M": 50, "124m": 10}
RECIPES = {
    "4.3M": ["bench/small_gpt.toml", "model.vocab=4096"],
    "124m": ["configs/gpt2_124m.toml", "batch.sequence_length=256", "model.context=1024", "batch.global_batch_size=4",
             "batch.microbatch_size=2", "precision.compute=fp32"],
}
VOCAB = {"4.3M": 4096, "124m": 50257}


def part_of_memory(huge_pages):
    part = mmap.mmap(-1, 16 << 20)  # on a page, as writes past the system's cache have to be
    if huge_pages:
        part.madvise(mmap.MADV_HUGEPAGE)
    part.write(os.urandom(len(part)))
    return part


PART, HUGE = part_of_memory(False), part_of_memory(True)
WAYS = ((PART, 0), (PART, os.O_DIRECT), (HUGE, os.O_DIRECT))


def disk_rate(folder, size, part, flag):
    """Bytes a second of a plain writer."""
    path = folder + "/own"
    begin = time.monotonic()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flag)
    os.posix_fallocate(fd, 0, size)
    for at in range(0, size, len(part)):
        os.pwrite(fd, memoryview(part)[:-(-(size - at) // 4096) * 4096], at)  # whole pages
    os.fsync(fd)
    os.close(fd)
    seconds = time.monotonic() - begin
    os.remove(path)
    return size / seconds


def disk_rates(folder, size):
    """One of each way."""
    return [disk_rate(folder, size, *way) for way in WAYS]


def fastest(rates, ways=len(WAYS)):
    """Returns the median rate of the fastest way."""
    return max([statistics.median(of_one) for of_one in zip(*rates)][:ways])


def written(folder):
    """Bytes of a checkpoint's rank files, and the seconds from the first one's creation to the last one's name."""
    size, begins, ends = 0, [], []
    for path in glob.glob(folder + "/rank-*.h5"):
        size += os.path.getsize(path)
        begins.append(float(subprocess.check_output(["stat", "-c", "%.9W", path])))
        ends.append(os.stat(path).st_ctime_ns / 1e9)
    if min(begins) == 0:
        sys.exit(f"the file system of {folder} does not know when a file was created; name another with --work")
    return size, max(ends) - min(begins)


def command_of(args, recipe, ranks, steps, out, *checkpoints):
    shutil.rmtree(out, ignore_errors=True)
    config, *overrides = RECIPES[recipe]
    return [args.mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), args.megalith, "train", f"{ROOT}/{config}",
            f"run.output={out}", f"data.train={args.work}/{recipe}.bin", "data.validation=", "train.evaluate_every=0",
            "data.tokenizer=", f"train.steps={steps}", "optimizer.decay_steps=0", "optimizer.warmup_steps=0", "run.device=cpu",
            *checkpoints, *overrides]


def rate_during_steps(args, recipe, ranks, size, times):
    """The rate of a plain writer during a run that saves nothing."""
    out = f"{args.work}/unsaved"
    command = command_of(args, recipe, ranks, 10**6, out, "checkpoint.every=0", "checkpoint.minutes=0")
    process = subprocess.Popen(command, env=environment(10), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics = out + "/metrics.jsonl"
    while not (os.path.exists(metrics) and '"step":3,' in open(metrics).read()):
        if process.poll() is not None:
            sys.exit(process.stderr.read())
        time.sleep(0.1)
    rates = [disk_rates(args.work, size) for _ in range(times)]
    if process.poll() is not None:
        sys.exit("the run that saves nothing ended while the disk was measured")
    process.kill()
    process.wait()
    subprocess.run(["pkill", "-KILL", "-f", out])
    shutil.rmtree(out)
    return fastest(rates)


def run(args, recipe, ranks, asynchronous):
    every, steps = EVERY[recipe], EVERY[recipe] * (args.saves + 1)
    out = f"{args.work}/{recipe}"
    command = command_of(args, recipe, ranks, steps, out, f"checkpoint.every={every}", "checkpoint.keep=0",
                         f"checkpoint.asynchronous={str(asynchronous).lower()}")
    done = subprocess.run(command, env=environment(10), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    with open(out + "/metrics.jsonl") as file:
        lines = [line for line in map(json.loads, file) if "loss" in line]
    at = [line["seconds_since_start"] for line in lines]  # of step i + 1
    walls = [b - a for a, b in zip(at, at[1:])]           # of step i + 2
    stalls = [line["time"].get("checkpoint", 0) for line in lines]
    step = statistics.median(w for w, stall in zip(walls, stalls[1:]) if stall == 0)
    stall = [sum(stalls[s:s + every]) for s in range(every, steps - every + 1, every)]
    lost = [at[s + every - 1] - at[s - 1] - every * step for s in range(every, steps - every + 1, every)]
    saves = sorted(glob.glob(out + "/checkpoints/step-*"))[:-1]
    found = [written(save) for save in saves]
    shutil.rmtree(out)
    middle = sorted(seconds for _, seconds in found)[len(found) // 4:-(len(found) // 4) or None]
    return dict(step=step, stall=statistics.median(stall), lost=statistics.median(lost), every=every, bytes=found[0][0],
                rate=found[0][0] / statistics.mean(middle))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith")
    parser.add_argument("--only", choices=list(RECIPES))
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--work")
    args = parser.parse_args()
    args.megalith = os.path.abspath(args.megalith)
    args.work = os.path.abspath(args.work or tempfile.mkdtemp(prefix="megalith-saves-"))
    os.makedirs(args.work, exist_ok=True)
    print("| run | saves | step | stall | of a step | of all steps | lost | of all steps | write MB/s | disk at rest | share "
          "| from usual pages | share | disk during steps | share |")
    print("|---" * 15 + "|")
    for recipe in [args.only] if args.only else RECIPES:
        rng = random.Random(1)
        with open(f"{args.work}/{recipe}.bin", "wb") as file:
            file.write(b"".join(rng.randrange(VOCAB[recipe]).to_bytes(2, "little") for _ in range(300000)))
        for ranks, asynchronous in ((2, True), (2, False), (1, True)):
            size = {"4.3M": 51 << 20, "124m": 1493 << 20}[recipe]
            rest = [disk_rates(args.work, size) for _ in range(3)]
            r = run(args, recipe, ranks, asynchronous)
            rest += [disk_rates(args.work, r["bytes"]) for _ in range(3)]
            disk, usual, cycle = fastest(rest), fastest(rest, 2), r["every"] * r["step"]
            busy = rate_during_steps(args, recipe, ranks, r["bytes"], 5) if asynchronous else None
            print(f"| {recipe} on {ranks}, {'asynchronous' if asynchronous else 'at once'} | every {r['every']} | {r['step']:.4f} s "
                  f"| {r['stall']:.4f} s | {r['stall'] / r['step']:.1%} | {r['stall'] / cycle:.2%} | {r['lost']:.3f} s "
                  f"| {r['lost'] / cycle:.2%} | {r['rate'] / 1e6:.0f} | {disk / 1e6:.0f} | {r['rate'] / disk:.0%} "
                  f"| {usual / 1e6:.0f} | {r['rate'] / usual:.0%} "
                  + (f"| {busy / 1e6:.0f} | {r['rate'] / busy:.0%} |" if asynchronous else "| | |"), flush=True)


main()
