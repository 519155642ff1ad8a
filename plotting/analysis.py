"""Selections and figures of merit that the plots, tables and claims share."""

import collections
import dataclasses
import math
import typing

PHASES = ("inference", "train", "step-sgd", "step-adam")
PHASE_WORDS = {"inference": "inference", "train": "training",
               "step-sgd": "SGD step", "step-adam": "Adam step"}
ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
PICKER = "auto"  # Runs one of the other variants: no contestant of its own.
NOISY_SPREAD = 0.2
TIE = 1.02

# Design section 2: with three cubic cores of rank r, a plain sequential layer
# passes the dense one where 2Br = k d^3. As a function of r:
EXPECTED_K = {
    ("train", "held"): ("1", lambda r: 1.0),
    ("inference", "peak"): ("2r/(3r\u22121)", lambda r: 2 * r / (3 * r - 1)),
    ("train", "peak"): ("about 4/3", lambda r: 4 / 3),
    ("step-sgd", "peak"): ("about 4/3", lambda r: 4 / 3),
    ("step-adam", "peak"): ("about 8/3", lambda r: 8 / 3),
}


class CubeKey(typing.NamedTuple):
    """What one set of figures over (B, r) is about."""

    conditions: tuple
    family: str
    cores: int
    d: int

    @property
    def name(self):
        family = "" if self.family == "linear" else f"{self.family}-"
        return f"{family}d{self.d}-k{self.cores}-{self.conditions.name}"

    @property
    def words(self):
        return (f"{self.d}$^{self.cores}$\u2192{self.d}$^{self.cores}$, "
                f"{self.cores} cores, {self.conditions.words}")

    @property
    def plain(self):
        size = self.d ** self.cores
        return f"d = {self.d} ({size} \u2192 {size}), {self.cores} cores"


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A figure on disk with what the report says about it."""

    stem: str
    title: str
    caption: str
    section: str
    paths: tuple
    rows: tuple
    columns: tuple


def phase_order(phases):
    return sorted(set(phases), key=lambda phase: (
        PHASES.index(phase) if phase in PHASES else len(PHASES), phase))


def phase_words(phase):
    return PHASE_WORDS.get(phase, phase)


def cube(row):
    """(cores, d) of a layer whose modes are all d, else None.

    A dense row has no cores to speak of, so its modes decide where d is empty.
    """
    modes = row.in_modes.split("x") + row.out_modes.split("x")
    if row.d is not None:
        return row.cores or len(modes) // 2, row.d
    if row.in_modes and not is_ranked(row) and len(set(modes)) == 1:
        return len(modes) // 2, int(modes[0])
    return None


def cubes(results):
    """Rows of cubic layers by CubeKey, in a fixed order."""
    groups = collections.defaultdict(list)
    for row in results.rows:
        if cube(row) and row.batch is not None:
            groups[CubeKey(row.conditions, row.family, *cube(row))].append(row)
    return {key: groups[key] for key in sorted(groups, key=_sort_key)}


def mapped(results):
    """The cubes with more than one rank and batch, which a map can show."""
    return {key: rows for key, rows in cubes(results).items()
            if len({row.rank for row in rows if row.rank is not None}) > 1
            and len({row.batch for row in rows}) > 1}


def layers(results):
    """Rows of the layers that no map shows, by conditions."""
    groups = collections.defaultdict(list)
    on_maps = {row.cell for rows in mapped(results).values() for row in rows}
    for row in results.rows:
        if row.batch is not None and row.cell not in on_maps:
            groups[row.conditions].append(row)
    return {key: groups[key] for key in sorted(groups, key=_sort_key)}


def _sort_key(key):
    return tuple((value is not None, value) if not isinstance(value, tuple)
                 else _sort_key(value) for value in key)


def is_ranked(row):
    """Whether the row is of a layer that has ranks (the dense ones have none)."""
    return bool(row.ranks) or row.rank is not None


def sizes(row):
    """(N, M) of a linear layer."""
    return tuple(math.prod(map(int, modes.split("x")))
                 for modes in (row.in_modes, row.out_modes))


def layer_bytes(row):
    """Bytes of x, y and the variant's parameters, once each; in training a gradient of
    each too. Item (B N + B M + P), or twice that. None if unknown, and for optimizer steps.
    """
    item = ITEM_BYTES.get(row.dtype)
    if (None in (item, row.batch, row.parameters) or not row.in_modes
            or row.phase not in ("inference", "train")):
        return None
    once = item * (row.batch * sum(sizes(row)) + row.parameters)
    return once if row.phase == "inference" else 2 * once


def shape_words(row):
    if row.in_modes:
        return f"{row.in_modes} \u2192 {row.out_modes}"
    parts = [("S", row.source_len), ("T", row.target_len), ("H", row.hidden),
             ("layers ", row.layers)]
    return " ".join(f"{name}{value}" for name, value in parts if value is not None)


def crossovers_of(results, key, phase, metric, variant):
    """{rank: Crossover} from crossover.csv for one panel."""
    return {point.rank: point for point in results.crossovers
            if point.rank is not None and point.variant == variant
            and point.phase == phase and point.metric == metric
            and point.d == key.d and point.cores == key.cores
            and point.dtype == key.conditions.dtype}


def claim_batch(d, rank):
    """The smallest B with 2Br > d^3."""
    return d ** 3 // (2 * rank) + 1


def parameter_share(d, rank):
    """TT parameters over dense ones, three cubic cores."""
    return (rank * rank + 2 * rank) / d ** 4


@dataclasses.dataclass(frozen=True)
class Crossing:
    """Where a variant first needs more than dense: exact, or between two cells.

    It needs no more at `low` and more at `high`; exact where high = low + 1.
    `verdict` is measured, always, never, beyond, unmeasured or bracketed (from the
    cells).
    """

    variant: str
    phase: str
    metric: str
    layer: str
    cores: int | None
    d: int | None
    rank: int | None
    ranks: str
    dtype: str
    verdict: str
    low: int | None
    high: int | None
    model: int | None
    claim: int | None

    @property
    def k(self):
        """2Br/d^3 at an exact crossover of three cubic cores."""
        if self.verdict != "measured" or self.cores != 3 or not self.d or not self.rank:
            return None
        return 2 * self.high * self.rank / self.d ** 3


def crossings(results):
    """All crossings: crossover.csv where it has them, else from the cells."""
    found = []
    known = set()
    for point in results.crossovers:
        batch = point.crossover_batch
        found.append(Crossing(
            point.variant, point.phase, point.metric,
            f"{point.in_modes} \u2192 {point.out_modes}", point.cores, point.d,
            point.rank, point.ranks, point.dtype, point.verdict,
            None if batch is None else batch - 1, batch,
            point.crossover_batch_model, point.claim_batch))
        known.add((point.variant, point.phase, point.metric, point.in_modes,
                   point.out_modes, point.ranks, point.dtype))
    found += _bracketed(results, known)
    order = {phase: i for i, phase in enumerate(PHASES)}
    return sorted(found, key=lambda c: (
        c.cores or 0, c.d or 0, c.layer, c.ranks, c.rank or 0, order.get(c.phase, 9),
        c.metric, c.variant, c.dtype))


def _bracketed(results, known):
    series = collections.defaultdict(dict)
    about = {}
    for row in results.rows:
        base = results.baseline(row)
        if (not row.ok or not is_ranked(row) or base is None or not base.ok
                or row.batch is None or not row.in_modes):
            continue
        pairs = [("peak", row.peak_bytes, base.peak_bytes)]
        if row.phase == "train" and None not in (
                row.held_bytes, row.weight_bytes, base.held_bytes, base.weight_bytes):
            pairs.append(("held", row.held_bytes + row.weight_bytes,
                          base.held_bytes + base.weight_bytes))
        for metric, mine, dense in pairs:
            place = (row.variant, row.phase, metric, row.in_modes, row.out_modes,
                     row.ranks, row.dtype)
            if place not in known and None not in (mine, dense):
                series[place][row.batch] = mine > dense
                about[place] = row
    for place in sorted(series):
        more = series[place]
        row = about[place]
        batches = sorted(more)
        high = next((batch for batch in batches if more[batch]), None)
        low = max((batch for batch in batches if high is None or batch < high),
                  default=None)
        verdict = ("bracketed" if high is not None and low is not None else
                   "beyond" if high is None else "always" if high == 1 else "bracketed")
        claim = (claim_batch(row.d, row.rank)
                 if row.d and row.rank and row.cores == 3 else None)
        yield Crossing(row.variant, row.phase, place[2], shape_words(row), row.cores,
                       row.d, row.rank, row.ranks, row.dtype, verdict, low, high,
                       None, claim)


BYTE_COLUMNS = ("weight_bytes", "held_bytes", "forward_peak_bytes",
                "backward_peak_bytes", "step_peak_bytes", "peak_bytes")


@dataclasses.dataclass(frozen=True)
class ModelCheck:
    """Measured bytes against the cost model's, over all rows."""

    checked: int  # rows with at least one figure measured and modelled
    equal: int  # of those, rows in which every such figure is equal
    unmodelled: int  # ok rows in which no measured figure has a model
    mismatches: tuple  # (row, column, measured, model)
    crossovers: tuple  # those of crossover.csv that are not where the model says


def check_model(results):
    checked = equal = unmodelled = 0
    mismatches = []
    for row in results.rows:
        pairs = [(column, getattr(row, column), getattr(row, column + "_model"))
                 for column in BYTE_COLUMNS]
        both = [pair for pair in pairs if None not in pair[1:]]
        if both:
            checked += 1
            wrong = [(row, *pair) for pair in both if pair[1] != pair[2]]
            equal += not wrong
            mismatches += wrong
        elif row.ok:
            unmodelled += 1
    crossovers = tuple(
        point for point in results.crossovers
        if None not in (point.crossover_batch, point.crossover_batch_model)
        and point.crossover_batch != point.crossover_batch_model)
    return ModelCheck(checked, equal, unmodelled, tuple(mismatches), crossovers)
