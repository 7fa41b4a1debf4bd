#!/usr/bin/env bash
# em++ ARGS... from whichever Emscripten there is. Paths in the clone, the cache, the current folder and the temporary
# folder mean the same to the compiler as to the caller: they are bind-mounted into its root in a mount namespace of
# their own (nothing to unmount afterwards), or, where mounting is not permitted, copied in and the results copied out.
# PTL_EMCC_TOOL names another tool of Emscripten (emar, wasm-objdump …).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache=${POSTTRAINLLM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/posttrainllm}
root=$cache/emscripten/forky
tool=${PTL_EMCC_TOOL:-em++}

major=$(emcc --version 2>/dev/null | sed -nE '1s/.* ([0-9]+)\.[0-9]+\.[0-9]+.*/\1/p' || true)
if [ "${major:-0}" -ge 4 ] && command -v em++ >/dev/null; then exec "$tool" "$@"; fi
[ -f "$root.ready" ] || (cd "$here" && python3 -m tools.emscripten >&2)

export PTL_ROOT=$root PTL_TOOL=$tool PTL_HERE=$here PTL_CACHE=$cache PTL_CWD=$PWD
export EM_CACHE=/var/cache/emscripten
if unshare --mount --propagation private true 2>/dev/null && [ "${PTL_EMCC_COPY:-0}" = 0 ]; then
  exec unshare --mount --propagation private bash -euo pipefail -c '
    for folder in "$PTL_HERE" "$PTL_CACHE" "$PTL_CWD" "${TMPDIR:-/tmp}" /dev /proc; do
      mkdir -p "$PTL_ROOT$folder"
      mount --bind "$folder" "$PTL_ROOT$folder"
    done
    exec chroot "$PTL_ROOT" bash -c "cd \"\$PTL_CWD\" && exec \"\$PTL_TOOL\" \"\$@\"" em++ "$@"' em++ "$@"
fi

copy_in() { # FOLDER: its sources, not what is built from them
  mkdir -p "$root$1"
  tar -C "$1" --exclude=./.git --exclude=./dist --exclude=./node_modules -cf - . | tar -C "$root$1" -xf -
}
copy_in "$here"
case "$PWD/" in "$here/"*) ;; *) copy_in "$PWD" ;; esac
mark=$(mktemp "$root/tmp/mark.XXXXXX")
code=0
chroot "$root" bash -c 'cd "$PTL_CWD" && exec "$PTL_TOOL" "$@"' em++ "$@" || code=$?
for folder in "$here" "$PWD"; do
  (cd "$root$folder" && find . -type f -newer "$mark" -print0 | tar --null -T - -cf - | tar -C "$folder" -xf -)
done
rm -f "$mark"
exit "$code"
