"""Figures of //experiments:real_weights."""

import collections
import statistics

from matplotlib import ticker
from matplotlib.lines import Line2D

from plotting import analysis
from plotting import style

# method, cores: colour, marker
_LOOKS = {("svd", None): (style.BLACK, "o"), ("tt", 2): (style.BLUE, "^"),
          ("tt", 3): (style.VERMILION, "s"), ("tt", 4): (style.GREEN, "D")}
_OTHER = (style.PURPLE, "v")
_GRID = {"color": "#E8E8E8", "linewidth": 0.5}


def place(row):
    """What identifies a way to compress."""
    return (row.method, row.cores, row.order, row.rank)


def method_words(row):
    if row.method == "tt":
        return f"{row.cores} cores, {row.factors_hidden}:{row.factors_inner}"
    return {"svd": "truncated SVD"}.get(row.method, row.method)


def draw(run, out, formats):
    return [drawn for figure in (_matrices, _embeddings, _alone, _front, _passes)
            for drawn in figure(run, out, formats)]


def _look(row):
    return _LOOKS.get((row.method, row.cores), _OTHER)


def _drawn(fig, out, formats, stem, title, caption, section):
    return [analysis.Drawn(stem, title, caption, section,
                           tuple(style.save(fig, style.stem(out, stem), formats)), (), ())]


