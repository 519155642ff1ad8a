"""The judgement of times: its test statistic by hand, and how often it errs, on made-up noise.

The noise of the quality tests: each cell has a scale of its own, 0.5% to 3%, twice that for cells
under 100 us; a pass's ratio is off by that scale times Student's t with 3 degrees of freedom, whose
tails are heavy (2% of the passes are off by more than 4.5 scales); and each pass moves all cells
together by about 2%. Real noise is another matter: docs/regression.md.
"""

import itertools
import math
import random

import pytest

from benchmarks import noise

# ---- The statistic


def test_p_is_the_share_of_all_splits():
    # The highest three of six: one split of C(6, 3) = 20.
    assert noise.rank_sum_p([1, 2, 3], [4, 5, 6]) == 1 / 20
    assert noise.rank_sum_p([4, 5, 6], [1, 2, 3]) == 1
    # {3, 5, 6} and {4, 5, 6} only are as high in a sum of ranks as 3 + 5 + 6.
    assert noise.rank_sum_p([1, 2, 4], [3, 5, 6]) == 2 / 20
    assert noise.rank_sum_p([1.0], [1.0]) == 1


def test_p_agrees_with_counting_splits_where_there_are_ties():
    rng = random.Random(7)
    for _ in range(20):
        pooled = [rng.randint(1, 4) for _ in range(8)]
        low, high = pooled[:3], pooled[3:]

        def pairs(chosen):
            """Mann and Whitney's U, a tie being a half."""
            rest = [pooled[i] for i in range(8) if i not in chosen]
            return sum((pooled[i] > value) + (pooled[i] == value) / 2
                       for i in chosen for value in rest)
        splits = list(itertools.combinations(range(8), 5))
        as_high = sum(pairs(split) >= pairs(range(3, 8)) for split in splits)
        assert noise.rank_sum_p(low, high) == pytest.approx(as_high / len(splits))


# ---- Plain cases


def _quiet(cells, factor=1.0, passes=6):
    """Passes that differ by a hundredth of a percent."""
    return [{cell: factor * (1 + 1e-4 * i) for cell in cells} for i in range(passes)]


CELLS = [f"cell-{i}" for i in range(20)]
TIMES = {cell: 1e6 for cell in CELLS}


def _rerun(factors, passes=20):
    return lambda cells: (None, [{cell: factors.get(cell, 1.0) * (1 + 1e-4 * i) for cell in cells}
                                 for i in range(passes)])


@pytest.mark.parametrize("factor, verdict", [
    (1.10, "slower"), (0.90, "faster"), (1.02, "same"), (1.0, "same")])
def test_a_change_is_called_by_its_direction_and_above_the_least_effect(factor, verdict):
    factors = {"cell-3": factor}
    candidate = [{**one, "cell-3": one["cell-3"] * factor} for one in _quiet(CELLS)]
    found = noise.judge(_quiet(CELLS), candidate, TIMES, _rerun(factors)).judgements
    assert found["cell-3"].verdict == verdict
    assert found["cell-3"].change == pytest.approx(factor - 1, abs=1e-3)
    assert {found[cell].verdict for cell in CELLS if cell != "cell-3"} == {"same"}


def test_what_does_not_happen_again_is_cleared():
    candidate = [{**one, "cell-3": one["cell-3"] * 1.5} for one in _quiet(CELLS)]
    found = noise.judge(_quiet(CELLS), candidate, TIMES, _rerun({})).judgements["cell-3"]
    assert found.verdict == "same" and "cleared" in found.words


def test_a_change_the_other_way_round_confirms_nothing():
    candidate = [{**one, "cell-3": one["cell-3"] * 1.5} for one in _quiet(CELLS)]
    found = noise.judge(_quiet(CELLS), candidate, TIMES, _rerun({"cell-3": 0.5})).judgements
    assert found["cell-3"].verdict == "same"


def test_a_baseline_of_one_run_lets_nothing_be_called():
    candidate = [{**one, "cell-3": one["cell-3"] * 1.5} for one in _quiet(CELLS)]
    found = noise.judge(_quiet(CELLS, passes=1), candidate, TIMES, _rerun({"cell-3": 1.5}))
    assert found.judgements["cell-3"].verdict == "ambiguous"
    assert "0 baseline passes" in found.judgements["cell-3"].words


