"""The summary of a run of //experiments:peers: targets, a table, and a figure.

    bazel run //plotting:peers -- results/runs/X

Everything comes from results.csv. In each cell "ours" is `auto` where it ran, else the faster of
the fused kernels. A peer that did not run a cell is compared in the others.
"""

import dataclasses
import math
import os
import sys

from plotting import results as results_lib
from plotting import style
from plotting import tables

OURS = ("auto",)
OURS_WITHOUT_AUTO = ("fused", "fused-panel")
PEER_PREFIX = "peer-"
PHASES = ("inference", "train")
_PHASE_WORDS = {"inference": "forward", "train": "training"}

# The least geometric mean of peer time / our time: against each peer; against the best of a cell.
TARGET_EACH = {"inference": 4.0, "train": 3.0}
TARGET_BEST = {"inference": 2.5, "train": 2.0}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One layer, batch and phase: our row and the peers' rows, those that are ok."""

    layer: str
    ranks: str
    batch: int
    phase: str
    d: int | None
    ours: object
    peers: dict  # name -> row

    @property
    def name(self):
        return f"{self.layer}, ranks {self.ranks}, B = {self.batch}"

    def speedup(self, peer):
        return self.peers[peer].time_ns / self.ours.time_ns

    def memory_ratio(self, peer):
        return self.ours.peak_bytes / self.peers[peer].peak_bytes

    @property
    def best_peer(self):
        return min(self.peers, key=lambda name: self.peers[name].time_ns)

    @property
    def leanest_peer(self):
        return min(self.peers, key=lambda name: self.peers[name].peak_bytes)


@dataclasses.dataclass(frozen=True)
class Verdict:
    target: str
    figure: str
    met: bool | None  # None: nothing to judge by.

    @property
    def words(self):
        return {True: "met", False: "not met", None: "not measured"}[self.met]


@dataclasses.dataclass(frozen=True)
class Comparison:
    cells: tuple
    peers: tuple  # Names, those of all rows.
    missing: tuple  # Rows of peers and of ours that are not ok.


def compare(rows):
    """Groups the rows of a run into cells. Cells without a row of ours that is ok are left out."""
    groups = {}
    for row in rows:
        if row.variant in OURS + OURS_WITHOUT_AUTO or row.variant.startswith(PEER_PREFIX):
            key = (row.in_modes, row.out_modes, row.ranks, row.batch, row.phase, row.conditions)
            groups.setdefault(key, []).append(row)
    cells = []
    for (in_modes, out_modes, ranks, batch, phase, _), members in groups.items():
        timed = [row for row in members if row.ok and row.time_ns]
        ours = ([row for row in timed if row.variant in OURS]
                or [row for row in timed if row.variant in OURS_WITHOUT_AUTO])
        peers = {row.variant: row for row in timed if row.variant.startswith(PEER_PREFIX)}
        if ours and peers:
            cells.append(Cell(f"{in_modes}:{out_modes}", ranks, batch, phase, members[0].d,
                              min(ours, key=lambda row: row.time_ns), peers))
    members = [row for group in groups.values() for row in group]
    return Comparison(
        tuple(cells),
        tuple(sorted({row.variant for row in members if row.variant.startswith(PEER_PREFIX)})),
        tuple(row for row in members if not row.ok))


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def _mean_verdict(what, target, speedups):
    words = f"{what}: at least {target:g} times as fast"
    if not speedups:
        return Verdict(words, "", None)
    mean = geometric_mean(speedups)
    return Verdict(words, f"{mean:.2f} times, over {len(speedups)} cells", mean >= target)


def _none_verdict(what, cells, lost):
    if not cells:
        return Verdict(what, "", None)
    return Verdict(what, f"{len(lost)} of {len(cells)}", not lost)


def slower_cells(comparison):
    """Cells in which some peer is faster, the worst first."""
    lost = [cell for cell in comparison.cells if cell.speedup(cell.best_peer) < 1]
    return sorted(lost, key=lambda cell: cell.speedup(cell.best_peer))


