"""Runs every command of README.md, as it stands there and in its order, in one shell in a scratch folder.

    readme_test.py MEGALITH [README]

A command is a line of an indented block; what is no command there is a part of a config, whose keys must exist. What needs
a GPU, a cluster, a network or minutes is named in NOT_RUN with the reason. The test fails if a command ends badly, if one
is listed that the README no longer has, and if a command in the text (`megalith ...`) names a subcommand or an option that
does not exist, or a file of the tree that does not. README is the tree's, or a copy with mistakes. The text of FEATURES.md is held to
the same.

Shortened are, on PATH or in the place of the program: the model and its steps in what trains (not the ranks: a command on
fewer ranks would be another), the quickstart's text and time, and CMake, whose work is done.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

NOT_RUN = {
    "./test.sh": "runs this test",
    "docker build -f docker/cpu.Dockerfile -t megalith:cpu .": "a Docker daemon, and a build from nothing",
    'docker run --rm -v "$PWD:/work" -w /work megalith:cpu run -n 2 train configs/quickstart.toml': "a Docker daemon",
    "build/cpu/trainer/megalith run -n 64 --hosts hosts train config.toml": "a cluster",
    "$megalith doctor runs/book": "a job whose ranks hung; tests/end_to_end/hang_test.cpp runs it on some",
    "$megalith replay runs/book --step 120": "a run of so many steps; tests/end_to_end/replay_test.cpp runs it",
    "megalith search configs/30b_p4d.toml --write fastest.toml": "minutes: every layout of 128 GPUs",
    "build/cuda/trainer/megalith run -n 32 --hosts hosts train config.toml": "GPUs",
    "sbatch --nodes 4 docker/train.slurm config.toml": "a cluster with Slurm",
    "srun --mpi=none --kill-on-bad-exit=1 megalith train CONFIG run.device=cuda communication.rendezvous=/shared/meet":
        "a cluster with Slurm",
    "bench/gpu.sh": "a GPU",
    "bench/gpu.sh BUNDLE": "a GPU",
    "megalith verify CONFIG run.device=cuda --against run.device=cpu": "a GPU",
}

SHORT = ["model.layers=1", "model.hidden=32", "model.heads=2", "model.context=64", "batch.sequence_length=64",
         "train.steps=30", "optimizer.warmup_steps=2"]


def blocks(text):
    """The indented blocks, as lists of lines; what goes on behind a backslash is one line."""
    block, found = [], []
    for line in text.splitlines() + ["end"]:
        if line.startswith("    ") and line.strip():
            line = line[4:]
            if block and block[-1].endswith("\\"):
                block[-1] = block[-1][:-1].rstrip() + " " + line.strip()
            else:
                block.append(line)
        elif line.strip() or not block:
            if block:
                found.append(block)
            block = []
    return found


def without_comment(line):
    return re.sub(r"(^|\s)#.*", "", line).rstrip()


def commands_and_keys(text):
    commands, keys = [], []
    for block in blocks(text):
        lines = [bare for bare in map(without_comment, block) if bare]
        settings = [re.match(r"(\w+) = \S", line) for line in lines]
        if all(settings):
            keys += [match[1] for match in settings]
        else:
            commands += lines
    return commands, keys


def mentions(text):
    """The commands and files of the tree in the running text."""
    running = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", running)]
    files = [match[0] for span in spans
             if (match := re.match(r"(\./|(bench|checkpoints|configs|data|docker|kernels|tests|trainer)/)[\w./-]+", span))]
    return [span for span in spans if span.startswith("megalith ")], files


class Help:
    def __init__(self, program):
        self.program, self.known = program, {}

    def __call__(self, *command):
        if command not in self.known:
            done = subprocess.run([self.program, "help", *command], capture_output=True, text=True)
            self.known[command] = done.stdout if done.returncode == 0 else None
        return self.known[command]


def check_mention(mention, help_of):
    """A subcommand that exists, with options that it has."""
    started = re.match(r"megalith run( (-n|--hosts) \S+)+ (?=[a-z])", mention)
    if started and (wrong := check_mention(started[0], help_of)):
        return wrong
    words, path = mention[started.end() if started else len("megalith "):].split(), []
    if words[0] == "help":
        words = words[1:]
    for word in words:
        text = help_of(*path)
        if "\ncommands:\n" not in text or not re.fullmatch(r"[a-z]+", word):
            break
        path.append(word)
        if help_of(*path) is None:
            return f"`{mention}`: there is no `megalith {' '.join(path)}`"
    for option in (word.split("=")[0] for word in words if word.startswith("--")):
        if not re.search(re.escape(option) + r"(?![\w-])", help_of(*path)):
            return f"`{mention}`: megalith {' '.join(path)} has no {option}"
    return None


def check_mentions(text, help_of):
    mentioned, files = mentions(text)
    return [f"no such file: {name}" for name in files if not (ROOT / name).exists()] + \
        [complaint for mention in mentioned if (complaint := check_mention(mention, help_of))]


def check(text, help_of):
    """What is wrong with the text before anything of it is run."""
    commands, keys = commands_and_keys(text)
    wrong = [f"listed in NOT_RUN, but not in the README: {command}" for command in NOT_RUN if command not in commands]
    wrong += check_mentions(text, help_of)
    wrong += [f"no key of the configuration: {key}" for key in keys if f"\n  {key} = " not in help_of("train")]
    return wrong


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)


def prepare(folder, program, settings=SHORT):
    """The tree as the README sees it, built, with two texts."""
    for name in ("configs", "docker", "bench", "CMakePresets.json", "CMakeLists.txt", "quickstart.sh"):
        (folder / name).symlink_to(ROOT / name)
    sources = [path for name in ("trainer", "kernels", "data", "tests") for path in sorted((ROOT / name).rglob("*.cpp"))]
    (folder / "book.txt").write_text("".join(path.read_text() for path in sources))
    (folder / "more.txt").write_text((ROOT / "ARCHITECTURE.md").read_text())
    short = " ".join(f"--{setting}" for setting in settings)
    shim = f'case " $* " in " train "* | " run "*" train "*) ;; *) exec {program} "$@" ;; esac\n' \
           f'[[ $* != *--shrink* ]] || exec {program} "$@" --train.steps=2 --optimizer.warmup_steps=1\n' \
           f'exec {program} "$@" {short}\n'
    write_program(folder / "build/cpu/trainer/megalith", shim)
    write_program(folder / "bin/megalith", shim)
    cmake = shutil.which("cmake")
    write_program(folder / "bin/cmake",
                  f'case "$*" in *--preset\\ *) {cmake} --list-presets=all . | grep -q "\\"$(sed "s/.*--preset //;s/ .*//"'
                  f' <<<"$*")\\"" ;; *) exec {cmake} "$@" ;; esac\n')
    write_program(folder / "bin/dictzip", "exec cat book.txt\n")


def environment(folder):
    return os.environ | {
        "PATH": f"{folder}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "MINUTES": "0.01",
        "OMPI_MCA_btl": "^tcp,ofi,uct", "OMPI_MCA_pml": "ob1"}


def run(commands, folder):
    """All in one shell. Returns what went wrong."""
    script = ""
    for number, command in enumerate(commands):
        script += f"SECONDS=0\n{{\n{command}\n}} >{folder}/log/{number} 2>&1 </dev/null\necho {number} $? $SECONDS\n"
    (folder / "log").mkdir()
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment(folder), capture_output=True, text=True)
    ended = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    wrong = []
    for number, command in enumerate(commands):
        status, seconds = ended.get(str(number), "never 0").split()
        print(f"{status:>5}  {seconds:>3} s  {command}")
        if status != "0":
            log = folder / "log" / str(number)
            wrong.append(f"ended with {status}: {command}\n{log.read_text()[-2000:] if log.exists() else done.stderr}")
    return wrong


def check_the_checks(text, help_of):
    """Planted mistakes are seen."""
    right = len(check(text, help_of))
    for planted in ("\nand\n\n    tensor_parallel_degre = 4\n", "\n`megalith trian` is\n", "\n`megalith plan --rank 3` is\n",
                    "\n`megalith checkpoint exprot RUN` is\n", "\n`megalith run -n 2 plan --rank 3` is\n",
                    "\n`docker/bundel.sh OUT` makes\n"):
        assert len(check(text + planted, help_of)) > right, f"not seen: {planted}"
    listed = next(command for command in NOT_RUN if command != "./test.sh")
    assert len(check(text.replace(listed, "true"), help_of)) > right, "not seen: a listed command that is gone"
    new, _ = commands_and_keys(text + "\nand\n\n    megalith new \\\n        line   # or so\n")
    assert new[-1] == "megalith new line", new[-1]


def main(program, readme=ROOT / "README.md"):
    program = os.path.abspath(program)  # it stands in for itself in another folder
    text, help_of = pathlib.Path(readme).read_text(), Help(program)
    check_the_checks(text, help_of)
    wrong = check(text, help_of) + check_mentions((ROOT / "FEATURES.md").read_text(), help_of)
    commands = [command for command in commands_and_keys(text)[0] if command not in NOT_RUN]
    with tempfile.TemporaryDirectory(prefix="megalith-readme-") as scratch:
        folder = pathlib.Path(scratch)
        prepare(folder, program)
        wrong += run(commands, folder)
    print(f"{len(commands)} commands run, {len(NOT_RUN)} listed as not to be run, {len(mentions(text)[0])} in the text")
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
