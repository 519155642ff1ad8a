import dataclasses
import os
import re
import sys

import numpy as np
import pytest
from matplotlib import text
from matplotlib.axes import Axes
from matplotlib.backends import backend_agg

from plotting import crossover
from plotting import ratio_maps
from plotting import report
from plotting import results
from plotting import style
from plotting import synthetic
from plotting import winner

CUBE = [8, 8, 8]


def _small(directory, **options):
    rows, crossovers = synthetic.sweep(
        ds=(8,), ranks=(2, 8), batches=(1, 64, 4096),
        variants=("naive", "sequential", "fused"), **options)
    synthetic.write(directory, rows, crossovers, synthetic.RUN)
    return rows, crossovers


def _read(directory):
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, directory)] = file.read()
    return found


def _report(directory):
    with open(os.path.join(directory, "report.html"), encoding="utf-8") as file:
        return file.read()


def test_the_same_rows_give_the_same_bytes(tmp_path):
    _small(tmp_path / "run")
    for name in ("one", "two"):
        assert crossover.main([str(tmp_path / "run"), "--out", str(tmp_path / name)]) == 0
    one, two = _read(tmp_path / "one"), _read(tmp_path / "two")
    assert {os.path.splitext(name)[1] for name in one} == {
        ".svg", ".pdf", ".png", ".md", ".tex", ".html"}
    assert one == two
    for name, data in one.items():
        if name.endswith((".md", ".tex", ".html")):
            assert not re.search(r"\b[Nn]a[Nn]\b", data.decode("utf-8")), name


def _texts(artist, renderer, axes=None):
    """(words, box, the axes it belongs to) of each text that shows."""
    if artist.get_visible():
        axes = artist if isinstance(artist, Axes) else axes
        if isinstance(artist, text.Text) and artist.get_text().strip():
            yield artist.get_text(), artist.get_window_extent(renderer), axes
        for child in artist.get_children():
            yield from _texts(child, renderer, axes)


def _overlap(one, other):
    return (min(one.x1, other.x1) - max(one.x0, other.x0) > 1
            and min(one.y1, other.y1) - max(one.y0, other.y0) > 1.5)


