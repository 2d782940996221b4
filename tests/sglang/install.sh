#!/usr/bin/env bash
# Installs a real SGLang that serves a tiny model on the CPU, and prints the folders: the engine's, then the model's.
# usage: install.sh
#
# Once per machine and recipe: the folder's name holds a hash of the files that it is made of. Needs x86-64 Linux, python3 with pip, and
# 4 GB of disk. Safe to run twice and by several shells at once; an interrupted install leaves nothing that counts as done.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh"
recipe=$root/tests/sglang
tokenizer=$root/crates/rollout-tokenizer/assets/builtin
version=$(sed -n 's/^sglang==//p' "$recipe/requirements.in")
uv_version=0.13.9

hash_of() { sha256sum "$@" | cut -d' ' -f1 | sha256sum | cut -c1-16; }

engine=$cache/sglang-$version-$(hash_of "$recipe"/{install.sh,requirements.txt,cuda_stubs.py,stubs/sgl_kernel/__init__.py})
model=$engine/model-$(hash_of "$recipe/tiny_model.py" "$tokenizer"/*)

# uv reads no pip configuration, so that a chosen package index is named to it.
use_pips_index() {
  local index
  index=${PIP_INDEX_URL:-$(python3 -m pip config get global.index-url 2>/dev/null || true)}
  [ -z "$index" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}
}

python_in() { LD_LIBRARY_PATH=$1/stublibs TQDM_DISABLE=1 "$1/venv/bin/python" "${@:2}"; }

install_engine() {
  local work free site uv
  [ "$(uname -sm)" = "Linux x86_64" ] || die "the real SGLang is installed on x86-64 Linux only, this is $(uname -sm)"
  command -v python3 >/dev/null || die "no python3"
  free=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1024 / 1024) }')
  [ "$free" -ge 4 ] || die "$cache has $free GB left, SGLang needs 4"
  say "installing SGLang $version for the CPU (once per machine: 3 GB)"
  work=$(mktemp -d "$engine.work-XXXXXX")
  use_pips_index
  export UV_CACHE_DIR=$cache/uv UV_HTTP_TIMEOUT=300 UV_NO_PROGRESS=1 PIP_ROOT_USER_ACTION=ignore
  retry python3 -m pip install -q --target "$work/uv" "uv==$uv_version" >&2
  uv=$work/uv/bin/uv
  retry "$uv" venv -q --python '>=3.11,<3.14' "$work/venv" >&2
  retry "$uv" pip install -q --python "$work/venv/bin/python" --no-deps -r "$recipe/requirements.txt" >&2
  site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  "$work/venv/bin/python" "$recipe/cuda_stubs.py" "$site/torch/lib" "$work/stublibs" >&2
  cp "$(find "$site/nvidia" -name 'libcudart.so.*' | head -n 1)" "$work/stublibs/"
  cp -r "$recipe/stubs" "$work/stubs"
  rm -rf "$work/uv"
  python_in "$work" -c 'import torch; assert not torch.cuda.is_available(); torch.ones(2) @ torch.ones(2)' >&2
  mv -T "$work" "$engine"
}

make_model() {
  local work
  work=$(mktemp -d "$engine/model.work-XXXXXX")
  python_in "$engine" "$recipe/tiny_model.py" "$tokenizer" "$work" >&2
  mv -T "$work" "$model"
}

if [ ! -d "$model" ]; then
  mkdir -p "$cache"
  exec 9>"$engine.lock"
  flock 9
  # Whoever holds the lock is the only one at work: what else there is was interrupted.
  rm -rf "$engine".work-* "$engine"/model.work-*
  [ -d "$engine" ] || install_engine
  [ -d "$model" ] || make_model
  exec 9>&-
fi
printf '%s\n' "$engine" "$model"
