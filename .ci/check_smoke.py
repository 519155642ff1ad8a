"""Checks what a run of the smoke preset left behind. Usage: check_smoke.py DIRECTORY

Every row is ok, or skipped with a reason, and every measured byte count equals its model.
"""

import csv
import pathlib
import sys


def complaints(rows):
    """One sentence for each thing that is wrong in the rows of results.csv."""
    if not rows:
        yield "results.csv has no rows"
    for row in rows:
        status, reason = row["status"], row["reason"]
        if status != "ok" and not (status == "skipped" and reason):
            yield f"{row['cell']}: status {status}, reason '{reason}'"
        for column, model in row.items():
            measured = column.removesuffix("_model")
            if measured != column and measured.endswith("_bytes") and row[measured] != model:
                yield f"{row['cell']}: {measured} is {row[measured]}, {column} is {model}"


def main():
    with open(pathlib.Path(sys.argv[1], "results.csv"), newline="") as file:
        found = list(complaints(list(csv.DictReader(file))))
    for complaint in found:
        print(complaint, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
