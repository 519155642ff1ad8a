"""T1 on trainings that are as they should be, and on such as are not."""

import csv
import math
import sys

import pytest

from plotting import claims
from plotting import results
from plotting import report
from plotting import training

STEPS = 40
UNIGRAM = 5.8
_NETWORK_COLUMNS = (
    "schema", "experiment", "network", "variant", "role", "dtype", "threads", "seed", "layers",
    "d_model", "heads", "d_head", "d_inner", "target_len", "memory_len", "batch", "in_modes",
    "out_modes", "ranks", "parameters", "feed_forward_parameters", "step_peak_bytes",
    "evaluation_peak_bytes", "start_off_relative")
_STEP_COLUMNS = ("schema", "experiment", "network", "step", "words", "learning_rate", "loss_nats",
                 "gradient_norm", "feed_forward_gradient_norm", "step_s", "held_out_loss_nats")


def _loss(step, end=5.0):
    return end + 3.5 * math.exp(-step / 8)


def _write(directory, name, columns, records):
    with open(directory / name, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(records)


def _grown(start):
    """A relative difference that grows tenfold every ten steps and ends at a thousandth."""
    return lambda step: min(start * 10 ** (step / 10), 1e-3)


class Run:
    """Rows of a run; difference: of each network from the reference, by step."""

    def __init__(self, end=5.0):
        self.end = end
        self.networks = []
        self.steps = []
        self.add("dense", "baseline", lambda step: 0.01)
        self.add("fused", "reference", lambda step: 0)

    def add(self, name, role, loss, norm=None, steps=STEPS):
        norm = norm or loss
        self.networks.append({
            "schema": 1, "network": name, "variant": name.partition("-off")[0], "role": role,
            "dtype": "float32", "layers": 2, "d_model": 128, "d_inner": 512, "target_len": 32,
            "batch": 16, "parameters": 2000 if role == "baseline" else 1000,
            "feed_forward_parameters": 1100 if role == "baseline" else 100,
            "step_peak_bytes": 2 ** 20, "evaluation_peak_bytes": 2 ** 19,
            "start_off_relative": 1e-5 if role == "control" else ""})
        for step in range(1, steps + 1):
            value = _loss(step, self.end) * (1 + loss(step))
            self.steps.append({
                "schema": 1, "network": name, "step": step, "words": 512 * step,
                "learning_rate": 1e-3, "loss_nats": "" if math.isnan(value) else repr(value),
                "gradient_norm": 1.0, "feed_forward_gradient_norm": repr(0.5 * (1 + norm(step))),
                "step_s": 0.5 if step == 1 else 0.1 + 0.001 * step,
                "held_out_loss_nats": repr(value + 0.1) if step % 10 == 0 else ""})
        return self

    def with_controls(self):
        for i, start in enumerate((1e-7, 3e-7)):
            self.add(f"fused-off{i + 1}", "control", _grown(start),
                     lambda step, start=start: 30 * _grown(start)(step))
        return self

    def write(self, directory):
        _write(directory, "networks.csv", _NETWORK_COLUMNS, self.networks)
        _write(directory, "steps.csv", _STEP_COLUMNS, self.steps)
        columns = ("schema", "training_words", "held_out_words", "evaluated_words", "vocabulary",
                   "unigram_training_nats", "unigram_evaluated_nats")
        _write(directory, "text.csv", columns, [dict(zip(columns, (
            1, 850000, 94000, 4096, 6820, 5.7, UNIGRAM)))])
        return directory


def _verdict(run, directory):
    return training.judge(run.write(directory))[0]


def _sound():
    return (Run().with_controls().add("naive", "compared", _grown(1e-9))
            .add("sequential", "compared", lambda step: -_grown(2e-9)(step)))


def test_rounding_alone_holds(tmp_path):
    verdict = _verdict(_sound(), tmp_path)
    assert (verdict.id, verdict.verdict) == ("T1", claims.HOLDS)
    # 2e-9 times a tenth of a decade at the first step.
    assert "At the first step, which all begin alike, losses differ by 3e-09" in verdict.evidence
    assert "40 steps" in verdict.measured


def test_a_variant_may_be_somewhat_further_than_the_controls_but_not_more(tmp_path):
    for times, expected in ((2.9, claims.HOLDS), (3.5, claims.FAILS)):
        run = Run().with_controls().add(
            "naive", "compared", lambda step, times=times: times * _grown(3e-7)(step),
            _grown(1e-9))
        assert _verdict(run, tmp_path).verdict == expected


# One core's gradient a percent too long: Adam hides it from the losses, the first norm shows it.
def test_a_gradient_that_is_off_by_a_percent_does_not_hold(tmp_path):
    run = _sound().add("merged", "compared", _grown(1e-9), lambda step: 1e-3)
    verdict = _verdict(run, tmp_path)
    assert verdict.verdict == claims.FAILS
    assert "merged leaves the bound in its gradient norm at step 1." in verdict.evidence


def test_another_loss_does_not_hold_and_the_step_is_named(tmp_path):
    run = _sound().add("einsum", "compared", lambda step: 1e-9 if step < 13 else 1e-2,
                       _grown(1e-9))
    verdict = _verdict(run, tmp_path)
    assert verdict.verdict == claims.FAILS
    assert "einsum leaves the bound in its loss at step 13." in verdict.evidence


def test_a_loss_that_is_no_number_does_not_hold(tmp_path):
    run = _sound().add("einsum", "compared",
                       lambda step: 1e-9 if step < 20 else math.nan, _grown(1e-9))
    verdict = _verdict(run, tmp_path)
    assert verdict.verdict == claims.FAILS
    assert "step 20" in verdict.evidence


def test_agreement_of_networks_that_learn_nothing_says_nothing(tmp_path):
    run = Run(end=UNIGRAM - 0.2)  # Held out, 0.1 more.
    run.with_controls().add("naive", "compared", _grown(1e-9))
    verdict = _verdict(run, tmp_path)
    assert verdict.verdict == claims.UNKNOWN
    assert "not learned enough" in verdict.evidence


def test_without_controls_or_others_nothing_is_said(tmp_path):
    assert _verdict(Run().with_controls(), tmp_path).verdict == claims.UNKNOWN
    assert _verdict(Run().add("naive", "compared", _grown(1e-9)),
                    tmp_path).verdict == claims.UNKNOWN


def test_a_stopped_run_is_judged_by_what_it_has(tmp_path):
    directory = _sound().write(tmp_path)
    with open(directory / "steps.csv", "a", newline="", encoding="utf-8") as file:
        file.write("1,,naive,41,20")
    read = training.load(directory)
    assert len(read.notes) == 2  # And run.json is missing.
    assert training.judge(directory)[0].verdict == claims.HOLDS


def test_dense_is_beside_but_not_compared(tmp_path):
    read = training.load(_sound().write(tmp_path))
    lines = training.answer(read)
    # 1% of 5.0236, the last loss.
    assert "0.050 nats a word better than dense" in lines[1]
    assert "100 position-wise parameters in place of 1,100" in lines[1]
    table = training.build_tables(read)[0]
    fused = next(row for row in table.rows if row[0] == "fused")
    assert fused[-1] == "-0.0502"
    # The first step is not in the median of 0.102 .. 0.140 s.
    assert fused[table.header.index("step, ms")] == "121.0"


def test_drawing_is_deterministic_and_complete(tmp_path):
    run = _sound().write(tmp_path)
    drawn = []
    for name in ("a", "b"):
        paths = training.draw_all(run, tmp_path / name, formats=("svg",))
        drawn.append([open(path, "rb").read() for path in paths])
    assert drawn[0] == drawn[1]
    assert paths[-1].endswith("report.html")
    assert {"plots/training-loss.svg", "plots/training-cost.svg", "tables/training.md"} <= {
        path.removeprefix(f"{tmp_path}/b/") for path in paths}


def test_a_directory_without_a_run_is_said(tmp_path):
    with pytest.raises(results.ResultsError, match="networks.csv"):
        training.load(tmp_path)
    assert report.draw_main("training", training.draw_all, [str(tmp_path)]) == 2


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
