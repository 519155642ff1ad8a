"""Makes results directories from closed formulas, for tests and for trying plots.

The bytes are those of design section 2 and 3 for three cubic cores, so every
crossover is an integer that can be worked out by hand. Times are a plain model
(a rate for each variant) with a fixed, repeatable disturbance.

    python -m plotting.synthetic DIR
"""

import csv
import dataclasses
import json
import math
import os
import sys
import zlib

from plotting import results

ITEM_BYTES = {"float32": 4, "float64": 8}
TT_VARIANTS = ("naive", "einsum", "einsum-cores-first", "sequential",
               "sequential-l2r", "sequential-bmm", "recompute", "fused")
DENSE_VARIANTS = ("dense", "dense-onednn")

_RATE = {"dense": 80, "dense-onednn": 104, "naive": 70, "einsum": 30,
         "einsum-cores-first": 65, "sequential": 34, "sequential-l2r": 26,
         "sequential-bmm": 12, "recompute": 32, "fused": 98}  # GFLOP/s


def modes(text):
    return [int(mode) for mode in text.split("x")]


def elements(variant, in_modes, out_modes, ranks, batch, phase):
    """(weights, held, forward peak, backward peak, step peak, peak), in elements."""
    n, m = math.prod(in_modes), math.prod(out_modes)
    x, y = batch * n, batch * m
    matrix = n * m
    training = phase != "inference"
    optimizer = 2 if phase == "step-adam" else 0
    if variant in DENSE_VARIANTS:
        weights, held, forward = matrix, x, y
        backward = 2 * y + x + matrix
    else:
        weights = sum(ranks[k] * ranks[k + 1] * in_modes[k] * out_modes[k]
                      for k in range(len(in_modes)))
        # What passes between the cores, from the last to the first.
        between = [batch * math.prod(in_modes[:k]) * math.prod(out_modes[k:]) * ranks[k]
                   for k in range(1, len(in_modes))]
        chain, widest = sum(between), max(between)
        partial = matrix // (in_modes[-1] * out_modes[-1]) * ranks[-2]
        held, forward, backward = {
            "naive": (x + matrix + partial, 2 * matrix + partial + y,
                      2 * matrix + partial + 2 * y + x),
            "einsum": (2 * x + chain + weights, chain + widest + y,
                       chain + widest + 2 * y + x),
            "einsum-cores-first": (2 * x + matrix + partial, 2 * matrix + partial + 2 * y,
                                   2 * matrix + partial + 3 * y + x),
            "sequential": (x + chain + weights, 3 * widest,
                           chain + widest + 2 * y + x + weights),
            "sequential-l2r": (2 * x + chain + weights, chain + 2 * widest + x,
                               chain + widest + 2 * y + x + weights),
            "sequential-bmm": (x + chain + weights, chain + y,
                               3 * chain + 3 * widest + 2 * y + x + batch * weights),
            "recompute": (x, 3 * widest, chain + widest + 2 * y + x + weights),
        }.get(variant, (x, y + 4096, 2 * y + x + weights + 4096))
    peak = weights + x + (max(forward, backward) if training else forward)
    peak += optimizer * weights
    step = weights * (1 + optimizer) if phase.startswith("step") else None
    return (weights, held if training else None, forward,
            backward if training else None, step, peak)


def _noise(text, amount):
    return 1 + amount * ((zlib.crc32(text.encode()) % 2001) / 1000 - 1)


def _seconds(variant, in_modes, out_modes, ranks, batch, phase):
    n, m = math.prod(in_modes), math.prod(out_modes)
    if variant in DENSE_VARIANTS:
        flops = 2 * batch * n * m
    elif variant in ("naive", "einsum-cores-first"):
        flops = 2 * batch * n * m + 2 * n * m * max(ranks)
    else:
        flops = sum(2 * batch * math.prod(in_modes[:k + 1]) * math.prod(out_modes[k:])
                    * ranks[k] * ranks[k + 1] for k in range(len(in_modes)))
    if phase != "inference":
        flops *= 3
    return flops, flops / (_RATE.get(variant, 50) * 1e9) + 4e-6


