"""How bench/gpu.py runs one part: within its time, with all that it starts, and what its output says of it."""
import concurrent.futures, ctypes, glob, os, re, signal, subprocess, time


class Part:
    """What is run and how it is judged.

    kind      test, check, sanitizer or bench: how judge() reads the output
    seconds   that it may take at most; then what it has started is killed
    read      what it returns is kept in the results by `key`
    keep      {file that it writes: ending of the name}, to lie beside the results
    shows     its lines that the report prints, as a function of its output
    apart     of tests: seconds for those that did not pass in one process, each of which then has its own
    resume    of a bench: the command that goes on behind what ended it, as a function that returns None where nothing is left
    fatal     False: it may fail and all still passes
    why_not   why it cannot be run
    """

    def __init__(self, name, kind, command, seconds, env=None, read=None, why_not=None, apart=0, resume=None, fatal=True, key=None,
                 keep=None, shows=None):
        self.name, self.kind, self.command, self.seconds, self.key = name, kind, command, seconds, key
        self.env, self.read, self.why_not, self.apart, self.resume = env or {}, read, why_not, apart, resume
        self.fatal, self.keep, self.shows = fatal, keep or {}, shows


MISSING = 77  # exit status of a script that lacks what it needs, and says what
SPARED = set()  # processes that go on beside the parts


def start_beside(command, **options):
    """A process that no part ends, but that ends with this one, however that does."""
    PR_SET_PDEATHSIG = 1
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL), **options)
    SPARED.add(process.pid)
    return process


def end_descendants():
    """Ends whatever a part has left running; see adopt_orphans."""
    while True:
        parents = {}
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path) as file:
                    name, fields = file.read().rsplit(")", 1)
                if fields.split()[0] not in "ZX":
                    parents[int(name.split(" ")[0])] = int(fields.split()[1])
            except OSError:
                pass
        mine = {os.getpid()}
        while more := {child for child, parent in parents.items() if parent in mine} - mine - SPARED:
            mine |= more
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        if len(mine) == 1:
            return
        for child in mine - {os.getpid()}:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


def adopt_orphans():
    """A process that outlives its parent becomes a child of this one, so that none is left running."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def start(command, output, env):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                            env=dict(os.environ, **(env or {})))


def run(command, seconds, env=None, log=os.devnull):
    """Exit status (None: out of time), output and time of a command; all that it started ends with it. What it prints is in the
    log while it runs, so that it is there whatever ends this process."""
    began = time.monotonic()
    if log == os.devnull:
        log = f"/proc/self/fd/{os.memfd_create('output')}"
    with open(log, "ab+") as output:
        first = output.seek(0, os.SEEK_END)
        try:
            process = start(command, output, env)
        except OSError as error:
            return 127, f"{command[0]} does not start: {error}", 0.0
        try:
            status = process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            status = None
        end_descendants()
        process.poll()
        output.seek(first)
        return status, output.read().decode(errors="replace"), time.monotonic() - began


def run_part(part, seconds, log):
    """What judge() says of a part, `seconds` and `output`: the lines that it shows."""
    began = time.monotonic()
    status, text, _ = run(part.command, seconds, part.env, log)
    result = judge(part, status, text)
    left = lambda: seconds - (time.monotonic() - began)
    said, faults = text, []
    while status != 0 and part.resume and left() > 2 and len(faults) < 5 and (command := part.resume()):
        faults.append(tail(said, 3))
        status, said, _ = run(command, left(), part.env, log)
        text += said
    if faults:
        result["faults"] = faults
    if part.apart and result["outcome"] != "passed":
        apart(part, result, text, log)
    if part.shows and (lines := part.shows(text)):
        result["output"] = lines
    result["seconds"] = time.monotonic() - began
    return result


def apart(part, result, text, log):
    """Tests behind the first that faulted, each in a process of its own, six at a time: a kernel that faults spoils the GPU for
    its whole process. CUDA_LAUNCH_BLOCKING has the error name its launch. One that passes alone is no failure, apart from the one
    that the others died of."""
    tests = result["tests"]
    spoilt = next((i for i, test in enumerate(tests) if test["outcome"] == "died" or "C++ exception" in test.get("why", "")), None)
    known = [test["name"] for test in tests if test["outcome"] in ("passed", "skipped")]
    names = list_tests(part, min(part.apart, 10))
    if not names or spoilt is None and all(name in known or any(t["name"] == name for t in tests) for name in names):
        return  # they failed by what they found, not by what came before
    culprit = tests[spoilt]["name"] if spoilt is not None else None
    failed = {test["name"] for test in tests[:spoilt] if test["outcome"] == "failed"}
    again = [name for name in names if name not in known and name not in failed]
    ends = time.monotonic() + part.apart

    def one(name):
        left = ends - time.monotonic()
        if left <= 1:
            return {"name": name, "outcome": "skipped", "why": "no time left"}, ""
        command = [word if not word.startswith("--gtest_filter=") else "--gtest_filter=" + name for word in part.command]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env=dict(os.environ, **part.env, CUDA_LAUNCH_BLOCKING="1"), start_new_session=True)
        try:
            said = process.communicate(timeout=min(left, 25))[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return {"name": name, "outcome": "timed out", "alone": True}, process.communicate()[0].decode(errors="replace")
        found = next((test for test in read_gtest(said) if test["name"] == name), {"name": name, "outcome": "died"})
        if process.returncode != 0 and found["outcome"] == "passed":
            found.update(outcome="died", why=f"exit status {process.returncode}")
        if name == culprit and found["outcome"] == "passed":
            found.update(outcome="failed", why="it passes alone; together with the others: " + tests[spoilt].get("why", "it died"))
        return found | {"alone": True}, said

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        done = list(pool.map(one, again))
    end_descendants()
    with open(log, "a") as file:
        file.write("".join(f"\n## alone: {test['name']}\n{said}" for test, said in done if test["outcome"] != "passed"))
    anew = {test["name"]: test for test, _ in done}
    result["tests"] = [test for test in tests if test["name"] not in anew] + list(anew.values())
    result.pop("why", None)
    result.update(outcome_of_tests(result["tests"]))


def outcome_of_tests(tests):
    count = lambda *outcomes: sum(test["outcome"] in outcomes for test in tests)
    not_over = count("timed out") + sum(test.get("why") == "no time left" for test in tests)
    if wrong := count("failed", "died"):
        return {"outcome": "failed", "why": f"{wrong} of {len(tests)} tests"}
    if not_over:
        return {"outcome": "timed out", "why": f"{not_over} of {len(tests)} tests were not through"}
    if not count("passed"):
        return {"outcome": "skipped", "why": next((test.get("why", "") for test in tests), "no test of that name")}
    return {"outcome": "passed"}


def list_tests(part, seconds):
    """The tests of a part's program by their full names; none where it cannot list them."""
    status, text, _ = run(part.command + ["--gtest_list_tests"], seconds, part.env)
    names, suite = [], ""
    for line in text.splitlines() if status == 0 else []:
        if m := re.match(r"(\S+\.)(\s|$)", line):
            suite = m[1]
        elif suite and (m := re.match(r"  (\S+)", line)):
            names.append(suite + m[1])
    return names


