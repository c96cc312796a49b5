"""Small runs on the CPU, in several layouts, that scripts end before their time: signals.py, kills.py."""
import atexit
import filecmp
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

CONFIG = """[model]
layers = 4
hidden = 48
heads = 4
vocab = 257
context = 32
dropout = 0.1
[data]
train = "tokens.bin"
[batch]
sequence_length = 16
global_batch_size = 8
microbatch_size = 2
[optimizer]
learning_rate = 1e-3
decay = "constant"
[train]
steps = 1000000
[checkpoint]
every = 20
keep = 2
"""
LAYOUTS = {  # name: ranks, overrides
    "alone": (1, []),
    "full_shard": (2, []),
    "tensor": (2, ["parallel.tensor_parallel_degree=2"]),
    "pipeline": (2, ["parallel.pipeline_parallel_degree=2"]),
    "full_shard 4": (4, []),
    "two copies": (4, ["parallel.sharded_data_parallel_degree=2"]),
    "tensor pipeline": (4, ["parallel.tensor_parallel_degree=2", "parallel.pipeline_parallel_degree=2"]),
}


def environment(grace):
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1",
                OMP_WAIT_POLICY="PASSIVE", OMPI_MCA_btl="^tcp,ofi", OMPI_MCA_pml="ob1", OMPI_MCA_mpi_yield_when_idle="1",
                HWLOC_HIDE_ERRORS="2",
                OMPI_MCA_odls_base_sigkill_timeout=str(grace), PRTE_MCA_odls_base_sigkill_timeout=str(grace))


signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and not without ending its job


class Job:
    """A run of the layout, or the rest of it; `more`: overrides."""
    def __init__(self, args, name, more=(), grace=10):
        ranks, overrides = LAYOUTS[name]
        self.name = os.path.basename(args.megalith)[:15]  # of which ps shows no more
        self.folder = os.path.join(args.work, name.replace(" ", "-"))
        self.out = open(self.folder + ".out", "w")
        self.process = subprocess.Popen(
            [args.mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), args.megalith, "train", "config.toml",
             f"run.output={self.folder}", *overrides, *args.overrides, *more],
            cwd=args.work, stdout=self.out, stderr=subprocess.STDOUT, env=environment(grace), start_new_session=True)
        atexit.register(self.end)  # also where a script gives up

    def end(self):
        """Whatever it is at; the ranks have groups of their own."""
        if self.process.poll() is None:
            ranks = self.ranks()
            os.killpg(self.process.pid, signal.SIGKILL)
            for rank in ranks:
                try:
                    os.kill(rank, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.wait()

    def said(self):
        with open(self.out.name) as file:
            return file.read()

    def stepped(self):
        return re.search(r"^step \d+/", self.said(), re.M)

    def ranks(self):
        """The megaliths below mpirun."""
        children = subprocess.run(["ps", "--no-headers", "-o", "pid,comm", "--ppid", str(self.process.pid)],
                                  capture_output=True, text=True).stdout.split("\n")
        return [int(line.split()[0]) for line in children if line.strip().endswith(self.name)]

    def wait_for(self, ready):
        begin = time.monotonic()
        while self.process.poll() is None and not ready():
            if time.monotonic() - begin > 60:
                sys.exit(f"{self.folder}: nothing happens\n{self.said()}")
            time.sleep(0.001)

    def wait_for_a_moment(self, rng):
        """One on its way up, one in three while a checkpoint is written, or any."""
        when = rng.random()
        if when < 0.1:
            return time.sleep(rng.uniform(0, 1))
        self.wait_for(self.stepped)
        if when < 0.4:
            self.wait_for(lambda: glob.glob(self.folder + "/checkpoints/.step-*.partial"))
            time.sleep(rng.uniform(0, 0.01))
        else:
            time.sleep(rng.uniform(0, 0.4))

    def send(self, name, target, rng):
        """All existing files of the target."""
        number = getattr(signal, "SIG" + name)
        if target == "the group":
            os.killpg(self.process.pid, number)
            return
        victims = [self.process.pid] if target == "mpirun" else self.ranks()
        if target == "a rank" and victims:
            victims = [rng.choice(victims)]
        for pid in victims:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass


def write_inputs(work, rng):
    """The config and made-up tokens, into the folder."""
    os.makedirs(work, exist_ok=True)
    with open(work + "/config.toml", "w") as file:
        file.write(CONFIG)
    with open(work + "/tokens.bin", "wb") as file:
        for _ in range(20000):
            file.write(rng.randrange(257).to_bytes(2, "little"))


def newest(folder):
    found = sorted(glob.glob(folder + "/checkpoints/step-????????"))
    return int(found[-1][-8:]) if found else 0


def course(folder):
    with open(folder + "/metrics.jsonl") as file:
        return [(line["step"], line["loss"], line["grad_norm"]) for line in map(json.loads, file) if "loss" in line]


def finish(args, name):
    """Trains the run to its end. Returns whether it is bit-identical to the uninterrupted run: metrics and files."""
    steps = newest(args.work + "/" + name.replace(" ", "-")) + 3
    job = Job(args, name, [f"train.steps={steps}"])
    if job.process.wait() != 0:
        print(job.said())
        return False
    kept = job.folder + ".stopped"
    shutil.rmtree(kept, ignore_errors=True)
    os.rename(job.folder, kept)
    whole = Job(args, name, [f"train.steps={steps}"])
    if whole.process.wait() != 0:
        print(whole.said())
        return False
    files = sorted(os.path.basename(f) for f in glob.glob(f"{kept}/checkpoints/step-{steps:08}/*.h5"))
    same = all(filecmp.cmp(f"{kept}/checkpoints/step-{steps:08}/{f}", f"{whole.folder}/checkpoints/step-{steps:08}/{f}", False)
               for f in files)
    alike = bool(files) and same and course(kept) == course(whole.folder)
    print(f"{name}: {steps} steps, {'the same bits' if alike else 'NOT THE SAME'} as without a stop")
    return alike
