"""Draws //experiments:training: how networks learn whose layers are computed in different ways.

    bazel run //plotting:training -- results/runs/X

From networks.csv (a row for each network), steps.csv (for each of its steps) and text.csv.
"""

import csv
import dataclasses
import html
import io
import json
import math
import os
import statistics
import sys

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from plotting import analysis
from plotting import claims
from plotting import report
from plotting import results as results_lib
from plotting import style
from plotting import tables

SCHEMA = "1"
BASELINE, REFERENCE, COMPARED, CONTROL = "baseline", "reference", "compared", "control"
LOSS, NORM = "loss_nats", "feed_forward_gradient_norm"
_WORDS = {LOSS: "loss", NORM: "gradient norm"}

# How much further than the controls a correct variant may be by chance: once trainings have parted,
# which of them is ahead is luck.
CHANCE = 3
# Roundings of a loss or a norm itself, which even equal results may differ by.
ROUNDINGS = 8
UNIT_ROUNDOFF = {"float32": 2.0 ** -24, "float64": 2.0 ** -53}
# By how much the reference has to be better than knowing the words' frequencies: else it has not
# learned, and that all networks agree says little.
LEARNED_NATS = 0.2


@dataclasses.dataclass(frozen=True)
class Step:
    step: int
    words: int
    learning_rate: float
    loss_nats: float  # Infinite where it was not a number.
    gradient_norm: float
    feed_forward_gradient_norm: float
    step_s: float
    held_out_loss_nats: float | None


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of the run and its steps, in order."""

    name: str
    variant: str
    role: str
    facts: dict  # Its row of networks.csv.
    steps: tuple

    def number(self, column):
        return int(self.facts[column])

    def values(self, what):
        return [getattr(step, what) for step in self.steps]

    @property
    def median_s(self):
        """Of a step; the first one may set up what the others find."""
        times = [step.step_s for step in self.steps[1:]] or [self.steps[0].step_s]
        return statistics.median(times)

    @property
    def total_s(self):
        return sum(step.step_s for step in self.steps)

    @property
    def held_out(self):
        """(step, loss) of each evaluation."""
        return [(step.step, step.held_out_loss_nats) for step in self.steps
                if step.held_out_loss_nats is not None]


@dataclasses.dataclass(frozen=True)
class Training:
    networks: tuple  # Of those that took a step.
    text: dict  # Column -> number.
    run: dict
    notes: tuple

    def of(self, role):
        return [network for network in self.networks if network.role == role]

    @property
    def reference(self):
        return next(iter(self.of(REFERENCE)), None)

    @property
    def baseline(self):
        return next(iter(self.of(BASELINE)), None)

    @property
    def unigram_nats(self):
        """What knowing no more than the words' frequencies costs on the text that is evaluated."""
        return self.text["unigram_evaluated_nats"]

    def deviations(self, network, what):
        """|value - reference's| over the reference's, at each step both have taken."""
        pairs = zip(network.values(what), self.reference.values(what))
        return [abs(mine - theirs) / theirs if math.isfinite(mine) and math.isfinite(theirs)
                else math.inf for mine, theirs in pairs]

    def bounds(self, what):
        """The most that a correct variant may deviate at each step; see judge()."""
        floor = ROUNDINGS * UNIT_ROUNDOFF[self.reference.facts["dtype"]]
        controls = [self.deviations(control, what) for control in self.of(CONTROL)]
        most, bounds = 0.0, []
        for values in zip(*controls):
            most = max(most, *values)
            bounds.append(CHANCE * most + floor)
        return bounds

    def first_beyond(self, network, what):
        """The first step at which `network` deviates by more than it may; None if it never does."""
        for step, (value, bound) in enumerate(
                zip(self.deviations(network, what), self.bounds(what)), 1):
            if not value <= bound:
                return step
        return None


def load(directory):
    """Reads a run; raises results.ResultsError with one clear sentence."""
    notes = []
    networks = _read(directory, "networks.csv", notes)
    text = _read(directory, "text.csv", notes)
    by_network = {}
    for row in _read(directory, "steps.csv", notes):
        by_network.setdefault(row["network"], []).append(_step(row))
    if not by_network or not text:
        raise results_lib.ResultsError(f"{directory} has no step of any network.")
    for name, steps in by_network.items():
        if [step.step for step in steps] != list(range(1, len(steps) + 1)):
            raise results_lib.ResultsError(f"The steps of {name} in {directory}/steps.csv do not "
                                           "follow on each other.")
    run = {}
    try:
        with open(os.path.join(directory, "run.json"), encoding="utf-8") as file:
            run = json.load(file)
    except (OSError, ValueError):
        notes.append("run.json is missing or cannot be read, so the machine is not known.")
    return Training(
        tuple(Network(row["network"], row["variant"], row["role"], row,
                      tuple(by_network[row["network"]]))
              for row in networks if row["network"] in by_network),
        {column: float(value) for column, value in text[0].items()}, run, tuple(notes))


