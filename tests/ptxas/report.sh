#!/bin/sh
# report.sh FOLDER: no kernel keeps in memory what belongs into registers, on any GPU that the build has code for, and
# none has its products of warpgroups made one after another. FOLDER holds the reports of kernels/nvcc/with_report.sh.
# Prints how many kernels there are, and what is wrong, with which it fails. A kernel may have 16 bytes of stack, since
# ptxas spills a word or two when that lets one more block run; more may those whose sums fill all registers, in bytes and
# by name:
allowed='
48  normal_kernel\(                                the angles of sin and cos are reduced with a table; once in a training
24  backward_kernel<float, [a-z]+, true>           attention in f32 with dropout
32  attention::.*backward_kernel<[a-z0-9:]+, true, false>    attention in f32 or of odd heads: which of the heads that share keys
24  (attention::.*backward_kernel<[^>]*16, 128|backward_kernel<[^>]*16, 128, 64, true|forward_kernel<[^>]*16, (128, 32|64)), true>    attention with dropout: what it draws by, once a tile
40  attention::.*backward_kernel<[^>]*16, 112, [a-z]+>    attention on Hopper: where it is among heads, once a tile
88  backward_kernel<[a-z0-9:]+, float, 8, 8, .*Residual\)2>    LayerNorm, f32 rows of 6145 to 8192 with dropout: three sums
'

reports=$(find "$1" -name '*.cu.o.ptxas')
[ -n "$reports" ] || { echo "no *.cu.o.ptxas under $1: build megalith_kernels first"; exit 1; }
cat $reports | awk -v q="'" '
  /Compiling entry function/ { gpu = $NF; gsub(q, "", gpu); kernels++ }
  /Function properties for/ { name = $NF }
  /bytes stack frame/ { print $1, name, "for", gpu }
  /wgmma.*serialized/ { print "serialized", $0 }
  END { print "kernels", kernels + 0 }' | c++filt | awk -v allowed="$allowed" '
  BEGIN {
    n = split(allowed, lines, "\n")
    for (i = 1; i <= n; i++) if (split(lines[i], part, "  +") > 1) most[part[2]] = part[1]
  }
  $1 == "kernels" { print $2, "kernels"; if ($2 == 0) wrong = 1; next }
  $1 == "serialized" { print; wrong = 1; next }
  {
    limit = 16
    for (pattern in most) if (most[pattern] > limit && $0 ~ pattern) limit = most[pattern]
    if ($1 > limit) { print $1, "bytes of stack, of which", limit, "are allowed:", $0; wrong = 1 }
  }
  END { exit wrong }'
