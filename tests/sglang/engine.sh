# Sourced: a real SGLang on the CPU for a script, and its end.
#
#   trap sglang_stop EXIT
#   sglang_start [server flags...]      installs it if need be and waits until it is ready; sets SGLANG_URL, SGLANG_VERSION, SGLANG_MODEL
#   sglang_stop                         ends the server and everything that it started; harmless twice
#
# sglang_start is sglang_launch and sglang_wait, for a script that has something to do meanwhile. ROLLOUT_SGLANG_DEADLINE: seconds for the
# server to become ready, 600 by default.

# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh"

SGLANG_VERSION=$(sed -n 's/^sglang==//p' "$root/tests/sglang/requirements.in")
SGLANG_URL=
SGLANG_MODEL=
SGLANG_LOG=
sglang_pid= sglang_complained=

sglang_launch() {
  local folders port
  folders=$(bash "$root/tests/sglang/install.sh") || die "SGLang could not be installed"
  mapfile -t folders <<<"$folders"
  SGLANG_MODEL=${folders[1]}
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  SGLANG_LOG=$(mktemp "${TMPDIR:-/tmp}/sglang-XXXXXX.log")
  SGLANG_URL=http://127.0.0.1:$port
  say "starting SGLang $SGLANG_VERSION at $SGLANG_URL, log in $SGLANG_LOG"
  # A session of its own, so that one signal reaches all its processes and Ctrl-C none.
  setsid bash "$root/tests/sglang/launch.sh" "${folders[@]}" "$port" "$@" >"$SGLANG_LOG" 2>&1 </dev/null &
  sglang_pid=$!
}

sglang_wait() {
  local deadline=$((SECONDS + ${ROLLOUT_SGLANG_DEADLINE:-600})) started=$SECONDS
  until sglang_healthy; do
    if ! kill -0 "$sglang_pid" 2>/dev/null; then
      sglang_complain "SGLang ended before it was ready"
    elif [ "$SECONDS" -ge "$deadline" ]; then
      sglang_complain "SGLang was not ready after $((SECONDS - started)) s"
    else
      sleep 1
      continue
    fi
    sglang_stop
    return 1
  done
  say "SGLang is ready after $((SECONDS - started)) s"
}

sglang_start() { sglang_launch "$@" && sglang_wait; }

sglang_healthy() {
  python3 -c 'import sys, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(sys.argv[1] + "/health", timeout=25)' "$SGLANG_URL" 2>/dev/null
}

sglang_complain() {
  sglang_complained=yes
  say "$1; the end of $SGLANG_LOG:"
  tail -n 40 "$SGLANG_LOG" >&2
}

sglang_stop() {
  [ -n "$sglang_pid" ] || return 0
  local pid=$sglang_pid
  sglang_pid=
  # It would wait for its requests without end on SIGTERM: there is nothing in it to save.
  kill -KILL -- "-$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  [ -n "$sglang_complained" ] || rm -f "$SGLANG_LOG"
}
