"""Real layers, and cubes too few for a map: peak and time against dense."""

import collections
import math

from matplotlib import ticker
from matplotlib.lines import Line2D

from plotting import analysis
from plotting import style

_ROWS_PER_FIGURE = 4
_PHASES_PER_FIGURE = 2
_SHADES = ("#9ECAE1", "#4292C6", "#2171B5", "#08519C", "#08306B", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P")


def draw(results, palette, out, formats):
    drawn = []
    for conditions, rows in analysis.layers(results).items():
        for kind, ratio in (("peak", results.peak_ratio), ("time", results.time_ratio)):
            if not any(ratio(row) is not None and not row.baseline for row in rows):
                continue
            groups = _groups(rows)
            phases = analysis.phase_order(row.phase for row in rows)
            pages = [(groups[i:i + _ROWS_PER_FIGURE], phases[j:j + _PHASES_PER_FIGURE])
                     for i in range(0, len(groups), _ROWS_PER_FIGURE)
                     for j in range(0, len(phases), _PHASES_PER_FIGURE)]
            for number, (some, of_phases) in enumerate(pages, 1):
                part = "" if len(pages) == 1 else f"-part{number}"
                some = [(title, [row for row in members if row.phase in of_phases])
                        for title, members in some]
                some = [group for group in some if group[1]]
                if any(ratio(row) is not None for _, members in some for row in members):
                    drawn.append(_figure(palette, out, formats, conditions, kind, ratio,
                                         some, part))
    return drawn


def _groups(rows):
    """[(title, rows)], one for each layer and ranks, its dense rows with it."""
    ranked = collections.defaultdict(list)
    plain = collections.defaultdict(list)
    for row in rows:
        (ranked if analysis.is_ranked(row) else plain)[
            (row.shape, row.ranks) if analysis.is_ranked(row) else row.shape].append(row)
    groups = []
    for (shape, ranks), members in ranked.items():
        groups.append((f"{analysis.shape_words(members[0])}, ranks {ranks}",
                       members + plain.get(shape, [])))
    covered = {shape for shape, _ in ranked}
    for shape, members in plain.items():
        if shape not in covered:
            groups.append((f"{members[0].family} {analysis.shape_words(members[0])}",
                           members))
    return sorted(groups, key=lambda group: group[0])


def _figure(palette, out, formats, conditions, kind, ratio, groups, part):
    rows = [row for _, members in groups for row in members]
    phases = analysis.phase_order(row.phase for row in rows)
    batches = sorted({row.batch for row in rows})
    names = [palette.sort(row.variant for row in members if not row.baseline)
             for _, members in groups]
    most = max(len(n) for n in names)
    values = [ratio(row) for row in rows if ratio(row) is not None]
    low = min(math.log2(min(values)), -1) - 0.4
    high = max(math.log2(max(values)), 1) + 0.4
    fig, axes = style.grid(len(groups), len(phases), panel_height=0.16 * most + 0.1,
                           left=1.25, right=0.62, top=0.32, under=0.62, bottom=0.42,
                           between=0.62, header=0.42 + 0.17 * math.ceil(
                               (len(batches) + 1) / 6) + 0.06)
    for i, (title, members) in enumerate(groups):
        for j, phase in enumerate(phases):
            ax = axes[i][j]
            ax.set_xscale("log", base=2)
            ax.minorticks_off()
            ax.axvline(1, color="black", linewidth=1)
            ax.grid(True, axis="y", color="#E3E3E3", linewidth=0.5)
            ax.set_axisbelow(True)
            for y, name in enumerate(reversed(names[i])):
                _line(ax, y, batches, ratio, kind == "time",
                      [row for row in members
                       if row.variant == name and row.phase == phase])
            ax.set_ylim(-0.6, len(names[i]) - 0.4)
            ax.set_xlim(2 ** low, 2 ** high)
            step = max(1, math.ceil((high - low) / 6))
            exponents = range(math.ceil(low / step) * step, math.floor(high) + 1, step)
            ax.xaxis.set_major_locator(ticker.FixedLocator([2.0 ** e for e in exponents]))
            ax.xaxis.set_major_formatter(
                lambda v, _: style.power_text(round(math.log2(v))))
            ax.set_yticks(range(len(names[i])), labels=list(reversed(names[i])))
            ax.tick_params(axis="y", length=0)
            if j:
                ax.set_yticklabels([])
            for side in ("top", "right"):
                ax.spines[side].set_visible(False)
            ax.text(0, 1.0, (f"{title}\n" if j == 0 else "") + analysis.phase_words(phase),
                    transform=ax.transAxes, va="bottom", fontsize=7.5,
                    fontweight="bold", linespacing=1.2)
            if i == len(groups) - 1:
                ax.set_xlabel(f"{'peak memory' if kind == 'peak' else 'time'} / dense's")
    word = "Peak memory" if kind == "peak" else "Time"
    style.titles(fig, f"{word} of real layers against dense", conditions.words)
    handles = [Line2D([], [], linestyle="none", markersize=4.5, label=f"B = {batch}",
                      **_look(i)) for i, batch in enumerate(batches)]
    if kind == "time" and any((row.time_spread or 0) > analysis.NOISY_SPREAD for row in rows):
        handles.append(Line2D([], [], linestyle="none", marker="o", markersize=4.5,
                              markerfacecolor="white", markeredgecolor="#2171B5",
                              label="hollow: spread over 20%"))
    style.legend(fig, handles, below_top=0.44, columns=6)
    stem = f"layers-{kind}-{conditions.name}{part}"
    return analysis.Drawn(
        stem, f"{word} of real layers against dense ({conditions.words})",
        ("The most bytes alive during the phase, over the dense layer's"
         if kind == "peak" else "Median time over the dense layer's, measured in turns")
        + "; the line at 1 is dense. Left of it the variant saves, right of it it costs. "
        "A mark for each batch; words at the right name batches without a figure.",
        "layers", tuple(style.save(fig, style.stem(out, stem), formats)), tuple(rows),
        ("batch", "ranks", "peak_bytes", "peak_ratio_to_dense") if kind == "peak" else
        ("batch", "ranks", "time_ns", "time_spread", "time_ratio_to_dense"))


def _look(i):
    return dict(marker=_MARKERS[i % len(_MARKERS)], color=_SHADES[i % len(_SHADES)])


def _line(ax, y, batches, ratio, timed, rows):
    lost = collections.Counter(row.status for row in rows if not row.ok)
    for row in rows:
        value = ratio(row)
        if value is None:
            continue
        place = batches.index(row.batch)
        look = _look(place)
        hollow = timed and (row.time_spread or 0) > analysis.NOISY_SPREAD
        shift = 0.22 - 0.44 * place / max(1, len(batches) - 1)
        ax.plot([value], [y + shift], linestyle="none", markersize=4.5, markeredgewidth=0.7,
                markerfacecolor="white" if hollow else look["color"], **look)
    text = ("not run" if not rows else ", ".join(
        f"{status}" + (f" \u00d7{count}" if count > 1 else "")
        for status, count in sorted(lost.items())))
    if text:
        ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), va="center",
                ha="left", fontsize=7, color="#555555")
