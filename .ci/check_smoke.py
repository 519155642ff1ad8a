"""Checks what a run of the smoke preset left behind. Usage: check_smoke.py DIRECTORY

The columns are the documented ones; every row is ok, or skipped with a reason; every measured byte
count has its model's beside it and equals it, unless the row says that it is not modelled;
crossovers are where the models put them; and the report and every plot are there.
"""

import csv
import pathlib
import sys

COLUMNS = """
schema experiment cell family variant algorithm baseline in_modes out_modes ranks cores d rank
source_len target_len hidden layers batch phase dtype device threads seed status reason parameters
weight_bytes weight_bytes_model held_bytes held_bytes_model forward_peak_bytes
forward_peak_bytes_model backward_peak_bytes backward_peak_bytes_model step_peak_bytes
step_peak_bytes_model peak_bytes peak_bytes_model rss_peak_bytes reserved_bytes flops_model time_ns
time_min_ns time_spread iterations repetitions stop_reason gflops fraction_of_peak
time_ratio_to_dense peak_ratio_to_dense max_relative_error repro
""".split()
# What every ok row has; held and backward bytes only where there is a backward.
MEASURED = ["weight_bytes", "forward_peak_bytes", "peak_bytes", "time_ns", "max_relative_error"]
MEASURED_IN_TRAINING = ["held_bytes", "backward_peak_bytes"]
# Exact even where a library's scratch makes the peaks unpredictable.
ALWAYS_MODELLED = ["weight_bytes", "held_bytes"]
PLOT_FORMATS = ["svg", "pdf", "png"]


def row_complaints(row):
    """One sentence for each thing that is wrong in a row of results.csv."""
    status, reason = row["status"], row["reason"]
    if status == "skipped" and reason:
        return
    if status != "ok":
        yield f"status {status}, reason '{reason}'"
        return
    expected = MEASURED + (MEASURED_IN_TRAINING if row["phase"] != "inference" else [])
    for column in expected:
        if not row[column]:
            yield f"{column} is empty"
    for model_column in COLUMNS:
        column = model_column.removesuffix("_model")
        if column == model_column or column not in COLUMNS:
            continue
        measured, model = row[column], row[model_column]
        may_lack = "not modelled" in reason and column not in ALWAYS_MODELLED
        if measured != model and not (may_lack and not model):
            yield f"{column} is {measured or 'empty'}, {model_column} is {model or 'empty'}"


def table(path):
    """Header and rows of a CSV file."""
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        rows = list(reader)
    return reader.fieldnames, rows


def complaints(directory):
    """One sentence for each thing that is wrong in a directory of results."""
    header, rows = table(directory / "results.csv")
    if header != COLUMNS:
        yield f"results.csv has the columns {header}"
        return
    if not any(row["status"] == "ok" for row in rows):
        yield "results.csv has no row that is ok"
    for row in rows:
        for complaint in row_complaints(row):
            yield f"{row['cell']}: {complaint}"

    _, crossovers = table(directory / "crossover.csv")
    compared = 0
    for row in crossovers:
        measured, model = row["crossover_batch"], row["crossover_batch_model"]
        compared += bool(measured and model)
        if measured and model and measured != model:
            name = f"{row['variant']} {row['in_modes']} r{row['rank']} {row['phase']}"
            yield f"{name}: {row['metric']} crosses at {measured}, by the model at {model}"
    if not compared:
        yield "crossover.csv has no crossover that is both measured and modelled"

    if not (directory / "report.html").is_file():
        yield "there is no report.html"
    for extension in PLOT_FORMATS:
        plots = list((directory / "plots").glob(f"**/*.{extension}"))
        if not any(plot.stat().st_size for plot in plots):
            yield f"there is no plot as {extension.upper()}"


def main():
    found = list(complaints(pathlib.Path(sys.argv[1])))
    for complaint in found:
        print(complaint, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
