#!/usr/bin/env bash
# Formats every C++ and CUDA file of the workspace, or fails naming each one that would change.
# Usage: format.sh (fix|check) CLANG_FORMAT WORKSPACE_FILE
set -euo pipefail

action=$1
clang_format=$(readlink -f "$2")
cd "$(dirname "$(readlink -f "$3")")"

mapfile -d '' files < <(
  find . -name '.*' -not -name . -prune -o -type f \
    '(' -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' ')' -print0 | sort -z
)
if ((${#files[@]} == 0)); then
  echo "no C++ files in $PWD" >&2
  exit 1
fi

if [[ $action == fix ]]; then
  exec "$clang_format" -i "${files[@]}"
fi
status=0
for file in "${files[@]}"; do
  if ! "$clang_format" "$file" | cmp -s - "$file"; then
    echo "${file#./} is not formatted; ./bazelw run //tools:format formats all" >&2
    status=1
  fi
done
exit "$status"
