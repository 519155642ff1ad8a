"""Compares what does not vary: bytes, FLOPs by the cost model, and how each cell ended."""

import dataclasses
import math

from plotting import analysis

# Worst first; a table is sorted so.
VERDICTS = ("now fails", "gone", "more memory", "slower", "more FLOPs", "ambiguous", "less memory",
            "faster", "fewer FLOPs", "new", "same")
REGRESSIONS = ("now fails", "more memory", "slower", "more FLOPs")

# `auto` picks by rates that every run without the baseline's calibration.csv measures anew.
PICKS_BY_RATES = ("auto",)
# Their tiles, and with them their modelled peaks, follow the machine's caches and vectors.
TILED_BY_MACHINE = ("fused", "fused-panel", "auto")
_TILED_ALIKE = ("weight_bytes", "held_bytes")
# Of a machine with less free memory, or of a plan with other limits; not of the code.
_LIMIT_REASONS = ("predicted to ", "ran out of ")
_MOST_COPIES = 4


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is said of one cell."""

    cell: str
    kind: str  # memory, flops, time or status
    verdict: str
    column: str = ""  # the one whose figures stand in before and after
    before: float | None = None
    after: float | None = None
    words: str = ""

    @property
    def change(self):
        """After over before, less 1; None where that says nothing."""
        return self.after / self.before - 1 if self.before and self.after is not None else None


def difference_of_machines(before, after):
    """What makes two run.json's figures incomparable, in words; "" if nothing does.

    The same as DifferenceOfMachines() in fingerprint.cc.
    """
    if not before.get("machine") or not after.get("machine"):
        return "the machine of one of them is not known"
    for key in ("cpu_model", "vector_extensions", "cores"):
        then, now = (info["machine"].get(key) for info in (before, after))
        if then != now:
            return f"{key} was {then}, is {now}"
    if before.get("libtorch") != after.get("libtorch"):
        return f"libtorch was {before.get('libtorch')}, is {after.get('libtorch')}"
    return ""


def compare(baseline, candidate, other_machine):
    """Findings on status, bytes and FLOPs of {cell: row}, one cell at a time.

    With other_machine, only figures that both sides have a model for: the rest may depend on the
    machine.
    """
    findings = []
    for cell, old in baseline.items():
        new = candidate.get(cell)
        if new is None:
            findings.append(Finding(cell, "status", "gone", words="the candidate has no such cell"))
        elif old.ok and new.ok:
            findings += _compare_ok(old, new, other_machine)
        elif old.ok:
            findings.append(_compare_failed(old, new))
        elif new.ok:
            findings.append(Finding(cell, "status", "new",
                                    words=f"in the baseline: {_ended(old)}"))
        elif old.status != new.status:
            worse = old.status == "skipped"
            findings.append(Finding(cell, "status", "now fails" if worse else "ambiguous",
                                    words=f"was {_ended(old)}; is {_ended(new)}"))
        else:
            findings.append(Finding(cell, "status", "same", words=f"in both: {old.status}"))
    for cell, new in candidate.items():
        if cell not in baseline:
            findings.append(Finding(cell, "status", "new", words=f"{new.status}: the baseline has "
                                                                 "no such cell"))
    return findings


def _ended(row):
    return row.status + (f": {row.reason}" if row.reason else "")


def _compare_failed(old, new):
    if new.status == "skipped" and new.reason.startswith(_LIMIT_REASONS):
        return Finding(old.cell, "status", "ambiguous", words=_ended(new))
    changes = _byte_changes(old, new, other_machine=False)
    words = "; ".join([_ended(new), *(_change_words(old, *change) for change in changes)])
    return Finding(old.cell, "status", "now fails", words=words)


def _compare_ok(old, new, other_machine):
    picked = "" if old.algorithm == new.algorithm else (
        f"algorithm was {old.algorithm}, is {new.algorithm}")
    changes = _byte_changes(old, new, other_machine)
    if picked and old.variant in PICKS_BY_RATES and (
            changes or old.flops_model != new.flops_model):
        return [Finding(old.cell, "memory", "ambiguous",
                        words=f"{picked}: the rates it picks by were measured anew")]
    findings = []
    if changes:
        # The peak is what users pay; else the first stage that changed.
        column, before, after = next((c for c in changes if c[0].startswith("peak_bytes")),
                                     changes[0])
        known = [(before, after) for _, before, after in changes if after is not None]
        verdict = ("ambiguous" if not known else
                   "more memory" if any(after > before for before, after in known) else
                   "less memory")
        words = "; ".join(filter(None, [*(_change_words(old, *c) for c in changes), picked]))
        findings.append(Finding(old.cell, "memory", verdict, column, before, after, words))
    elif _compared_columns(old, new, other_machine):
        findings.append(Finding(old.cell, "memory", "same"))
    if old.flops_model is not None and new.flops_model is not None:
        worse = new.flops_model > old.flops_model
        verdict = ("same" if new.flops_model == old.flops_model else
                   "more FLOPs" if worse else "fewer FLOPs")
        findings.append(Finding(
            old.cell, "flops", verdict, "flops_model", old.flops_model, new.flops_model,
            "" if verdict == "same" else
            "; ".join(filter(None, [_figures("flops_model", old.flops_model, new.flops_model),
                                    picked]))))
    return findings


def _compared_columns(old, new, other_machine):
    """The byte columns of which the baseline has a figure that the candidate should have too."""
    columns = []
    # A run that measures no memory has nothing to say about it.
    measured = None not in (old.peak_bytes, new.peak_bytes)
    for column in analysis.BYTE_COLUMNS:
        if other_machine and old.variant in TILED_BY_MACHINE and column not in _TILED_ALIKE:
            continue
        model = column + "_model"
        had, has = (getattr(row, model) is not None for row in (old, new))
        if measured and getattr(old, column) is not None and (not other_machine or had and has):
            columns.append(column)
            if had and not has:
                columns.append(model)
        elif had and has:
            columns.append(model)
    return columns


def _byte_changes(old, new, other_machine):
    """(column, before, after) for each figure that changed, in the order of the stages."""
    return [(column, getattr(old, column), getattr(new, column))
            for column in _compared_columns(old, new, other_machine)
            if getattr(old, column) != getattr(new, column)]


def _figures(column, before, after):
    def text(value):
        return "no figure" if value is None else f"{value:,}"
    difference = "" if None in (before, after) else f" ({after - before:+,})"
    return f"{column} {text(before)} → {text(after)}{difference}"


def _change_words(row, column, before, after):
    words = _figures(column, before, after)
    name = None if None in (before, after) else name_bytes(row, abs(after - before))
    return f"{words}: {name}" if name else words


def name_bytes(row, difference):
    """The tensors of the layer that a number of bytes amounts to: "1 × x"; None if none does."""
    names = {}
    for name, size in _tensors(row):
        if size and difference % size == 0 and 1 <= difference // size <= _MOST_COPIES:
            names.setdefault(difference // size, []).append(name)
    if not names:
        return None
    copies = min(names)
    return f"{copies} × " + " or ".join(names[copies])


def _tensors(row):
    """(name, bytes) of what a cell works on, as far as its row tells."""
    item = analysis.ITEM_BYTES.get(row.dtype)
    if row.in_modes and row.batch and item:
        n, m = (list(map(int, text.split("x"))) for text in (row.in_modes, row.out_modes))
        size_in, size_out = analysis.sizes(row)
        yield "x", row.batch * size_in * item
        yield "y", row.batch * size_out * item
        yield "the dense matrix", size_in * size_out * item
        if row.ranks:
            ranks = list(map(int, row.ranks.split("x")))
            for k in range(len(n) - 1, 0, -1):
                yield (f"the intermediate behind core {k + 1}",
                       row.batch * math.prod(n[:k]) * math.prod(m[k:]) * ranks[k] * item)
    yield "the parameters", row.weight_bytes
