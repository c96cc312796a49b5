#!/usr/bin/env python3
"""Reads the machine code of a CUDA kernel and says what bounds its loops on the GPU that it was compiled for, so that a
change to a kernel shows its number where there is no GPU, and a reader can check it.

  bench/sass.py FILE... [--arch sm_90a] [--kernel REGEX] [--all] [--mix]

FILE: a .cu of this project, which is compiled for --arch; a .cubin; or an object or program with CUDA code in it. Takes
nvcc, nvdisasm and cuobjdump (of CUDA 12 or later) from $CUDA_PATH, the PATH or /usr/local/cuda, and c++filt.

What a loop is: the natural loops of the control flow. Every instruction in it counts once a turn, those of a loop inside
it not at all: a branch not taken makes a loop cheaper than is said here, a latency that nothing hides makes it dearer.
`at least` counts the shortest way round of those with the most products instead, which leaves out what is for the edges of
a tensor, and also copies that are begun on a condition.
All numbers are of one warp in each of an SM's four partitions, which is a warpgroup: more of them multiply all alike.

  tensor    cycles of the tensor cores           issue     instructions: a partition issues one a cycle
  special   cycles of the unit for exp2, 1/x     float     cycles of the units of f32, integer products among them
  integer   cycles of those of integers,         shared    cycles of shared memory, whose banks do not conflict,
            comparisons, min and max, packing              128 bytes each; with what the tensor cores read from it
  bound     the largest of these: no turn is faster, whatever runs at the same time. `peak` is what part of it the
            tensor cores work
  idle      instructions issued while no product of a warpgroup is in flight (Hopper)

Rates: NVIDIA A100 and H100 whitepapers (1024 and 2048 dense products of bf16 a cycle and SM); CUDA C++ Programming
Guide, throughput of native arithmetic instructions, for the rest. Products of single warps (mma.sync) reach 63 % of a
Hopper's peak (Luo et al., arXiv 2402.13499); here they are counted at the peak."""
import argparse, collections, glob, os, re, shutil, subprocess, sys, tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PARTITIONS = 4
SHARED_BYTES = 128  # a cycle and SM
# bf16 or f16 products a cycle in a partition; lanes of a partition's f32 units.
CHIPS = {"80": {"products": 256, "float": 16}, "90": {"products": 512, "float": 32}}
FLOAT = {"FADD", "FMUL", "FFMA"}
SPECIAL = {"MUFU", "I2F", "F2I", "F2F", "POPC", "FLO", "BREV"}
# Instructions of no counted unit: memory, control, the uniform data path.
NO_UNIT = re.compile(r"U[A-Z0-9]+|LD\w*|ST\w*|RED\w*|ATOM\w*|B(RA|AR|SSY|SYNC|REAK|RX)|EXIT|RET|CALL|NOP|WARP\w*|DEPBAR|"
                     r"S2U?R|CS2R|HG?MMA|SYNCS|ERRBAR|MEMBAR|CCTL\w*|FENCE|SHFL|VOTE|VOTEU|R2UR|DEPBAR|YIELD|ELECT|ISBEWIDTH")

Instruction = collections.namedtuple("Instruction", "address predicate opcode operands")


class Unreadable(Exception):
    pass


def tool(name):
    places = [os.path.join(os.environ[v], "bin") for v in ["CUDA_PATH"] if v in os.environ]
    found = next(filter(None, (shutil.which(name, path=p) for p in places)), None) or shutil.which(name) or \
        shutil.which(name, path="/usr/local/cuda/bin")
    if not found:
        raise Unreadable(f"there is no {name}; it comes with the CUDA toolkit: put its folder on the PATH or set CUDA_PATH")
    return found


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unreadable(f"{' '.join(command)} failed:\n{done.stderr or done.stdout}")
    return done.stdout


# Reading.

def listings(path, arch, folder):
    """Of each cubin in the file: the text that nvdisasm makes of it, and the registers of each kernel by name, which
    cuobjdump says."""
    if path.endswith(".cu"):
        cubin = os.path.join(folder, os.path.basename(path) + ".cubin")
        output([tool("nvcc"), "-cubin", "-arch=" + arch, "-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-I" + ROOT,
                "-I" + os.path.join(ROOT, "kernels/nvcc"), "-DMEGALITH_HAS_CUDA=1", "-DFMT_USE_CONSTEXPR=1", "-o", cubin, path])
        cubins = [cubin]
    elif path.endswith(".cubin"):
        cubins = [path]
    else:
        taken = tempfile.mkdtemp(dir=folder)
        subprocess.run([tool("cuobjdump"), "-xelf", "all", os.path.abspath(path)], cwd=taken, capture_output=True)
        cubins = sorted(glob.glob(taken + "/*.cubin"))
        if not cubins:
            raise Unreadable(f"{path} holds no machine code of a GPU")
    registers = lambda cubin: re.findall(r"Function (\S+):\s+REG:(\d+)", output([tool("cuobjdump"), "-res-usage", cubin]))
    return [(output([tool("nvdisasm"), "-c", cubin]), {name: int(n) for name, n in registers(cubin)}) for cubin in cubins]


