#!/usr/bin/env python3
"""bench/sass.py on kernels whose counts are known: listings in nvdisasm's form, and, where CUDA's tools are, small
kernels that are compiled."""
import os, sys, tempfile, unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import sass  # noqa: E402


def listing(*lines, arch="sm_80"):
    """A kernel `k` of these instructions and, ending in a colon, labels."""
    text = [f"\t.target\t{arch}", "//--- .text.k ---", '\t.section\t.text.k,"ax",@progbits',
            '        .other          k,@"STO_CUDA_ENTRY STV_DEFAULT"', "k:", ".text.k:"]
    address = 0
    for line in lines:
        if line.endswith(":"):
            text.append(line)
        else:
            text.append(f"        /*{address:04x}*/                   {line} ;")
            address += 16
    return "\n".join(text)


def only(*lines, registers=40, **more):
    found = sass.kernels(listing(*lines, **more), {"k": registers})
    assert len(found) == 1
    return found[0]


END = ("EXIT", ".L_end:", "BRA `(.L_end)")


class Loops(unittest.TestCase):
    def bodies(self, *lines):
        kernel = only(*lines)
        return [[kernel.instructions[n].opcode for n in body] for _, body in sass.loops(kernel)]

    def test_a_loop_is_what_lies_between_a_label_and_the_way_back(self):
        self.assertEqual(self.bodies("MOV R1, R2", ".L_0:", "FADD R1, R1, R2", "@P0 BRA `(.L_0)", *END), [["FADD", "BRA"]])

    def test_without_a_way_back_there_is_none(self):
        self.assertEqual(self.bodies("MOV R1, R2", "@P0 BRA `(.L_0)", "FADD R1, R1, R2", ".L_0:", *END), [])

    def test_an_inner_loop_counts_by_itself(self):
        self.assertEqual(self.bodies(".L_0:", "IADD3 R1, R2, R3, RZ", ".L_1:", "FADD R1, R1, R2", "@P0 BRA `(.L_1)",
                                     "MUFU.EX2 R1, R1", "@P1 BRA `(.L_0)", *END),
                         [["IADD3", "MUFU.EX2", "BRA"], ["FADD", "BRA"]])

    def test_a_part_that_lies_behind_the_end_of_the_kernel_belongs_to_its_loop(self):
        self.assertEqual(self.bodies(".L_0:", "FADD R1, R1, R2", "@P0 BRA `(.L_far)", ".L_1:", "@P1 BRA `(.L_0)", "EXIT", ".L_far:",
                                     "MUFU.EX2 R1, R1", "BRA `(.L_1)", ".L_end:", "BRA `(.L_end)"),
                         [["FADD", "BRA", "BRA", "MUFU.EX2", "BRA"]])

    def test_threads_that_meet_again_go_on_where_their_barrier_says(self):
        self.assertEqual(self.bodies(".L_0:", "BSSY B0, `(.L_meet)", "@P0 BRA `(.L_far)", "BSYNC B0", "EXIT", ".L_meet:",
                                     "@P1 BRA `(.L_0)", "EXIT", ".L_far:", "FADD R1, R1, R2", "BSYNC B0", *END[1:]),
                         [["BSSY", "BRA", "BSYNC", "BRA", "FADD", "BSYNC"]])

    def test_the_shortest_way_makes_all_products_and_leaves_out_what_is_not_always_taken(self):
        # An empty path, one with a product, with or without an addition, and an inner loop.
        kernel = only(".L_0:", "@P0 BRA `(.L_back)", "HMMA.16816.F32.BF16 R4, R8, R14, R4", "@P1 BRA `(.L_in)", "FADD R1, R1, R2",
                      ".L_in:", "FMUL R1, R1, R2", "@P2 BRA `(.L_in)", "MUFU.EX2 R1, R1", ".L_back:", "@P3 BRA `(.L_0)", *END)
        (header, body), (inner, _) = sass.loops(kernel)
        names = lambda way: [kernel.instructions[n].opcode for n in way]
        self.assertEqual(names(body), ["BRA", "HMMA.16816.F32.BF16", "BRA", "FADD", "MUFU.EX2", "BRA"])
        self.assertEqual(names(sass.shortest(kernel, header)), ["BRA", "HMMA.16816.F32.BF16", "BRA", "MUFU.EX2", "BRA"])
        self.assertEqual(names(sass.shortest(kernel, inner)), ["FMUL", "BRA"])

    def test_jumps_that_cannot_be_followed_are_refused(self):
        with self.assertRaisesRegex(sass.Unreadable, "k jumps to computed addresses"):
            self.bodies("BRX R2 -0x10", *END)


