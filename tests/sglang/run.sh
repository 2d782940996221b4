#!/usr/bin/env bash
# Runs the behavioural cases against the simulated engine and against a real SGLang on the CPU.
# usage: run.sh [arguments of the test binary...]       such as a part of a case's name
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
need_toolchain
trap sglang_stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
sglang_launch
say "building the cases"
cargo test -q --locked -p sglang-simulator --test behaviour --no-run
sglang_wait
export ROLLOUT_SGLANG_URL=$SGLANG_URL
if ! cargo test --locked -p sglang-simulator --test behaviour -- "$@"; then
  sglang_complain "cases failed"
  exit 1
fi
