#!/usr/bin/env python3
"""What a GPU does between the kernels of a step: how long none runs, and after and before which, by nsys.

  bench/gaps.py BENCH_STEP [--only NAME]      NAME: a shape of bench/step.py (default: gpt2-1558m-bf16)

The launches of the last round of steps are counted: what begins behind the longest pause between two kernels, in which the
program waits to be asked for that round. Exit status 77: there is no nsys."""
import argparse, collections, csv, glob, io, os, re, shutil, subprocess, sys, tempfile

import step

MISSING = 77


def short(name):
    """A kernel's name without its namespaces, types and parameters."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name)
    name = re.sub(r"^void ", "", re.sub(r"[<(].*", "", name))
    return name.split("::")[-1][:48]


def read_trace(text):
    """[(begin, end, name)] in ns of nsys's report cuda_gpu_trace, in order."""
    lines = text[text.index("Start (ns)"):]
    rows = [(int(row["Start (ns)"]), int(row["Start (ns)"]) + int(row["Duration (ns)"]), short(row["Name"]))
            for row in csv.DictReader(io.StringIO(lines)) if row["Start (ns)"]]
    return sorted(rows)


def gaps_of(rows):
    """The times in which no row runs, as [(ns, name before, name after)]; rows are in order."""
    found, (_, until, last) = [], rows[0]
    for begin, end, name in rows[1:]:
        if begin > until:
            found.append((begin - until, last, name))
        if end > until:
            until, last = end, name
    return found


def last_round(rows):
    """The rows after the longest pause."""
    longest = max(gaps_of(rows), default=None)
    if not longest:
        return rows
    until = rows[0][1]
    for i, (begin, end, _) in enumerate(rows):
        if begin - until == longest[0]:
            return rows[i:]
        until = max(until, end)


def report(rows):
    rows = last_round(rows)
    gaps = gaps_of(rows)
    elapsed = max(end for _, end, _ in rows) - rows[0][0]
    idle = sum(ns for ns, _, _ in gaps)
    yield (f"{elapsed / 1e6:.2f} ms with {len(rows)} launches and copies: none runs for {idle / 1e6:.2f} ms ({100 * idle / elapsed:.1f} %), in "
           f"{len(gaps)} {'pause' if len(gaps) == 1 else 'pauses'}")
    between = collections.defaultdict(list)
    for ns, before, after in gaps:
        between[before, after].append(ns)
    for (before, after), all_ns in sorted(between.items(), key=lambda each: -sum(each[1]))[:12]:
        yield f"{sum(all_ns) / 1e6:8.3f} ms in {len(all_ns):4} x {sum(all_ns) / len(all_ns) / 1e3:6.1f} us: {before} -> {after}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--only", default="gpt2-1558m-bf16")
    p.add_argument("--device", default="cuda")
    o = p.parse_args()
    patterns = ["/opt/nvidia/nsight-systems/*/bin/nsys", "/usr/local/cuda*/bin/nsys"]
    nsys = shutil.which("nsys") or next((path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)), None)
    if not nsys:
        print("there is no nsys")
        sys.exit(MISSING)
    *_, B, microbatches, _, _ = step.SHAPES[o.device][o.only]
    with tempfile.TemporaryDirectory() as work:
        trace = os.path.join(work, "step")
        subprocess.run([nsys, "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "--output", trace,
                        *step.our_command(o.only, B, microbatches, o)], input="go\ngo\n", text=True, check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([nsys, "stats", "--report", "cuda_gpu_trace", "--format", "csv", "--output", "-", trace + ".nsys-rep"],
                              check=True, capture_output=True, text=True)
    print("\n".join(report(read_trace(done.stdout))))


if __name__ == "__main__":
    main()
