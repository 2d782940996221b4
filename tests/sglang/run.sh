#!/usr/bin/env bash
# Runs the behavioural cases, and those of the router, against the simulated engine and against a real SGLang on the CPU.
# usage: run.sh [arguments of the test binary...]       such as a part of a case's name
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
need_toolchain
# The flags that manifests are checked against are those of this version.
check_flags() {
  local folders table=$root/src/api/validate/sglang_flags.txt
  mapfile -t folders < <(bash "$root/tests/sglang/install.sh")
  SGLANG_USE_CPU_ENGINE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 PYTHONPATH=${folders[0]}/stubs LD_LIBRARY_PATH=${folders[0]}/stublibs \
    "${folders[0]}/venv/bin/python" "$root/tests/sglang/flags.py" | diff -u "$table" - >&2 ||
    die "$table is not what SGLang $SGLANG_VERSION takes: write the output of tests/sglang/flags.py there, and decide which new flags are ours"
}

trap sglang_stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
check_flags
sglang_launch
say "building the cases"
cargo test -q --locked -p sglang-simulator --test behaviour -p rollout-router --test it --no-run
sglang_wait
export ROLLOUT_SGLANG_URL=$SGLANG_URL
if ! cargo test --locked -p sglang-simulator --test behaviour -- "$@" ||
  ! cargo test --locked -p rollout-router --test it -- "${@:-both_engines}"; then
  sglang_complain "cases failed"
  exit 1
fi
