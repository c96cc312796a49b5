#!/usr/bin/env python3
"""Draws a trace file of Megalith (train.trace_steps, or `megalith plan --trace`) as an SVG, light or dark as its reader is: a
lane for each lane of the trace, a colour for what its time goes to. Where a column of the picture holds several ops, it shows
what most of its time goes to; what is blank is idle. Needs no package.

  bench/trace_picture.py TRACE.json OUT.svg [--from SECONDS] [--to SECONDS] [--title TEXT] [--lanes compute]
"""
import argparse, collections, html, json, re

WIDTH, LABEL, LANE, GAP, TOP = 1200, 250, 22, 4, 64
COLOURS = {"GEMM": "#3b7dd8", "attention": "#d9822b", "elementwise": "#3fa66b", "optimizer": "#8d6cc9", "gathers": "#c94f6d",
           "scatters": "#b5485f", "tensor-parallel sums": "#c9a227", "messages": "#5fb3b3", "bubble": "#9aa3ad",
           "transfer": "#7c8b99", "input": "#a0785a", "launches": "#6b7280", "elsewhere": "#6b7280"}
OTHER = "#6b7280"


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


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("trace")
    p.add_argument("out")
    p.add_argument("--from", dest="begin", type=float, help="seconds after the trace's first span (default: 0)", default=0)
    p.add_argument("--to", type=float, help="seconds after it (default: the end)")
    p.add_argument("--title", default="")
    p.add_argument("--lanes", default=".", help="regular expression over `process, lane`")
    o = p.parse_args()
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
