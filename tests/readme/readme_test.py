"""Runs every command of the pages for users, as it stands there and in their order, in one shell in a scratch folder.

    readme_test.py MEGALITH

A command is a line of an indented block, or a here-document in it; what is no command there is a part of a config, whose
keys must exist. What needs a GPU, a cluster, a network, root or minutes is named in NOT_RUN with the reason. The test fails
if a command ends badly, if one is listed that no page has, if a command in the text (`megalith ...`) names a subcommand or
an option that does not exist, or a file of the tree that does not, if a link leads nowhere, if a page is longer than
LONGEST, if an option of the configuration in the text does not exist, or if an error of TROUBLES.md is not one that the
sources print. The text of the other pages that people write is held to the same.

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

PAGES = ["README.md", "docker/README.md", "data/README.md", "configs/README.md", "configs/hardware/README.md", "trainer/README.md",
         "trainer/FINE_TUNING.md", "trainer/TROUBLES.md", "checkpoints/README.md", "bench/README.md"]
ALSO_READ = ["FEATURES.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "checkpoints/FORMAT.md"]  # without commands in blocks
LONGEST = {"README.md": 6144}  # bytes
LONGEST_OF_OTHERS = 12288

NOT_RUN = {
    "./test.sh": "runs this test",
    "docker build -f docker/cpu.Dockerfile -t megalith:cpu .": "a Docker daemon, and a build from nothing",
    'docker run --rm -v "$PWD:/work" -w /work megalith:cpu run -n 2 train configs/quickstart.toml': "a Docker daemon",
    "docker/install-packages.sh && docker/package.sh packages": "minutes: a build for every processor",
    "apt install ./packages/megalith_*_amd64.deb": "root",
    "cd packages && sha256sum -c megalith-*.tar.xz.sha256 && tar -xf megalith-*.tar.xz": "the packages",
    'cmake --install build/cpu --prefix "$PWD/installed"': "install_test.py runs it",
    "docker/bundle.sh bundle": "CUDA, and minutes; tests/bundle makes one for CPUs",
    "bundle/megalith run -n 8 train config.toml": "the bundle",
    "megalith run -n 64 --hosts hosts train config.toml": "a cluster",
    "build/cuda/trainer/megalith info": "a build with CUDA",
    "megalith doctor runs/book": "a job whose ranks hung; tests/end_to_end/hang_test.cpp runs it on some",
    "megalith replay runs/book --step 120": "a run of so many steps; tests/end_to_end/replay_test.cpp runs it",
    "megalith search 30b_p4d --write fastest.toml": "minutes: every layout of 128 GPUs",
    "megalith plan --calibrate runs/first runs/second --fit calibrated.gemm,calibrated.memory": "runs on the cluster",
    "sbatch --nodes 4 docker/train.slurm config.toml": "a cluster with Slurm",
    "srun --mpi=none --kill-on-bad-exit=1 megalith train CONFIG run.device=cuda communication.rendezvous=/shared/meet":
        "a cluster with Slurm",
    **dict.fromkeys(
        ["megalith prepare --text conversations.jsonl --template MODEL --tokenizer MODEL --sequence-length 1024 --out runs/finetune/data",
         "megalith train finetune checkpoint.init_from=MODEL", "megalith chat runs/finetune",
         "megalith checkpoint export runs/finetune --out tuned"],
        "a model; tests/end_to_end/fine_tuning_test.cpp runs it with three small ones"),
    "docker/bundle.sh build/carry/megalith --tests --architectures 90a --packed": "CUDA, and minutes",
    "bench/gpu.sh build/carry/megalith.tar.xz --out gpu-results": "a GPU",
    "bench/gpu.sh build/carry/megalith.tar.xz --out gpu-results --only '^tune$|^shapes of models$|^all kernels$|^racecheck$|^initcheck$'":
        "a GPU",
}

SHORT = ["model.layers=1", "model.hidden=32", "model.heads=2", "model.context=64", "batch.sequence_length=64",
         "train.steps=30", "optimizer.warmup_steps=2"]


def without_fences(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def blocks(text):
    """The indented blocks, as lists of lines; what goes on behind a backslash is one line."""
    block, found = [], []
    for line in without_fences(text).splitlines() + ["end"]:
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


def with_here_documents(lines):
    """A line that opens a here-document has all of it, with its end."""
    found, end = [], None
    for line in lines:
        if end:
            found[-1] += "\n" + line
            end = None if line == end else end
        else:
            found.append(line)
            opened = re.search(r"<<'(\w+)'", line)
            end = opened and opened[1]
    return found


def without_comment(line):
    if "\n" in line:
        return line
    return re.sub(r"(^|\s)#.*", "", line).rstrip()


def commands_and_keys(text):
    commands, keys = [], []
    for block in blocks(text):
        lines = [bare for bare in map(without_comment, with_here_documents(block)) if bare]
        settings = [re.match(r"(\w+) = \S", line) for line in lines]
        if all(settings):
            keys += [match[1] for match in settings]
        else:
            commands += lines
    return commands, keys


def mentions(text):
    """The commands and files of the tree in the running text."""
    running = "\n".join(line for line in without_fences(text).splitlines() if not line.startswith("    "))
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", running)]
    files = [match[0] for span in spans if not re.search(r"[*{]", span) and
             (match := re.match(r"(\./|(bench|checkpoints|configs|data|docker|kernels|tests|trainer)/)[\w./-]+", span))]
    return [span for span in spans if span.startswith("megalith ")], files


class Help:
    def __init__(self, program):
        self.program, self.known = program, {}

    def __call__(self, *command):
        if command not in self.known:
            done = subprocess.run([self.program, *command, "--help"], capture_output=True, text=True)
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


def check_links(page, text):
    """Links into the tree; pictures are links as well."""
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) + re.findall(r'src="([^"]+)"', text)
    return [f"a link leads nowhere: {target}" for target in targets
            if "://" not in target and not ((ROOT / page).parent / target).exists()]


def check_options(text, help_of):
    """`section.key` in the text, alone or with a value, and in commands."""
    known = {}
    for line in help_of("train").splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            known[section := heading[1]] = set()
        elif known and (key := re.match(r"  (\w+) = ", line)):
            known[section].add(key[1])
    return [f"no option of the configuration: {section}.{key}"
            for section, key in re.findall(r"(?<![\w./-])(" + "|".join(known) + r")\.([a-z]\w*)(?=[ =`,;:)])", text)
            if key not in known[section] and (section, key) not in {("data", "text"), ("train", "bin"), ("train", "idx"), ("optimizer", "cpp")}]  # of a JSON line; files


def printed_by_sources():
    """All strings of the sources, with those that stand side by side joined, and a mark for what is filled in."""
    texts = []
    for name in ("trainer", "kernels", "data", "checkpoints", "configs"):
        for path in (ROOT / name).rglob("*.cpp"):
            for run in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', path.read_text()):
                texts.append(re.sub(r'"\s*"', "", run)[1:-1].replace('\\"', '"'))
    texts += [path.read_text().replace("\\\n", "") for path in (ROOT / "docker").glob("*.sh")]
    return re.sub(r"\{[^{}]*\}|\$\{?[\w:-]+\}?", "\0", "\n".join(texts))


def check_troubles(text):
    printed, wrong = printed_by_sources(), []
    errors = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    for error in errors:
        parts = [part.strip(" ;:,") for part in error.split("...")]
        wrong += [f"TROUBLES.md: the sources do not print `{part}`" for part in parts if len(part) > 3 and part not in printed]
    return wrong + ([] if len(errors) >= 15 else [f"TROUBLES.md: {len(errors)} errors are read of it"])


def check(texts, help_of):
    """What is wrong with the pages before anything of them is run."""
    every = [commands_and_keys(texts[page]) for page in PAGES]
    commands = [command for of_page, _ in every for command in of_page]
    wrong = [f"listed in NOT_RUN, but on no page: {command}" for command in NOT_RUN if command not in commands]
    wrong += [f"no key of the configuration: {key}" for _, keys in every for key in keys
              if f"\n  {key} = " not in help_of("train")]
    for page, text in texts.items():
        longest = LONGEST.get(page, LONGEST_OF_OTHERS)
        size = len(text.encode())
        found = check_mentions(text, help_of) + check_links(page, text) + check_options(text, help_of)
        found += [f"{size} bytes, and {longest} are allowed"] if size > longest else []
        wrong += [f"{page}: {what}" for what in found]
    return wrong + check_troubles(texts["trainer/TROUBLES.md"])


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)


def prepare(folder, program, settings=SHORT):
    """The tree as the README sees it, built, with two texts."""
    for name in ("configs", "docker", "bench", "CMakePresets.json", "CMakeLists.txt", "quickstart.sh"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "data").mkdir()
    (folder / "data/questions.awk").symlink_to(ROOT / "data/questions.awk")
    sources = [path for name in ("trainer", "kernels", "data", "tests") for path in sorted((ROOT / name).rglob("*.cpp"))]
    (folder / "book.txt").write_text("".join(path.read_text() for path in sources))
    (folder / "more.txt").write_text((ROOT / "ARCHITECTURE.md").read_text())
    # The command's own settings stay, and so do those of a run folder, which were shortened when it was made.
    shim = f'case " $* " in *" train runs/"*) exec {program} "$@" ;; " train "* | " run "*" train "*) ;; ' \
           f'*) exec {program} "$@" ;; esac\n' \
           f'[[ $* != *--shrink* ]] || exec {program} "$@" --train.steps=2 --optimizer.warmup_steps=1\n' \
           f'short=()\nfor each in {" ".join(settings)}; do\n  [[ " $*" == *" ${{each%%=*}}="* ]] || short+=("--$each")\ndone\n' \
           f'exec {program} "$@" "${{short[@]}}"\n'
    write_program(folder / "build/cpu/trainer/megalith", shim)
    write_program(folder / "bin/megalith", shim)
    cmake = shutil.which("cmake")
    write_program(folder / "bin/cmake",
                  f'case "$*" in *--preset\\ *) {cmake} --list-presets=all . | grep -q "\\"$(sed "s/.*--preset //;s/ .*//"'
                  f' <<<"$*")\\"" ;; *) exec {cmake} "$@" ;; esac\n')
    # The text of the quickstart, with entries as its dictionary has them.
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [first + second + third for first in ("Ab", "Bel", "Cor", "Dan", "Em") for second in letters for third in letters]
    (folder / "entries.txt").write_text("".join(f"{word} \\{word}\\, n.\n   1. The act of {word}.\n\n" for word in words))
    write_program(folder / "bin/dictzip", "exec cat more.txt book.txt entries.txt\n")


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


def check_the_checks(texts, help_of):
    """Planted mistakes are seen."""
    right = len(check(texts, help_of))

    def seen(page, change):
        return len(check(texts | {page: change(texts[page])}, help_of)) > right
    for planted in ("\nand\n\n    tensor_parallel_degre = 4\n", "\n`megalith trian` is\n", "\n`megalith plan --rank 3` is\n",
                    "\n`megalith checkpoint exprot RUN` is\n", "\n`megalith run -n 2 plan --rank 3` is\n",
                    "\n`docker/bundel.sh OUT` makes\n", "\n[a page](none.md)\n", "\n`train.stepps` is\n", "\n" * 12289):
        assert seen("checkpoints/README.md", lambda text: text + planted), f"not seen: {planted[:99]}"
    assert seen("README.md", lambda text: text + "\n" * (6145 - len(text.encode()))), "not seen: a front page that is too long"
    assert seen("trainer/TROUBLES.md", lambda text: text + "\n| `this is never printed` | | |\n"), "not seen: an invented error"
    listed = next(command for command in NOT_RUN if command != "./test.sh")
    page = next(page for page, text in texts.items() if listed in text)
    assert seen(page, lambda text: text.replace(listed, "true")), "not seen: a listed command that is gone"
    new, _ = commands_and_keys("\nand\n\n    cat > a <<'END'\n    b = 1  # c\n    END\n    megalith new \\\n        line   # or so\n")
    assert new == ["cat > a <<'END'\nb = 1  # c\nEND", "megalith new line"], new


def main(program):
    program = os.path.abspath(program)  # it stands in for itself in another folder
    texts, help_of = {page: (ROOT / page).read_text() for page in PAGES + ALSO_READ}, Help(program)
    check_the_checks(texts, help_of)
    wrong = check(texts, help_of)
    commands = [command for page in PAGES for command in commands_and_keys(texts[page])[0] if command not in NOT_RUN]
    with tempfile.TemporaryDirectory(prefix="megalith-readme-") as scratch:
        folder = pathlib.Path(scratch)
        prepare(folder, program)
        wrong += run(commands, folder)
    mentioned = sum(len(mentions(text)[0]) for text in texts.values())
    print(f"{len(texts)} pages; {len(commands)} commands run, {len(NOT_RUN)} listed as not to be run, {mentioned} in the text")
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