def _ways(rows):
    """{(method, cores, order): rows by rank}, the SVD first, the first order of each first."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row.method, row.cores, row.order].append(row)
    keys = sorted(groups, key=lambda k: (k[0] != "svd", k[1] or 0))
    return {key: sorted(groups[key], key=lambda r: r.rank) for key in keys}


def _share_axis(ax, values, label="feed-forward bytes, of dense"):
    ax.set_xscale("log")
    ax.set_xlim(min(values) / 1.15, max(values) * 1.15)
    ax.xaxis.set_major_locator(ticker.FixedLocator([0.001, 0.01, 0.03, 0.1, 0.3, 1]))
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{100 * x:.3g}%"))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
    ax.axvline(1, color=style.GREY, linewidth=0.7, linestyle=(0, (4, 2)))
    ax.set_xlabel(label)


def _rank_axis(ax):
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:.0f}"))
    ax.set_xlabel("rank")


def _finish(ax):
    ax.grid(True, **_GRID)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _log_axis(ax):
    """Plain numbers at 1, 1.5, 2, 3, 5, 7 and so on, as many as there is room for."""
    low, high = ax.get_xlim()
    subs = (1, 1.5, 2, 3, 5, 7) if high < 8 * low else (1, 2, 5) if high < 100 * low else (1,)
    ax.xaxis.set_major_locator(ticker.LogLocator(subs=subs, numticks=20))
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_locator(ticker.NullLocator())


def _legend_header(count, columns):
    """Room for a title, a line of detail and the legend's rows."""
    return 0.5 + 0.16 * -(-count // columns)


def _way_handles(ways):
    handles, seen = [], collections.Counter()
    for (method, cores, order), rows in ways.items():
        color, marker = _look(rows[0])
        seen[method, cores] += 1
        second = seen[method, cores] > 1
        words = "truncated SVD" if method == "svd" else f"{cores} cores, {order}"
        handles.append(Line2D([], [], color=color, marker=marker, markersize=4,
                              linestyle="--" if second else "-",
                              markerfacecolor="white" if second else color, label=words))
    return handles


def _matrices(run, out, formats):
    """Relative error against bytes and against rank: median over the matrices, and their range."""
    ways = _ways(run.matrices)
    if not ways:
        return []
    fig, axes = style.grid(1, 2, panel_height=2.3, left=0.55, right=0.12, top=0.12, bottom=0.42,
                           between=0.5, header=_legend_header(len(ways), 4))
    shares = [r.ratio_to_dense for r in run.matrices]
    seen = collections.Counter()
    for (method, cores, _), rows in ways.items():
        color, marker = _look(rows[0])
        seen[method, cores] += 1
        second = seen[method, cores] > 1
        by_rank = collections.defaultdict(list)
        for row in rows:
            by_rank[row.rank].append(row)
        ranks = sorted(by_rank)
        middle = [statistics.median(r.relative_error for r in by_rank[rank]) for rank in ranks]
        share = [statistics.median(r.ratio_to_dense for r in by_rank[rank]) for rank in ranks]
        for ax, x in ((axes[0][0], share), (axes[0][1], ranks)):
            ax.plot(x, middle, color=color, marker=marker, markersize=3.5, linewidth=1,
                    linestyle="--" if second else "-", zorder=3,
                    markerfacecolor="white" if second else color, markeredgewidth=0.7)
            if not second:
                ax.fill_between(x, [min(r.relative_error for r in by_rank[rank]) for rank in ranks],
                                [max(r.relative_error for r in by_rank[rank]) for rank in ranks],
                                color=color, alpha=0.13, linewidth=0)
    _share_axis(axes[0][0], shares)
    _rank_axis(axes[0][1])
    for ax in axes[0]:
        ax.set_ylim(0, 1.02)
        ax.set_ylabel("relative error of W")
        _finish(ax)
    layers = len({r.layer for r in run.matrices})
    style.titles(fig, "How much of a trained matrix a tensor train keeps",
                 f"‖W − TT(W)‖ / ‖W‖ of the feed-forward matrices of {layers} layers, 384 → 1536 "
                 "and back: median, and range of the first order")
    style.legend(fig, _way_handles(ways), below_top=0.44, columns=4)
    return _drawn(fig, out, formats, "weights-matrices",
                  "How much of a trained matrix a tensor train keeps",
                  "A straight fall to zero means that every singular value counts: there is no "
                  "small part to leave out. The order of the factors makes no difference, as the "
                  "neurons come in no order. A line that passes the dashed one takes more bytes "
                  "than the matrix. At the same bytes the truncated SVD is ahead of the trains, "
                  "until they near their full rank, which those of more cores reach at fewer bytes.",
                  "matrices")


def _embeddings(run, out, formats):
    ways = _ways(r for r in run.embeddings if r.compressed == "all")
    if not ways:
        return []
    fig, axes = style.grid(1, 3, panel_height=2.1, left=0.5, right=0.1, top=0.25, bottom=0.42,
                           between=0.36, header=_legend_header(len(ways), 4))
    rows = [r for group in ways.values() for r in group]
    for group in ways.values():
        color, marker = _look(group[0])
        for ax, x, y in ((axes[0][0], "rank", "mean_cosine"),
                         (axes[0][1], "ratio_to_dense", "mean_cosine"),
                         (axes[0][2], "ratio_to_dense", "spearman")):
            xs = [getattr(r, x) for r in group]
            ax.plot(xs, [getattr(r, y) for r in group], color=color, marker=marker, markersize=3.5,
                    linewidth=1)
            if y == "mean_cosine":
                ax.plot(xs, [r.worst_cosine for r in group], color=color, linewidth=0.7,
                        linestyle=(0, (1, 1.5)))
    _rank_axis(axes[0][0])
    for ax in axes[0][1:]:
        _share_axis(ax, [r.ratio_to_dense for r in rows])
    for ax, words in zip(axes[0], ("cosine with the original", "cosine with the original",
                                   "Spearman's correlation")):
        ax.set_title(words, loc="left", fontweight="bold", pad=3)
        ax.set_ylim(min(0, min(r.worst_cosine for r in rows)), 1.05)
        _finish(ax)
    sentences = max(r.sentences for r in rows)
    style.titles(fig, "What the embeddings lose when all feed-forward matrices are compressed",
                 f"{sentences} sentences. Lines: mean; dotted: the worst sentence. Right: the "
                 "ranking of all pairs by similarity")
    style.legend(fig, _way_handles(ways), below_top=0.44, columns=4)
    return _drawn(fig, out, formats, "weights-embeddings",
                  "What the embeddings lose when all feed-forward matrices are compressed",
                  "The dashed line is the dense layers' size. Nothing is trained after the "
                  "decomposition: at half of the bytes the embeddings have little in common with "
                  "the original's, whichever way the bytes are spent.", "embeddings")


def _alone(run, out, formats):
    """How much one compressed matrix turns the embeddings, by layer."""
    rows = [r for r in run.embeddings if r.compressed != "all"]
    if not rows:
        return []
    names = list(dict.fromkeys(r.compressed for r in rows))
    ways = _ways(rows)
    fig, axes = style.grid(1, 1, width=style.PAGE_IN, panel_height=0.17 * len(names) + 0.1,
                           left=0.95, right=0.15, top=0.05, bottom=0.42,
                           header=_legend_header(len(ways), 4))
    ax = axes[0][0]
    for i, name in enumerate(names):
        values = [1 - r.mean_cosine for r in rows if r.compressed == name]
        ax.plot([min(values), max(values)], [i, i], color="#CCCCCC", linewidth=1, zorder=1)
    for group in ways.values():
        color, marker = _look(group[0])
        ax.plot([1 - r.mean_cosine for r in group], [names.index(r.compressed) for r in group],
                linestyle="none", color=color, marker=marker, markersize=4.5,
                markeredgecolor="white", markeredgewidth=0.4, zorder=3)
    ax.set_yticks(range(len(names)), labels=names)
    ax.invert_yaxis()
    ax.set_xlim(0, None)
    ax.set_xlabel("1 − mean cosine with the original's embedding")
    _finish(ax)
    share = statistics.median(r.ratio_to_dense for r in rows)
    style.titles(fig, "Which matrix hurts most", f"One matrix at a time at {share:.0%} of its "
                 "bytes, all others as they are")
    style.legend(fig, _way_handles(ways), below_top=0.44, columns=4)
    return _drawn(fig, out, formats, "weights-alone", "Which matrix hurts most",
                  "Each row compresses one matrix alone, to the same share of its bytes; further "
                  "right is worse.", "embeddings")


def pass_groups(run):
    """Rows of each setting, dense first."""
    groups = collections.defaultdict(list)
    for row in run.passes:
        groups[row.method, row.cores, row.rank].append(row)
    return list(groups.values())


def _pass_words(run):
    row = next(r for r in run.passes if r.tokens)
    threads = f"{row.threads} thread{'' if row.threads == 1 else 's'}"
    return f"{row.sentences} sentences, {row.tokens} tokens with padding, float32, {threads}"


def _pareto(points):
    """Those that no other is at least as good as, by (cost, gain); sorted."""
    front, best = [], None
    for cost, gain in sorted(points, key=lambda p: (p[0], -p[1])):
        if best is None or gain > best:
            front.append((cost, gain))
            best = gain
    return front


def _front(run, out, formats):
    rows = [r for r in run.passes if r.status == "ok" and r.time_ratio_to_dense]
    if len({r.method for r in rows}) < 2:
        return []
    palette = style.Palette([r.variant for r in rows])
    panels = (("weight_bytes", "weights of the encoder, MB", 1e6),
              ("peak_bytes", "peak of a pass, MB", 1e6),
              ("time_ratio_to_dense", "time of a pass, of dense", 1))
    fig, axes = style.grid(1, 3, panel_height=2.2, left=0.5, right=0.1, top=0.05, bottom=0.42,
                           between=0.3, header=_legend_header(1, 1))
    for ax, (name, words, unit) in zip(axes[0], panels):
        points = [(getattr(r, name) / unit, r.mean_cosine) for r in rows]
        line = _pareto(points)
        ax.step([x for x, _ in line], [y for _, y in line], where="post", color="#BBBBBB",
                linewidth=3, zorder=1, solid_capstyle="round")
        for variant in palette.sort(r.variant for r in rows):
            mine = [r for r in rows if r.variant == variant]
            ax.plot([getattr(r, name) / unit for r in mine], [r.mean_cosine for r in mine],
                    linestyle="none", color=palette.color(variant), marker=palette.marker(variant),
                    markersize=5, markeredgecolor="white", markeredgewidth=0.4, zorder=3)
        if name != "weight_bytes":
            ax.set_xscale("log")
            _log_axis(ax)
        ax.set_xlabel(words)
        ax.set_ylim(min(0, min(r.mean_cosine for r in rows)), 1.05)
        _finish(ax)
    axes[0][0].set_ylabel("mean cosine with the original")
    for ax in axes[0][1:]:
        ax.tick_params(labelleft=False)
    style.titles(fig, "What is paid for which quality",
                 "Every setting and variant: " + _pass_words(run))
    style.legend(fig, [style.variant_handle(palette, name, line=False)
                       for name in palette.sort(r.variant for r in rows)], below_top=0.44, columns=7)
    return _drawn(fig, out, formats, "weights-front", "What is paid for which quality",
                  "Up is better, left is cheaper; the grey line is the Pareto front. Weights and "
                  "peak are the whole encoder's, more than half of which is the table of words.",
                  "passes")


def _passes(run, out, formats):
    """Peak and time of every variant, one row a setting."""
    groups = [g for g in pass_groups(run) if any(r.status == "ok" for r in g)]
    if not groups:
        return []
    groups.sort(key=lambda g: (g[0].method != "dense",
                               -round(max(r.ratio_to_dense or 0 for r in g), 1),
                               g[0].method != "svd", g[0].cores or 0))
    variants = [r.variant for g in groups for r in g]
    palette = style.Palette(variants)
    fig, axes = style.grid(1, 3, panel_height=0.2 * len(groups) + 0.1, left=1.8, right=0.15,
                           top=0.25, bottom=0.3, between=0.2, header=_legend_header(1, 1))
    columns = (("mean_cosine", "cosine", False), ("peak_ratio_to_dense", "peak, of dense", True),
               ("time_ratio_to_dense", "time, of dense", True))
    for ax, (name, words, log) in zip(axes[0], columns):
        for i, group in enumerate(groups):
            ok = [r for r in group if r.status == "ok" and getattr(r, name) is not None]
            if name == "mean_cosine":
                ax.plot([0, ok[0].mean_cosine], [i, i], color="#BBBBBB", linewidth=3,
                        solid_capstyle="butt")
                ax.text(ok[0].mean_cosine + 0.03, i, f"{ok[0].mean_cosine:.2f}", va="center",
                        fontsize=7)
                continue
            for row in ok:
                ax.plot([getattr(row, name)], [i], linestyle="none",
                        color=palette.color(row.variant), marker=palette.marker(row.variant),
                        markersize=5, markeredgecolor="white", markeredgewidth=0.4)
        if log:
            ax.set_xscale("log")
            _log_axis(ax)
            ax.axvline(1, color="black", linewidth=0.8, zorder=1)
        else:
            ax.set_xlim(0, 1.2)
            ax.set_xticks([0, 0.5, 1])
        ax.set_ylim(len(groups) - 0.4, -0.6)
        ax.set_yticks(range(len(groups)), labels=[
            _group_words(g) if ax is axes[0][0] else "" for g in groups])
        ax.set_title(words, loc="left", fontweight="bold", pad=3)
        _finish(ax)
    style.titles(fig, "Memory and time of a pass of the encoder", _pass_words(run))
    style.legend(fig, [style.variant_handle(palette, name, line=False)
                       for name in palette.sort(variants)], below_top=0.44, columns=7)
    lost = sorted({f"{r.variant} ({r.status}) at {_group_words([r])}" for r in run.passes
                   if r.status != "ok"})
    return _drawn(fig, out, formats, "weights-passes", "Memory and time of a pass of the encoder",
                  "Peak with the weights of the whole encoder; markers of variants that agree lie "
                  "on each other. Times in turns with the dense encoder in the same rounds."
                  + (f" Without a figure: {'; '.join(lost)}." if lost else ""), "passes")


def _group_words(group):
    row = group[0]
    if row.method == "dense":
        return "dense"
    share = next((f" {r.ratio_to_dense:.0%}" for r in group if r.ratio_to_dense), "")
    way = "SVD" if row.method == "svd" else f"{row.cores} cores"
    return f"{way}, rank {row.rank},{share}".rstrip(",")
