"""Figures: what they say in words, that they draw what was measured, and that many fit into one page."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from made_study import make_run, make_study, summary
from paceline.report import canvas, plots, scaling_plots, svg
from paceline.report.read import load

MAKERS = (
    plots.accuracy, plots.phases, plots.memory, scaling_plots.times, scaling_plots.targets,
    scaling_plots.speedups, scaling_plots.efficiencies,
)  # fmt: skip


@pytest.fixture(scope="module")
def drawings(study):
    """Every figure of the made study, drawn once."""
    return [drawing for maker in MAKERS for drawing in maker(study)]


def line_called(drawing, label: str) -> dict[float, float]:
    """x -> y of the line with this name in the legend."""
    (line,) = (line for line in drawing.figure.axes[0].lines if line.get_label() == label)
    return dict(zip(line.get_xdata(), line.get_ydata(), strict=True))


def axis_label(drawing) -> str:
    return drawing.figure.axes[0].get_ylabel()


def test_there_is_a_figure_for_each_group_or_scaling(drawings):
    kinds = Counter(drawing.name.partition("-")[0] for drawing in drawings)
    assert kinds == {
        "accuracy": 4,
        "phases": 2,
        "memory": 2,
        "time": 2,
        "target": 4,
        "speed": 2,
        "efficiency": 2,
    }
    assert len({drawing.name for drawing in drawings}) == len(drawings)


def test_the_name_of_the_upright_axis_is_inside_and_beside_its_numbers():
    """Labels of five letters (100.0) are the widest there are."""
    figure, axes = canvas.panel("train accuracy (%)", "epoch")
    axes.set_ylim(80, 100)
    axes.set_yticks([97.5, 100.0], ["97.5", "100.0"])
    FigureCanvasAgg(canvas.finish(figure, axes)).draw()
    name = axes.yaxis.label.get_window_extent()
    assert name.x0 >= 0
    assert name.x1 <= min(tick.get_window_extent().x0 for tick in axes.get_yticklabels())


def test_the_descriptions_hold_the_numbers(study):
    strong = study.groups[0]
    (accuracy,) = (d for d in plots.accuracy(study) if d.name.startswith("accuracy-test-strong"))
    assert f"4 ranks {strong.median(4, 'test_accuracy') * 100:.2f} %" in accuracy.description
    assert "strong scaling" in scaling_plots.times(study)[0].title
    assert "1 rank 28.3 s" in scaling_plots.times(study)[0].description
    assert re.search(
        r"4 ranks 2\.11 \(95 % interval 2\.\d\d to 2\.\d\d\)", scaling_plots.speedups(study)[0].description
    )
    assert "compute 84 %" in plots.phases(study)[0].description
    assert "1 rank 310 MB and 250 MB" in plots.memory(study)[0].description


def test_a_speedup_axis_is_labelled_speedup(study):
    speedup, efficiency = scaling_plots.speedups(study)[0], scaling_plots.efficiencies(study)[0]
    assert axis_label(speedup) == "speed-up"
    assert axis_label(efficiency) == "efficiency (speed-up / p)"
    assert line_called(speedup, "ideal") == {1: 1, 2: 2, 4: 4, 8: 8}
    assert line_called(efficiency, "ideal") == {1: 1, 2: 1, 4: 1, 8: 1}


def test_the_fitted_laws_are_drawn_within_what_was_measured(study):
    group = study.groups[0]
    drawn = line_called(scaling_plots.speedups(study)[0], "USL")
    assert list(drawn) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert drawn[4] == pytest.approx(group.law["fits"]["usl"]["predicted"]["4"])
    halved = line_called(scaling_plots.efficiencies(study)[0], "USL")
    assert halved[4] == pytest.approx(drawn[4] / 4)


def test_a_p_that_missed_the_target_keeps_its_place(study):
    (late,) = (d for d in scaling_plots.targets(study) if d.name == "target-0-98-weak-scaling")
    assert list(late.figure.axes[0].get_xticks()) == [1, 2, 4, 8]
    assert "A p without a point: not reached." in late.caption
    assert "4 ranks" not in late.description


def test_a_wild_interval_does_not_flatten_the_figure(study):
    group = study.groups[0]
    law = {**group.law, "speedup_interval": {"2": [0.01, 92.0]}}
    wild = dataclasses.replace(study, groups=(dataclasses.replace(group, law=law),))
    speedup = scaling_plots.speedups(wild)[0]
    assert speedup.figure.axes[0].get_ylim()[1] < 12
    assert "cut at the edge" in speedup.caption
    assert "0.01 to 92.00" in speedup.description
    assert "cut at the edge" not in scaling_plots.speedups(study)[0].caption


def test_a_long_legend_takes_more_rows():
    assert canvas._arranged([5, 6, 9, 3, 8], 5) == (1, 5)
    assert canvas._arranged([28, 34], 2) == (2, 1)
    assert canvas._arranged([4, 7, 11, 4, 6, 5], 3) == (2, 3)
    assert canvas._arranged([], 3) == (0, 1)


def test_ranks_beyond_the_cores_are_marked(study):
    ticks = [tick.get_text() for tick in scaling_plots.times(study)[0].figure.axes[0].get_xticklabels()]
    assert ticks == ["1", "2", "4*", "8*"]
    assert "more ranks than cores" in scaling_plots.times(study)[0].caption


def test_ranks_that_do_not_double_are_spaced_evenly(tmp_path):
    for p in (1, 2, 3, 5):
        make_run(tmp_path / str(p), summary(str(p), "strong", 2, 0) | {"ranks": p})
    axes = scaling_plots.times(load([tmp_path]))[0].figure.axes[0]
    assert axes.get_xscale() == "linear"
    assert list(axes.get_xticks()) == [1, 2, 3, 5]


def test_the_phases_add_up_to_the_training_time(study):
    group = study.groups[0]
    heights = np.zeros(len(group.ranks))
    for bars in plots.phases(study)[0].figure.axes[0].containers:
        heights += [bar.get_height() for bar in bars]
    assert heights == pytest.approx([group.typical(p).number("train_seconds") for p in group.ranks])
    assert heights == pytest.approx([group.median(p, "train_seconds") for p in group.ranks])


def test_one_p_shows_its_ranks(tmp_path):
    study = load([make_run(tmp_path / "run", summary("run", None, 2, 0))])
    axes = plots.phases(study)[0].figure.axes[0]
    assert axes.get_xlabel() == "rank"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1"]
    assert [len(maker(study)) for maker in MAKERS] == [2, 1, 1, 0, 0, 0, 0]


def test_the_band_is_lowest_median_highest_of_those_that_have_the_epoch():
    epochs, low, mid, high = plots.band([np.array([0.1, 0.5]), np.array([0.3, np.nan, 0.9]), np.array([0.2])])
    assert epochs.tolist() == [1, 2, 3]
    assert low.tolist() == [0.1, 0.5, 0.9]
    assert mid.tolist() == [0.2, 0.5, 0.9]
    assert high.tolist() == [0.3, 0.5, 0.9]
    assert plots.band([np.full(3, np.nan)])[0].size == 0


def test_a_running_accuracy_is_called_that(tmp_path):
    study = load(
        [make_run(tmp_path / "run", summary("run", None, 1, 0) | {"train_accuracy_mode": "running"})]
    )
    train, test = plots.accuracy(study)
    assert "not measured in evaluation mode" in train.caption
    assert "not measured in evaluation mode" not in test.caption


def test_without_repeats_no_interval_is_claimed(tmp_path):
    study = load([make_study(tmp_path / "study", scalings=("strong",), repeats=1)])
    assert "No repeats, so no interval." in scaling_plots.speedups(study)[0].caption
    assert "One run each, no repeats." in scaling_plots.times(study)[0].caption


def test_svg_is_well_formed_small_and_has_a_role_and_words(drawings):
    for drawing in drawings:
        for text in (drawing.inline, drawing.standalone):
            root = ElementTree.fromstring(text)
            assert root.attrib["role"] == "img"
            assert [child.tag.rpartition("}")[2] for child in root][:2] == ["title", "desc"]
            assert root[1].text == drawing.description
            assert len(text) < 40_000
            assert "<script" not in text
            assert "<style" not in text


def test_ids_do_not_clash_between_figures_and_lead_somewhere(drawings):
    ids = [name for drawing in drawings for name in re.findall(r' id="([^"]+)"', drawing.inline)]
    assert len(set(ids)) == len(ids)
    for drawing in drawings:
        used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', drawing.inline))
        assert {a or b for a, b in used} <= set(re.findall(r' id="([^"]+)"', drawing.inline))


def test_colours_belong_to_the_page_and_to_the_file_alone(study):
    drawing = scaling_plots.times(study)[0]
    left = set(re.findall(r"#[0-9a-f]{6}\b", drawing.inline))
    assert left == set()
    assert "var(--series-1)" in drawing.inline
    assert "var(" not in drawing.standalone
    assert svg.PAPER not in drawing.standalone


def test_drawing_twice_gives_the_same_bytes(study):
    first, second = (plots.memory(study)[0].standalone for _ in range(2))
    assert first == second
