#!/usr/bin/env bash
# A real Kubernetes cluster of one node in private namespaces of this machine: etcd, API server, controller manager, scheduler, kubelet,
# kube-proxy, containerd, CoreDNS, NetworkPolicy. One process to end, no way out of the machine, nothing left behind. Needs root.
#   cluster.sh up             builds what is missing, starts it, waits until the node is Ready
#   cluster.sh in COMMAND...  runs a command beside the control plane: its network, mounts, process ids; KUBECONFIG is set
#   cluster.sh image TAR...   imports OCI archives into the node
#   cluster.sh gpus N         lets the node offer N nvidia.com/gpu
#   cluster.sh logs           lists the logs; audit.log has every write to the API
#   cluster.sh down           ends it all
# CLUSTER_NAME (default: dev) tells clusters of one machine apart.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/paths.sh"
name=${CLUSTER_NAME:-dev}
run=$cluster_cache/run-$name
. "$recipe/config.sh"

bins=
for part in "${cluster_parts[@]}"; do
  bins=$bins$(home_of "$part"):
done
export PATH=$bins$PATH
cgroup=rollout-cluster-$name

# The process that the cluster lives below, while it lives. A number alone could be another process's by now.
supervisor() {
  local pid started
  [ -e "$run/pid" ] || return 1
  read -r pid started <"$run/pid" || return 1
  [ "$(started_at "$pid")" = "$started" ] || return 1
  printf '%s\n' "$pid"
}
# When a process started, in ticks since boot; nothing when it has ended.
started_at() { awk '$3 != "Z" { print $22 }' "/proc/$1/stat" 2>/dev/null || true; }

inside() {
  local above first
  above=$(supervisor) || die "no cluster is up: $0 up"
  first=$(ps -o pid= --ppid "$above" | head -n 1 | tr -d ' ')
  [ -n "$first" ] || die "the cluster has ended; see $run/log/node.log"
  KUBECONFIG=$run/admin.kubeconfig nsenter -t "$first" -m -C -n -p -u -i --wd="$PWD" "$@"
}

# wait_for WHAT COMMAND...: a minute at the most
wait_for() {
  local what=$1 try
  shift
  for try in $(seq 300); do
    (inside "$@") >/dev/null 2>&1 && return 0
    supervisor >/dev/null || break
    sleep .2
  done
  tail -n 20 "$run"/log/node.log >&2
  die "$what is not there; logs in $run/log"
}

# The kubelet sets these for the whole machine.
kept_sysctls=(vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops)

keep_sysctls() {
  local key
  for key in "${kept_sysctls[@]}"; do printf '%s %s\n' "$key" "$(cat "/proc/sys/$key")"; done >"$run/sysctls"
}

restore_sysctls() {
  local key value
  [ -e "$run/sysctls" ] || return 0
  while read -r key value; do printf '%s\n' "$value" >"/proc/sys/$key"; done <"$run/sysctls"
}

# Runs a command in a cgroup of its own in every hierarchy, below the caller's: it becomes the node's root.
in_cgroup() {
  # shellcheck disable=SC2016
  exec setsid bash -c '
    for hierarchy in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
      own=$(awk -F: -v h="$hierarchy" "\$2 == h || \$2 == \"name=\" h { print \$3 }" /proc/self/cgroup)
      folder=/sys/fs/cgroup/$hierarchy${own%/}/$0
      mkdir -p "$folder"
      if [ "$hierarchy" = cpuset ]; then
        cat "$folder/../cpuset.cpus" >"$folder/cpuset.cpus"
        cat "$folder/../cpuset.mems" >"$folder/cpuset.mems"
      fi
      echo $$ >"$folder/cgroup.procs"
    done
    exec "$@"' "$cgroup" "$@"
}

remove_cgroups() {
  local try folders folder
  for try in $(seq 50); do
    folders=$(find /sys/fs/cgroup/*/ -maxdepth 5 -type d -name "$cgroup" 2>/dev/null || true)
    [ -n "$folders" ] || return 0
    for folder in $folders; do find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
    sleep .2
  done
  die "these cgroups are still in use: $folders"
}

up() {
  [ "$(id -u)" = 0 ] || die "a cluster needs root: namespaces, mounts and cgroups"
  ! supervisor >/dev/null || die "cluster $name is up already: $0 down"
  bash "$recipe/build.sh"
  down
  write_config
  keep_sysctls
  say "starting cluster $name"
  in_cgroup unshare -m -C -n -p -u -i --fork --kill-child=SIGKILL --propagation private \
    catatonit -- bash "$recipe/node.sh" "$run" "${bins%:}" >"$run/log/node.log" 2>&1 </dev/null &
  printf '%s %s\n' "$!" "$(started_at "$!")" >"$run/pid"
  wait_for "the API server" kubectl get --raw /readyz
  wait_for containerd ctr -a /run/containerd/containerd.sock version
  image "$(home_of images)"/*.tar
  wait_for "the node" kubectl wait --for=condition=Ready "node/$node" --timeout=5s
}

image() {
  local archive
  for archive in "$@"; do
    inside ctr -a /run/containerd/containerd.sock -n k8s.io images import --local "$(readlink -f "$archive")" >/dev/null
  done
}

gpus() {
  inside kubectl patch node "$node" --subresource=status --type=json \
    -p "[{\"op\": \"add\", \"path\": \"/status/capacity/nvidia.com~1gpu\", \"value\": \"$1\"}]" >/dev/null
}

down() {
  local pid
  if pid=$(supervisor); then
    kill -KILL "$pid"
    while [ "$(started_at "$pid")" = "$(cut -d' ' -f2 "$run/pid")" ]; do sleep .1; done
  fi
  remove_cgroups
  restore_sysctls
  rm -rf "$run"
  rmdir /tmp/hostpath_pv 2>/dev/null || true
}

case ${1:-} in
  up) up ;;
  in) shift; inside "$@" ;;
  image) shift; image "$@" ;;
  gpus) gpus "${2:?how many}" ;;
  logs) ls "$run"/log/*.log ;;
  down) down ;;
  *) sed -n '2,10s/^# //p' "$0"; exit 2 ;;
esac