class Kernel:
    """Instructions in order, and where the labels between them point, as an index into those."""

    def __init__(self, name, arch, registers):
        self.name, self.arch, self.registers = name, arch, registers
        self.instructions, self.labels = [], {}

    def spills(self):
        """Loads from and stores to a thread's own memory; a kernel with arrays there has such as well."""
        return [sum(i.opcode.split(".")[0] == which for i in self.instructions) for which in ("LDL", "STL")]


LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")


def kernels(listing, registers):
    arch = re.search(r"^\s*\.target\s+(\w+)", listing, re.M)
    if not arch:
        raise Unreadable("nvdisasm names no target")
    found, kernel = [], None
    entries = set(re.findall(r"^\s*\.other\s+(\S+),@\"STO_CUDA_ENTRY", listing, re.M))
    for line in listing.splitlines():
        if label := re.match(r"^(\S+):$", line):
            if label[1] in entries:
                kernel = Kernel(label[1], arch[1], registers[label[1]])
                found.append(kernel)
            elif kernel:
                kernel.labels[label[1]] = len(kernel.instructions)
        elif line.lstrip().startswith(".section"):
            kernel = None
        elif kernel and (read := LINE.match(line)):
            kernel.instructions.append(Instruction(int(read[1], 16), read[2], read[3], read[4]))
    return found


def demangled(names):
    return subprocess.run([tool("c++filt")], input="\n".join(names), capture_output=True, text=True).stdout.splitlines()


# Control flow.

def successors(kernel):
    """By index, those that may come next. An unconditional BRA leaves, as EXIT does; BSYNC goes where its BSSY says."""
    meets = collections.defaultdict(list)  # by barrier register
    target = lambda i: next((kernel.labels[l] for l in re.findall(r"`\(([^)]+)\)", i.operands) if l in kernel.labels), None)
    for i in kernel.instructions:
        if i.opcode.startswith("BSSY"):
            meets[i.operands.split(",")[0]].append(target(i))
    all_next = []
    for n, i in enumerate(kernel.instructions):
        code = i.opcode.split(".")[0]
        goes_on = [n + 1] if n + 1 < len(kernel.instructions) else []
        if code == "BRA":
            # Its predicate may come before it or be among its operands.
            conditional = i.predicate or "," in i.operands
            following = ([target(i)] if target(i) is not None else []) + (goes_on if conditional else [])
        elif code == "BSYNC":
            at = meets[i.operands.split(",")[0]]
            following = goes_on if not at or n + 1 in at else at
        elif code in ("EXIT", "RET"):
            following = goes_on if i.predicate else []
        elif code in ("BRX", "JMX", "JMP"):
            raise Unreadable(f"{kernel.name} jumps to computed addresses, which are not followed here")
        else:
            following = goes_on
        all_next.append(following)
    return all_next


class Flow:
    """Of a kernel: blocks of instructions in `order`, each before those it leads to but for ways back; where each ends, what
    follows it, and who dominates it. Of its natural loops, by header: the blocks, and those without inner loops' (own)."""

    def __init__(self, kernel):
        self.blocks, self.ends, self.order, self.dominators = basic_blocks(kernel)
        self.loops = collections.defaultdict(set)
        block_before = collections.defaultdict(list)
        for a in self.order:
            for t in self.blocks[a]:
                block_before[t].append(a)
        for a in self.order:
            for header in self.blocks[a]:
                if self.is_back(a, header):
                    body, todo = {header}, [a]
                    while todo:
                        b = todo.pop()
                        if b not in body:
                            body.add(b)
                            todo += block_before[b]
                    self.loops[header] |= body
        inner = lambda header: (body for other, body in self.loops.items() if other != header and other in self.loops[header])
        self.own = {header: body.difference(*inner(header)) for header, body in self.loops.items()}

    def is_back(self, a, to):
        return to in self.dominators[a]

    def instructions(self, blocks):
        return [n for a in blocks for n in range(a, self.ends[a] + 1)]


