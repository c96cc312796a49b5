#!/usr/bin/env bash
# Trains a small GPT on a text, from nothing: installs what is missing, builds, makes tokens, trains about four minutes
# on 2 ranks, prints a sample.
#   ./quickstart.sh [TEXT...]      default text: the English dictionary of Debian's package dict-gcide
# Environment: MINUTES (4) of training, OUT (runs/quickstart). Run again, it continues where it was.
set -euo pipefail
cd "$(dirname "$0")"
minutes=${MINUTES:-4}
out=${OUT:-runs/quickstart}

docker/install-packages.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
echo "== building"
cmake --preset cpu >/dev/null
cmake --build --preset cpu -j "$(nproc)" --target megalith | tail -n 1
megalith=build/cpu/trainer/megalith

echo "== text to tokens"
texts=("$@")
sums() { cksum "$@" | cut -d ' ' -f 1,2; }
if [ ! -e "$out/data/train.bin" ]; then
  mkdir -p "$out"
  if [ ${#texts[@]} -eq 0 ]; then
    # Three of its characters are not UTF-8; iconv leaves them out, and says so by its status.
    dictzip -dc /usr/share/dictd/gcide.dict.dz | { iconv -c -f UTF-8 -t UTF-8 || true; } > "$out/text.txt"
    texts=("$out/text.txt")
  fi
  sums "${texts[@]}" > "$out/texts"
  "$megalith" prepare --text "${texts[@]}" --tokenizer train:4096 --out "$out/data"
elif [ ${#texts[@]} -eq 0 ] || [ "$(sums "${texts[@]}")" = "$(cat "$out/texts" 2>/dev/null)" ]; then
  echo "$out/data exists already; the run goes on with it"
else
  echo "$out is a run on other texts than these; name another folder, OUT=runs/other ./quickstart.sh TEXT..., or remove $out" >&2
  exit 1
fi

train() {
  mpirun --oversubscribe -n 2 "$megalith" train configs/quickstart.toml "data.train=$out/data/train.bin" \
    "data.validation=$out/data/validation.bin" "data.tokenizer=$out/data/tokenizer" "$@"
}

# The learning rate decays over the whole run, so the number of steps must be known before: a few steps measure this
# machine's speed.
if [ ! -e "$out/steps" ]; then
  echo "== measuring this machine"
  trial=$(mktemp -d)
  train "run.output=$trial" train.steps=12 optimizer.warmup_steps=0 train.evaluate_every=0 data.validation= checkpoint.every=0 >/dev/null
  seconds=$(tail -n 8 "$trial/metrics.jsonl" | sed 's/.*"step_seconds":\([0-9.e-]*\).*/\1/' | sort -g | sed -n 4p)
  rm -rf "$trial"
  awk -v m="$minutes" -v s="$seconds" 'BEGIN { n = int(60 * m / s); print (n < 20 ? 20 : n) }' > "$out/steps"
fi
steps=$(cat "$out/steps")

echo "== training $steps steps on 2 ranks, about $minutes minutes"
train "run.output=$out" "train.steps=$steps" "optimizer.warmup_steps=$((steps / 20))"

echo "== a sample"
"$megalith" generate --checkpoint "$out" --prompt "The " --tokens 120 --temperature 0.7
cat <<END

text and tokens  $out/data
log and metrics  $out/log.txt, $out/metrics.jsonl
plots            $megalith report $out
checkpoints      $out/checkpoints
more samples     $megalith generate --checkpoint $out --prompt "Once " --seed 2
END