def _read(directory, name, notes):
    path = os.path.join(directory, name)
    if not os.path.isfile(path):
        raise results_lib.ResultsError(f"{directory} holds no {name}, so it is not the directory of "
                                       "a training run.")
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    whole, _, torn = text.rpartition("\n")
    if torn:
        notes.append(f"The last line of {name} was cut short while it was written.")
    rows = list(csv.DictReader(io.StringIO(whole, newline="")))
    for row in rows:
        if row.get("schema") != SCHEMA:
            raise results_lib.SchemaError(f"{name} has schema {row.get('schema')!r}; only schema "
                                          f"{SCHEMA} can be read here.")
    return rows


def _step(row):
    def number(column):
        return float(row[column]) if row[column] else math.inf
    return Step(int(row["step"]), int(row["words"]), number("learning_rate"), number(LOSS),
                number("gradient_norm"), number(NORM), number("step_s"),
                float(row["held_out_loss_nats"]) if row["held_out_loss_nats"] else None)


def judge(directory):
    """The verdicts that follow from the rows of `directory`."""
    return judge_training(load(directory))


def judge_training(training):
    reference, compared = training.reference, training.of(COMPARED)
    controls = training.of(CONTROL)
    measured = ""
    if reference is None or not compared or not controls:
        verdict, evidence = claims.UNKNOWN, (
            "It takes a reference, another TT variant and a control; this run has not all of them.")
    else:
        steps = min(len(network.steps) for network in (reference, *compared, *controls))
        beyond = [(network.name, what, step) for network in compared for what in (LOSS, NORM)
                  if (step := training.first_beyond(network, what))]
        learned = _gain(training, reference)
        parts = [f"{network.name}'s losses stay within {_most(training, network, LOSS):.1g} of "
                 f"{reference.name}'s" for network in compared]
        evidence = (f"Over {claims.plural(steps, 'step')} " + "; ".join(parts)
                    + f" (relative; the controls, which start "
                    f"{float(controls[0].facts['start_off_relative']):.1g} off: "
                    + " to ".join(f"{value:.1g}" for value in _span(
                        _most(training, control, LOSS) for control in controls)) + "). At the first "
                    "step, which all begin alike, losses differ by "
                    f"{max(training.deviations(n, LOSS)[0] for n in compared):.1g} and norms of the "
                    "position-wise gradients by "
                    f"{max(training.deviations(n, NORM)[0] for n in compared):.1g}. ")
        if beyond:
            name, what, step = min(beyond, key=lambda case: case[2])
            verdict = claims.FAILS
            evidence += f"{name} leaves the bound in its {_WORDS[what]} at step {step}."
        elif learned is None or learned < LEARNED_NATS:
            verdict = claims.UNKNOWN
            evidence += ("But the reference has not learned enough for that to say much: "
                         + (f"{learned:.2f} nats below the unigram line." if learned is not None
                            else "it was never evaluated."))
        else:
            verdict = claims.HOLDS
            evidence += (f"They learn: {reference.held_out[-1][1]:.2f} nats a word on text held "
                         f"out, where word frequencies alone give {training.unigram_nats:.2f}.")
        measured = (f"losses within {max(_most(training, n, LOSS) for n in compared):.1g} of each "
                    f"other over {claims.plural(steps, 'step')}")
    return (claims.Verdict(
        "T1", "Training is unchanged: however a TT layer is computed, the network learns the same.",
        verdict, evidence,
        "All networks start from the same parameters and see the same text. Holds: at every step, "
        "no variant's loss, nor the norm of its position-wise layers' gradients, is further from the "
        f"reference's than {CHANCE} times the most that a control has been so far, plus {ROUNDINGS} "
        "roundings; the controls are the reference from cores that are off by what the suite's "
        "tolerance lets a correct layer's results be off; and the reference ends at least "
        f"{LEARNED_NATS:g} nats below the unigram line. Does not hold: a variant is further.",
        predicted="equal but for rounding", measured=measured,
        figure="training-loss"),)


def _most(training, network, what):
    return max(training.deviations(network, what))


