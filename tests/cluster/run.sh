#!/usr/bin/env bash
# Runs the tests on a real cluster of its own, which ends with it whatever happens. Builds what is missing: cluster, image, tests.
# usage: run.sh [FILTER...]     FILTER: names of tests, as cargo test takes them; CLUSTER_NAME (default: test)
#
# After a failure, what the cluster looked like goes to standard error, the failures again after it, and every log to out/cluster/CLUSTER_NAME.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/paths.sh"
export CLUSTER_NAME=${CLUSTER_NAME:-test}
cluster=$recipe/cluster.sh
logs=$root/out/cluster/$CLUSTER_NAME
# What the tests say.
said=$logs/tests.log
# Longest time for all tests, in seconds.
patience=${ROLLOUT_CLUSTER_PATIENCE:-2400}

# Prints the path of the tests' program.
tests_program() {
  cargo test -q --locked --test cluster --no-run --message-format json | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == "cluster":
        print(message["executable"])'
}

tests() {
  local teller code=0
  exec 8> >(exec tee -i -a "$said" 9>&-)
  teller=$!
  timeout --foreground "$patience" bash "$cluster" in env RUST_BACKTRACE=0 \
    ROLLOUT_TEST_OPERATOR="$work/rollout-operator" \
    ROLLOUT_TEST_HELM="$(home_of helm)/helm" ROLLOUT_TEST_MONITORING="$(home_of monitoring)/servicemonitors.yaml" \
    ROLLOUT_TEST_SGLANG="${sglang[0]:-}" ROLLOUT_TEST_SGLANG_MODEL="${sglang[1]:-}" "$program" "$@" >&8 2>&1 8>&- 9>&- || code=$?
  exec 8>&-
  # Tests that outlive their time end with the cluster, and hold the pipe until then.
  [ "$code" = 124 ] || wait "$teller"
  return "$code"
}

# The real SGLang, and an image with its model as a volume takes it.
sglang=()
prepare_sglang() {
  local folders file files=()
  folders=$(bash "$root/tests/sglang/install.sh") || die "SGLang could not be installed"
  mapfile -t sglang <<<"$folders"
  for file in "${sglang[1]}"/*; do files+=("$file=/models/tiny/${file##*/}"); done
  python3 "$recipe/image.py" "$work/tiny-model.tar" localhost/tiny-model:1 '[]' "${files[@]}"
}

# What a person needs to see why a test failed. Never fails itself.
show_failure() {
  local namespace pod
  {
    say "the cluster as the tests left it; logs: $logs"
    cp "$cluster_cache/run-$CLUSTER_NAME"/log/* "$logs"
    inside kubectl get pods --all-namespaces -o wide
    inside kubectl get sglangpools,rolloutjobs --all-namespaces
    inside kubectl get events --all-namespaces --sort-by .lastTimestamp | tail -n 60
    inside kubectl get pods --all-namespaces --no-headers -o custom-columns=:metadata.namespace,:metadata.name | while read -r namespace pod; do
      inside kubectl --namespace "$namespace" logs "$pod" --all-containers --prefix --ignore-errors </dev/null >"$logs/pod-$namespace-$pod.log" 2>&1
    done
    tail -n 15 "$logs"/pod-*rollout-operator*.log
  } >&2 2>&1 || true
}
# The last thing that is printed: who sees only the end of a long log sees what failed.
repeat_failures() {
  say "the tests ended with $code"
  awk -f "$recipe/failures.awk" "$said" >&2 || true
}
inside() { timeout 20 bash "$cluster" in "$@"; }

ended() {
  local code=$?
  trap '' INT TERM
  [ "$code" = 0 ] || show_failure
  bash "$cluster" down 9>&- || code=1
  rm -rf "$work"
  [ "$code" = 0 ] || repeat_failures
  exit "$code"
}

[ "$(id -u)" = 0 ] || die "a cluster needs root: namespaces, mounts and cgroups"
need_toolchain
mkdir -p "$cluster_cache"
# Programs of the cluster must not keep it.
exec 9>"$cluster_cache/run-$CLUSTER_NAME.lock"
flock -n 9 || die "tests run on the cluster $CLUSTER_NAME already; CLUSTER_NAME chooses another"
bash "$recipe/build.sh" "${cluster_parts[@]}" agents helm monitoring
say "building image and tests"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash "$root/scripts/build-image" "$work/operator.tar" "${ROLLOUT_PROFILE:-cluster}" "$work/rollout-operator"
# A test that was asked for by name may do without 3 GB.
[[ $# -gt 0 && $* != *sglang* ]] || prepare_sglang
program=$(cd "$root" && tests_program)
[ -x "$program" ] || die "cargo told no program of the test 'cluster'"

rm -rf "$logs"
mkdir -p "$logs"
trap ended EXIT
trap 'exit 130' INT TERM
bash "$cluster" down 9>&-
bash "$cluster" up 9>&-
bash "$cluster" image "$work"/*.tar "$(home_of agents)"/*.tar 9>&-
# Engines ask for one each.
bash "$cluster" gpus 8 9>&-

if [ $# -gt 0 ]; then
  tests --test-threads 1 "$@"
else
  # These install the operator for the whole cluster: they go first, one at a time, and leave it as it was.
  tests --test-threads 1 packaging::
  # These wait for the cluster as much as they compute: more of them at once make each slower, and all together no faster.
  tests --test-threads 3 --skip packaging:: --skip sglang:: --skip agents:: --skip faults::
  # These start a real engine, which wants both cores.
  tests --test-threads 1 sglang::
  # These start hundreds of sessions.
  tests --test-threads 1 agents::
  # These kill the API server.
  tests --test-threads 1 faults::
fi