def test_no_text_is_clipped_or_overlaps(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(style, "save",
                        lambda fig, stem, formats: figures.append((stem, fig)) or [])
    monkeypatch.setattr(report, "_data_uri", lambda figure: "")
    synthetic.showcase(tmp_path)
    crossover.draw_all(str(tmp_path))
    assert len(figures) > 10
    for stem, fig in figures:
        canvas = backend_agg.FigureCanvasAgg(fig)
        canvas.draw()
        boxes = list(_texts(fig, canvas.get_renderer()))
        for i, (words, box, mine) in enumerate(boxes):
            assert min(box.x0, box.y0) > -0.5, (stem, words)
            assert box.x1 < fig.bbox.width + 0.5 and box.y1 < fig.bbox.height + 0.5, (
                stem, words)
            for other, over, _ in boxes[:i]:
                assert not _overlap(box, over), (stem, words, other)
            for axes in fig.axes:
                assert (axes is mine or not axes.get_visible()
                        or not _overlap(box, axes.get_window_extent())), (stem, words)


def test_draw_all_returns_what_it_wrote(tmp_path):
    _small(tmp_path)
    paths = crossover.draw_all(str(tmp_path), formats=("svg",))
    written = {os.path.join(str(tmp_path), name) for name in _read(tmp_path)} - {
        os.path.join(str(tmp_path), name)
        for name in ("results.csv", "crossover.csv", "run.json")}
    assert set(paths) == written and paths[-1].endswith("report.html")


def test_the_report_opens_with_the_answer(tmp_path):
    rows, crossovers = _small(tmp_path)
    crossover.draw_all(str(tmp_path), formats=("svg",))
    page = _report(tmp_path)
    # d = 8, r = 8, training peak: 24 B d^3 + 2 * 5120 > 2 d^6, that is B > 41.8.
    assert ("For d = 8, r = 8 (3 cores, float32) the dense layer&#x27;s training memory "
            "is passed by sequential at B = 42; at every batch by naive; never by fused."
            in page)
    assert f"In {len(rows)} of {len(rows)} rows every measured byte figure that is modelled equals" in page
    assert "Made-up CPU 9000" in page and "MKL runs AVX2 code" in page
    assert not re.search(r'(src|href)="(https?:)?//', page)


def test_faster_means_faster_than_the_faster_dense(tmp_path):
    ratios = {("dense", None): 1.0, ("dense-onednn", None): 0.8, ("fused", 2): 0.5,
              ("fused", 8): 0.9, ("sequential", 2): 0.7}
    rows, crossovers = _small(tmp_path)
    synthetic.write(tmp_path, [dataclasses.replace(
        row, time_ratio_to_dense=ratios.get((row.variant, row.rank), 2.0))
        for row in rows], crossovers, {})
    crossover.draw_all(str(tmp_path), formats=("svg",))
    # Of 2 ranks x 3 batches x 2 phases, those of rank 2.
    assert ("the fastest TT form beats the faster of dense and dense-onednn in 6 of 12 "
            "configurations (at best 1.60 times as fast, with fused)" in _report(tmp_path))


def test_a_mismatch_stands_at_the_top(tmp_path):
    rows, crossovers = _small(tmp_path)
    rows[7] = dataclasses.replace(rows[7], held_bytes_model=rows[7].peak_bytes + 12,
                                  held_bytes=rows[7].peak_bytes)
    synthetic.write(tmp_path, rows, crossovers)
    crossover.draw_all(str(tmp_path), formats=("svg",))
    page = _report(tmp_path)
    assert f"1 of {len(rows)} rows differ from the cost model" in page
    assert page.index('class="bad"') < page.index('class="answer"')
    assert rows[7].cell in page[page.index('class="bad"'):page.index('class="answer"')]


def test_a_crossover_off_the_model_stands_at_the_top(tmp_path):
    rows, crossovers = _small(tmp_path)
    at = next(i for i, point in enumerate(crossovers) if point.crossover_batch)
    crossovers[at] = dataclasses.replace(
        crossovers[at], crossover_batch_model=crossovers[at].crossover_batch + 1)
    synthetic.write(tmp_path, rows, crossovers)
    crossover.draw_all(str(tmp_path), formats=("svg",))
    assert (f"0 of {len(rows)} rows and 1 measured crossover differ from the cost model"
            in _report(tmp_path))


def test_cells_without_figures_are_drawn_as_what_they_are(tmp_path):
    rows, crossovers = _small(tmp_path)
    states = {64: ("oom", "1 GiB budget"), 4096: ("skipped", "64 ran out of memory")}
    rows = [synthetic.row(row.variant, CUBE, CUBE, [1, 8, 8, 1], row.batch, row.phase,
                          status=states[row.batch][0], reason=states[row.batch][1])
            if row.variant == "naive" and row.rank == 8 and row.batch in states else row
            for row in rows if not (row.variant == "fused" and row.batch == 1)]
    synthetic.write(tmp_path, rows, crossovers)
    read = results.load(str(tmp_path))
    key, members = next(iter(ratio_maps.analysis.mapped(read).items()))
    drawing = ratio_maps._Map(read, key, "peak", members,
                              ["inference", "train"], ["naive", "sequential", "fused"], 2)
    drawing.draw(str(tmp_path), ("svg",), "")
    assert drawing.seen >= {("status", "oom"), ("status", "skipped"), "missing",
                            "measured", "model", "thread"}
    crossover.draw_all(str(tmp_path), formats=("svg",))
    page = _report(tmp_path)
    assert "1 GiB budget" in page and "64 ran out of memory" in page


def test_where_a_variant_needs_least_is_outlined(tmp_path):
    ratios = {"dense": 1.0, "dense-onednn": 0.6, "sequential": 0.7, "naive": 2.0}
    def seconds(row):
        # fused: the least at r = 2, within 2% of dense-onednn at r = 8 and one batch.
        if row.variant == "fused":
            return 0.5 if row.rank == 2 else 0.61 if row.batch == 64 else 0.9
        return ratios[row.variant]
    rows, _ = _small(tmp_path)
    rows = [dataclasses.replace(row, time_ratio_to_dense=seconds(row)) for row in rows]
    synthetic.write(tmp_path, rows)
    read = results.load(str(tmp_path))
    key, members = next(iter(ratio_maps.analysis.mapped(read).items()))
    drawing = ratio_maps._Map(read, key, "time", members, ["train"], ["sequential", "fused"], 2)
    wins = {(rank, batch): drawing._best("train", rank, batch)
            for rank in (2, 8) for batch in (1, 64, 4096)}
    assert [place for place, names in wins.items() if "fused" in names] == [
        (2, 1), (2, 64), (2, 4096), (8, 64)]
    assert not any("sequential" in names for names in wins.values())
    drawing.draw(str(tmp_path), ("svg",), "")
    assert "best" in drawing.seen


def test_an_outline_has_no_side_between_two_cells():
    edges = [0, 1, 2, 3]
    assert len(list(ratio_maps._outline({(0, 0)}, edges, edges))) == 4
    assert len(list(ratio_maps._outline({(0, 0), (0, 1)}, edges, edges))) == 6
    assert ((1, 0), (1, 1)) not in list(ratio_maps._outline({(0, 0), (0, 1)}, edges, edges))
    assert len(list(ratio_maps._outline({(0, 0), (2, 2)}, edges, edges))) == 8


def test_no_crossover_is_said_in_words():
    def points(*verdicts):
        return {2 ** i: dataclasses.replace(
            synthetic.crossover("sequential", "train", "peak", 8, 2), verdict=verdict,
            crossover_batch=10 if verdict == "measured" else None)
            for i, verdict in enumerate(verdicts, 1)}
    note = ratio_maps._verdict_note
    assert note(points("never", "never"), 64) == "never more"
    assert note(points("always"), 64) == "always more"
    assert note(points("beyond", "beyond"), 64) == "no crossover in range"
    assert note(points("measured", "measured"), 64) == "from B = 10"
    assert note(points("measured", "measured"), 4) == "no crossover in range"
    assert note(points("never", "measured", "measured"), 64) == "never at r 2"
    assert note(points("never", "beyond", "always"), 64) == "varies, see table"


def test_without_crossover_csv_lines_are_interpolated(tmp_path):
    _small(tmp_path)
    os.remove(tmp_path / "crossover.csv")
    crossover.draw_all(str(tmp_path), formats=("svg",))
    page = _report(tmp_path)
    assert "This run has no crossover.csv" in page
    assert "interpolated between the cells" in page
    with open(tmp_path / "tables" / "crossovers.md", encoding="utf-8") as file:
        assert "2 to 64" in file.read()


def test_other_families_and_names_need_no_change_here(tmp_path):
    rows, _ = synthetic.sweep(ds=(8,), ranks=(2, 8), batches=(1, 64), variants=("novel",))
    attention = [dataclasses.replace(
        synthetic.row("dense", CUBE, CUBE, [1, 1, 1, 1], 64, "train"), family="attention",
        variant=name, cell=f"attention/{name}/L52-T52-H600", baseline=int(name == "clones"),
        in_modes="", out_modes="", d=None, cores=None, source_len=52, target_len=52,
        hidden=600) for name in ("clones", "shared")]
    synthetic.write(tmp_path, rows + attention)
    crossover.draw_all(str(tmp_path), formats=("svg",))
    names = os.listdir(tmp_path / "plots")
    assert "layers-peak-float32-cpu-t2.svg" in names
    assert "winner-d8-k3-float32-cpu-t2.svg" in names


def test_a_run_without_figures_is_reported(tmp_path):
    synthetic.write(tmp_path, [synthetic.row("dense", CUBE, CUBE, [1, 1, 1, 1], 1, "train",
                                             status="crashed", reason="SIGSEGV")])
    crossover.draw_all(str(tmp_path))
    page = _report(tmp_path)
    assert "No cell of this run ended ok" in page and "SIGSEGV" in page
    assert os.listdir(tmp_path / "tables")


@pytest.mark.parametrize("count", [1, 2, 7, 20, 45, 80])
def test_an_unfinished_run_is_drawn(tmp_path, monkeypatch, count):
    monkeypatch.setattr(style, "save", lambda fig, stem, formats: [])
    monkeypatch.setattr(report, "_data_uri", lambda figure: "")
    rows, crossovers = synthetic.sweep(ds=(8, 16), ranks=(2, 8), batches=(1, 64, 512, 4096),
                                       variants=("naive", "sequential"))
    rows[0] = dataclasses.replace(rows[0], peak_bytes=None, time_ratio_to_dense=0.0)
    synthetic.write(tmp_path, rows[:count], crossovers[:count // 8])
    assert crossover.draw_all(str(tmp_path))[-1].endswith("report.html")
    assert f"{count} cell" in _report(tmp_path)


def test_usage_errors_end_with_two_and_one_sentence(tmp_path, capsys, monkeypatch):
    assert crossover.main([str(tmp_path / "nowhere")]) == 2
    assert crossover.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 2 and "no results.csv" in error[1]
    assert crossover.main([]) == 2
    assert crossover.main([str(tmp_path), "--formats", "gif"]) == 2
    assert crossover.main([str(tmp_path), "--formats", "pdf"]) == 2
    _small(tmp_path / "run")
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert crossover.main(["run", "--out", "here", "--formats", "svg"]) == 0
    assert (tmp_path / "here" / "report.html").exists()


def test_a_tie_in_time_names_both():
    def row(variant, ratio):
        return dataclasses.replace(
            synthetic.row(variant, CUBE, CUBE, [1, 2, 2, 1], 1, "train"),
            time_ratio_to_dense=ratio)
    rows = [row("dense", 1.0), row("sequential", 0.51), row("fused", 0.5),
            row("naive", 0.6)]
    figure = lambda entry: entry.time_ratio_to_dense
    assert winner.best(rows, figure, 1.02) == ["fused", "sequential"]
    assert winner.best(rows, figure, 1) == ["fused"]


def test_looks_are_stable_and_letters_differ():
    first = style.Palette(["dense", "fused", "zeta", "alpha"])
    assert first.order == ["dense", "fused", "alpha", "zeta"]
    assert first.color("fused") == style.Palette(["fused"]).color("fused") == style.GREEN
    many = style.Palette([*style._KNOWN, *(f"new{i}" for i in range(20))])
    assert len({many.letter(name) for name in many.order}) == len(many.order)


def test_more_than_dense_is_dark_orange_and_less_is_purple():
    less, same, more = (style.RATIO_MAP(x)[:3] for x in (0.1, 0.5, 0.9))
    assert less[2] > less[1] and more[0] > more[2]
    assert np.min(same) > 0.9


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
