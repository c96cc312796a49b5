#!/usr/bin/env python3
"""What trace_picture.py makes of small traces."""
import unittest

import trace_picture

SPANS = [("GEMM", 0, 3e6), ("attention", 3e6, 4e6)]
EVENTS = [{"ph": "M", "name": name, "pid": 7, "tid": 0, "args": args} for name, args in
          [("process_name", {"name": "rank <0>"}), ("thread_name", {"name": "compute"}), ("process_sort_index", {"sort_index": 1})]] + \
    [{"ph": "X", "name": "step 3", "cat": "elsewhere", "pid": 7, "tid": 0, "ts": 0, "dur": 4e6}] + \
    [{"ph": "X", "name": "an op", "cat": cat, "pid": 7, "tid": 0, "ts": begin, "dur": end - begin} for cat, begin, end in SPANS] + \
    [{"ph": "X", "name": "one", "cat": "input", "pid": 3, "tid": 0, "ts": 0, "dur": 1e6}]


class Picture(unittest.TestCase):
    def test_lanes_have_the_order_and_the_names_of_the_trace_and_no_whole_steps(self):
        lanes = trace_picture.lanes_of(EVENTS)
        self.assertEqual(list(lanes), [("3", "0"), ("rank <0>", "compute")])
        self.assertEqual(lanes["rank <0>", "compute"], [(0, 3, "GEMM"), (3, 4, "attention")])

    def test_a_column_shows_what_most_of_it_is_and_nothing_where_most_is_idle(self):
        spans = [(0.0, 0.6, "GEMM"), (0.6, 1.0, "attention"), (1.0, 1.4, "GEMM"), (2.1, 2.7, "input")]
        self.assertEqual(trace_picture.columns(spans, 0, 4, 4), ["GEMM", None, "input", None])
        self.assertEqual(trace_picture.columns(spans, 0.5, 1.0, 1), ["attention"])

    def test_the_picture_has_one_block_for_what_is_alike_and_escapes_names(self):
        text = trace_picture.picture(trace_picture.lanes_of(EVENTS), 0, 4, "a < b")
        blocks = [line for line in text.splitlines() if line.startswith("<rect") and 'height="22"' in line]
        self.assertEqual(len(blocks), 3)
        self.assertIn('x="250" y="90" width="900"', blocks[1])
        self.assertIn("a &lt; b", text)
        self.assertIn("rank &lt;0&gt;, compute", text)

    def test_the_order_has_a_box_for_each_action_and_a_row_for_each_stage(self):
        events = [{"ph": "M", "name": "thread_name", "pid": pid, "tid": 255, "args": {"name": "schedule"}} for pid in (0, 1)] + \
            [{"ph": "X", "name": name, "cat": cat, "pid": pid, "tid": 255, "ts": at, "dur": 1e6} for pid, name, cat, at in
             [(0, "F0.0", "forward", 0), (1, "F0.1", "forward", 1e6), (0, "W12.1", "backward, weights", 3e6)]] + EVENTS
        stages = trace_picture.actions_of(events)
        self.assertEqual(stages, [[(0, 1, "forward", "0", 0), (3, 4, "backward, weights", "12", 1)], [(1, 2, "forward", "0", 1)]])
        text = trace_picture.order_picture([("<1>", stages, 4), ("2", stages, 2)], "both")
        boxes = [line for line in text.splitlines() if line.startswith('<rect class="box"')]
        self.assertEqual(len(boxes), 6)
        self.assertIn('x="980.0" y="78" width="300.0"', boxes[1], "one scale for all: the last of four seconds")
        self.assertEqual(text.count(">stage 1<"), 2)
        self.assertIn("&lt;1&gt;: 4.00 s", text)


if __name__ == "__main__":
    unittest.main()
