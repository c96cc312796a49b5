#!/usr/bin/env python3
"""Draws a trace file of Megalith (train.trace_steps, or `megalith plan --trace`) as an SVG, light or dark as its reader is: a
lane for each lane of the trace, a colour for what its time goes to. Where a column of the picture holds several ops, it shows
what most of its time goes to; what is blank is idle. Needs no package.

  bench/trace_picture.py TRACE.json OUT.svg [--from SECONDS] [--to SECONDS] [--title TEXT] [--lanes compute]

With --order it draws the schedule of a pipeline instead, from the lanes `schedule` of predicted steps: a row for each stage, a box
for each action with its microbatch, darker for later chunks of the stage; of several traces one below the other, all in one scale.

  bench/trace_picture.py TRACE.json OUT.svg --order "1F1B" [--below OTHER.json "ZB-H1"]... [--title TEXT]
"""
import argparse, collections, html, json, re

WIDTH, LABEL, LANE, GAP, TOP = 1200, 250, 22, 4, 64
COLOURS = {"GEMM": "#3b7dd8", "attention": "#d9822b", "elementwise": "#3fa66b", "optimizer": "#8d6cc9", "gathers": "#c94f6d",
           "scatters": "#b5485f", "tensor-parallel sums": "#c9a227", "messages": "#5fb3b3", "bubble": "#9aa3ad",
           "transfer": "#7c8b99", "input": "#a0785a", "launches": "#6b7280", "elsewhere": "#6b7280"}
OTHER = "#6b7280"
ACTIONS = {"forward": ("#9cc3f5", "#2f6fc4"), "backward": ("#8fd1b0", "#2b8556"), "backward, inputs": ("#8fd1b0", "#2b8556"),
           "backward, weights": ("#f0c98a", "#c07a1d")}  # of the first chunk and of the last
COLOURS |= {category: last for category, (_, last) in ACTIONS.items()}


def lanes_of(events):
    """{(process, thread): (name, [(begin, end, category)])}, in the trace's order, seconds; without the spans of whole steps."""
    names, order, spans = {}, {}, collections.defaultdict(list)
    for e in events:
        if e["ph"] == "M":
            names[e["pid"], e["tid"] if e["name"].startswith("thread") else None, e["name"]] = e["args"]
        elif e["ph"] == "X" and not re.fullmatch(r"step \d+", e["name"]):
            spans[e["pid"], e["tid"]].append((e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6, e["cat"]))
    for pid, tid in spans:
        sort = lambda thread, what: names.get((pid, thread, what), {}).get("sort_index", 0)
        order[pid, tid] = (sort(None, "process_sort_index"), pid, sort(tid, "thread_sort_index"), tid)
    name = lambda pid, tid: (names.get((pid, None, "process_name"), {}).get("name", str(pid)),
                             names.get((pid, tid, "thread_name"), {}).get("name", str(tid)))
    return {name(*lane): spans[lane] for lane in sorted(spans, key=order.get)}


def columns(spans, begin, end, count):
    """Of each of `count` columns from `begin` to `end`: the category of most of its busy time, or None where it is mostly idle."""
    each = (end - begin) / count
    busy = [collections.Counter() for _ in range(count)]
    for first, last, category in spans:
        first, last = max(first, begin), min(last, end)
        for i in range(int((first - begin) / each), min(count, int((last - begin) / each) + 1) if last > first else 0):
            busy[i][category] += min(last, begin + (i + 1) * each) - max(first, begin + i * each)
    return [c.most_common(1)[0][0] if c and sum(c.values()) >= each / 2 else None for c in busy]


def picture(lanes, begin, end, title):
    seen, rows = collections.Counter(), []
    for row, ((process, thread), spans) in enumerate(lanes.items()):
        y = TOP + row * (LANE + GAP)
        rows.append(f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{html.escape(process)}, {html.escape(thread)}</text>')
        cells, first = columns(spans, begin, end, WIDTH), 0
        for i in range(1, WIDTH + 1):
            if i < WIDTH and cells[i] == cells[first]:
                continue
            if cells[first]:
                seen[cells[first]] += i - first
                rows.append(f'<rect x="{LABEL + first}" y="{y}" width="{i - first}" height="{LANE}" '
                            f'fill="{COLOURS.get(cells[first], OTHER)}"/>')
            first = i
    bottom, unit = TOP + len(lanes) * (LANE + GAP), (1000, "ms") if end - begin < 1 else (1, "s")
    for tick in range(7):
        x, at = LABEL + WIDTH * tick / 6, (begin + (end - begin) * tick / 6 - begin) * unit[0]
        rows.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{bottom}" y2="{bottom + 5}"/>'
                    f'<text x="{x:.0f}" y="{bottom + 20}" text-anchor="middle">{at:.3g} {unit[1]}</text>')
    x = LABEL
    for category in [c for c, _ in seen.most_common()]:
        rows.append(f'<rect x="{x}" y="34" width="12" height="12" fill="{COLOURS.get(category, OTHER)}"/>'
                    f'<text x="{x + 17}" y="45">{html.escape(category)}</text>')
        x += 34 + 8 * len(category)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABEL + WIDTH + 30} {bottom + 32}" font-family="sans-serif" '
            'font-size="13">\n<style>svg{background:#fff}text{fill:#222}line{stroke:#222}@media(prefers-color-scheme:dark)'
            '{svg{background:#16181c}text{fill:#ddd}line{stroke:#ddd}}</style>\n'
            f'<text x="{LABEL}" y="20" font-size="15">{html.escape(title)}</text>\n' + "\n".join(rows) + "\n</svg>\n")


