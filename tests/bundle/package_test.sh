#!/usr/bin/env bash
# A .deb of docker/package.sh on the system that this script runs on, which should be a bare Debian 12 or 13, for it installs and
# removes packages: apt installs the package with what it depends on, the program makes tokens and trains the quickstart's
# model on two ranks from a folder that is none of ours, goes on, writes a text, and has its man page and completions. Needs root.
#   tests/bundle/package_test.sh FILE.deb [STEPS]      STEPS (60) of training
# lintian looks at the package as well, where it is installed.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
deb=$(readlink -f "$1") steps=${2:-60}
failed=0
says() {  # WORDS COMMAND...
  local words=$1 said
  shift
  if said=$("$@" 2>&1) && [[ $said == *"$words"* ]]; then
    echo "passed: $*"
  else
    echo "failed: $*, which should say '$words': $said" >&2
    failed=1
  fi
}
if command -v megalith >/dev/null; then echo "there is a megalith already: $(command -v megalith)" >&2; exit 1; fi
if command -v lintian >/dev/null; then says '' lintian --fail-on error "$deb"; fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$deb" >/dev/null
elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
cd "$elsewhere"
says 'built for' megalith --version
says 'no problems found' megalith info
for number in $(seq 4000); do echo "The number $number comes after $((number - 1)), and before $((number + 1))."; done > book.txt
says 'vocabulary 1024' megalith prepare --text book.txt --tokenizer train:1024 --out runs/quickstart/data
says "done: $steps steps" megalith run -n 2 train quickstart "train.steps=$steps"
says "done: $((steps + 10)) steps" megalith train runs/quickstart "train.steps=$((steps + 10))"
says 'The number' megalith generate --checkpoint runs/quickstart --prompt 'The number' --tokens 10
says 'fits' megalith plan 30b_p4d
for file in man/man1/megalith.1.gz bash-completion/completions/megalith zsh/vendor-completions/_megalith \
  fish/vendor_completions.d/megalith.fish megalith/configs/hardware/dgx_h100.toml; do
  says "" test -s "/usr/share/$file"
done
apt-get remove -y -qq megalith >/dev/null
says "" test ! -e /usr/lib/megalith
exit "$failed"
