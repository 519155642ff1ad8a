"""Rooflines: the rate of every timed cell over its arithmetic intensity.

The intensity of a cell is flops_model over its compulsory bytes (analysis.layer_bytes):
the bytes that the layer itself must move, whatever way it is computed,

    inference   item (B N + B M + P)      x and the parameters read, y written
    training    2 item (B N + B M + P)    and dy read; dx and the parameters'
                                          gradients written

with P the variant's own parameters. The roofs are those that the run measured: the
FMA rate, and the rates of a triad from memory and from the second-level cache.
"""

import collections
import math

from matplotlib import ticker
from matplotlib.lines import Line2D

from plotting import analysis
from plotting import style

PHASES = ("inference", "train")
SHOWN = ("dense", "dense-onednn", "fused-panel", "fused", "auto")  # the others are muted
_MUTED = dict(marker=".", markersize=3.2, color="#B5B5B5", markeredgecolor="none")
_LEVELS = (("memory", "memory", "-"), ("l2", "L2 cache", (0, (4, 2))))


def draw(results, palette, out, formats):
    drawn = []
    groups = collections.defaultdict(list)
    for row in results.rows:
        if row.phase in PHASES and row.ok and row.gflops and intensity(row):
            groups[row.device, row.dtype].append(row)
    for (device, dtype), rows in groups.items():
        roofs = {threads: found for threads in sorted({row.threads for row in rows})
                 if (found := roofs_of(results.run, dtype, threads))}
        rows = [row for row in rows if row.threads in roofs]
        if rows:
            drawn.append(_figure(palette, out, formats, device, dtype, roofs, rows))
    return drawn


def intensity(row):
    """FLOP per compulsory byte; None if unknown."""
    moved = analysis.layer_bytes(row)
    return row.flops_model / moved if moved and row.flops_model else None


def roofs_of(run, dtype, threads):
    """{"peak": GFLOP/s, level: GB/s} as run.json has them; None without peak or memory."""
    def rate(name, key):
        rates = run.get(name)
        value = rates.get(key) if isinstance(rates, dict) else None
        return value if isinstance(value, (int, float)) and value > 0 else None
    found = {"peak": rate("fma_peak_gflops", f"{dtype}/t{threads}")}
    for level, _, _ in _LEVELS:
        found[level] = rate("bandwidth_gb_per_s", f"{level}/t{threads}")
    if None in (found["peak"], found["memory"]):
        return None
    return {name: value for name, value in found.items() if value}