def _span(values):
    values = list(values)
    return sorted({min(values), max(values)})


def _gain(training, network):
    return training.unigram_nats - network.held_out[-1][1] if network.held_out else None


def answer(training):
    """What a reader takes away, in a few sentences."""
    verdict = judge_training(training)[0]
    lines = [f"Training is unchanged: {verdict.verdict}. {verdict.evidence}"]
    dense, reference = training.baseline, training.reference
    if dense and reference and dense.held_out and reference.held_out:
        lost = reference.held_out[-1][1] - dense.held_out[-1][1]
        lines.append(
            f"What it costs to be compressed: after {reference.held_out[-1][0]} steps TT is "
            f"{abs(lost):.3f} nats a word {'worse' if lost > 0 else 'better'} than dense on text held "
            f"out ({reference.held_out[-1][1]:.3f} and {dense.held_out[-1][1]:.3f}), with "
            f"{reference.number('feed_forward_parameters'):,} position-wise parameters in place of "
            f"{dense.number('feed_forward_parameters'):,}.")
        lines.append("A step beside dense: " + "; ".join(
            f"{network.name} {style.ratio_text(network.number('step_peak_bytes') / dense.number('step_peak_bytes'))}"
            f" times the memory, {style.ratio_text(network.median_s / dense.median_s)} times the time"
            for network in training.networks if network.role in (REFERENCE, COMPARED)) + ".")
    return lines


# Tables

def build_tables(training):
    return [_networks_table(training), *_agreement_table(training)]


def _networks_table(training):
    dense = training.baseline
    rows = []
    for network in training.networks:
        last = network.held_out[-1][1] if network.held_out else None
        base = dense.held_out[-1][1] if dense and dense.held_out else None
        rows.append((
            network.name, network.role, f"{network.number('parameters'):,}",
            f"{network.number('feed_forward_parameters'):,}",
            f"{network.number('step_peak_bytes') / 2 ** 20:.1f}",
            f"{network.number('evaluation_peak_bytes') / 2 ** 20:.1f}",
            f"{network.median_s * 1e3:.1f}", f"{network.total_s:.1f}",
            f"{network.steps[-1].loss_nats:.4f}", "" if last is None else f"{last:.4f}",
            "" if None in (last, base) else f"{last - base:+.4f}"))
    header = ("network", "role", "parameters", "position-wise", "step, MiB", "evaluation, MiB",
              "step, ms", "all steps, s", "training, nats", "held out, nats", "beside dense, nats")
    return tables.Table(
        "training", "The networks, after their last step",
        f"Memory: the most bytes over a step, parameters, gradients and Adam's state included, and "
        "over an evaluation without them. Time: the median of the steps. Losses are in nats a word; "
        f"word frequencies alone give {training.unigram_nats:.4f} on the text held out.",
        header, tuple(rows), header[2:])


def _agreement_table(training):
    if training.reference is None:
        return []
    rows = []
    for network in training.of(COMPARED) + training.of(CONTROL):
        row = [network.name]
        for what in (LOSS, NORM):
            values = training.deviations(network, what)
            row += [f"{values[0]:.1e}", f"{max(values):.1e}"]
            if network.role == COMPARED and training.of(CONTROL):
                ratios = [most / bound for most, bound in
                          zip(values, training.bounds(what))]
                row.append(f"{max(ratios):.2f}")
            else:
                row.append("")
        rows.append(tuple(row))
    header = ("network", "loss, first step", "loss, most", "of its bound",
              "norm, first step", "norm, most", "of its bound ")
    return [tables.Table(
        "training-agreement", f"How far each training is from {training.reference.name}'s",
        "Relative differences of the loss and of the norm of the position-wise gradients: at the "
        "first step, the most over all steps, and the most of what T1 allows.",
        header, tuple(rows), header[1:])] if rows else []


# Figures

