# Sourced by cluster.sh: certificates and configuration of a cluster's programs, written below $run.

pki=$run/pki
node=n1
node_ip=10.90.0.11
api_ip=10.96.0.1
service_range=10.96.0.0/16
pod_range=10.91.0.0/16

# issue NAME SUBJECT [EXTENSION]: a certificate signed by the cluster's authority.
issue() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$pki/$1.key" -subj "$2" 2>/dev/null |
    openssl x509 -req -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 365 -out "$pki/$1.crt" \
      -extfile <(echo "${3:-extendedKeyUsage=clientAuth}") 2>/dev/null
}

write_certificates() {
  mkdir -p "$pki"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$pki/ca.key" -out "$pki/ca.crt" -days 365 -subj /CN=cluster-ca 2>/dev/null
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/accounts.key"
  openssl ec -in "$pki/accounts.key" -pubout -out "$pki/accounts.pub" 2>/dev/null
  issue apiserver /CN=kube-apiserver \
    "subjectAltName=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,IP:$node_ip,IP:$api_ip,IP:127.0.0.1"
  issue admin /O=system:masters/CN=admin
  issue kubelet "/O=system:nodes/CN=system:node:$node"
}

write_kubeconfig() { # NAME of the certificate
  cat >"$run/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://$node_ip:6443", certificate-authority: $pki/ca.crt}}]
users: [{name: u, user: {client-certificate: $pki/$1.crt, client-key: $pki/$1.key}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
YAML
}

# What differs from an ordinary node: no CAP_SYS_RESOURCE may be there, so that nothing lowers an OOM score.
write_containerd() {
  cat >"$run/containerd.toml" <<TOML
version = 3
root = "$run/containerd/root"
state = "$run/containerd/state"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "localhost/pause:3.10"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "$run/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
TOML
  cat >"$run/cni/10-bridge.conflist" <<JSON
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$run/cni-state", "ranges": [[{"subnet": "$pod_range"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
}

# cgroup v1 is what a container on an older host sees; the kubelet runs on it only when told to.
write_kubelet() {
  cat >"$run/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
oomScoreAdj: 0
maxOpenFiles: 20000
maxPods: 500
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {x509: {clientCAFile: $pki/ca.crt}, webhook: {enabled: true}, anonymous: {enabled: false}}
authorization: {mode: Webhook}
clusterDNS: [$node_ip]
clusterDomain: cluster.local
resolvConf: /dev/null
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "100Mi", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
podLogsDir: $run/pods
registerNode: true
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 200
kubeAPIBurst: 400
YAML
}

write_network() {
  cat >"$run/Corefile" <<CORE
cluster.local in-addr.arpa {
  bind $node_ip
  errors
  ready $node_ip:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $run/admin.kubeconfig
    pods insecure
  }
  cache 5
}
CORE
  cat >"$run/kube-proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: $run/admin.kubeconfig}
clusterCIDR: $pod_range
hostnameOverride: $node
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0}
YAML
}

# Tests count what the controller writes: every write is in the audit log.
write_audit_policy() {
  cat >"$run/audit.yaml" <<YAML
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, verbs: [create, update, patch, delete, deletecollection]}]
YAML
}

write_config() {
  mkdir -p "$run"/{log,cni,cni-state,containerd,kubelet,etcd,volumes}
  write_certificates
  write_kubeconfig admin
  write_kubeconfig kubelet
  write_containerd
  write_kubelet
  write_network
  write_audit_policy
}
