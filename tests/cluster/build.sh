#!/usr/bin/env bash
# Builds the programs of a real cluster from Go modules and the node's images from files: once per machine and version, kept in the cache.
# usage: build.sh [PART...]     kubernetes etcd containerd coredns kube-router images agents lws kueue helm monitoring; without arguments the first six
#
# Prints nothing on standard output; `paths.sh` says where things are. Cold, on two cores: kubernetes 7 minutes, the other five 5, helm, kueue and
# lws 5 together. The folder of a part is named by a hash of what it is made of; one that exists is whole.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/paths.sh"

export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
version=v1.37.2
stamp=k8s.io/component-base/version

packages=(runc containernetworking-plugins iptables ipset iproute2 conntrack catatonit busybox-static musl-tools openssl)

# build PART FUNCTION: runs FUNCTION in an empty folder, which becomes the part's. Never called after || or if: those take errexit away.
build() {
  local part=$1 home work
  home=$(home_of "$part")
  (
    flock 9
    [ ! -d "$home" ] || exit 0
    say "building $part of the cluster (once per machine)"
    rm -rf "$home".work-*
    work=$(mktemp -d "$home.work-XXXXXX")
    cd "$work"
    "$2"
    chmod 755 "$work"
    mv -T "$work" "$home"
  ) 9>"$cluster_cache/$part.lock"
}

# go_build PART PACKAGE PROGRAM [LDFLAGS]
go_build() {
  local output=$PWD/$3
  (cd "$recipe/go/$1" && retry go mod download && go build -trimpath -ldflags "-s -w ${4:-}" -o "$output" "$2") >&2
}

kubernetes() {
  local program
  go_build kubernetes . kubernetes "-X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=37 -X $stamp.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=$version"
  for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
    ln -s kubernetes "$program"
  done
}
etcd() { go_build etcd . etcd; }
containerd() {
  local program
  for program in containerd containerd-shim-runc-v2 ctr; do
    go_build containerd "github.com/containerd/containerd/v2/cmd/$program" "$program"
  done
}
coredns() { go_build coredns . coredns; }
kube_router() { go_build kube-router github.com/cloudnativelabs/kube-router/v2/cmd/kube-router kube-router; }
lws() {
  go_build lws sigs.k8s.io/lws/cmd manager
  image lws.tar localhost/lws:0.9.0 '["/manager"]' manager=/manager
}
kueue() {
  go_build kueue sigs.k8s.io/kueue/cmd/kueue manager
  image kueue.tar localhost/kueue:0.17.0 '["/manager"]' manager=/manager
}
helm() { go_build helm helm.sh/helm/v4/cmd/helm helm; }
# The definition of ServiceMonitor, which the chart makes one of.
monitoring() {
  local module=github.com/prometheus-operator/prometheus-operator source
  source=$(cd "$recipe/go/monitoring" && retry go mod download "$module" >&2 && go list -m -f '{{.Dir}}' "$module")
  install -m 644 "$source/example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml" servicemonitors.yaml
}
images() {
  musl-gcc -static -Os -s -o pause "$recipe/pause.c"
  image pause.tar localhost/pause:3.10 '["/pause"]' pause=/pause
  image tiny.tar localhost/tiny:1 '["/bin/sh"]' /bin/busybox=/bin/busybox \
    'bin/sh->busybox' 'bin/wget->busybox' 'bin/nc->busybox' 'bin/sleep->busybox' 'bin/cat->busybox' 'bin/httpd->busybox'
  # For pods that mount the machine's own /usr and /lib.
  : >empty
  image host.tar localhost/host:1 '["/bin/sh"]' empty=/.keep
}
# Images of agents: a static program, and the python3 of this machine with its standard library.
agents() {
  local python files
  go_build agents . agents
  image agents.tar localhost/agents:1 '["/agents"]' agents=/agents
  python=$(python3 -I -c 'import os, sys; print(os.path.realpath(sys.executable))')
  mapfile -t files < <("$python" -I -c '
import glob, os, re, subprocess, sys, sysconfig
library = sysconfig.get_path("stdlib")
files = [sys.executable]
for folder, folders, names in os.walk(library):
    folders[:] = [name for name in folders if not re.match("test|idlelib|tkinter|turtledemo|ensurepip|site-packages|dist-packages|__pycache__|config-", name)]
    files += [os.path.join(folder, name) for name in names if not name.endswith((".a", ".pyc"))]
linked = subprocess.run(["ldd", sys.executable, *glob.glob(library + "/lib-dynload/*.so")], stdout=subprocess.PIPE, text=True).stdout
files += re.findall(r"(/\S+) \(0x", linked)
print(*sorted(f"{os.path.realpath(file)}={file}" for file in set(files)), sep="\n")')
  image python.tar localhost/python:1 '["/bin/python3"]' "bin/python3->$python" "${files[@]}"
}
image() { python3 "$recipe/image.py" "$@" >&2; }

command -v go >/dev/null || die "no go: install Go 1.26 or later (https://go.dev)"
debian "${packages[@]}"
mkdir -p "$cluster_cache"
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${cluster_parts[@]}")
for part in "${parts[@]}"; do
  case $part in
    kubernetes | etcd | containerd | coredns | lws | kueue | helm | monitoring | images | agents) build "$part" "$part" ;;
    kube-router) build "$part" kube_router ;;
    *) die "no part '$part': kubernetes, etcd, containerd, coredns, kube-router, images, agents, lws, kueue, helm or monitoring" ;;
  esac
done