def fatter_cells(comparison):
    """Cells in which some peer needs less memory, the worst first."""
    lost = [cell for cell in comparison.cells if cell.memory_ratio(cell.leanest_peer) > 1]
    return sorted(lost, key=lambda cell: -cell.memory_ratio(cell.leanest_peer))


def judge(comparison):
    """The verdicts on all targets, in the order of the table."""
    verdicts = []
    for phase in PHASES:
        cells = [cell for cell in comparison.cells if cell.phase == phase]
        words = _PHASE_WORDS[phase]
        for peer in comparison.peers:
            verdicts.append(_mean_verdict(
                f"{words}, against {peer}", TARGET_EACH[phase],
                [cell.speedup(peer) for cell in cells if peer in cell.peers]))
        verdicts.append(_mean_verdict(
            f"{words}, against the best peer of each cell", TARGET_BEST[phase],
            [cell.speedup(cell.best_peer) for cell in cells]))
    verdicts.append(_none_verdict("no cell in which a peer is faster", comparison.cells,
                                  slower_cells(comparison)))
    verdicts.append(_none_verdict("no cell in which a peer needs less memory", comparison.cells,
                                  fatter_cells(comparison)))
    return verdicts


def build_tables(comparison):
    """Targets; cells lost in time, and in memory; what did not run."""
    verdicts = judge(comparison)
    slower, fatter = slower_cells(comparison), fatter_cells(comparison)
    return [
        tables.Table(
            "peers", "The fused kernels beside the libraries",
            "Time of the peer over ours, medians of interleaved rounds in one process; means are "
            "geometric.",
            ("target", "measured", "verdict"),
            tuple((v.target, v.figure, v.words) for v in verdicts)),
        tables.Table(
            "peers-slower", "Cells in which a peer is faster",
            "Against the fastest peer of the cell; the worst first.",
            ("cell", "phase", "ours", "peer", "ours, µs", "peer, µs", "peer/ours"),
            tuple((cell.name, _PHASE_WORDS[cell.phase], cell.ours.variant, cell.best_peer,
                   _microseconds(cell.ours), _microseconds(cell.peers[cell.best_peer]),
                   style.ratio_text(cell.speedup(cell.best_peer))) for cell in slower),
            ("ours, µs", "peer, µs", "peer/ours")),
        tables.Table(
            "peers-memory", "Cells in which a peer needs less memory",
            "Peak bytes over the phase, against the leanest peer of the cell; the worst first.",
            ("cell", "phase", "ours", "peer", "ours, bytes", "peer, bytes", "ours/peer"),
            tuple((cell.name, _PHASE_WORDS[cell.phase], cell.ours.variant, cell.leanest_peer,
                   str(cell.ours.peak_bytes), str(cell.peers[cell.leanest_peer].peak_bytes),
                   f"{cell.memory_ratio(cell.leanest_peer):.3f}") for cell in fatter),
            ("ours, bytes", "peer, bytes", "ours/peer")),
        tables.Table(
            "peers-missing", "Rows that are not ok", "They are in no mean.",
            ("cell", "status", "reason"),
            tuple((row.cell, row.status, row.reason) for row in comparison.missing)),
    ]


def _microseconds(row):
    return f"{row.time_ns / 1000:.4g}"


_KINDS = (("cubes of 8", style.SKY, "o"), ("cubes of 16", style.BLUE, "^"),
          ("other cubes", style.PURPLE, "D"), ("other layers", style.ORANGE, "s"))


def _kind(cell):
    """The index in _KINDS of what the cell's layer is."""
    return {8: 0, 16: 1, None: 3}.get(cell.d, 2)


