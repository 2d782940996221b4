#!/usr/bin/env bash
# Real clients from their registry, each through a session to the simulated engine: streams, tool calls, retries, fences.
# usage: run.sh [unittest arguments...]       such as test_openai or -k fence
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh"
need_toolchain
say "building rollout-operator"
cargo build -q --locked
python=$(python_env "$root/tests/clients/requirements.txt")
export ROLLOUT_OPERATOR=$CARGO_TARGET_DIR/debug/rollout-operator
# Nothing of these clients may leave the machine, and no key or proxy of who runs this may come in.
unset OPENAI_API_KEY OPENAI_BASE_URL OPENAI_ORG_ID HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy
export LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_TELEMETRY=False LANGCHAIN_TRACING_V2=false LANGSMITH_TRACING=false MSWEA_SILENT_STARTUP=1
cd "$root/tests/clients"
if [ $# = 0 ]; then set -- discover -s .; fi
exec "$python" -W ignore -m unittest "$@"
