#!/bin/sh
# Runs the CUDA compiler and keeps what ptxas says of registers and stack beside the object, as FILE.cu.o.ptxas, instead
# of showing it. tests/ptxas reads it.
for argument; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
"$@" -Xptxas=-v 2> "$object.messages"
status=$?
report='^ptxas info|^ +[0-9]+ bytes stack frame'
grep -E "$report" "$object.messages" > "$object.ptxas"
grep -vE "$report" "$object.messages" >&2
rm -f "$object.messages"
exit $status