def loops(kernel):
    """[(header, instructions without those of inner loops)] of natural loops, by header."""
    flow = Flow(kernel)
    found = [(header, flow.instructions(sorted(own))) for header, own in sorted(flow.own.items())]
    return [(header, body) for header, body in found if len(body) > 1]  # a kernel ends with a branch to itself


def shortest(kernel, header):
    """The instructions of the shortest way round a loop of those with the most products: what is computed at its edges
    alone is not on it. Inner loops count nothing."""
    flow = Flow(kernel)
    own, body = flow.own[header], flow.loops[header]
    products = lambda a: sum(kernel.instructions[n].opcode.startswith(("HMMA", "HGMMA")) for n in flow.instructions([a]))
    cost = lambda a: (-products(a), flow.ends[a] - a + 1) if a in own else (0, 0)
    best, last = {header: (cost(header), None)}, None  # by block: the way to its end, and the block before
    for a in flow.order:
        for to in flow.blocks[a] if a in best else []:
            if to == header and (last is None or best[a][0] < best[last][0]):
                last = a
            if to in body and not flow.is_back(a, to):
                way = tuple(x + y for x, y in zip(best[a][0], cost(to)))
                if to not in best or way < best[to][0]:
                    best[to] = way, a
    way = []
    while last is not None:
        way.insert(0, last)
        last = best[last][1]
    return flow.instructions(a for a in way if a in own)


def basic_blocks(kernel):
    following = successors(kernel)
    turns = [n for n, to in enumerate(following) if to != [n + 1]]
    leaders = sorted({0} | {t for n in turns for t in following[n] + [n + 1] if t < len(following)})
    ends = {a: b - 1 for a, b in zip(leaders, leaders[1:] + [len(following)])}
    blocks = {a: following[end] for a, end in ends.items()}
    # Dominators of blocks, by iteration.
    order, seen, stack = [], {0}, [(0, iter(blocks[0]))]
    while stack:
        block, rest = stack[-1]
        step = next((t for t in rest if t not in seen), None)
        if step is None:
            order.append(stack.pop()[0])
        else:
            seen.add(step)
            stack.append((step, iter(blocks[step])))
    order.reverse()
    block_before = collections.defaultdict(list)
    for a in order:
        for t in blocks[a]:
            block_before[t].append(a)
    dominators = {a: set(order) for a in order}
    dominators[0] = {0}
    changed = True
    while changed:
        changed = False
        for a in order[1:]:
            now = set.intersection(*(dominators[p] for p in block_before[a])) | {a}
            changed |= now != dominators[a]
            dominators[a] = now
    return blocks, ends, order, dominators


# Counting.

def shared_bytes(i):
    """Of a warp, per instruction; what its lanes do not need counts too."""
    code = i.opcode.split(".")
    if code[0] == "LDSM":
        return 128 * int(code[-1]) if code[-1].isdigit() else 128
    if code[0] in ("LDS", "STS", "LDGSTS"):
        width = next((int(c) for c in code if c in ("64", "128")), 32)
        if any(c in ("U8", "S8") for c in code):
            width = 8
        if any(c in ("U16", "S16") for c in code):
            width = 16
        return 4 * width
    return 0


def count(kernel, body):
    chip = next((c for key, c in CHIPS.items() if kernel.arch.startswith("sm_" + key)), None)
    if not chip:
        raise Unreadable(f"{kernel.name} is for {kernel.arch}; rates are known here of sm_80 and sm_90")
    cycles = dict.fromkeys(("tensor", "issue", "special", "float", "integer", "shared"), 0.0)
    shapes, barriers, spills, shared = collections.Counter(), 0, 0, 0.0
    for n in body:
        i = kernel.instructions[n]
        code = i.opcode.split(".")
        cycles["issue"] += 1
        shared += PARTITIONS * shared_bytes(i)
        if code[0] in ("HMMA", "HGMMA"):
            shapes[".".join(code[:2])] += 1
            if code[0] == "HGMMA":  # a warpgroup's: 64 rows; the right factor comes from shared memory, the left may
                M, N, K = map(int, code[1].split("x"))
                shared += 2 * N * K + (2 * M * K if re.search(r"^\w+, gdesc", i.operands) else 0)
                cycles["tensor"] += M * N * K / PARTITIONS / chip["products"]
            else:
                products = {"16816": 16 * 8 * 16, "1688": 16 * 8 * 8}.get(code[1])
                if not products:
                    raise Unreadable(f"{kernel.name}: {i.opcode} has a shape whose cycles are not known here")
                if "TF32" in code:
                    products *= 2
                cycles["tensor"] += products / chip["products"]
        elif code[0] in FLOAT:
            cycles["float"] += 32 / chip["float"]
        elif code[0] == "IMAD":
            cycles["float"] += 2
        elif code[0] in SPECIAL:
            cycles["special"] += 8
        elif not NO_UNIT.fullmatch(code[0]):
            cycles["integer"] += 2
        barriers += code[0] in ("BAR", "SYNCS")
        spills += code[0] in ("LDL", "STL")
    cycles["shared"] = shared / SHARED_BYTES
    return {"cycles": cycles, "shapes": shapes, "barriers": barriers, "spills": spills, "shared_bytes": int(shared)}