def row(variant, in_modes, out_modes, ranks, batch, phase, *, dtype="float32",
        threads=2, status="ok", reason="", experiment="crossover"):
    """One row as a results.Row, measured and model figures equal."""
    dense = variant in DENSE_VARIANTS
    cube = len(set(in_modes + out_modes)) == 1
    inner = set(ranks[1:-1])
    rank = inner.pop() if len(inner) == 1 else None
    spell = "x".join
    texts = [spell(map(str, values)) for values in (in_modes, out_modes, ranks)]
    name = "/".join(filter(None, [
        "linear", variant, f"{texts[0]}:{texts[1]}",
        "" if dense else f"r{rank}" if rank else f"r{texts[2]}",
        f"b{batch}", phase, dtype, "cpu", f"t{threads}"]))
    fields = {field.name: "" if field.type is str else None
              for field in dataclasses.fields(results.Row)}
    fields.update(
        schema=1, experiment=experiment, cell=name, family="linear",
        variant=variant, algorithm=variant, baseline=int(variant == "dense"),
        in_modes=texts[0], out_modes=texts[1], cores=len(in_modes),
        ranks="" if dense else texts[2], rank=None if dense else rank,
        d=in_modes[0] if cube else None, batch=batch, phase=phase, dtype=dtype,
        device="cpu", threads=threads, seed=1, status=status, reason=reason,
        repro=f"bazel run //experiments:cell -- --filter='^{name}$'")
    if status == "ok":
        item = ITEM_BYTES[dtype]
        counts = elements(variant, in_modes, out_modes, ranks, batch, phase)
        for column, count in zip(("weight_bytes", "held_bytes", "forward_peak_bytes",
                                  "backward_peak_bytes", "step_peak_bytes",
                                  "peak_bytes"), counts):
            fields[column] = fields[column + "_model"] = (
                None if count is None else count * item)
        flops, seconds = _seconds(variant, in_modes, out_modes, ranks, batch, phase)
        _, base = _seconds("dense", in_modes, out_modes, ranks, batch, phase)
        seconds *= _noise(name, 0.04)
        base_peak = elements("dense", in_modes, out_modes, ranks, batch, phase)[-1]
        fields.update(
            parameters=counts[0], flops_model=flops, time_ns=round(seconds * 1e9, 1),
            time_min_ns=round(seconds * 0.97e9, 1),
            time_spread=0.31 if zlib.crc32(name.encode()) % 17 == 0 else 0.03,
            iterations=10, repetitions=5, stop_reason="min-time",
            gflops=round(flops / seconds / 1e9, 3),
            fraction_of_peak=round(flops / seconds / 1e9 / 436, 4),
            time_ratio_to_dense=1.0 if variant == "dense" else round(seconds / base, 5),
            peak_ratio_to_dense=round(counts[-1] / base_peak, 6),
            max_relative_error=3e-7, rss_peak_bytes=(counts[-1] * item) + 2 ** 24)
    return results.Row(**fields)


def crossover(variant, phase, metric, d, rank, dtype="float32", limit=2 ** 20):
    """The exact crossover of three cubic cores, by bisection on the formulas."""
    cube, ranks = [d] * 3, [1, rank, rank, 1]

    def more(batch):
        mine, dense = (elements(v, cube, cube, ranks, batch, phase)
                       for v in (variant, "dense"))
        if metric == "held":
            return mine[0] + mine[1] > dense[0] + dense[1]
        return mine[-1] > dense[-1]

    if more(1):
        verdict, batch = "always", None
    elif not more(limit):
        verdict, batch = "never", None
    else:
        low, high = 1, limit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if more(middle) else (middle, high)
        verdict, batch = "measured", high
    text = "x".join([str(d)] * 3)
    return results.Crossover(
        1, "crossover", variant, phase, metric, text, text, "x".join(map(str, ranks)),
        3, d, rank, dtype, batch, batch, d ** 3 // (2 * rank) + 1,
        None if batch is None else 2 * batch * rank / d ** 3, verdict, 12)


def write(directory, rows, crossovers=None, run=None):
    os.makedirs(directory, exist_ok=True)
    _write_csv(os.path.join(directory, "results.csv"), results.COLUMNS, rows)
    if crossovers is not None:
        _write_csv(os.path.join(directory, "crossover.csv"),
                   results.CROSSOVER_COLUMNS, crossovers)
    if run is not None:
        with open(os.path.join(directory, "run.json"), "w", encoding="utf-8") as file:
            json.dump(run, file, indent=2)