class Counts(unittest.TestCase):
    def count(self, *lines, arch="sm_80"):
        kernel = only(*lines, arch=arch)
        return sass.count(kernel, list(range(len(kernel.instructions))))

    def test_products_of_a_warp(self):
        lines = ["HMMA.16816.F32.BF16 R4, R8.reuse, R14, R4"] * 3
        self.assertEqual(self.count(*lines)["cycles"]["tensor"], 24)
        self.assertEqual(self.count(*lines, arch="sm_90a")["cycles"]["tensor"], 12)
        self.assertEqual(self.count("HMMA.1688.F32.TF32 R4, R8, R14, R4")["cycles"]["tensor"], 8)

    def test_products_of_a_warpgroup_and_what_they_read(self):
        both = self.count("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT", arch="sm_90a")
        right = self.count("HGMMA.64x128x16.F32.BF16 R24, R88, gdesc[UR4].tnspB, R24, gsb0", arch="sm_90a")
        for one in both, right:
            self.assertEqual(one["cycles"]["tensor"], 64)
            self.assertEqual(one["shapes"], {"HGMMA.64x128x16": 1})
        self.assertEqual(both["shared_bytes"], 4096 + 2048)
        self.assertEqual(right["shared_bytes"], 4096)

    def test_units_of_each_chip(self):
        lines = ["FFMA R1, R2, R3, R4", "FADD R1, R2, R3", "IMAD R1, R2, R3, R4", "MUFU.EX2 R1, R2", "LOP3.LUT R1, R2, R3, RZ, 0xc0, !PT",
                 "F2FP.BF16.PACK_AB R1, R2, R3", "@P0 FMNMX R1, R2, R3, PT", "UIADD3 UR4, UR5, 0x1, URZ", "BRA `(.L_0)"]
        # Addition in 16 or 32 lanes, integers in 16, special functions in 4: 32 lanes of a warp over those.
        a100, h100 = self.count(*lines)["cycles"], self.count(*lines, arch="sm_90a")["cycles"]
        self.assertEqual((a100["float"], h100["float"]), (6, 4))
        for chip in a100, h100:
            self.assertEqual((chip["special"], chip["integer"], chip["issue"]), (8, 6, 9))

    def test_shared_memory_of_four_warps(self):
        for instruction, bytes_of_a_warp in [("LDS R1, [R2]", 128), ("LDS.128 R4, [R2]", 512), ("STS.U16 [R2], R1", 64),
                                             ("STS.64 [R2], R4", 256), ("LDSM.16.MT88.4 R4, [R2]", 512), ("LDSM.16.M88.2 R4, [R2]", 256),
                                             ("LDGSTS.E.BYPASS.LTC128B.128 [R1], [R2.64]", 512), ("LDG.E.128 R4, [R2.64]", 0)]:
            self.assertEqual(self.count(instruction)["shared_bytes"], 4 * bytes_of_a_warp, instruction)

    def test_barriers_and_spills(self):
        counted = self.count("BAR.SYNC.DEFER_BLOCKING 0x0", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2", "LDL R1, [R1]", "STL [R1], R2")
        self.assertEqual((counted["barriers"], counted["spills"]), (2, 2))

    def test_a_chip_or_a_shape_that_is_not_known_is_refused(self):
        with self.assertRaisesRegex(sass.Unreadable, "k is for sm_100"):
            self.count("FADD R1, R2, R3", arch="sm_100")
        with self.assertRaisesRegex(sass.Unreadable, "HMMA.884.F32 has a shape"):
            self.count("HMMA.884.F32 R1, R2, R3, R4")

    def test_what_waits_for_products_is_idle_until_the_next(self):
        kernel = only(".L_0:", "WARPGROUP.ARRIVE", "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT, gsb0",
                      "HGMMA.64x64x16.F32.BF16 R56, R88, gdesc[UR4], R56, gsb0", "WARPGROUP.DEPBAR.LE gsb0, 0x1", "FADD R1, R2, R3",
                      "WARPGROUP.DEPBAR.LE gsb0, 0x0", "FADD R24, R24, R56", "@P0 BRA `(.L_0)", *END, arch="sm_90a")
        (_, body), = sass.loops(kernel)
        self.assertEqual(sass.idle(kernel, body), 4)  # the last wait, addition and branch, and the arrival of the next turn
        begun = only(".L_0:", "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT", "FADD R1, R2, R3",
                     "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24, gsb0", "WARPGROUP.DEPBAR.LE gsb0, 0x0", "@P0 BRA `(.L_0)", *END,
                     arch="sm_90a")
        self.assertEqual(sass.idle(begun, sass.loops(begun)[0][1]), 2)  # a product runs before its group is complete
        self.assertIsNone(sass.idle(only("FADD R1, R2, R3"), [0]))


class Reports(unittest.TestCase):
    def test_it_shows_loops_with_products_and_their_bound(self):
        kernel = only(".L_0:", "FADD R1, R2, R3", "@P0 BRA `(.L_0)", ".L_1:", "HMMA.16816.F32.BF16 R4, R8, R14, R4", "LDS.128 R8, [R2]",
                      "@P0 BRA `(.L_1)", *END, registers=99)
        said = sass.report(kernel, "k<int>")
        self.assertIn("99 registers, 0 loads and 0 stores of spills", said)
        self.assertIn("loop 0x20..0x40: 1 HMMA.16816", said)
        self.assertIn("bound 16, by shared; peak 50 %", said)
        self.assertEqual(said.count("loop "), 1)
        self.assertNotIn("at least", said)
        shorter = only(".L_1:", "HMMA.16816.F32.BF16 R4, R8, R14, R4", "@P0 BRA `(.L_2)", "LDS.128 R8, [R2]", ".L_2:",
                       "@P0 BRA `(.L_1)", *END)
        self.assertIn("at least: cycles: tensor 8, issue 3, special 0, float 0, integer 0, shared 0; bound 8, by tensor; peak 100 %",
                      sass.report(shorter, "k"))
        self.assertEqual(sass.report(kernel, "k<int>", everything=True).count("loop "), 2)


# Two products, an exponential, six loads, a store and a barrier a turn.
WARPS = r"""
extern "C" __global__ void products(float* out, int n) {
  __shared__ unsigned tile[32 * 6];
  float d[4] = {};
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    unsigned r[6];
    for (int j = 0; j < 6; j++) r[j] = tile[threadIdx.x + 32 * j];
    for (int j = 0; j < 2; j++)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]));
    asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(d[0]));
    __syncthreads();
    tile[threadIdx.x ^ 1] = __float_as_uint(d[0]);
  }
  for (int j = 0; j < 4; j++) out[threadIdx.x * 4 + j] = d[j];
}
"""
# A product of a warpgroup a turn, both factors from shared memory.
WARPGROUPS = r"""
extern "C" __global__ void products(float* out, unsigned long long left, unsigned long long right, int n) {
  float d[4] = {};
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(left), "l"(right));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  for (int j = 0; j < 4; j++) out[threadIdx.x * 4 + j] = d[j];
}
"""


class Compiled(unittest.TestCase):
    def loop_of(self, source, arch):
        try:
            for name in "nvcc", "nvdisasm", "cuobjdump":
                sass.tool(name)
        except sass.Unreadable as why:
            self.skipTest(str(why))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tiny.cu")
            with open(path, "w") as file:
                file.write(source)
            ((text, registers),) = sass.listings(path, arch, folder)
        (kernel,) = sass.kernels(text, registers)
        self.assertIn(kernel.registers, range(8, 64))
        ((_, body),) = [loop for loop in sass.loops(kernel) if sass.count(kernel, loop[1])["shapes"]]
        return kernel, body, sass.count(kernel, body)

    def test_warps(self):
        for arch, tensor in ("sm_80", 16), ("sm_90a", 8):
            with self.subTest(arch):
                _, _, counted = self.loop_of(WARPS, arch)
                self.assertEqual(counted["shapes"], {"HMMA.16816": 2})
                self.assertEqual((counted["cycles"]["tensor"], counted["cycles"]["special"]), (tensor, 8))
                self.assertEqual((counted["shared_bytes"], counted["barriers"]), (4 * 7 * 128, 1))

    def test_warpgroups(self):
        kernel, body, counted = self.loop_of(WARPGROUPS, "sm_90a")
        self.assertEqual(counted["shapes"], {"HGMMA.64x8x16": 1})
        self.assertEqual(counted["cycles"]["tensor"], 4)
        self.assertEqual(counted["shared_bytes"], 2 * (64 * 16 + 8 * 16))
        self.assertGreater(sass.idle(kernel, body), 0)


if __name__ == "__main__":
    unittest.main()
