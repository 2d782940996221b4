# Sourced by ./demo, ./test and the scripts under tests/: what a fresh machine needs, installed once and kept under the cache.
# Everything comes through the ordinary package clients. Safe to run twice, and by two shells at once.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${ROLLOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rollout-operator}
mkdir -p "$cache"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
export CARGO_NET_RETRY=${CARGO_NET_RETRY:-5} PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "== $*" >&2; }
die() { printf '%s\n' "error: $*" >&2; exit 1; }

# retry COMMAND...: three tries, for downloads.
retry() {
  local try
  for try in 1 2 3; do
    "$@" && return 0
    say "try $try of 3 failed: $*"
  done
  return 1
}

# debian PACKAGE...: installs what is missing.
debian() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return 0
  [ "$(id -u)" = 0 ] || die "please install: ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  retry apt-get update -qq
  DEBIAN_FRONTEND=noninteractive retry apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# A C compiler, Rust and Python are there, or said to be missing.
need_toolchain() {
  command -v cc >/dev/null || debian gcc libc6-dev
  command -v cargo >/dev/null || die "no cargo: install Rust 1.95 or later (https://rustup.rs)"
  command -v python3 >/dev/null || debian python3
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || die "python3 is older than 3.9"
  python3 -c 'import venv, ensurepip' 2>/dev/null || debian python3-venv
}

# python_env REQUIREMENTS: prints the interpreter of a virtual environment with these requirements.
python_env() {
  local requirements=$1 key env
  key=$( { python3 --version; cat "$requirements"; } | sha256sum | cut -c1-16)
  env=$cache/python-$key
  (
    flock 9
    if [ ! -e "$env/.ready" ]; then
      say "installing Python packages of ${requirements#"$root"/} (once per machine)"
      rm -rf "$env" &&
        python3 -m venv "$env" >&2 &&
        retry "$env/bin/python" -m pip install -q -r "$requirements" >&2 &&
        touch "$env/.ready"
    fi
  ) 9>"$cache/python-$key.lock" || return 1
  printf '%s\n' "$env/bin/python"
}

# cargo_tool NAME VERSION: prints the path of a cargo tool built from its source package.
cargo_tool() {
  local name=$1 version=$2 home
  home=$cache/tools/$name-$version
  (
    flock 9
    if [ ! -x "$home/bin/$name" ]; then
      say "building $name $version (once per machine, some minutes)"
      CARGO_TARGET_DIR=$cache/tools/build-$name retry cargo install -q --locked "$name" --version "$version" --root "$home" >&2 &&
        rm -rf "$cache/tools/build-$name"
    fi
  ) 9>"$cache/$name.lock" || return 1
  printf '%s\n' "$home/bin/$name"
}