def _figure(palette, out, formats, device, dtype, roofs, rows):
    phases = analysis.phase_order(row.phase for row in rows)
    threads = sorted({row.threads for row in rows})
    shown = [name for name in SHOWN if any(row.variant == name for row in rows)]
    others = any(row.variant not in SHOWN for row in rows)
    rates = [row.gflops for row in rows]
    low_x = min(map(intensity, rows)) / 1.6
    high_x = max(*(1.6 * intensity(row) for row in rows), *(3 * r["peak"] / r["memory"] for r in roofs.values()))
    low_y = min(rates) / 1.6
    high_y = max(*rates, *(r["peak"] for r in roofs.values())) * 2.2
    handles = [Line2D([], [], linestyle="none", label=name, **_look(palette, name))
               for name in shown]
    if others:
        handles.append(Line2D([], [], linestyle="none", label="other TT forms", **_MUTED))
    handles += [Line2D([], [], color="black", linewidth=1.1, linestyle=dash,
                       label=f"roof: FMA peak and {words}")
                for level, words, dash in _LEVELS if any(level in r for r in roofs.values())]
    columns = 4
    header = 0.5 + 0.155 * math.ceil(len(handles) / columns)
    fig, axes = style.grid(len(threads), len(phases), panel_height=2.6, left=0.52, right=0.1,
                           top=0.26, under=0.5, bottom=0.42, between=0.14, header=header)
    for i, count in enumerate(threads):
        for j, phase in enumerate(phases):
            ax = axes[i][j]
            _panel(ax, palette, roofs[count], [row for row in rows if row.threads == count
                                               and row.phase == phase], shown)
            ax.set_xlim(low_x, high_x)
            ax.set_ylim(low_y, high_y)
            _ticks(ax.xaxis, low_x, high_x)
            _ticks(ax.yaxis, low_y, high_y)
            _roof_words(ax, roofs[count])
            ax.set_title(f"{analysis.phase_words(phase)}, {count} "
                         f"thread{'' if count == 1 else 's'}",
                         loc="left", fontweight="bold", pad=3)
            if j:
                ax.set_yticklabels([])
            else:
                ax.set_ylabel("GFLOP/s")
            if i == len(threads) - 1:
                ax.set_xlabel("arithmetic intensity, FLOP per compulsory byte")
            else:
                ax.set_xticklabels([])
    style.titles(fig, "Roofline: what each way makes of the machine", f"{dtype}, {device}")
    style.legend(fig, handles, below_top=0.44, columns=columns)
    stem = f"roofline-{dtype}-{device}"
    return analysis.Drawn(
        stem, f"Roofline, {dtype}",
        "Each mark is one cell: the rate at which it did its own model's operations, over "
        "those operations per byte that the layer must move in any case (x, y and the "
        "parameters once; in training their gradients too). The flat roof is the measured "
        "rate of fused multiply-adds, the slanted ones the measured rates of moving data "
        "(a triad): from memory, and from the second-level caches. Cells above the roof of "
        "memory work on data that stay in a cache from one run to the next. The distance "
        "below is what a form loses to copies, to intermediates that leave the caches, and "
        "to small products. Further right and higher is not faster by itself: a form that "
        "does more operations lies further right.",
        "roofline", tuple(style.save(fig, style.stem(out, stem), formats)), tuple(rows),
        ("batch", "rank", "flops_model", "time_ns", "gflops", "fraction_of_peak"))


def _look(palette, name):
    return dict(marker=palette.marker(name), color=palette.color(name),
                markersize=7 if palette.marker(name) == "*" else 4.6,
                markeredgecolor="white", markeredgewidth=0.3)


def _panel(ax, palette, roofs, rows, shown):
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.minorticks_off()
    ax.grid(True, color="#E8E8E8", linewidth=0.5)
    ax.set_axisbelow(True)
    muted = [row for row in rows if row.variant not in SHOWN]
    if muted:
        ax.plot([intensity(row) for row in muted], [row.gflops for row in muted],
                linestyle="none", zorder=2, **_MUTED)
    for place, name in enumerate(shown):
        mine = [row for row in rows if row.variant == name]
        ax.plot([intensity(row) for row in mine], [row.gflops for row in mine],
                linestyle="none", zorder=3 + place / 10, **_look(palette, name))
    if not rows:
        ax.text(0.5, 0.5, "not in this run", transform=ax.transAxes, ha="center",
                va="center", fontsize=7, color="#555555")
    for level, _, dash in _LEVELS:
        if level in roofs:
            ridge = roofs["peak"] / roofs[level]
            ax.plot([ridge / 2 ** 30, ridge, ridge * 2 ** 30],
                    [roofs["peak"] / 2 ** 30, roofs["peak"], roofs["peak"]],
                    color="black", linestyle=dash, linewidth=1.1, zorder=2.5)


def _ticks(axis, low, high):
    axis.set_major_locator(ticker.FixedLocator(
        [4.0 ** e for e in range(math.ceil(math.log(low, 4)), math.floor(math.log(high, 4)) + 1)]))
    axis.set_major_formatter(lambda v, _: f"{v:.0f}" if v >= 1 else f"1/{1 / v:.0f}")


def _roof_words(ax, roofs):
    """The measured rates, at the upper edge where nothing else is drawn."""
    words = [f"FMA peak {roofs['peak']:.0f} GFLOP/s"] + [
        f"{name} {roofs[level]:.0f} GB/s" for level, name, _ in _LEVELS if level in roofs]
    ax.text(0.015, 0.975, ", ".join(words), transform=ax.transAxes, va="top", ha="left",
            fontsize=7, color="#333333")
