#!/usr/bin/env bash
# Installs LeaderWorkerSet or Kueue into the running cluster, from the manifests of the module that it is built from.
# usage: addons.sh lws|kueue        CLUSTER_NAME as for cluster.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/paths.sh"
cluster=$recipe/cluster.sh
case ${1:-} in
  lws) module=sigs.k8s.io/lws version=0.9.0 set=manager ;;
  kueue) module=sigs.k8s.io/kueue version=0.17.0 set=components/manager ;;
  *) sed -n '2,3s/^# //p' "$0"; exit 2 ;;
esac
name=$1
bash "$recipe/build.sh" "$name"
bash "$cluster" image "$(home_of "$name")/$name.tar"
source=$(cd "$recipe/go/$name" && go list -m -f '{{.Dir}}' "$module")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/config" "$work/config"
chmod -R u+w "$work/config"
sed -i "s#newName: .*#newName: localhost/$name#; s#newTag: .*#newTag: $version#" "$work/config/$set/kustomization.yaml"
bash "$cluster" in kubectl kustomize "$work/config/default" 2>/dev/null |
  sed 's/imagePullPolicy: Always/imagePullPolicy: IfNotPresent/' >"$work/all.yaml"
bash "$cluster" in kubectl apply --server-side -f "$work/all.yaml" >/dev/null
# One replica with small requests; the image names no user.
bash "$cluster" in kubectl -n "$name-system" patch deployment "$name-controller-manager" --type strategic -p '{"spec": {"replicas": 1, "template": {"spec": {
  "securityContext": {"runAsUser": 65532},
  "containers": [{"name": "manager", "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}}}]}}}}' >/dev/null
bash "$cluster" in kubectl -n "$name-system" rollout status deployment "$name-controller-manager" --timeout=120s
# Its webhooks answer a second or two after the pod is ready: whoever applies next retries.
