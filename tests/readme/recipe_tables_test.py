"""Holds the tables of recipes in configs/README.md against `megalith plan`.

    recipe_tables_test.py MEGALITH

A row of the table of recipes that name their machines must be the one that the plan of that recipe makes, to the last digit,
every such recipe must have a row, and none may be said not to fit. The predicted rates beside published ones are the plans'.
"""
import pathlib
import re
import subprocess
import sys

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
HEADING = "| recipe | ranks |"


def number(text):
    return float(text.replace(",", ""))


def plan(program, recipe):
    done = subprocess.run([program, "plan", CONFIGS / f"{recipe}.toml"], capture_output=True, text=True)
    assert done.returncode == 0, f"{recipe}: the plan does not fit, or fails:\n{done.stdout}{done.stderr}"
    return done.stdout


def row(recipe, text):
    """The table's row of a plan."""
    ranks, stages, replicas, shard, tensor = re.search(
        r"layout: (\d+) ranks?: (\d+) pipeline stages?, (\d+) replicas? sharded over (\d+) ranks?(?: each)?, tensors split by (\d+)",
        text).groups()
    device = text[text.index("memory of the fullest rank"):text.index("host memory of the fullest node")]
    gib = {name: int(size) / 2**30 for name, size in re.findall(r"^  (\w+) +(\d+) bytes", device, re.MULTILINE)}
    reserved, of = re.search(r" GiB and ([\d.]+) reserved of ([\d.]+)", text).groups()
    parts = [gib["parameters"] + gib["optimizer"] + gib["gradients"], gib["saved"], gib["scratch"], gib["communication"]]
    sent = re.search(r"^  together +(\S+) +(\S+)$", text, re.MULTILINE)
    inside, between = (number(gib) / int(ranks) for gib in (sent.groups() if sent else "00"))
    seconds = re.search(r"predicted: (\S+) s a step", text)[1]
    times = [(name.strip(), float(share)) for name, share in re.findall(r"^  ([A-Za-z][\w -]*?) +[\d.,]+ ms +([\d.]+) %$", text, re.MULTILINE)]
    shares = ", ".join(f"{name} {share:.0f} %" for name, share in sorted(times, key=lambda each: -each[1]) if share >= 3)
    return f"| `{recipe}` | {ranks}: TP {tensor}, PP {stages}, {replicas} x {shard} | {' + '.join(f'{part:.1f}' for part in parts)} + {reserved} " \
           f"of {of} | {inside:.3g} / {between:.3g} | {seconds} | {rate(text):.0f} | {re.search(r'MFU ([0-9.]+) %', text)[1]} | {shares} |"


def rate(text):
    return number(re.search(r"tokens/s, (\S+) a rank", text)[1])


def wrong_lines(page, plans):
    start = page.index(HEADING)
    rows = [line for line in page[start:].split("\n\n")[0].splitlines()[2:]]
    named = [re.match(r"\| `(\w+)`", line)[1] for line in rows]
    wrong = [f"has no row: {recipe}" for recipe in plans if recipe not in named]
    wrong += [f"the page has\n  {line}\nand the plan makes\n  {row(recipe, plans[recipe])}"
              for recipe, line in zip(named, rows) if line != row(recipe, plans[recipe])]
    beside = re.findall(r"^\| `(\w+)` \| (\d+) \| \d+ \|$", page, re.MULTILINE)
    wrong += [] if len(beside) == 4 else [f"{len(beside)} predicted rates stand beside published ones, not 4"]
    return wrong + [f"{recipe}: {said} tokens/s are said, and {rate(plans[recipe]):.0f} planned" for recipe, said in beside
                    if said != f"{rate(plans[recipe]):.0f}"]


def main(program):
    plans = {path.stem: plan(program, path.stem) for path in sorted(CONFIGS.glob("*.toml")) if "\n[hardware]\n" in path.read_text()}
    page = (CONFIGS / "README.md").read_text()
    wrong = wrong_lines(page, plans)
    if not wrong:  # planted mistakes are seen
        for changed in (page.replace("of 79.1", "of 79.2", 1), re.sub(r"GEMM (\d)\d %", r"GEMM \g<1>x %", page, count=1),
                        re.sub(r"\n\| `10b_h100` \|.*", "", page), re.sub(r"(\n\| `\w+` \| )(\d+ \| \d+ \|\n)", r"\g<1>1\2", page, count=1)):
            assert changed != page and wrong_lines(changed, plans), "a planted mistake is not seen"
    print(f"{len(plans)} recipes planned")
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
