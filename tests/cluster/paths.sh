# Sourced by the scripts of this folder: where the cluster's parts are.

# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh"
recipe=$root/tests/cluster
cluster_cache=$cache/cluster
# Raise it when build.sh makes something else of the same files.
build_version=1
cluster_parts=(kubernetes etcd containerd coredns kube-router images)

# home_of PART: the folder of a part, by what it is made of.
home_of() {
  local part=$1 files
  case $part in
    images) files=("$recipe/image.py" "$recipe/pause.c") ;;
    agents | lws | kueue) files=("$recipe"/go/"$part"/* "$recipe/image.py") ;;
    *) files=("$recipe"/go/"$part"/*) ;;
  esac
  printf '%s/%s-%s\n' "$cluster_cache" "$part" "$( { echo "$build_version"; cat "${files[@]}"; } | sha256sum | cut -c1-16)"
}