def _write_csv(path, columns, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(columns)
        for entry in rows:
            writer.writerow(["" if value is None else value
                             for value in dataclasses.astuple(entry)])


RUN = {
    "experiment": "crossover", "started_utc": "2026-11-30T21:00:00Z",
    "finished_utc": "2026-11-30T22:10:31Z", "git_revision": "0123abc",
    "command": "bazel run //experiments:crossover -- --preset=crossover",
    "machine": {"cpu_model": "Made-up CPU 9000", "vector_extensions": "AVX2, AVX-512",
                "cores": 2, "memory_bytes": 16 * 2 ** 30, "l1_data_bytes": 32768,
                "l2_bytes": 2 ** 20, "l3_bytes": 2 ** 25, "kernel": "Linux 6.1",
                "compiler": "GCC 12.2"},
    "libtorch": "2.11.0", "gemm_library": "MKL 2024.2",
    "fma_peak_gflops": {"float32/t2": 436.0},
    "bandwidth_gb_per_s": {"memory/t2": 40.0, "l2/t2": 400.0},
    "warnings": ["MKL runs AVX2 code on this CPU; its widest vectors are unused."],
    "flags": ["--preset=crossover"], "wall_s": 4231.4,
}


def sweep(ds=(8, 16), ranks=(2, 4, 8, 16, 32), batches=tuple(4 ** e for e in range(7)),
          phases=("inference", "train"), variants=TT_VARIANTS, **options):
    """A full sweep over cubes: rows and crossovers."""
    rows, crossovers = [], []
    for d in ds:
        cube = [d] * 3
        for phase in phases:
            for batch in batches:
                for variant in DENSE_VARIANTS:
                    rows.append(row(variant, cube, cube, [1, 1, 1, 1], batch, phase,
                                    **options))
                for variant in variants:
                    for rank in ranks:
                        rows.append(row(variant, cube, cube, [1, rank, rank, 1],
                                        batch, phase, **options))
            for variant in variants:
                for rank in ranks:
                    for metric in ("held", "peak") if phase == "train" else ("peak",):
                        crossovers.append(crossover(variant, phase, metric, d, rank))
    return rows, crossovers


def showcase(directory):
    """About 1000 rows with every kind of cell, for looking at the figures."""
    rows, crossovers = sweep()
    kept = []
    for entry in rows:
        big = (entry.rank or 0) >= 16 and entry.batch >= 1024 and entry.d == 16
        state = None
        if big and entry.variant == "sequential-bmm":
            state = ("oom", "12 GiB budget") if entry.batch == 1024 else (
                "skipped", "a smaller batch ran out of memory")
        elif entry.variant == "einsum" and entry.rank == 32 and entry.batch == 4096:
            state = ("timeout", "ended after 60 s")
        elif entry.variant == "fused" and entry.rank == 32 and entry.d == 8:
            state = ("skipped", "the tile does not fit its cache")
        elif entry.variant == "recompute" and entry.rank == 2 and entry.batch == 4096:
            state = ("crashed", "SIGSEGV")
        elif entry.variant == "sequential-l2r" and entry.rank == 4 and entry.batch == 16:
            continue
        if state:
            entry = row(entry.variant, modes(entry.in_modes), modes(entry.out_modes),
                        modes(entry.ranks), entry.batch, entry.phase,
                        status=state[0], reason=state[1])
        kept.append(entry)
    for phase in ("inference", "train"):
        for in_modes, out_modes in (([2, 5, 41], [10, 14, 15]),
                                    ([41, 5, 2], [15, 14, 10])):
            for batch in (64, 512, 3000):
                for variant in DENSE_VARIANTS + TT_VARIANTS:
                    lost = variant == "sequential-bmm" and batch == 3000
                    kept.append(row(variant, in_modes, out_modes, [1, 8, 8, 1], batch,
                                    phase, status="oom" if lost else "ok",
                                    reason="12 GiB budget" if lost else ""))
        for in_modes, ranks in (([8] * 4, [1, 8, 8, 8, 1]),
                                ([4, 8, 8, 16], [1, 4, 8, 6, 1])):
            for batch in (64, 512):
                for variant in DENSE_VARIANTS + TT_VARIANTS:
                    kept.append(row(variant, in_modes, in_modes, ranks, batch, phase))
    write(directory, kept, crossovers, RUN)


if __name__ == "__main__":
    showcase(sys.argv[1])
