#!/bin/sh
# report.sh FOLDER: no kernel keeps in memory what belongs into registers, on any GPU that the build has code for, and
# none has its products of warpgroups made one after another. FOLDER holds the reports of kernels/nvcc/with_report.sh. Up
# to 16 bytes pass: ptxas spills a word or two when that lets one more block run. Allowed beyond these:
#   normal_kernel                             the angles of sin and cos are reduced with a table; once in a training
#   attention's backward_kernel<float, true>  the plain way, with dropout: 24 bytes
#   the same with products of warpgroups, of keys, 112 and 128 columns and dropout: up to 80 bytes
#   LayerNorm's backward_kernel<float, 8, 8>  f32 rows of 6145 to 8192 with dropout: their sums fill all registers
allowed='normal_kernel\(|backward_kernel<float, [a-z]+, true>|backward_kernel<float, 8, 8, .*Residual\)2>|WarpgroupTiles<[^>]*16, 1(12|28)>, [^>]*16, 1(12|28), true, true>'

reports=$(find "$1" -name '*.cu.o.ptxas')
[ -n "$reports" ] || { echo "no *.cu.o.ptxas under $1: build megalith_kernels first"; exit 1; }
cat $reports | awk -v q="'" '
  /Compiling entry function/ { gpu = $NF; gsub(q, "", gpu); kernels++ }
  /Function properties for/ { name = $NF }
  /bytes stack frame/ { if ($1 > 16) print name, "for", gpu ":", $0 }
  /wgmma.*serialized/ { print }
  END { print kernels, "kernels" }' | c++filt > "$1/report.txt"
tail -1 "$1/report.txt"
! { grep 'bytes stack frame' "$1/report.txt" | grep -vE "$allowed"; grep serialized "$1/report.txt"; }
