#!/usr/bin/env bash
# Fifty training steps of a small GPT, in fp32, whose losses on a CPU are compared with a GPU's (losses.py).
#   bench/fifty_steps.sh prepare MEGALITH FOLDER      tokens of this project's pages, and the steps on the CPU, twice: as they
#                                                     are, and in other micro-batches with the loss in chunks of rows,
#                                                     which add up in another order
#   bench/fifty_steps.sh train MEGALITH FOLDER OUT DEVICE    the same steps on a device (cuda, cpu), held against those of FOLDER;
#                                                            the run folder is OUT
# MEGALITH: the program. Exit status of train: that of losses.py.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
[ $# -ge 3 ] || usage
megalith=$2 folder=$3
steps() {  # OUT DEVICE OPTION...
  "$megalith" train "$here/fifty_steps.toml" "data.train=$folder/train.bin" "run.output=$1" "run.device=$2" "${@:3}"
}
case $1 in
  prepare)
    mkdir -p "$folder"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "$megalith" prepare --text "$here"/../{ARCHITECTURE,FEATURES}.md \
      "$here"/../{configs,trainer,data,docker}/README.md --tokenizer train:2048 --validation 0 --out "$work/data"
    cp "$work"/data/train.bin "$work"/data/train.idx "$folder/"
    steps "$work/cpu" cpu
    steps "$work/other" cpu batch.microbatch_size=2 memory.lm_head_chunks=3
    cp "$work/cpu/metrics.jsonl" "$folder/cpu.jsonl"
    cp "$work/other/metrics.jsonl" "$folder/other.jsonl"
    ;;
  train)
    [ $# -eq 5 ] || usage
    steps "$4" "$5"
    python3 "$here/losses.py" "$folder/cpu.jsonl" "$folder/other.jsonl" "$4/metrics.jsonl"
    ;;
  *) usage ;;
esac