def actions_of(events):
    """[[(begin, end, category, microbatch, chunk)] of each stage], seconds, from the lanes `schedule`."""
    lanes = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name" and e["args"]["name"] == "schedule"}
    stages = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X" and (e["pid"], e["tid"]) in lanes:
            microbatch, _, chunk = e["name"][1:].partition(".")
            stages[e["pid"]].append((e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6, e["cat"], microbatch, int(chunk or 0)))
    return [stages[pid] for pid in sorted(stages)]


def between(colours, share):
    channels = [[int(c[i:i + 2], 16) for i in (1, 3, 5)] for c in colours]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*channels))


def order_picture(traces, title):
    """traces: [(name, stages as of actions_of, end of the step in seconds)]"""
    end, rows, y, seen, label = max(t[2] for t in traces), [], 58, [], 80
    for name, stages, last in traces:
        last_chunk = max(a[4] for stage in stages for a in stage)
        rows.append(f'<text x="{label}" y="{y + 14}">{html.escape(name)}: {last:.2f} s</text>')
        y += 20
        for number, stage in enumerate(stages):
            rows.append(f'<text x="{label - 8}" y="{y + 15}" text-anchor="end">stage {number}</text>'
                        f'<rect class="idle" x="{label}" y="{y}" width="{WIDTH * last / end:.1f}" height="{LANE}"/>')
            for first, until, category, microbatch, chunk in stage:
                x, width = label + WIDTH * first / end, WIDTH * (until - first) / end
                seen += [category] if category not in seen else []
                colour = between(ACTIONS[category], chunk / last_chunk if last_chunk else 0)
                rows.append(f'<rect class="box" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE}" fill="{colour}"/>')
                if width > 7 * len(microbatch):
                    rows.append(f'<text class="in" x="{x + width / 2:.1f}" y="{y + 15}" text-anchor="middle">{microbatch}</text>')
            y += LANE + 2
        y += 14
    x = label
    for category in seen:
        rows.append(f'<rect x="{x}" y="34" width="12" height="12" fill="{between(ACTIONS[category], 0.4)}"/>'
                    f'<text x="{x + 17}" y="45">{html.escape(category)}</text>')
        x += 40 + 8 * len(category)
    rows.append(f'<rect class="idle" x="{x}" y="34" width="12" height="12"/><text x="{x + 17}" y="45">idle or sending</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {label + WIDTH + 20} {y}" font-family="sans-serif" '
            'font-size="13">\n<style>svg{background:#fff}text{fill:#222}.idle{fill:#d9dde2}.box{stroke:#fff;stroke-width:.5}'
            '.in{fill:#111;font-size:10px}@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#ddd}'
            '.idle{fill:#3a3f46}.in{fill:#111}}</style>\n'
            f'<text x="{label}" y="20" font-size="15">{html.escape(title)}</text>\n' + "\n".join(rows) + "\n</svg>\n")


def draw_order(o, p):
    traces = []
    for path, name in [(o.trace, o.order)] + (o.below or []):
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        stages = actions_of(events)
        if not stages:
            p.error(f"{path} has no lane `schedule`; `megalith plan --trace` writes one")
        traces.append((name, stages, max((e["ts"] + e["dur"]) / 1e6 for e in events if e["ph"] == "X")))
    with open(o.out, "w") as file:
        file.write(order_picture(traces, o.title))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("trace")
    p.add_argument("out")
    p.add_argument("--from", dest="begin", type=float, help="seconds after the trace's first span (default: 0)", default=0)
    p.add_argument("--to", type=float, help="seconds after it (default: the end)")
    p.add_argument("--title", default="")
    p.add_argument("--lanes", default=".", help="regular expression over `process, lane`")
    p.add_argument("--order", metavar="NAME", help="draw the schedule, and call it so")
    p.add_argument("--below", nargs=2, action="append", metavar=("TRACE", "NAME"), help="with --order: another, below")
    o = p.parse_args()
    if o.order:
        return draw_order(o, p)
    with open(o.trace) as file:
        lanes = {name: spans for name, spans in lanes_of(json.load(file)["traceEvents"]).items() if re.search(o.lanes, ", ".join(name))}
    if not lanes:
        p.error(f"{o.trace} has no lane that matches {o.lanes}")
    zero = min(span[0] for spans in lanes.values() for span in spans)
    end = max(span[1] for spans in lanes.values() for span in spans)
    with open(o.out, "w") as file:
        file.write(picture(lanes, zero + o.begin, end if o.to is None else zero + o.to, o.title))


if __name__ == "__main__":
    main()
