#!/bin/sh
# Builds Delta Kernel in Rust as a client of txlake's server (tools/rust_kernel) into
# .cache/rust_kernel for the tests that talk to it. Never fails: without it those tests are skipped,
# and one line here says why.
set -eu
cd "$(dirname "$0")/.."

built=.cache/rust_kernel
say() { printf '%s\n' "Delta Kernel in Rust: $*" >&2; }
wanted=$(cat tools/rust_kernel/Cargo.toml tools/rust_kernel/src/*.rs | cksum)
[ "$(cat "$built/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

command -v cargo >/dev/null 2>&1 || { say "no cargo (install Rust), so its tests are skipped"; exit 0; }
mkdir -p "$built"
rm -f "$built/.stamp"
if cargo build --quiet --manifest-path tools/rust_kernel/Cargo.toml \
    --target-dir "$built/target" >&2; then
    cp "$built/target/debug/rust-kernel" "$built/rust-kernel.new"
    mv "$built/rust-kernel.new" "$built/rust-kernel"
    printf '%s\n' "$wanted" >"$built/.stamp"
else
    rm -f "$built/rust-kernel"
    say "cargo could not build it, so its tests are skipped"
fi
