"""What bench/gpu.py prints at its end: under 10,000 characters with its progress, the most telling last, since whoever runs it
elsewhere may see no more than the end of the output. Everything is in the results file and the log."""
import csv, datetime, re, statistics

import predictions

LIMIT = 7800  # characters; a line for each part that ran comes before them


def clocks_of(path, times=None):
    """{what: {"least", "median", "most"}} while the GPU was busy, of nvidia-smi's file; {} where it says nothing. times: [(began,
    ended)] in seconds since 1970, outside of which nothing counts."""
    try:
        with open(path) as file:
            rows = [row for row in csv.DictReader(file, skipinitialspace=True)]
    except OSError:
        return {}
    if times is not None:
        rows = [row for row in rows if (at := time_of(row)) and any(began <= at <= ended for began, ended in times)]
    number = lambda text: float(m[0]) if (m := re.match(r"-?[\d.]+", text or "")) else None
    columns = {"sm_mhz": "clocks.current.sm", "memory_mhz": "clocks.current.memory", "watts": "power.draw", "celsius": "temperature.gpu"}
    busy = [row for row in rows if (number(next((v for k, v in row.items() if k and k.startswith("utilization.gpu")), "")) or 0) > 50]
    found = {}
    for name, column in columns.items():
        values = [number(value) for row in busy for key, value in row.items() if key and key.startswith(column)]
        if values := [value for value in values if value is not None]:
            found[name] = {"least": min(values), "median": statistics.median(values), "most": max(values)}
    reasons = sorted({value for row in busy for key, value in row.items() if key and "reasons.active" in key and value})
    return found | ({"reasons": reasons[:8]} if reasons else {})


def time_of(row):
    """Seconds since 1970 of a line of nvidia-smi's, which has the machine's own time; None where it cannot be read."""
    try:
        return datetime.datetime.strptime(row["timestamp"], "%Y/%m/%d %H:%M:%S.%f").timestamp()
    except (KeyError, TypeError, ValueError):
        return None


def add_clocks_of_steps(results, path):
    for row in results.get(predictions.STEPS, {}).get("rows", []):
        for program in [row, *row.get("peers", [])]:
            if "times" in program and (clocks := clocks_of(path, program["times"])):
                program["clocks"] = clocks


def rate(row):
    return row["flops"] / row["seconds"] / 1e12


def kernel_lines(results):
    kernels = results.get(predictions.KERNELS, {})
    torch = {}
    for row in results.get(predictions.TORCH_KERNELS, {}).get("rows", []):
        torch.setdefault(row["row"], []).append(f"{row['by']} {row['tflops']:.0f}" if "tflops" in row else f"{row['by']}: {row['why'][:30]}")
    if limits := kernels.get("limits"):
        yield (f"large products in bf16 {limits['bf16_flops'] / 1e12:.0f} TFLOP/s, in f32 {limits['f32_flops'] / 1e12:.1f}; a large copy "
               f"{limits['copy_bytes'] / 1e9:.0f} GB/s")
    for row in kernels.get("rows", []):
        if row["dtype"] == "bf16":
            beside = torch.get(f"{row['op']}/{row['shape']}/bf16")
            yield (f"{row['op'][:27]:27} {row['shape']:17} {1e6 * row['seconds']:7.0f} us {row['bytes'] / row['seconds'] / 1e9:5.0f} GB/s "
                   f"{rate(row):5.0f} TFLOP/s {row['of_limit']:4.2f}" + (f"; PyTorch {', '.join(beside)}" if beside else ""))
    for row in kernels.get("left_out", []):
        yield f"{row['row']}: left out: {row['why'][:150]}"


def during(program):
    clocks = program.get("clocks", {})
    median = lambda what, unit: f", {clocks[what]['median']:.0f} {unit}" if what in clocks else ""
    return median("sm_mhz", "MHz") + median("watts", "W")


