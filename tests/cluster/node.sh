#!/usr/bin/env bash
# The first program in a cluster's namespaces: prepares mounts and network, then keeps the programs of control plane and node running.
# usage: node.sh RUN BIN:BIN...      called by cluster.sh
set -euo pipefail
run=$1
export PATH=$2:$PATH
. "$(dirname "${BASH_SOURCE[0]}")/config.sh"
admin=$run/admin.kubeconfig

# start NAME COMMAND...: in the background, again when it dies (tests kill it), its output in log/NAME.log
start() {
  local name=$1
  shift
  (while true; do "$@" || true; sleep .5; done) >>"$run/log/$name.log" 2>&1 </dev/null &
}

# until_ready COMMAND...: for a minute at the most
until_ready() {
  local try
  for try in $(seq 300); do
    "$@" >/dev/null 2>&1 && return 0
    sleep .2
  done
  printf 'not ready after a minute: %s\n' "$*" >&2
  return 1
}

mount_file_systems() {
  local hierarchy
  mount --make-rprivate /
  mount -t proc proc /proc
  mount -t sysfs sysfs /sys
  mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
  for hierarchy in cpu cpuacct cpuset memory devices freezer blkio pids; do
    mkdir "/sys/fs/cgroup/$hierarchy"
    mount -t cgroup -o "$hierarchy" cgroup "/sys/fs/cgroup/$hierarchy"
  done
  mkdir /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
  mount -t tmpfs tmpfs /run
  mkdir -p /run/netns /run/lock /run/containerd
  # The provisioner of the controller manager puts volumes there.
  mkdir -p /tmp/hostpath_pv
  mount --bind "$run/volumes" /tmp/hostpath_pv
  mount --make-rshared /
}

# The provisioner makes volumes for root alone, and fsGroup changes no host path. As on kind and k3s, they are for everyone.
open_volumes() {
  local volume
  while sleep .2; do
    for volume in "$run"/volumes/*/; do
      [ -w "$volume" ] && [ ! -k "$volume" ] && chmod 1777 "$volume"
    done
  done
}

# A bridge with nothing behind it: the default route makes service addresses leave, so that they are translated; nothing gets out.
make_network() {
  hostname "$node"
  ip link set lo up
  ip link add node0 type bridge
  ip addr add "$node_ip/24" dev node0
  ip link set node0 up
  ip link add keep0 type veth peer name keep1
  ip link set keep0 master node0 up
  ip link set keep1 up
  ip route add default via 10.90.0.1 dev node0
  sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.route_localnet=1 net.bridge.bridge-nf-call-iptables=1
}

start_control_plane() {
  start etcd etcd --data-dir "$run/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync --log-level warn
  start kube-apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 --advertise-address "$node_ip" --secure-port 6443 \
    --service-cluster-ip-range "$service_range" --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
    --client-ca-file "$pki/ca.crt" --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$pki/accounts.pub" \
    --service-account-signing-key-file "$pki/accounts.key" --kubelet-client-certificate "$pki/admin.crt" --kubelet-client-key "$pki/admin.key" \
    --kubelet-preferred-address-types InternalIP --allow-privileged \
    --audit-policy-file "$run/audit.yaml" --audit-log-path "$run/log/audit.log"
  until_ready kubectl --kubeconfig "$admin" get --raw /readyz
  start kube-controller-manager kube-controller-manager --kubeconfig "$admin" --root-ca-file "$pki/ca.crt" \
    --service-account-private-key-file "$pki/accounts.key" --use-service-account-credentials --leader-elect=false \
    --kube-api-qps 200 --kube-api-burst 400 --node-monitor-grace-period 20s --enable-hostpath-provisioner
  start kube-scheduler kube-scheduler --kubeconfig "$admin" --leader-elect=false --kube-api-qps 200 --kube-api-burst 400
}

start_node() {
  start kubelet kubelet --config "$run/kubelet.yaml" --kubeconfig "$run/kubelet.kubeconfig" --hostname-override "$node" --node-ip "$node_ip" \
    --root-dir "$run/kubelet" --cert-dir "$pki/kubelet"
  start kube-proxy kube-proxy --config "$run/kube-proxy.yaml"
  start coredns coredns -conf "$run/Corefile" -dns.port 53
  # Controllers that run here look Services up.
  printf 'nameserver %s\n' "$node_ip" >"$run/resolv.conf"
  mount --bind "$run/resolv.conf" /etc/resolv.conf
  kubectl --kubeconfig "$admin" apply -f - >/dev/null <<YAML
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/host-path
YAML
  until_ready kubectl --kubeconfig "$admin" get node "$node"
  # Enforces NetworkPolicy; services are kube-proxy's.
  start kube-router kube-router --run-firewall=true --run-router=false --run-service-proxy=false --kubeconfig "$admin" \
    --hostname-override "$node" --service-cluster-ip-range "$service_range" --metrics-port 0
}

mount_file_systems
make_network
start containerd containerd -c "$run/containerd.toml"
start_control_plane
start_node
start volumes open_volumes
wait
