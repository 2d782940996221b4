#!/usr/bin/env bash
# Starts the SGLang that install.sh installed, in the foreground, on 127.0.0.1:PORT; further arguments go to the server.
# usage: launch.sh ENGINE MODEL PORT [flags...]        ENGINE and MODEL as install.sh prints them
#
# Ready when GET /health answers 200: 20 to 60 s. About 2.2 GB of memory. Dies with the shell that started it.
set -euo pipefail
engine=$1 model=$2 port=$3
shift 3
# Without .pyc files every start compiles some thousand modules; the others keep the server off the network and off GPUs.
unset PYTHONDONTWRITEBYTECODE
export SGLANG_USE_CPU_ENGINE=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 OMP_NUM_THREADS=1
export PYTHONPATH=$engine/stubs LD_LIBRARY_PATH=$engine/stublibs
# prctl(PR_SET_PDEATHSIG, SIGKILL) holds across exec; SGLang's own children do the same.
exec "$engine/venv/bin/python" -c 'import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])' \
  -m sglang.launch_server --device cpu --attention-backend torch_native --dtype float32 --disable-cuda-graph --disable-overlap-schedule \
  --model-path "$model" --served-model-name tiny --host 127.0.0.1 --port "$port" --context-length 4096 --max-total-tokens 16384 \
  --max-running-requests 16 --mem-fraction-static 0.1 --tp-size 1 --enable-metrics --tool-call-parser qwen25 "$@"