def read_gtest(text):
    """[{name, outcome, seconds, why}] from GoogleTest's output, also where the program did not come to its end."""
    tests, name, said = [], None, []
    for line in re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", text).splitlines():  # coloured under mpirun, which has a terminal
        if m := re.match(r"\[ RUN      \] (\S+)", line):
            name, said = m[1], []
        elif name and (m := re.match(r"\[ +(OK|FAILED|SKIPPED) +\] " + re.escape(name) + r"\b.* \((\d+) ms\)", line)):
            outcome = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[m[1]]
            tests.append({"name": name, "outcome": outcome, "seconds": int(m[2]) / 1000})
            why = [s for s in said if s and not re.match(r"\S+:\d+: Skipped", s)]
            if outcome != "passed" and why:
                tests[-1]["why"] = "\n".join(why[:12])
            name = None
        elif name:
            said.append(line)
    if name:
        tests.append({"name": name, "outcome": "died", "why": "\n".join(said[-12:])})
    return tests


def tail(text, lines=25):
    return "\n".join(line[:300] for line in text.strip().splitlines()[-lines:])


# compute-sanitizer says REFUSED if it does not support the GPU, driver or container, and FOUND if a kernel is wrong.
REFUSED = re.compile(r"={9} .*(Device not supported|Internal Sanitizer Error|terminated before first instrumented|"
                     r"No attachable process|not permitted|[Ff]ailed to (initialize|launch|inject))")
FOUND = re.compile(r"={9} +(Invalid|Uninitialized|Misaligned|Barrier|Program hit|(Error|Warning): .*(Race|hazard))")


def judge(part, status, text):
    """{outcome, ...}: passed, failed, timed out or skipped."""
    result = {}
    if part.kind in ("test", "sanitizer"):
        result["tests"] = tests = read_gtest(text)
    if part.kind == "sanitizer":
        m = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", text)
        found = m and any(int(n) for n in re.findall(r"(\d+) (?:error|hazard|warning)", m[1]))
        if (refused := REFUSED.search(text)) and not FOUND.search(text):
            result.update(outcome="skipped", why="the tool does not work here: " + refused[0].strip("= "))
        elif found or any(t["outcome"] in ("failed", "died") for t in tests):
            result.update(outcome="failed", why=m[1] if found else "tests failed under it", output=tail(text, 60))
        elif status is None:
            result.update(outcome="timed out", why=f"{sum(t['outcome'] == 'passed' for t in tests)} tests were through")
        elif status != 0 or not m:
            result.update(outcome="skipped", why="the tool does not work here: " + tail(text, 3))
        elif not any(t["outcome"] == "passed" for t in tests):
            result.update(outcome="skipped", why="no test was run under it")
        else:
            result["outcome"] = "passed"
    elif status is None:
        result.update(outcome="timed out", why="its time was up", output=tail(text))
    elif status == MISSING:
        result.update(outcome="skipped", why=tail(text, 1))
    elif status != 0:
        result.update(outcome="failed", why=f"exit status {status}", output=tail(text))
    elif part.kind == "test" and all(t["outcome"] == "skipped" for t in tests):
        result.update(outcome="skipped", why=next((t.get("why", "") for t in tests), "no test of that name"))
    else:
        result["outcome"] = "passed"
    return result
