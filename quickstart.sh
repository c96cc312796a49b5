#!/usr/bin/env bash
# Trains a small Llama on a text, from scratch: installs missing packages, builds, makes tokens, trains about four minutes
# on 2 ranks, prints a sample.
#   ./quickstart.sh [TEXT...]      files or folders; default text: the English dictionary of Debian's package dict-gcide
# Environment: MINUTES (4) of training and evaluation in all, OUT (runs/quickstart). Run again, it continues where it was;
# with more MINUTES, it sets the length of the run.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")"
from_here() { if [ "$here" = "$PWD" ] || [[ $1 == /* ]]; then echo "$1"; else echo "$here/$1"; fi; }
out=runs/quickstart
[ -z "${OUT:-}" ] || out=$(from_here "$OUT")
megalith=build/cpu/trainer/megalith
[ "$here" = "$PWD" ] || megalith=$PWD/$megalith

texts=()
for text in "$@"; do
  text=$(from_here "$text")
  [ -e "$text" ] || { echo "there is no text $text; name files or folders" >&2; exit 1; }
  texts+=("$text")
done
each_text() { find -L "${texts[@]}" -type f "$@"; }
sums() { each_text -exec cksum {} + | cut -d ' ' -f 1,2 | sort; }
# A short text has few words for a vocabulary, and has to hold out more for a sample of 129 tokens.
tokenizer=train:4096 validation=0.01
if [ ${#texts[@]} -gt 0 ]; then
  bytes=$(each_text -printf '%s\n' | awk '{n += $1} END {print n + 0}')
  if [ "$bytes" -lt 10000 ]; then
    echo "the texts have $bytes bytes together; a model of characters takes 10,000 or more, one of words a million" >&2
    exit 1
  fi
  [ "$bytes" -ge 1000000 ] || { tokenizer=train:1024 validation=0.05; }
  [ "$bytes" -ge 100000 ] || { tokenizer=bytes validation=0.1; }
fi

docker/install-packages.sh
echo "== building"
cmake --preset cpu >/dev/null
cmake --build --preset cpu -j "$(nproc)" --target megalith | tail -n 1

echo "== text to tokens"
prepare() {
  "$megalith" prepare --text "${texts[@]}" --tokenizer "$1" --validation "$validation" --out "$out/data" 2> "$out/said" ||
    { cat "$out/said" >&2; return 1; }
  cat "$out/said" >&2
}
if [ ! -e "$out/data/train.bin" ]; then
  mkdir -p "$out"
  if [ ${#texts[@]} -eq 0 ]; then
    # Three of its characters are not UTF-8; iconv leaves them out, and says so by its status.
    dictzip -dc /usr/share/dictd/gcide.dict.dz | { iconv -c -f UTF-8 -t UTF-8 || true; } > "$out/text.txt"
    texts=("$out/text.txt")
  fi
  sums > "$out/texts"
  if ! prepare "$tokenizer"; then
    # A text that repeats itself has few words, however long it is.
    grep -q 'yields a vocabulary of' "$out/said" || exit 1
    echo "== text to tokens, a byte each"
    prepare bytes
  fi
elif [ ${#texts[@]} -eq 0 ] || [ "$(sums)" = "$(sort "$out/texts" 2>/dev/null)" ]; then
  echo "$out/data exists already; the run continues with it"
else
  echo "$out is a run on other texts than these; name another folder, OUT=runs/other ./quickstart.sh TEXT..., or remove $out" >&2
  exit 1
fi

train() {
  "$megalith" run -n 2 train configs/quickstart.toml "data.train=$out/data/train.bin" \
    "data.validation=$out/data/validation.bin" "data.tokenizer=$out/data/tokenizer" "$@"
}

# The learning rate decays over the whole run, so the number of steps must be known before: a few steps measure this
# machine's speed. The file has the steps, the minutes that they were to take, and the seconds of one.
steps='' planned='' seconds=''
[ ! -e "$out/steps" ] || read -r steps planned seconds < "$out/steps" || true
if [ -z "$seconds" ]; then
  echo "== measuring this machine"
  trial=$(mktemp -d)
  train "run.output=$trial" train.steps=12 optimizer.warmup_steps=0 train.evaluate_every=0 data.validation= checkpoint.every=0 >/dev/null
  seconds=$(sed -n 's/.*"step_seconds":\([0-9.e-]*\).*/\1/p' "$trial/metrics.jsonl" | tail -n 8 | sort -g | sed -n 4p)
  rm -rf "$trial"
fi
minutes=${MINUTES:-${planned:-4}}
# An evaluation reads up to 130 batches of 1,024 tokens, each in about 0.4 of a step's time. There is one at the end, and
# others take a tenth of the time.
tokens=$(($(stat -c %s "$out"/data/validation*.bin | paste -sd+) / 2))
fit() {
  awk -v m="$minutes" -v s="$seconds" -v tokens="$tokens" -v known="$1" 'BEGIN {
    batches = tokens / 1024; if (batches > 130) batches = 130
    one = batches * 0.4 * s; more = int(0.1 * 60 * m / (one + 0.001)); if (more > 19) more = 19
    steps = known > 0 ? known : int((60 * m - (1 + more) * one) / s); if (steps < 20) steps = 20
    print steps, int((steps + more) / (1 + more)) }'
}
[ "$minutes" != "$planned" ] || fitted=$steps
read -r steps every <<< "$(fit "${fitted:-0}")"
trained=0
for checkpoint in "$out"/checkpoints/step-*; do
  [ ! -e "$checkpoint/manifest.json" ] || trained=$((10#${checkpoint##*step-}))
done

if [ "$trained" -ge "$steps" ]; then
  echo "== $out has made $trained steps already, and $minutes minutes are $steps here; MINUTES=... for more"
else
  echo "$steps $minutes $seconds" > "$out/steps"
  left=$(awk -v n="$((steps - trained))" -v s="$seconds" 'BEGIN { printf "%.2g", n * s / 60 }')
  echo "== training steps $((trained + 1)) to $steps on 2 ranks, about $left minutes"
  # More minutes are another schedule of the learning rate.
  train "run.output=$out" "train.steps=$steps" "optimizer.warmup_steps=$((steps / 20))" "train.evaluate_every=$every" \
    checkpoint.allow_changes=true
fi

echo "== a sample"
"$megalith" generate "$out" --prompt "The " --tokens 120 --temperature 0.7
cat <<END

text and tokens  $out/data
log and metrics  $out/log.txt, $out/metrics.jsonl
plots            $megalith report $out
checkpoints      $out/checkpoints
more samples     $megalith generate $out --prompt "Once " --seed 2
END
