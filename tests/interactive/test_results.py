"""Results from Python: a sequence, frames, plots and tables that say what the files say."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from example_results import result

import sncl
from sncl.errors import SnclError
from sncl.evaluation.by_class import ByClass
from sncl.interactive import results as module
from sncl.interactive.results import Results
from sncl.runs.folders import RunFiles
from sncl.runs.result import Measures, Result


@pytest.fixture
def found(runs: Path) -> Results:
    """Two seeds of er, one of icarl and of sncl."""
    return sncl.results(runs)


def from_files(folder: Path) -> dict[str, object]:
    facts: dict[str, object] = json.loads((folder / "result.json").read_text())
    return facts


def as_results(*several: Result) -> Results:
    """Results that no file holds."""
    described = {"epochs": 1, "tasks": 1, "validation": 0.0, "protocol": "2020.1", "device": "cpu"}
    return Results(
        RunFiles(
            Path(f"run-{number}"),
            {**described, "stream": each.stream, "method": each.method, "memory": each.memory, "seed": each.seed}
            | {"settings": each.manifest.settings},
            each,
        )
        for number, each in enumerate(several)
    )


def test_a_folder_of_runs_is_read_back(runs: Path, found: Results) -> None:
    assert [folder.name for folder in found.folders] == ["er-0", "er-1", "icarl-0", "sncl-0"] and len(found) == 4
    assert isinstance(found[0], Result) and [each.seed for each in found] == [0, 1, 0, 0]
    assert found[2:].folders == found.folders[2:] and found[-1].method == "sncl"
    assert sncl.results(runs / "er-0", runs / "sncl-0").folders == [found.folders[0], found.folders[3]]
    with pytest.raises(SnclError, match="there is no folder nowhere"):
        sncl.results("nowhere")


def test_a_frame_has_the_numbers_of_the_files(found: Results) -> None:
    pytest.importorskip("pandas")
    frame = found.to_frame()
    for row, folder in zip(frame.to_dict("records"), found.folders, strict=True):
        facts = from_files(folder)
        assert row["folder"] == str(folder)
        assert {key: row[key] for key in ("stream", "method", "memory", "seed", "seconds", "forgetting", "bwt")} == {
            key: facts[key] for key in ("stream", "method", "memory", "seed", "seconds", "forgetting", "bwt")
        }
        assert {"class_il": row["class_il"], "task_il": row["task_il"]} == facts["accuracy"]
    assert frame["open"].notna().tolist() == [False, False, False, True]
    assert "ema" in frame and "width" not in frame and "gates" not in frame  # all have one width; one has gates


def test_the_summary_is_mean_and_deviation_over_seeds(found: Results) -> None:
    pytest.importorskip("pandas")
    summary = found.summary().set_index("method")
    values = [from_files(folder)["accuracy"]["class_il"] for folder in found.folders[:2]]  # type: ignore[index]
    assert summary.loc["ER", "seeds"] == 2 and list(summary.index) == ["ER", "iCaRL", "SNCL"]
    assert summary.loc["ER", "class_il"] == pytest.approx(statistics.fmean(values))
    assert summary.loc["ER", "class_il std"] == pytest.approx(statistics.stdev(values))
    assert np.isnan(summary.loc["SNCL", "class_il std"])


def test_the_text_is_the_table_of_the_command_line(found: Results) -> None:
    lines = repr(found).splitlines()
    assert lines[0].split() == [
        "stream",
        "method",
        "memory",
        "seeds",
        "Class-IL",
        "Task-IL",
        "forgetting",
        "open",
        "seconds",
    ]
    values = [from_files(folder)["accuracy"]["class_il"] for folder in found.folders[:2]]  # type: ignore[index]
    assert f"ER      30      2      {statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}" in lines[1]
    assert len(lines) == 4 and repr(Results([])) == "Results of no runs"


def test_runs_of_other_settings_are_not_averaged() -> None:
    one, other = result("er", accuracy={"class_il": 50.0}), result("er", accuracy={"class_il": 70.0}, seed=1)
    changed = as_results(one, other)
    changed.runs[1].experiment["settings"] = {"lr": 0.5}
    assert len(changed.groups()) == 2 and repr(changed).count("ER") == 2 and "lr 0.5" in repr(changed)
    with pytest.raises(SnclError, match=r"the title of one group of seeds \(ER, ER, lr 0.5\), not 'er'"):
        changed.matrix("er")


def test_uneven_classes_are_told_of() -> None:
    pytest.importorskip("pandas")
    uneven = ByClass(45.0, 80.0, [80, 20], [90.0, 0.0], [[72, 8], [20, 0]])
    rare, even = result(accuracy={"class_il": 72.0}, by_class=uneven), result("sgd", accuracy={"class_il": 72.0})
    several = as_results(rare, even)
    assert several.to_frame()["balanced"].tolist()[0] == 45.0 and several.summary()["majority"].max() == 80.0
    assert "balanced  majority" in repr(several) and "<th" in several._repr_html_()
    assert "balanced" not in as_results(even).to_frame()


def test_the_matrix_is_the_mean_over_seeds(found: Results) -> None:
    files = [from_files(folder)["accuracy_matrix"] for folder in found.folders[:2]]
    expected = np.mean(np.array(files, dtype=float), axis=0)
    np.testing.assert_array_equal(found.matrix("er"), expected)
    np.testing.assert_array_equal(found.matrix("ER", "class_il"), expected)
    assert np.isnan(expected[0, 2]) and found.matrix("er", "task_il")[2, 0] >= expected[2, 0]
    for wrong, words in (
        (("derpp",), "one of the methods here"),
        (("er", "gcl"), "`readout` is one of class_il, task_il"),
    ):
        with pytest.raises(SnclError, match=words):
            found.matrix(*wrong)


def test_the_plot_shows_means_of_the_tasks_seen(found: Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = found.plot()
    (panel,) = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in panel.lines}
    matrix = found.matrix("er")
    np.testing.assert_allclose(lines["ER"], [matrix[task, : task + 1].mean() for task in range(3)])
    assert set(lines) == {"ER", "iCaRL", "SNCL"} and panel.get_title() == "seq-digits (Class-IL)"
    assert found.plot("task_il").axes[0].get_title() == "seq-digits (Task-IL)"
    figure.savefig(tmp_path / "plot.png")
    from matplotlib import pyplot

    assert not pyplot.get_fignums()  # nothing is left open, which a notebook would show again
    with pytest.raises(SnclError, match="`readout` is one of class_il, task_il on seq-digits, not 'gcl'"):
        found.plot("gcl")
    with pytest.raises(SnclError, match="no runs to plot"):
        Results([]).plot()


def test_a_report_is_written(found: Results, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    assert found.report(tmp_path / "page.html") == tmp_path / "page.html"
    assert "iCaRL" in (tmp_path / "page.html").read_text()
    with pytest.raises(SnclError, match=r"a report is an \.html file"):
        found.report(tmp_path / "page.pdf")


def test_html_is_a_table_with_curves_and_nothing_is_believed(found: Results) -> None:
    html = found._repr_html_()
    assert html.count("<tr>") == 4 and html.count("<polyline") == 3 and "± " in html
    named = result(accuracy={"class_il": 50.0}, stream="<script>alert(1)</script>\x1b[2J")
    shown = as_results(named)
    assert "<script" not in shown._repr_html_() and "&lt;script&gt;" in shown._repr_html_()
    assert "\x1b" not in shown._repr_html_() + repr(shown)
    curve = Measures(50.0, [[100.0, None], [0.0, 100.0]], None, 10.0, None, None)
    drawn = as_results(result(measures={"class_il": curve}))._repr_html_()
    assert 'points="2.0,2.0 94.0,12.0"' in drawn  # 100 % after the first task, 50 % of the height after the second


@pytest.mark.parametrize(("call", "package"), [("to_frame", "pandas"), ("summary", "pandas"), ("plot", "matplotlib")])
def test_what_is_not_installed_is_said(
    found: Results, monkeypatch: pytest.MonkeyPatch, call: str, package: str
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(SnclError, match=f"needs {package}: pip install"):
        getattr(found, call)()
