"""The figure of //benchmarks:compare: two sides, cell by cell, ratios of time and peak memory."""

import math

from plotting import analysis
from plotting import style

_ROW_IN = 0.26
_LOOKS = ((style.BLUE, "o"), (style.ORANGE, "^"), (style.GREEN, "s"), (style.PURPLE, "D"))
_METRICS = (("time", "time"), ("peak", "peak memory"))


def draw(pairs, names, about, stem, formats=style.FORMATS):
    """Draws `pairs`, which have .group, .phase, .time and .peak (second over first, or None).

    A row for each group; a dot for each cell; a bar at the group's median. Returns the paths.
    """
    groups = list(dict.fromkeys(pair.group for pair in pairs))
    phases = analysis.phase_order(pair.phase for pair in pairs)
    looks = {phase: _LOOKS[i % len(_LOOKS)] for i, phase in enumerate(phases)}
    left = 0.25 + 0.058 * max(map(len, groups))
    height = _ROW_IN * len(groups) + 0.15
    fig, axes = style.grid(1, 2, panel_height=height, left=left, right=0.15, between=0.25,
                           top=0.3, bottom=0.62, header=0.42)
    style.titles(fig, f"{names[1]} over {names[0]}", about)
    for ax, (metric, words) in zip(axes[0], _METRICS):
        ratios = [getattr(pair, metric) for pair in pairs if getattr(pair, metric)]
        _axis(ax, ratios)
        ax.set_title(words + ("" if ratios else ": not measured on both sides"), loc="left")
        ax.set_ylim(len(groups) - 0.4, -0.6)
        ax.set_yticks(range(len(groups)), groups if metric == "time" else [])
        ax.tick_params(axis="y", length=0)
        for spine in ("top", "right", "left"):
            ax.spines[spine].set_visible(False)
        for y, group in enumerate(groups):
            ax.axhline(y, color="#E4E4E4", linewidth=0.5, zorder=0)
            members = [pair for pair in pairs if pair.group == group and getattr(pair, metric)]
            if members:
                ax.plot([_median([getattr(pair, metric) for pair in members])], [y], "|",
                        color=style.BLACK, markersize=13, markeredgewidth=1.4, zorder=3)
            for i, phase in enumerate(phases):
                # Each phase on a line of its own, so that dots of one do not hide the other's.
                offset = (i - (len(phases) - 1) / 2) * 0.5 / len(phases)
                values = [getattr(pair, metric) for pair in members if pair.phase == phase]
                color, marker = looks[phase]
                ax.plot(values, [y + offset] * len(values), marker, color=color, markersize=3.2,
                        alpha=0.65, markeredgewidth=0, zorder=2)
        ax.set_xlabel("ratio; below 1: less")
    handles = [style.Line2D([], [], color=looks[phase][0], marker=looks[phase][1], markersize=4,
                            linestyle="none", label=analysis.phase_words(phase))
               for phase in phases]
    handles.append(style.Line2D([], [], color=style.BLACK, marker="|", markersize=9,
                                markeredgewidth=1.4, linestyle="none", label="median"))
    style.legend(fig, handles, above_bottom=0.05, columns=len(handles))
    return style.save(fig, stem, formats)


def _axis(ax, ratios):
    """A log axis about 1 with a line there, wide enough for a change of a tenth to be seen."""
    widest = max([abs(math.log(ratio)) for ratio in ratios], default=0)
    widest = max(widest * 1.08, math.log(1.1))
    ax.set_xscale("log", base=2)
    ax.set_xlim(math.exp(-widest), math.exp(widest))
    if widest < math.log(2):
        step = next(s for s in (0.02, 0.05, 0.1, 0.2) if widest / math.log1p(s) < 4)
        ticks = [1 + step * k for k in range(-5, 6)]
        ticks = [tick for tick in ticks if abs(math.log(tick)) <= widest]
        ax.set_xticks(ticks, [f"{tick:.2f}" for tick in ticks])
    else:
        reach = math.floor(widest / math.log(2))
        every = max(1, math.ceil((2 * reach + 1) / 9))
        exponents = [e for e in range(-reach, reach + 1) if e % every == 0]
        ax.set_xticks([2.0 ** e for e in exponents], list(map(style.power_text, exponents)))
    ax.minorticks_off()
    ax.axvline(1, color=style.GREY, linewidth=0.8, zorder=1)


def _median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else math.sqrt(values[middle - 1] * values[middle])
