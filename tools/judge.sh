#!/bin/sh
# Builds the judge of histories (tools/judge) into .cache/judge for the tests that ask it. Never
# fails: without it those tests are skipped, and one line here says why.
set -eu
cd "$(dirname "$0")/.."

built=.cache/judge
say() { printf '%s\n' "the judge of histories: $*" >&2; }
wanted=$(cat tools/judge/Cargo.toml tools/judge/src/*.rs | cksum)
[ "$(cat "$built/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

command -v cargo >/dev/null 2>&1 || { say "no cargo (install Rust), so its tests are skipped"; exit 0; }
mkdir -p "$built"
rm -f "$built/.stamp"
if cargo build --quiet --release --manifest-path tools/judge/Cargo.toml \
    --target-dir "$built/target" >&2; then
    cp "$built/target/release/judge" "$built/judge.new"
    mv "$built/judge.new" "$built/judge"
    printf '%s\n' "$wanted" >"$built/.stamp"
else
    rm -f "$built/judge"
    say "cargo could not build it, so its tests are skipped"
fi
