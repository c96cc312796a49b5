#!/usr/bin/env python3
"""Holds predicted step times against published ones.

    bench/published.py [--rows FOLDER] [--program MEGALITH] [--json FILE] [--fit | --cross-validate | --data-sheets]
    bench/published.py --schedules [--program MEGALITH] [--json FILE] [--data-sheets]

Each usable row of the folder's CSV files (their README says where they come from) becomes a config, with a hardware
profile of configs/hardware and the [stack] of the program that was measured, from bench/stacks. `megalith plan
--calibrate` predicts them all; nothing is fitted to a row. Rows that are left out are listed with the reason.

--fit fits the numbers of profiles and stacks to all rows and prints them. --cross-validate predicts each source with
numbers fitted to the others: what belongs to its own stack or device alone is then as counted. --data-sheets has nothing
that was fitted: peak rates and bandwidths as they stand, and what counting and other papers say (written down when the
fit was known, but not changed by it). --schedules predicts the rows of bench/published, which nothing is fitted to: runs
that differ in their pipeline schedule alone.
The JSON has `rows`: source, line, predicted and measured seconds.
"""

import argparse
import csv
import json
import os
import subprocess
import tempfile
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


# Clusters like one of configs/hardware but with another network: GB/s that a node sends, and the source.
CLUSTERS = {
    "jean_zay": ("dgx_a100", {"network.link": 50.0}),  # 4 Omni-Path of 100 Gb/s: BigScience's chronicles
    "mosaic_a100_40": ("p4d.24xlarge", {"network.link": 200.0, "network.latency": 14.0}),  # 1600 Gb/s RoCE: the tables
}


# For --data-sheets, from counting and other papers, without any measured step:
#
# elementwise: bytes of memory traffic a token and layer, forward and backward (taken as twice that), over Megalith's own,
# h the width. A Llama block in eager PyTorch: RMSNorm 34 h each, rotary embedding 36 h, residuals 12 h, SwiGLU 27 h,
# transposes 12 h: 465 h in all; with a fused RMSNorm 285 h. Megatron's: LayerNorm 8 h, bias, dropout and residual 14 h,
# bias and GELU 16 h, transposes 12 h: 150 h. MPT's, with the last three unfused, 144 h. Transformer Engine's: half of
# Megatron's (a guess). llm.c fuses about as we do.
# attention_share: FlashAttention's papers (Dao et al. 2022; Dao 2023), over 80 % of the peak: 2 reaches 65 % of an A100,
# 1 and Triton's 30 to 35 %, and Triton's 20 % of an H100.
OWN = 50  # h, as `megalith plan --trace` counts: norms, residuals and sums of bias gradients, without dropout
OWN_LLAMA = 93  # h, the same for a Llama block: RMS norms, rotary turns, SwiGLU and residuals
COUNTED = {
    "hagemann_fa2_rms": {"elementwise": 285 / OWN_LLAMA, "attention_share": 0.8},
    "hagemann_fa2": {"elementwise": 465 / OWN_LLAMA, "attention_share": 0.8},
    "hagemann_fa1": {"elementwise": 465 / OWN_LLAMA, "attention_share": 0.42},
    "hagemann_fused": {"elementwise": 465 / OWN_LLAMA},
    "hagemann_torch": {"elementwise": 465 / OWN_LLAMA},
    "bigscience": {"elementwise": 150 / OWN},
    "megatron": {"elementwise": 150 / OWN},
    "nemo": {"elementwise": 75 / OWN, "attention_share": 0.8},
    "mosaic": {"elementwise": 144 / OWN, "attention_share": 0.42},
    "mosaic_pure": {"elementwise": 144 / OWN, "attention_share": 0.42},
    "mosaic_h100": {"elementwise": 144 / OWN, "attention_share": 0.25},
    "llm_c": {"elementwise": 1.0, "attention_share": 0.5},
}
# cuBLAS reaches 80 % of the peak and copies 85 % of the bandwidth (NVIDIA's samples); NCCL's tests 80 % of links, after
# 50 us; a transfer costs a quarter of what it overlaps with, plus 1 ms a microbatch and 10 ms a step (guesses).
GUESSED = """[calibrated]
gemm = 0.8
memory = 0.85
node_link = 0.8
network_link = 0.8
collective_delay = 50.0
overlap = 0.25
microbatch = 1.0
step = 10.0
"""


