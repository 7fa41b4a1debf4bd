#!/usr/bin/env bash
# The only entry: ./build.sh setup|build|serve|test|bench|train|clean [OPTIONS]. It finds a Python; tools/ does the work.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

suits() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

python=
for candidate in "${PYTHON:-python3}" python3 /usr/bin/python3; do
  if suits "$candidate"; then python=$candidate && break; fi
done
if [ -z "$python" ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "build.sh needs Python 3.11 or later with venv (set PYTHON), or root on Debian 12 or 13." >&2
    exit 1
  fi
  echo "Installing Python from Debian …"
  apt-get -o DPkg::Lock::Timeout=600 -q update >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends \
    python3 python3-venv python3-dev ca-certificates >/dev/null
  python=/usr/bin/python3
fi
# -B: no bytecode of the tools in the clone.
PTL_CALLER_CWD=$OLDPWD exec "$python" -B -m tools.main "$@"