def idle(kernel, body):
    """Instructions of a turn before which all groups of products were waited for and none was begun since; None
    without such products. The first turn only finds out what is in flight when one begins."""
    if not any(kernel.instructions[n].opcode.startswith("HGMMA") for n in body):
        return None
    groups, open_group, alone = 0, False, 0
    for turn in range(2):
        alone = 0
        for n in body:
            i = kernel.instructions[n]
            if i.opcode.startswith("HGMMA"):
                open_group = True
                if "gsb0" in i.operands:
                    groups, open_group = groups + 1, False
            elif i.opcode.startswith("WARPGROUP.DEPBAR"):
                groups = min(groups, int(i.operands.split(",")[1], 16))
            alone += groups == 0 and not open_group
    return alone


def bound(kernel, body):
    counts = count(kernel, body)
    cycles = counts["cycles"]
    name = max(cycles, key=cycles.get)
    alone = idle(kernel, body)
    return ["cycles: " + ", ".join(f"{unit} {value:g}" for unit, value in cycles.items()),
            f"bound {cycles[name]:g}, by {name}" +
            (f"; peak {100 * cycles['tensor'] / cycles[name]:.0f} %" if cycles["tensor"] else "") +
            f"; shared memory {counts['shared_bytes']} bytes; barriers {counts['barriers']}; spills {counts['spills']}" +
            (f"; idle {alone}" if alone is not None else "")]


def describe(kernel, header, body, mix):
    first, last = kernel.instructions[body[0]].address, kernel.instructions[body[-1]].address
    shapes = count(kernel, body)["shapes"]
    lines = [f"  loop {first:#x}..{last:#x}: " + (", ".join(f"{n} {shape}" for shape, n in sorted(shapes.items())) or
                                                "no products")]
    lines += ["    " + line for line in bound(kernel, body)]
    if len(way := shortest(kernel, header)) < len(body):
        lines += ["    " + "; ".join(["at least: " + bound(kernel, way)[0]] + bound(kernel, way)[1:])]
    if mix:
        codes = collections.Counter(kernel.instructions[n].opcode.split(".")[0] for n in body)
        lines.append("    " + ", ".join(f"{code} {n}" for code, n in codes.most_common()))
    return "\n".join(lines)


def report(kernel, name, everything=False, mix=False):
    """Its loops with products, or the longest without."""
    loads, stores = kernel.spills()
    lines = [f"{name}\n  {kernel.arch}, {len(kernel.instructions)} instructions, {kernel.registers} registers, "
             f"{loads} loads and {stores} stores of spills"]
    found = loops(kernel)
    with_products = [l for l in found if count(kernel, l[1])["shapes"]]
    shown = found if everything else with_products or sorted(found, key=lambda l: len(l[1]))[-1:]
    return "\n".join(lines + [describe(kernel, header, body, mix) for header, body in shown])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="+", metavar="FILE")
    p.add_argument("--arch", default="sm_90a", help="target of a .cu: sm_80 or sm_90a (default: %(default)s)")
    p.add_argument("--kernel", default="", metavar="REGEX", help="of the kernels' names as c++filt shows them")
    p.add_argument("--all", action="store_true", help="all loops, not only those with products")
    p.add_argument("--mix", action="store_true", help="also how many there are of each instruction")
    o = p.parse_args()
    shown = 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            for path in o.files:
                if not os.path.exists(path):
                    raise Unreadable(f"there is no file {path}")
                for listing, registers in listings(path, o.arch, folder):
                    found = kernels(listing, registers)
                    for kernel, name in zip(found, demangled([k.name for k in found])):
                        if re.search(o.kernel, name):
                            print(report(kernel, name, o.all, o.mix))
                            shown += 1
        if not shown:
            raise Unreadable(f"no kernel's name has '{o.kernel}' in it")
    except Unreadable as why:
        sys.exit(f"bench/sass.py: {why}")


if __name__ == "__main__":
    main()