class Unusable(Exception):
    """Why a row is left out."""


def number(text):
    try:
        return float(text)
    except ValueError:
        raise Unusable(f"no time: {text or 'empty'}") from None


# Source -> rows to leave out: they contradict their neighbours or their own other columns, or repeat one.
CONTRADICTORY = {
    "hagemann": {60, 71, 72, 78, 429, 467} | set(range(259, 268)),
    "bigscience": {648, 830, 658, 634, 517, 535, 750},
    "llm_foundry": {62, 89} | set(range(38, 42)),
    "validation": {5, 33},
}


LLAMA = """norm = "rms"
activation = "swiglu"
bias = false
qkv_bias = false
tied_head = false
positions = "rotary"
"""


def hagemann(row, line):
    """Hagemann et al., arXiv 2311.05610: Llama's models on DGX A100, ZeRO-1, vocabulary of 128,000.

    Their shape is that of Touvron et al. 2023 (arXiv 2302.13971, table 2), with SwiGLU of 8/3 of the width, in whole multiples
    of 256.
    """
    seconds = number(row["step_s"])
    layers, hidden, heads = {"13B": (40, 5120, 40), "30B": (60, 6656, 52), "65B": (80, 8192, 64)}[row["model"]]
    sequence, gpus = int(row["seq"]), int(row["gpus"])
    kernel = {"flash_attention2 + RMS kernel": "fa2_rms", "flash_attention2": "fa2", "flash_attentionv1.0.8": "fa1",
              "fused": "fused", "torch": "torch"}[row["kernel"]]
    # The batch follows from the published MFU and time: 2048 sequences, or 512 of the long ones.
    return dict(group=(row["model"], sequence, gpus), profile="dgx_a100", stack="hagemann_" + kernel, gpus=gpus,
                seconds=seconds, layers=layers, hidden=hidden, heads=heads, vocab=128000, sequence=sequence, block=LLAMA,
                feed_forward=-(-hidden * 8 // 3 // 256) * 256,
                batch=2048 if sequence == 2048 else 512, microbatch=int(row["mbs"]), tensor=int(row["tp"]),
                pipeline=int(row["pp"]), sequence_parallel=row["sp"] == "1",
                recompute=row["act_ckpt"] == "every_layer", strategy="shard_optimizer")


def bigscience(row, line):
    """BigScience's chronicles: Megatron-DeepSpeed on A100-80 with Omni-Path, ZeRO-1, full recomputation.

    The chronicles (bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md) say what the columns do not:
    - In the tables of 20 February the number of layers was changed to fit the pipeline. These count a rate of 8 x 12 L h^2
      FLOPs a token, from which L follows to 0.03.
    - On 25 February the hosts' PCI Express and NUMA settings were changed, which made everything 1 to 5 % faster; from 28
      February gradients add up in fp32. Both times it says not to compare with what was before.
    """
    seconds = number(row["sec_it"])
    layers, hidden, tensor, pipeline = (int(row[k]) for k in ("L", "h", "TP", "PP"))
    gpus = int(row["DP"]) * tensor * pipeline
    if gpus > int(row["nodes"]) * 8:
        raise Unusable(f"DP x TP x PP = {gpus} on {row['nodes']} nodes of 8")
    if row["date"] == "02-20":
        tokens = 2048 * int(row["GBS"])
        counted = 1e12 * number(row["tflops_hw"]) * gpus * seconds / (tokens * 8 * 12 * hidden**2)
        layers = round(counted)
        if abs(counted - layers) > 0.1 or layers % pipeline:
            raise Unusable(f"its rate and time make {counted:.2f} layers on {pipeline} stages")
    period = sum(row["date"] >= change for change in ("02-25", "02-28"))
    return dict(group=(layers, hidden, int(row["heads"]), gpus, period), profile="jean_zay", stack="bigscience",
                gpus=gpus, seconds=seconds, layers=layers, hidden=hidden, heads=int(row["heads"]), vocab=250880,
                sequence=2048, batch=int(row["GBS"]), microbatch=int(row["MBS"]), tensor=tensor, pipeline=pipeline,
                sequence_parallel=False, recompute=True, strategy="shard_optimizer")


MPT = {"125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20),
       "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56), "70b": (80, 8192, 64)}


def llm_foundry(row, line):
    """MosaicML's llm-foundry: FSDP over all GPUs, Triton's attention, vocabulary of 50,368."""
    if "fp8" in row["prec"]:
        raise Unusable("FP8")
    layers, hidden, heads = MPT[row["model"]]
    h100 = row["gpu"].startswith("h100")
    profile = "dgx_h100" if h100 else "mosaic_a100_40" if "40gb" in row["gpu"] else "dgx_a100"
    gpus = int(row["gpus"])
    return dict(group=(row["model"], row["gpu"], gpus, row["seq"]), profile=profile,
                stack="mosaic_h100" if h100 else "mosaic_pure" if row["mp_mode"] == "PURE" else "mosaic", gpus=gpus,
                seconds=number(row["gbs_tok"]) / number(row["tps"]), layers=layers, hidden=hidden, heads=heads,
                vocab=50368, sequence=int(row["seq"]), batch=int(row["gbs"]), microbatch=int(row["mbs"]), tensor=1,
                pipeline=1, sequence_parallel=False, recompute=row["act_ckpt"] == "True",
                strategy="full_shard" if row["shard"] == "FULL_SHARD" else "shard_grad_op")


def validation(row, line):
    """Single runs of several programs."""
    if not row["mbs"]:
        raise Unusable("no microbatch size")
    if not row["L"]:
        raise Unusable("no shape")
    if "selective" in row["ckpt"]:
        raise Unusable("recomputation of attention alone, which Megalith does not do")
    if row["source"].startswith("modded-nanogpt 2024"):
        raise Unusable("another optimizer and model (Muon, compiled)")
    seconds = number(row["step_s"])
    profile = {"A100-40": "p4d.24xlarge", "A100-80": "dgx_a100", "H100": "dgx_h100"}[row["gpu"]]
    stack = "llm_c" if "llm.c" in row["source"] else "nemo" if "NeMo" in row["source"] else "megatron"
    return dict(group=(row["source"], row["params_B"], row["gpus"]), profile=profile, stack=stack, gpus=int(row["gpus"]),
                seconds=seconds, layers=int(row["L"]), hidden=int(row["h"]), heads=int(row["heads"]),
                vocab=int(row["V"]), sequence=int(row["s"]), batch=int(row["gbs"]), microbatch=int(row["mbs"]),
                tensor=int(row["tp"]), pipeline=int(row["pp"]), virtual=int(row["vpp"] or 1), sequence_parallel=False,
                recompute=row["ckpt"] == "full",
                strategy="shard_optimizer" if row["zero"] == "ZeRO-1" else "no_shard")


# These of the paper's schedules Megalith has. ZB-1p is ZB-H1 where the paper's search finds nothing better in that
# memory: its table 5 has the same bubbles for both.
SCHEDULES = {"1F1B": "1f1b", "ZB-1p": "zb_h1"}


def zero_bubble(row):
    """Qi et al., arXiv 2401.10241, tables 4, 6, 11 and 12: GPT-3's models in Megatron-LM, nothing but pipeline parallelism.

    Read in the paper's PDF of 2024-01-17 (sail-sg/zero-bubble-pipeline-parallelism 3a91d0c, paper.pdf). A100s of 80 GB on nodes
    of 8, RoCE, in fp16. Nothing is recomputed, attention is not fused (table 1 counts 5 a s h of it, and the memory agrees).
    The first and the last stage have a layer less than the others. The vocabulary is not said: the sizes of the four models,
    as rounded, leave 27 to 34 thousand. In table 11 the second rows of 14.6B and 28.3B say 32 microbatches; their ZB-2p is
    that of 64 and 128 in table 4.
    """
    schedule, gpus, microbatches = row["schedule"], int(row["gpus"]), int(row["microbatches"])
    if schedule == "ZB-2p" and microbatches <= gpus:
        schedule = "ZB-1p"  # appendix H: then they are essentially the same
    if schedule in ("1F1B-I", "ZB-V"):  # of 2 p chunks, where table 6's models have 2 p - 2 layers
        raise Unusable("its first and its last chunk have no layer, and Megalith's have one at least")
    if schedule not in SCHEDULES:
        raise Unusable("a schedule that Megalith does not have: " + schedule)
    layers, microbatch = int(row["L"]), int(row["mbs"])
    inner = (layers + 2) // gpus
    batch = microbatch * microbatches
    return dict(group=(int(row["table"]), row["model"], gpus, microbatch, microbatches), schedule=SCHEDULES[schedule],
                profile="dgx_a100", stack="megatron", gpus=gpus, seconds=batch / gpus / number(row["samples_per_gpu_s"]),
                layers=layers, hidden=int(row["h"]), heads=int(row["heads"]), vocab=32000, sequence=int(row["seq"]),
                batch=batch, microbatch=microbatch, tensor=1, pipeline=gpus, sequence_parallel=False, recompute=False,
                strategy="no_shard", layers_per_stage=[inner - 1] + (gpus - 2) * [inner] + [inner - 1])


SOURCES = {"hagemann": ("hagemann_2311.05610.csv", hagemann), "bigscience": ("bigscience_prequel.csv", bigscience),
           "llm_foundry": ("llm_foundry.csv", llm_foundry), "validation": ("validation.csv", validation)}


def read_rows(folder):
    usable, left_out = [], []
    for source, (name, parse) in SOURCES.items():
        with open(os.path.join(folder, name), newline="") as file:
            for line, row in enumerate(csv.DictReader(file), 2):
                # BigScience's lines are those of the chronicles.
                line = int(row["line"]) if source == "bigscience" else line
                try:
                    if line in CONTRADICTORY[source]:
                        raise Unusable("contradicts its neighbours or itself, or repeats one")
                    usable.append(dict(parse(row, line), source=source, line=line))
                except Unusable as reason:
                    left_out.append((source, line, str(reason)))
    return usable, left_out


def read_schedules():
    usable, left_out = [], []
    with open(os.path.join(HERE, "published", "zero_bubble_2401.10241.csv"), newline="") as file:
        for line, row in enumerate(csv.DictReader(file), 2):
            try:
                usable.append(dict(zero_bubble(row), source="zero_bubble", line=line))
            except Unusable as reason:
                left_out.append(("zero_bubble", line, str(reason)))
    return usable, left_out


def config_of(row, profile):
    strategy = row["strategy"] if row["gpus"] > row["tensor"] * row["pipeline"] else "no_shard"
    return f"""[model]
layers = {row["layers"]}
hidden = {row["hidden"]}
heads = {row["heads"]}
vocab = {row["vocab"]}
context = {row["sequence"]}
feed_forward = {row.get("feed_forward", 0)}
{row.get("block", "")}[batch]
global_batch_size = {row["batch"]}
microbatch_size = {row["microbatch"]}
[parallel]
tensor_parallel_degree = {row["tensor"]}
sequence_parallel = {str(row["sequence_parallel"]).lower()}
pipeline_parallel_degree = {row["pipeline"]}
virtual_stages = {row.get("virtual", 1)}
pipeline_schedule = "{row.get("schedule", "1f1b")}"
layers_per_stage = "{" ".join(map(str, row.get("layers_per_stage", [])))}"
sharding_strategy = "{strategy}"
[memory]
activation_checkpointing = "{"each" if row["recompute"] else "none"}"
[precision]
compute = "bf16"
[hardware]
profile = "{profile}"
"""


def text_of(path):
    with open(path) as file:
        return file.read()


def with_numbers(text, numbers):
    """The profile with these numbers, by "section.key", in place of its own."""
    section, lines = "", []
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        key = f"{section}.{line.split(' ')[0]}"
        lines.append(f"{line.split(' ')[0]} = {numbers[key]}" if key in numbers else line)
    return "\n".join(lines)


def profile_text(row, plain):
    base, numbers = CLUSTERS.get(row["profile"], (row["profile"], {}))
    text = with_numbers(text_of(os.path.join(ROOT, "configs", "hardware", base + ".toml")), numbers)
    stack = text_of(os.path.join(HERE, "stacks", row["stack"] + ".toml"))
    if plain:
        text = text.split("[calibrated]")[0] + GUESSED
        kept = [line for line in stack.splitlines() if not line.startswith(("elementwise", "attention_share"))]
        stack = "\n".join(kept + [f"{key} = {value}" for key, value in COUNTED[row["stack"]].items()])
    return f"{text}\n{stack}\n"


def apply(fitted, folders):
    """Puts fitted numbers into the profiles of these runs, where device and stack have been seen."""
    for profile in {tomllib.loads(text_of(os.path.join(f, "config.toml")))["hardware"]["profile"] for f in folders}:
        text = text_of(profile)
        known = tomllib.loads(text)
        scopes = {"", known["device"]["name"], known["stack"]["name"]}
        with open(profile, "w") as file:
            file.write(with_numbers(text, {f["key"]: f["after"] for f in fitted if f["scope"] in scopes}))


def write_run(folder, row, profiles, plain):
    os.makedirs(folder, exist_ok=True)
    profile = os.path.join(profiles, f"{row['profile']}-{row['stack']}.toml")
    with open(profile, "w") as file:
        file.write(profile_text(row, plain))
    with open(os.path.join(folder, "config.toml"), "w") as file:
        file.write(config_of(row, profile))
    with open(os.path.join(folder, "metrics.jsonl"), "w") as file:
        file.write(json.dumps({"step": 1, "step_seconds": row["seconds"], "ranks": row["gpus"]}) + "\n")


def predict(program, folders, scratch, fit="none"):
    out = os.path.join(scratch, "out.json")
    subprocess.run([program, "plan", "--calibrate", *folders, "--fit", fit, "--json", out], check=True,
                   stdout=subprocess.DEVNULL)
    with open(out) as file:
        return json.load(file)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    for place, i in enumerate(order):
        result[i] = float(place)
    return result


def rank_correlation(a, b):
    ra, rb = ranks(a), ranks(b)
    mean = (len(a) - 1) / 2
    top = sum((x - mean) * (y - mean) for x, y in zip(ra, rb))
    return top / sum((x - mean) ** 2 for x in ra)


def summary(rows):
    print(f"{'source':<14}{'rows':>5}{'median':>9}{'90th':>8}{'bias':>8}")
    for source in [*SOURCES, "all"]:
        of = [r for r in rows if source in ("all", r["source"])]
        errors = [abs(r["predicted"] / r["seconds"] - 1) for r in of]
        bias = percentile([r["predicted"] / r["seconds"] - 1 for r in of], 0.5)
        print(f"{source:<14}{len(of):>5}{100 * percentile(errors, 0.5):>8.1f}%{100 * percentile(errors, 0.9):>7.1f}%"
              f"{100 * bias:>+7.1f}%")
    groups = {}
    for r in rows:
        groups.setdefault((r["source"], r["group"]), []).append(r)
    correlations, near = [], []
    for group in groups.values():
        if len(group) >= 4:
            correlations.append(rank_correlation([r["seconds"] / r["batch"] for r in group],
                                                 [r["predicted"] / r["batch"] for r in group]))
        if len(group) > 3:  # of three, one is always the best
            top = sorted(group, key=lambda r: r["predicted"] / r["batch"])[:3]
            near.append(min(r["seconds"] / r["batch"] for r in top) <=
                        1.05 * min(r["seconds"] / r["batch"] for r in group))
    print(f"rank correlation of layouts, median of {len(correlations)} groups: {percentile(correlations, 0.5):.2f}")
    print(f"best of the three predicted best within 5 % of the best: {sum(near)} of {len(near)} groups")


def compare_schedules(rows):
    """A line for each shape: how long each schedule took, and how much less than 1F1B."""
    groups = {}
    for r in rows:
        groups.setdefault(r["group"], {})[r["schedule"]] = r
    print(f"{'table, model, GPUs, microbatch, number':<40}{'schedule':>9}{'measured':>10}{'predicted':>11}{'':>8}"
          f"{'less than 1F1B':>16}{'predicted':>11}")
    missed = {}
    for group, by_schedule in groups.items():
        base = by_schedule["1f1b"]
        for schedule, r in by_schedule.items():
            error = r["predicted"] / r["seconds"] - 1
            gains = [1 - r[key] / base[key] for key in ("seconds", "predicted")]
            missed.setdefault(schedule, []).append((error, gains[1] - gains[0]))
            shown = f"{100 * gains[0]:>15.1f}%{100 * gains[1]:>10.1f}%" if r is not base else ""
            print(f"{', '.join(map(str, group)):<40}{schedule:>9}{r['seconds']:>9.3f}s{r['predicted']:>10.3f}s"
                  f"{100 * error:>+7.1f}%{shown}")
    for schedule, errors in missed.items():
        times, gains = zip(*errors)
        print(f"{schedule}: {len(times)} rows, time {100 * percentile([abs(t) for t in times], 0.5):.1f} % off in the median, "
              f"{100 * percentile([abs(t) for t in times], 0.9):.1f} % at the 90th percentile, bias {100 * percentile(times, 0.5):+.1f} %"
              + ("" if schedule == "1f1b" else f"; what it saves, {100 * percentile([abs(g) for g in gains], 0.5):.1f} and "
                 f"{100 * percentile([abs(g) for g in gains], 0.9):.1f} points, bias {100 * percentile(gains, 0.5):+.1f}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=os.path.join(os.path.dirname(ROOT), "shared", "published"))
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "cpu", "trainer", "megalith"))
    parser.add_argument("--json")
    parser.add_argument("--schedules", action="store_true")
    numbers = parser.add_mutually_exclusive_group()
    numbers.add_argument("--fit", action="store_true")
    numbers.add_argument("--cross-validate", action="store_true")
    numbers.add_argument("--data-sheets", action="store_true")
    parser.add_argument("--keys", help="numbers that --fit and --cross-validate fit", default="calibrated.gemm,stack.attention_share,calibrated.memory,"
                        "calibrated.collective_delay,calibrated.overlap,calibrated.microbatch,"
                        "calibrated.step,stack.elementwise")
    args = parser.parse_args()
    if args.schedules and (args.fit or args.cross_validate):
        parser.error("nothing is fitted to the rows of --schedules")
    usable, left_out = read_schedules() if args.schedules else read_rows(args.rows)
    with tempfile.TemporaryDirectory() as scratch:
        profiles = os.path.join(scratch, "profiles")
        os.makedirs(profiles)
        folders = []
        for row in usable:
            folders.append(os.path.join(scratch, "runs", f"{row['source']}-{row['line']}"))
            write_run(folders[-1], row, profiles, args.fit or args.data_sheets or args.cross_validate)
        found = {"runs": [], "fitted": []}
        if args.cross_validate:
            left = {row["source"]: [] for row in usable}
            for source in left:
                fitted = predict(args.program, [f for r, f in zip(usable, folders) if r["source"] != source], scratch,
                                 args.keys)["fitted"]
                shown = [f"{f['key']} {f['after']:.3g} {f['scope']}".strip() for f in fitted
                         if not f["key"].startswith("stack.")]
                print(f"without {source}: {', '.join(shown)}")
                mine = [f for r, f in zip(usable, folders) if r["source"] == source]
                apply(fitted, mine)
                left[source] = iter(predict(args.program, mine, scratch)["runs"])
                for row, folder in zip(usable, folders):
                    write_run(folder, row, profiles, True)
            found["runs"] = [next(left[row["source"]]) for row in usable]
        else:
            found = predict(args.program, folders, scratch, args.keys if args.fit else "none")
        for row, run in zip(usable, found["runs"]):
            row["predicted"] = run["predicted"]
        for f in found["fitted"]:
            print(f"{f['key']:<30}{f['before']:>10.4g} -> {f['after']:<10.4g} {f['scope']}")
    if args.schedules:
        compare_schedules(usable)
    else:
        summary(usable)
    reasons = {}
    for source, line, reason in left_out:
        reasons.setdefault((source, reason), []).append(line)
    for (source, reason), lines in reasons.items():
        print(f"left out of {source}: {len(lines)} ({reason}), lines {' '.join(map(str, lines))}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"rows": [{"source": r["source"], "line": r["line"], "predicted": r["predicted"],
                                 "measured": r["seconds"]} for r in usable]}, file, indent=1)


if __name__ == "__main__":
    main()
