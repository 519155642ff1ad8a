#!/usr/bin/env bash
# Prints the only C++ block of a Markdown page, which must be of fewer than 60 lines, comments
# included. Usage: extract_code.sh PAGE
set -euo pipefail

code=$(awk '/^ *```cpp$/ { blocks++; inside = 1; next } /^ *```$/ { inside = 0 } inside
            END { if (blocks != 1) exit 1 }' "$1") || {
  echo "$1: there is not exactly one block of C++" >&2
  exit 1
}
if (($(wc -l <<<"$code") >= 60)); then
  echo "$1: the example has $(wc -l <<<"$code") lines; keep it under 60" >&2
  exit 1
fi
printf '%s\n' "$code"
