"""Which variant needs least: a map of the winners over batch and rank."""

import itertools
import math

from matplotlib import patches
from matplotlib.lines import Line2D

from plotting import analysis
from plotting import style


_LETTER_POINTS = 6.5


def draw(results, palette, out, formats):
    drawn = []
    for key, rows in analysis.mapped(results).items():
        if any(row.ok and row.rank is not None for row in rows):
            drawn.append(_figure(results, palette, out, formats, key, rows))
    return drawn


def best(rows, figure, tie):
    """Variants within `tie` of the least `figure`, the least first; not the picker."""
    known = sorted((figure(row), row.variant) for row in rows
                   if row.ok and figure(row) is not None and row.variant != analysis.PICKER)
    return [name for value, name in known if value <= known[0][0] * tie]


def _figure(results, palette, out, formats, key, rows):
    phases = analysis.phase_order(row.phase for row in rows)
    ranks = sorted({row.rank for row in rows if row.rank is not None})
    batches = sorted({row.batch for row in rows})
    kinds = (("least peak memory", lambda row: row.peak_bytes, 1),
             ("least time", results.time_ratio, analysis.TIE))
    found = {}
    for phase, rank, batch, (words, figure, tie) in itertools.product(
            phases, ranks, batches, kinds):
        cell = [row for row in rows if row.phase == phase and row.batch == batch
                and row.rank in (rank, None)]
        found[phase, rank, batch, words] = best(cell, figure, tie)
    winners = palette.sort(name for names in found.values() for name in names)
    handles = [Line2D([], [], linestyle="none", marker="s", markersize=7,
                      color=palette.color(name), markeredgecolor="#666666",
                      markeredgewidth=0.4, label=f"{palette.letter(name)}  {name}")
               for name in winners]
    if not all(found.values()):
        handles.append(patches.Patch(facecolor="white", edgecolor="#9A9A9A",
                                     hatch="////", linewidth=0.4, label="no figure"))
    fig, axes = style.grid(
        len(phases), 2, panel_height=max(0.9, 0.2 * len(ranks)), left=0.46, right=0.1,
        top=0.28, under=0.42, bottom=0.55 + 0.16 * math.ceil(len(handles) / 4),
        between=0.3, header=0.42)
    room = int(72 * 3.0 / len(batches) / _LETTER_POINTS)
    for i, phase in enumerate(phases):
        for j, (words, _, _) in enumerate(kinds):
            ax = axes[i][j]
            for y, rank in enumerate(ranks):
                for x, batch in enumerate(batches):
                    _cell(ax, x, y, palette, found[phase, rank, batch, words], room)
            ax.set_xlim(-0.5, len(batches) - 0.5)
            ax.set_ylim(-0.5, len(ranks) - 0.5)
            step = max(1, math.ceil(len(batches) / 8))
            ax.set_xticks(range(0, len(batches), step),
                          labels=[str(b) for b in batches[::step]])
            ax.set_yticks(range(len(ranks)), labels=[str(r) for r in ranks])
            ax.tick_params(length=0, pad=2)
            for side in ax.spines.values():
                side.set_visible(False)
            ax.set_title(f"{analysis.phase_words(phase)}: {words}", loc="left",
                         fontweight="bold", pad=3)
            if j == 0:
                ax.set_ylabel("rank r")
            if i == len(phases) - 1:
                ax.set_xlabel("batch B (rows of x)")
    style.titles(fig, "Which variant needs least", key.words)
    style.legend(fig, handles, above_bottom=0.08, columns=4)
    stem = f"winner-{key.name}"
    return analysis.Drawn(
        stem, f"Which variant needs least, {key.plain}",
        "The letter and the colour name the variant with the least peak memory (left) and "
        "the least time (right) at each batch and rank, the dense layers among them. More "
        "letters are a tie: equal to the byte in memory, within 2% in time; a plus stands "
        "for those that find no room. The colour is that of the first letter.",
        "winner", tuple(style.save(fig, style.stem(out, stem), formats)), tuple(rows),
        ("batch", "rank", "peak_bytes", "time_ratio_to_dense"))


def _cell(ax, x, y, palette, names, room):
    box = dict(linewidth=0.6, edgecolor="white")
    if not names:
        box = dict(linewidth=0.4, edgecolor="#9A9A9A", facecolor="white", hatch="////")
    else:
        box["facecolor"] = palette.color(names[0])
    ax.add_patch(patches.Rectangle((x - 0.5, y - 0.5), 1, 1, **box))
    if names:
        letters = [palette.letter(name) for name in names]
        text = "".join(letters if len(letters) <= room
                       else [*letters[:max(1, room - 1)], "+"])
        ax.text(x, y, text, ha="center", va="center", fontsize=7, fontweight="bold",
                color=_ink(palette.color(names[0])))


def _ink(color):
    red, green, blue = (int(color[i:i + 2], 16) for i in (1, 3, 5))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 125 else "white"