def _smooth(values):
    """Means over as many steps as are a fortieth of all, ending at each."""
    width = max(1, len(values) // 40)
    return [statistics.fmean(values[max(0, i - width + 1):i + 1]) for i in range(len(values))]


def _loss_figure(training, palette, out, formats):
    fig, axes = style.grid(2, 2, panel_height=1.75, left=0.55, bottom=0.42, under=0.5, between=0.6,
                           header=0.75, top=0.1)
    top = axes[0][0]
    axes[0][1].remove()
    left, _, _, height = axes[1][0].get_position().bounds
    right = axes[1][1].get_position()
    top.set_position((left, top.get_position().y0, right.x1 - left, height))
    shown = [network for network in training.networks if network.role != CONTROL]
    # TT curves coincide: the first ones drawn are the widest, so that all are seen.
    wide = [network for network in shown if network.role == COMPARED]
    widths = {network.name: 1.1 + 2.2 * (len(wide) - i) for i, network in enumerate(wide)}
    for network in sorted(shown, key=lambda n: -widths.get(n.name, 1.1)):
        steps = network.values("step")
        line = {"color": palette.color(network.name), "linewidth": widths.get(network.name, 1.1),
                "solid_capstyle": "butt"}
        top.plot(steps, _smooth(network.values(LOSS)), **line, alpha=0.9)
        if network.held_out:
            top.plot(*zip(*network.held_out), marker=palette.marker(network.name), linestyle="none",
                     color=line["color"], markersize=3.5 + widths.get(network.name, 1.1),
                     markerfacecolor="white" if network.role == COMPARED else line["color"])
    top.axhline(training.unigram_nats, color=style.GREY, linestyle="--", linewidth=0.8)
    steps = max(len(network.steps) for network in shown)
    top.text(steps, training.unigram_nats, "word frequencies alone, held-out text ", ha="right",
             va="bottom", color=style.GREY, fontsize=7)
    lowest = min(min(_smooth(network.values(LOSS))) for network in shown)
    # The first steps, from nothing, would flatten all that comes after.
    top.set_ylim(lowest - 0.2, max(training.unigram_nats + 1.2, lowest + 1))
    top.set_xlim(0, steps * 1.01)
    top.set_ylabel("loss, nats a word")
    top.set_xlabel("step")
    for axis, what in zip(axes[1], (LOSS, NORM)):
        _difference_panel(axis, training, palette, what)
        axis.set_xlim(0, steps * 1.01)
    handles = [Line2D([], [], color=palette.color(n.name), linewidth=widths.get(n.name, 1.1),
                      marker=palette.marker(n.name), markersize=4,
                      markerfacecolor="white" if n.role == COMPARED else None, label=n.name)
               for n in shown]
    handles.append(Patch(facecolor="#E4E4E4", edgecolor="none", label="a correct variant may be here"))
    handles.append(Line2D([], [], color="#8A8A8A", linewidth=0.7, linestyle=":",
                          label="controls"))
    reference = training.reference
    detail = (f"Lines: training loss (means of {max(1, steps // 40)}); markers: text held out. Below: "
              f"the difference from {reference.name} at each step." if reference else
              "Lines: training loss; markers: text held out.")
    style.titles(fig, "However a TT layer is computed, the network learns the same", detail)
    style.legend(fig, handles, below_top=0.45, columns=len(handles))
    return analysis.Drawn(
        "training-loss", "Losses over the steps, and how far they are from each other",
        "Above, all networks on the same axis; the curves of the TT variants lie on each other and "
        "are drawn in falling widths. Below, what they differ by on a logarithmic scale: the loss, "
        "and the norm of the position-wise layers' gradients. Dotted, the controls: the reference "
        "from cores a tolerance off. The jumps come where a rounding carries some unit across the "
        "kink of its ReLU; from there Adam takes trainings apart.", "figures",
        tuple(style.save(fig, style.stem(out, "training-loss"), formats)), (), ())


def _difference_panel(axis, training, palette, what):
    axis.set_yscale("log")
    axis.set_xlabel("step")
    axis.set_ylabel(f"relative difference, {_WORDS[what]}")
    if training.reference is None:
        return
    low = 1e-10
    if training.of(CONTROL):
        bounds = training.bounds(what)
        axis.fill_between(range(1, len(bounds) + 1), low, bounds, color="#E4E4E4", linewidth=0)
    for network in training.networks:
        if network.role == REFERENCE:
            continue
        values = [min(max(value, low), 10) for value in training.deviations(network, what)]
        control = network.role == CONTROL
        axis.plot(range(1, len(values) + 1), values, linewidth=0.7 if control else 0.9,
                  linestyle=":" if control else "-",
                  color="#8A8A8A" if control else palette.color(network.name))
    axis.set_ylim(low, 1)


def _cost_figure(training, palette, out, formats):
    shown = [network for network in training.networks if network.role != CONTROL]
    panels = (("time of a step, ms", [n.median_s * 1e3 for n in shown], "{:.0f}"),
              ("peak memory of a step, MiB",
               [n.number("step_peak_bytes") / 2 ** 20 for n in shown], "{:.0f}"),
              ("held-out loss at the end, nats a word",
               [n.held_out[-1][1] if n.held_out else math.nan for n in shown], "{:.3f}"))
    fig, axes = style.grid(1, 3, panel_height=0.24 * len(shown) + 0.1, left=0.85, right=0.3,
                           bottom=0.42, between=0.25, header=0.45, top=0.05)
    for i, (axis, (label, values, pattern)) in enumerate(zip(axes[0], panels)):
        places = range(len(shown))
        is_loss = i == 2
        if is_loss:
            known = [value for value in values if math.isfinite(value)]
            for place, value in zip(places, values):
                axis.plot([value], [place], marker=palette.marker(shown[place].name), markersize=6,
                          color=palette.color(shown[place].name))
            axis.axvline(training.unigram_nats, color=style.GREY, linestyle="--", linewidth=0.8)
            low = min(known + [training.unigram_nats])
            span = max(known + [training.unigram_nats]) - low or 1
            axis.set_xlim(low - 0.15 * span, low + 1.15 * span)
        else:
            axis.barh(places, values, height=0.62,
                      color=[palette.color(network.name) for network in shown])
            axis.set_xlim(0, max(values) * 1.18)
        room = (axis.get_xlim()[1] - axis.get_xlim()[0]) * (0.05 if is_loss else 0.015)
        for place, value in zip(places, values):
            if math.isfinite(value):
                axis.text(value + room, place, pattern.format(value), va="center", fontsize=7)
        axis.set_xlabel(label)
        axis.set_ylim(len(shown) - 0.45, -0.55)
        axis.set_yticks(places, [network.name for network in shown] if i == 0 else [])
        axis.tick_params(axis="y", length=0)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    style.titles(fig, "What a step takes, and what was learned",
                 "Steps are taken in turns, so that all see the same machine. Dashed: word "
                 "frequencies alone.")
    return analysis.Drawn(
        "training-cost", "Time and memory of a step, and the loss at the end",
        "Time: the median over all steps. Memory: the most bytes over a step in a pass of its own, "
        "with parameters, gradients, Adam's state, the segments' memory and all activations.",
        "figures", tuple(style.save(fig, style.stem(out, "training-cost"), formats)), (), ())


def draw_all(directory, out=None, formats=style.FORMATS):
    """Draws `directory`; returns the paths written, report.html last.

    Raises results.ResultsError where the directory cannot be read.
    """
    training = load(directory)
    out = out or directory
    palette = style.Palette([n.name for n in training.networks if n.role != CONTROL])
    plots = os.path.join(out, "plots")
    drawn = [figure(training, palette, plots, formats)
             for figure in (_loss_figure, _cost_figure)]
    verdicts = judge_training(training)
    built = build_tables(training)
    paths = [path for figure in drawn for path in figure.paths]
    paths += tables.write(built, os.path.join(out, "tables"))
    sections = [("claims", "Claims and verdicts", report.claims_html(verdicts)),
                ("figures", "Losses, time and memory", "".join(map(report.figure_html, drawn))),
                ("tables", "Tables", report.tables_html(built)),
                ("machine", "Machine, warnings and how to reproduce", _machine(training))]
    paths.append(report.render(
        os.path.join(out, "report.html"), "ttbench training: how networks learn whose TT layers are "
        "computed in different ways", _subtitle(training), answer(training), sections))
    return paths


def _subtitle(training):
    facts = training.networks[0].facts
    machine = training.run.get("machine") or {}
    parts = (machine.get("cpu_model"),
             f"LibTorch {training.run['libtorch']}" if training.run.get("libtorch") else None,
             f"{facts['layers']} layers, {facts['d_model']} to {facts['d_inner']}, segments of "
             f"{facts['target_len']} words, batch {facts['batch']}, {facts['dtype']}",
             f"{int(training.text['training_words']):,} words to train on, vocabulary "
             f"{int(training.text['vocabulary']):,}")
    return " · ".join(str(part) for part in parts if part)


def _machine(training):
    parts = [report.machine_html(training.run)]
    warnings = [*(training.run.get("warnings") or []), *training.notes]
    if warnings:
        parts.append("<h3>Warnings and notes</h3><ul>" + "".join(
            f"<li>{html.escape(str(warning))}</li>" for warning in warnings) + "</ul>")
    if training.run.get("command"):
        parts.append("<h3>How to reproduce</h3>"
                     f"<pre>{html.escape(training.run['command'])}</pre>")
    parts.append("<p>This page and the plots, from the rows alone:</p>"
                 "<pre>bazel run //plotting:training -- DIRECTORY</pre>")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(report.draw_main("training", draw_all, sys.argv[1:]))