def test_fresh_passes_of_the_baseline_let_it_be_called_all_the_same():
    factors = {"cell-3": 1.5}
    candidate = [{**one, "cell-3": one["cell-3"] * 1.5} for one in _quiet(CELLS)]

    def rerun(cells):
        return _rerun({})(cells)[1], _rerun(factors)(cells)[1]
    found = noise.judge(_quiet(CELLS, passes=1), candidate, TIMES, rerun).judgements
    assert found["cell-3"].verdict == "slower"


def test_without_a_rerun_the_second_half_of_the_passes_confirms():
    candidate = [{**one, "cell-3": one["cell-3"] * 1.1} for one in _quiet(CELLS, passes=12)]
    found = noise.judge(_quiet(CELLS, passes=12), candidate, TIMES).judgements
    assert found["cell-3"].verdict == "slower"
    # Six and six samples, all of one side above all of the other.
    assert found["cell-3"].p == 1 / math.comb(12, 6)


def test_what_all_cells_have_in_common_is_said_and_not_called():
    outcome = noise.judge(_quiet(CELLS), _quiet(CELLS, factor=1.2), TIMES, _rerun({}))
    assert outcome.common_shift == pytest.approx(0.2)
    assert {found.verdict for found in outcome.judgements.values()} == {"same"}


def test_the_least_change_is_that_of_the_noisier_kind_of_cell():
    rng = random.Random(3)
    times = {cell: 1e4 if i < 10 else 1e6 for i, cell in enumerate(CELLS)}
    passes = [{cell: math.exp(rng.gauss(0, 0.2 if times[cell] < 1e5 else 0.001))
               for cell in CELLS} for _ in range(6)]
    floors = noise.judge(passes, passes, times, _rerun({})).floors
    assert floors["long"] == noise.MIN_EFFECT
    assert floors["short"] > 0.1


# ---- How often it errs


class MadeUpMachine:
    """80 cells of 20 us to 30 ms, with the noise that the head of this file describes."""

    def __init__(self, seed, slow_down=0.0):
        self._rng = random.Random(seed)
        self.cells = [f"cell-{i}" for i in range(80)]
        self.time_ns = {cell: 10 ** self._rng.uniform(4.3, 7.5) for cell in self.cells}
        self._ratio = {cell: math.exp(self._rng.gauss(0, 1)) for cell in self.cells}
        self._scale = {cell: math.exp(self._rng.uniform(math.log(0.005), math.log(0.03)))
                       * (2 if self.time_ns[cell] < noise.SHORT_NS else 1) for cell in self.cells}
        self.victim = self._rng.choice([cell for cell in self.cells
                                        if self.time_ns[cell] >= noise.SHORT_NS])
        self._slow_down = slow_down

    def _t3(self):
        return self._rng.gauss(0, 1) / math.sqrt(self._rng.gammavariate(1.5, 2) / 3)

    def one_pass(self, cells, planted):
        drift = self._rng.gauss(0, 0.02)
        factor = {self.victim: 1 + self._slow_down} if planted else {}
        return {cell: self._ratio[cell] * factor.get(cell, 1)
                * math.exp(drift + self._scale[cell] * self._t3()) for cell in cells}

    def compare(self):
        """As regress does by default, against a baseline of ten passes."""
        return noise.judge(
            [self.one_pass(self.cells, False) for _ in range(10)],
            [self.one_pass(self.cells, True) for _ in range(5)], self.time_ns,
            lambda cells: (None, [self.one_pass(cells, True) for _ in range(20)])).judgements


def test_at_most_one_false_alarm_in_fifty_comparisons_of_nothing():
    alarms = [cell for seed in range(50)
              for cell, found in MadeUpMachine(seed).compare().items()
              if found.verdict in ("slower", "faster")]
    assert len(alarms) <= 1, alarms


@pytest.mark.parametrize("slow_down, share", [(0.10, 0.95), (0.05, 0.70)])
def test_a_planted_slow_down_is_found(slow_down, share):
    runs = 100
    found = others = 0
    for seed in range(1000, 1000 + runs):
        machine = MadeUpMachine(seed, slow_down)
        judged = machine.compare()
        found += judged[machine.victim].verdict == "slower"
        others += sum(judged[cell].verdict in ("slower", "faster") for cell in machine.cells
                      if cell != machine.victim)
    assert found >= share * runs
    assert others <= 0.02 * runs
