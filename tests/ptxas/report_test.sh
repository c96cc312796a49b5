#!/bin/sh
# What report.sh says of kernels that spill, of those that may, and of products that ptxas has put one after another.
report=$(dirname "$0")/report.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# expect STATUS WORDS: what the report ends with, and says, of the ptxas output on standard input.
expect() {
  cat > "$folder/kernel.cu.o.ptxas"
  said=$("$report" "$folder")
  status=$?
  case $status:$said in
    "$1:"*"$2"*) ;;
    *) echo "expected $1 and '$2', got $status and: $said"; failed=1 ;;
  esac
}
# kernel NAME BYTES: as ptxas -v reports it.
kernel() {
  echo "ptxas info    : Compiling entry function '$1' for 'sm_80'"
  echo "ptxas info    : Function properties for $1"
  echo "    $2 bytes stack frame, $2 bytes spill stores, $2 bytes spill loads"
  echo "ptxas info    : Used 255 registers, used 1 barriers, 384 bytes cmem[0]"
}

kernel tidy 16 | expect 0 '1 kernels'
kernel planted 24 | expect 1 '24 bytes of stack, of which 16 are allowed: 24 planted for sm_80'
{ kernel planted 24; kernel tidy 0; } | expect 1 'planted for sm_80'
kernel _Z13normal_kernelPfl 48 | expect 0 '1 kernels'
kernel _Z13normal_kernelPfl 56 | expect 1 '56 bytes of stack, of which 48 are allowed'
{ kernel tidy 0; echo "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"; } |
  expect 1 'serialized'
echo 'nothing of ptxas' | expect 1 '0 kernels'
rm "$folder/kernel.cu.o.ptxas"
said=$("$report" "$folder") && { echo "it passes without any report"; failed=1; }
exit $failed