def step_lines(results):
    gib = lambda row, fact: f"{row[fact] / 2**30:.2f}" if fact in row else "?"
    for row in results.get(predictions.STEPS, {}).get("rows", []):
        if "why" in row:
            yield f"{row['name']}: {row['why'][:150]}"
            continue
        mfu = f", MFU {100 * row['mfu']:.1f} %" if row["mfu"] else ""
        yield (f"{row['name']}: {row['tokens_per_second']:.0f} tokens/s{mfu}, {row['of_floor']:.2f} of its floor; memory planned "
               f"{gib(row, 'memory_planned')} GiB, in use {gib(row, 'memory_in_use')}{during(row)}")
        for peer in row["peers"]:
            yield f"    {peer['name']}: " + (f"{peer['tokens_per_second']:.0f} tokens/s, ours is {peer['ratio']:.2f} times that{during(peer)}"
                                             if "tokens_per_second" in peer else peer["why"][:120])


def clock_lines(results):
    if clocks := results.get("clocks"):
        yield "while busy: " + ", ".join(f"{what} {v['least']:.0f} to {v['most']:.0f} (median {v['median']:.0f})"
                                         for what, v in clocks.items() if what != "reasons")


def part_lines(results):
    """Parts that did not run, by reason; then each part that ran, with its errors."""
    skipped = {}
    for part in results["parts"]:
        if part["outcome"] == "skipped" and "command" not in part:
            skipped.setdefault(part["why"], []).append(part["name"])
    for why, names in skipped.items():
        if why != "not asked for":
            yield f"skipped, {why}: {', '.join(names)}"[:400]
    for part in results["parts"]:
        if "command" not in part:
            continue
        tests = part.get("tests", [])
        count = lambda *outcomes: sum(t["outcome"] in outcomes for t in tests)
        counted = f"{count('passed')} passed, {count('failed', 'died', 'timed out')} failed, {count('skipped')} skipped" if tests else ""
        file = f"{part['file']}" if "file" in part else ""
        yield f"{part['name']:27} {part['outcome']:9} {part['seconds']:5.0f} s  {counted} {file}".rstrip()


def shown_lines(results):
    """The end of what parts printed that passed and have no rows."""
    for part in results["parts"]:
        if part.get("output") and part["outcome"] == "passed" and part["kind"] != "bench" or part["name"].startswith(("ncu", "gaps")):
            yield from (f"{part['name']}: {line[:120]}" for line in part.get("output", "").splitlines()[-9:])


def failure_lines(results):
    for part in results["parts"]:
        if part["outcome"] in ("failed", "timed out"):
            yield f"{part['outcome'].upper()}: {part['name']}: {part.get('why', '')[:150]}"
            for fault in part.get("faults", []):
                yield f"    started again after: {' '.join(fault.split())[-200:]}"
            wrong = [test for test in part.get("tests", []) if test["outcome"] in ("failed", "died", "timed out")]
            for test in wrong[:12]:
                yield f"    {test['outcome']}: {test['name']}: {' '.join(test.get('why', '').split())[:200]}"
            if len(wrong) > 12:
                yield f"    and {len(wrong) - 12} more"
            if not wrong:
                yield from (f"    {line[:150]}" for line in part.get("output", "").splitlines()[-6:])


def verdict_lines(results, path):
    later = [part["name"] for part in results["parts"] if part.get("why") == "no time left" or part.get("why", "").startswith("only ")]
    wrong = [part["name"] for part in results["parts"] if part["outcome"] in ("failed", "timed out") and part["name"] not in later]
    only = lambda names: "--only '" + "|".join(f"^{re.escape(name)}$".replace("\\ ", " ") for name in names) + "'"
    if wrong:
        yield f"what failed, again: {only(wrong)}"
    if later:
        yield f"for the rest, the same with {only(later)}"
    yield f"{'all that ran passed' if results['passed'] else 'NOT PASSED'}; {path}"


def text(results, path):
    """Sections in the order of importance; long ones are shortened."""
    sections = [part_lines(results), kernel_lines(results), clock_lines(results), shown_lines(results), step_lines(results),
                predictions.lines(results["predictions"]), failure_lines(results)]
    end = "\n".join(verdict_lines(results, path))[:3000]
    lines, room, left_out = [], LIMIT - len(end), 0
    for section in reversed([list(section) for section in sections]):
        for line in reversed(section):
            if left_out or len(line) + 1 > room:
                left_out += 1
                continue
            room -= len(line) + 1
            lines.insert(0, line)
    if left_out:
        lines.insert(0, f"({left_out} more lines are in the file)")
    return "\n".join([*lines, end])
