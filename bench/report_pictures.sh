#!/usr/bin/env bash
# Makes the README's pictures of `megalith report` in bench/results/: a quickstart run, and three runs compared. Trains
# them where they are not there yet.
#   bench/report_pictures.sh [FOLDER [RUN...]]
# FOLDER (runs/pictures) keeps the runs. With RUNs (quickstart, then baseline, high-rate, narrow) it trains these and takes no
# picture, so that they can be trained one by one while the machine is at rest.
# Environment: MINUTES (4) of the quickstart; the others take the first half of its schedule. Needs Debian's chromium and pngquant.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-runs/pictures}
wanted=("${@:2}")
megalith=build/cpu/trainer/megalith
for program in chromium pngquant; do
  command -v "$program" >/dev/null || { echo "$program is missing: apt-get install chromium pngquant" >&2; exit 1; }
done

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
variant() {
  local steps
  steps=$(($(cut -d' ' -f1 "$runs/quickstart/steps") / 2))
  mpirun --oversubscribe -n 2 "$megalith" train "$runs/quickstart/config.toml" "run.output=$runs/$1" \
    "checkpoint.directory=$runs/$1/checkpoints" "train.steps=$steps" "optimizer.warmup_steps=$((steps / 20))" \
    "train.evaluate_every=$((steps / 8))" train.evaluate_batches=16 "${@:2}"
}
[ ${#wanted[@]} -gt 0 ] && train=("${wanted[@]}") || train=(quickstart baseline high-rate narrow)
for name in "${train[@]}"; do
  case $name in
    quickstart) OUT=$runs/quickstart MINUTES=${MINUTES:-4} ./quickstart.sh ;;
    baseline) variant baseline ;;
    high-rate) variant high-rate optimizer.learning_rate=6e-3 ;;
    narrow) variant narrow model.hidden=128 ;;
    *) echo "there is no run $name; take quickstart, baseline, high-rate or narrow" >&2; exit 1 ;;
  esac
done
[ ${#wanted[@]} -eq 0 ] || exit 0

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
# picture NAME WIDTHxHEIGHT SCHEME RUN...: of the page's top. Chromium's scheme 0 is dark, 1 light.
picture() {
  "$megalith" report "${@:4}" --out "$pages/$1.html"
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars "--window-size=${2/x/,}" \
    "--blink-settings=preferredColorScheme=$([ "$3" = dark ] && echo 0 || echo 1)" \
    "--screenshot=$pages/$1.png" "file://$pages/$1.html" 2>"$pages/log" || { cat "$pages/log" >&2; exit 1; }
  pngquant --force --output "bench/results/$1.png" 48 "$pages/$1.png"
}
picture report_one 1180x2200 light "$runs/quickstart"
picture report_three 1180x2320 dark "$runs/baseline" "$runs/high-rate" "$runs/narrow"
picture report_narrow 400x1240 light "$runs/baseline" "$runs/high-rate" "$runs/narrow"
ls -l bench/results/report_*.png
