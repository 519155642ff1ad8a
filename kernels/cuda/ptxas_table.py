"""ptxas's reports of the CUDA kernels as a table: registers, spills and shared memory.

Usage: ptxas_table REPORT.. > table.csv
"""

import csv
import dataclasses
import io
import pathlib
import re
import sys

COLUMNS = ("target", "kernel", "precision", "registers", "spill_store_bytes", "spill_load_bytes",
           "stack_bytes", "shared_bytes")
PRECISIONS = ("float32", "tf32", "bfloat16")  # Of CudaPrecision, in its order.

# A kernel's name within its mangled one, and the precision it is an instance for, if any.
_ENTRY = re.compile(
    r"Compiling entry function '\w*?\d([A-Z]\w*?Kernel)(?:IL\w*?E(\d)E)?\w*' for '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclasses.dataclass(frozen=True, order=True)
class Row:
    """One kernel on one target. Shared memory: static, beside what a launch asks for."""

    target: str
    kernel: str
    precision: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int


def parse(report):
    """The rows of a report of ptxas -v, sorted."""
    rows, entry, stack = [], None, None
    for line in report.splitlines():
        if match := _ENTRY.search(line):
            entry, stack = match, None
        elif match := _STACK.search(line):
            stack = match
        elif (match := _USED.search(line)) and entry and stack:
            shared = _SHARED.search(line)
            rows.append(Row(entry[3], entry[1], PRECISIONS[int(entry[2] or 0)], int(match[1]),
                            int(stack[2]), int(stack[3]), int(stack[1]),
                            int(shared[1]) if shared else 0))
            entry = None
    return sorted(rows)


def write(rows):
    """The table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(dataclasses.astuple(row) for row in rows)
    return text.getvalue()


def read(text):
    """The rows of a table."""
    return [Row(*(row[c] for c in COLUMNS[:3]), *(int(row[c]) for c in COLUMNS[3:]))
            for row in csv.DictReader(io.StringIO(text))]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.stdout.write(write(sorted(
        row for path in sys.argv[1:] for row in parse(pathlib.Path(path).read_text("utf-8")))))