def draw(comparison, directory, formats):
    """The strip plot: a row of dots for each peer, speed and memory, forward and training."""
    peers = comparison.peers
    header, row_height = 0.75, 0.24
    fig, axes = style.grid(2, 2, panel_height=0.2 + row_height * len(peers), left=1.75, top=0.2,
                           bottom=0.42, under=0.62, between=0.25, header=header)
    metrics = (("time of the peer / time of ours", lambda cell, peer: cell.speedup(peer)),
               ("memory of the peer / memory of ours",
                lambda cell, peer: 1 / cell.memory_ratio(peer)))
    for row, (label, ratio) in zip(axes, metrics):
        values = [ratio(cell, peer) for cell in comparison.cells for peer in cell.peers]
        limits = (min(values + [1]) / 1.25, max(values + [1]) * 1.25)
        for axis, phase in zip(row, PHASES):
            _draw_panel(axis, comparison, phase, ratio)
            axis.set_xscale("log", base=2)
            axis.set_xlim(limits)
            ticks = style.whole_log_ticks(limits, 8)
            axis.set_xticks(ticks, [style.power_text(round(math.log2(t))) for t in ticks])
            axis.set_xticks([], minor=True)
            axis.set_yticks(range(len(peers)),
                            [peer.removeprefix(PEER_PREFIX) for peer in peers]
                            if phase == PHASES[0] else [])
            axis.set_ylim(len(peers) - 0.45, -0.55)
            axis.set_xlabel(label)
            axis.set_title(_PHASE_WORDS[phase], pad=3)
    style.titles(fig, "The suite's kernels beside the libraries",
                 "A dot is a cell; right of the line ours is faster, or needs less memory. Bar: "
                 "geometric mean.")
    used = {_kind(cell) for cell in comparison.cells}
    style.legend(fig, [style.Line2D([], [], color=color, marker=marker, linestyle="none",
                                    markersize=4, label=words)
                       for kind, (words, color, marker) in enumerate(_KINDS) if kind in used],
                 below_top=0.45)
    return style.save(fig, style.stem(directory, "peers"), formats)


def _draw_panel(axis, comparison, phase, ratio):
    axis.axvline(1, color=style.BLACK, linewidth=0.8, zorder=1)
    for y, peer in enumerate(comparison.peers):
        cells = [cell for cell in comparison.cells if cell.phase == phase and peer in cell.peers]
        if not cells:
            axis.text(0.5, y, "no cell ran", transform=axis.get_yaxis_transform(), ha="center",
                      va="center")
            continue
        for kind, (_, color, marker) in enumerate(_KINDS):
            chosen = [cell for cell in cells if _kind(cell) == kind]
            axis.plot([ratio(cell, peer) for cell in chosen],
                      [y + (kind - 1.5) * 0.17 for _ in chosen], marker, color=color,
                      markersize=3, markeredgewidth=0, alpha=0.75)
        mean = geometric_mean([ratio(cell, peer) for cell in cells])
        axis.plot([mean, mean], [y - 0.38, y + 0.38], color=style.VERMILION, linewidth=1.8)


def markdown(comparison):
    return "\n".join(table.markdown() for table in build_tables(comparison) if table.rows)


def draw_all(directory, formats=style.FORMATS):
    """Writes summary.md, tables and the figure; returns the summary's text and the paths.

    Raises results.ResultsError where the directory cannot be read or no cell can be compared.
    """
    read = results_lib.load(directory)
    comparison = compare(read.rows)
    if not comparison.cells:
        raise results_lib.ResultsError(f"{directory} has no cell in which both ours and a peer "
                                       "were timed.")
    text = markdown(comparison)
    path = os.path.join(directory, "summary.md")
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    paths = [path]
    paths += tables.write([table for table in build_tables(comparison) if table.rows],
                          os.path.join(directory, "tables"))
    paths += draw(comparison, os.path.join(directory, "plots"), formats)
    return text, paths


def main(argv):
    if len(argv) != 1:
        print("peers: give the directory of a run of //experiments:peers", file=sys.stderr)
        return 2
    directory = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), argv[0])
    try:
        text, paths = draw_all(directory)
    except results_lib.ResultsError as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"peers: {error.filename or directory} could not be read or written: "
              f"{error.strerror}.", file=sys.stderr)
        return 2
    print(text)
    print(f"{len(paths)} files; read {paths[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
