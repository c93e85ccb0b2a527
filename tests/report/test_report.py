"""What a report says, what it leaves out, and how it fails."""

import base64
import json
import os
import re
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from command_line import Sncl
from example_results import result
from PIL import Image
from sweeps import keep_example

from sncl.evaluation.metrics import falls
from sncl.report import write_report
from sncl.report.collect import FinishedRun, read_runs
from sncl.report.figures.accuracy import accuracy_curve
from sncl.report.groups import RunGroup, group_runs
from sncl.report.tables import paper
from sncl.runs.experiment import read_described
from sncl.runs.plan import plan
from sncl.runs.sweep import SWEEP

SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
HOSTILE = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">'
Copied = Callable[..., Path]


class Page(NamedTuple):
    text: str  # without plotly
    notes: list[str]

    def figures(self) -> dict[str, Any]:
        (data,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', self.text, re.DOTALL)
        return {figure["name"]: figure for figure in json.loads(data)}

    def view(self, figure: str, *keys: str) -> dict[str, Any]:
        (found,) = [view for view in self.figures()[figure]["views"] if view["keys"] == list(keys)]
        return found

    def sections(self) -> list[str]:
        return re.findall(r'<section id="([^"]+)">', self.text)


def page(folder: Path, *paths: Path) -> Page:
    notes: list[str] = []
    write_report(paths, folder / "report.html", notes.append)
    text = (folder / "report.html").read_text()
    plotly, _ = SCRIPT.findall(text)
    return Page(text.replace(plotly, ""), notes)


@pytest.fixture(scope="module")
def whole(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page(tmp_path_factory.mktemp("page"), runs)


def result_of(runs: Path, name: str) -> dict[str, Any]:
    return json.loads((runs / name / "result.json").read_text())


def test_every_section_is_there_and_in_the_contents(whole: Page) -> None:
    assert whole.notes == []
    assert whole.sections() == [
        *("results", "over-time", "matrices", "classes", "by-task", "training", "spent", "memory", "sparsity"),
        "settings",
    ]
    assert re.findall(r'<li><a href="#([^"]+)">', whole.text) == whole.sections()


def test_the_table_has_mean_and_deviation_over_seeds(runs: Path, whole: Page) -> None:
    one, other = (result_of(runs, name)["accuracy"]["class_il"] for name in ("sncl-0", "sncl-1"))
    mean, deviation = (one + other) / 2, abs(one - other) / 2**0.5
    assert f"<td>{mean:.2f} ± {deviation:.2f}</td>" in whole.text
    assert "paper" not in re.findall("<thead>.*?</thead>", whole.text)[0]  # which has no digits


def test_curves_are_those_of_the_runs(runs: Path, whole: Page) -> None:
    er, ours = whole.view("accuracy", "seq-digits", "Class-IL", "30", "average of the tasks seen")["data"]
    assert (er["name"], ours["name"]) == ("ER", "SNCL")
    matrices = [result_of(runs, f"er-{seed}")["accuracy_matrix"] for seed in (0, 1)]
    assert er["y"][1] == pytest.approx(sum(sum(matrix[1][:2]) / 2 for matrix in matrices) / 2, abs=1e-3)
    third = whole.view("accuracy", "seq-digits", "Class-IL", "30", "task 3")["data"][0]
    assert third["y"][:2] == [None, None] and third["y"][2] is not None
    (bar,) = whole.view("accuracy", "digits-360", "GCL", "30", "average of the tasks seen")["data"]
    assert (bar["type"], len(bar["y"])) == ("bar", 1)


def test_classes_are_told_by_recall_and_confusion(runs: Path, whole: Page) -> None:
    told = [result_of(runs, f"sncl-{seed}")["by_class"] for seed in (0, 1)]
    er, ours = whole.view("recall", "seq-digits", "30")["data"]
    assert (er["name"], ours["name"], ours["type"]) == ("ER", "SNCL", "bar")
    assert ours["x"][:3] == ["0", "1", "2"]
    one, other = (np.array(each["recall"][:6]) for each in told)
    assert ours["y"][:6] == pytest.approx(((one + other) / 2).tolist(), abs=1e-3)
    assert ours["deviation"][:6] == pytest.approx((abs(one - other) / 2**0.5).tolist(), abs=1e-3)
    assert ours["y"][6:] == [None] * 4  # of tasks that the runs do not have
    (heat,) = whole.view("confusion", "seq-digits", "SNCL")["data"]
    counts = np.array(told[0]["confusion"]) + np.array(told[1]["confusion"])
    assert np.array(heat["z"][:6], dtype=float) == pytest.approx(
        100 * counts[:6] / counts[:6].sum(1)[:, None], abs=0.05
    )
    assert heat["z"][6:] == [[None] * 10] * 4 and heat["x"] == heat["y"] == [str(digit) for digit in range(10)]


def test_runs_that_do_not_tell_of_classes_have_no_such_figure(tmp_path: Path, copied: Copied) -> None:
    assert "classes" not in page(tmp_path, copied("er-0", "older", result={"by_class": None})).sections()


def test_uneven_classes_are_in_the_final_table(tmp_path: Path, copied: Copied, whole: Page) -> None:
    assert '<th scope="col">balanced, %</th>' not in whole.text
    uneven = {"samples": [60, 20], "recall": [90.0, 40.0], "confusion": [[54, 6], [12, 8]]}
    facts = uneven | {"balanced_accuracy": 65.0, "majority": 75.0}
    folders = [copied("er-0", "uneven", result={"by_class": facts, "class_names": ["no", "yes"]})]
    shown = page(tmp_path, *folders)
    assert '<th scope="col">balanced, %</th><th scope="col">majority, %</th>' in shown.text
    assert "<td>65.00</td><td>75.00</td>" in shown.text
    assert shown.view("recall", "seq-digits", "30")["data"][0]["x"] == ["no", "yes"]
    assert shown.view("confusion", "seq-digits", "ER")["data"][0]["z"] == [[90.0, 10.0], [60.0, 40.0]]


def test_figures_tell_of_memory_and_gates(whole: Page) -> None:
    balance = whole.view("balance", "seq-digits", "SNCL, seed 0", "task")["data"]
    assert [series["name"] for series in balance] == ["task 1", "task 2", "task 3"]
    assert [sum(column) for column in zip(*(series["y"] for series in balance), strict=True)] == [30, 30, 30]
    assert len(whole.view("stored-losses", "seq-digits", "SNCL, seed 0")["data"][0]["x"]) == 30
    (heat,) = whole.view("overlap", "seq-digits", "SNCL, seed 1")["data"]
    assert all(heat["z"][i][j] == heat["z"][j][i] for i in range(3) for j in range(3))
    assert {view["keys"][1] for view in whole.figures()["open"]["views"]} == {"SNCL, seed 0", "SNCL, seed 1"}


def test_the_papers_gates_are_shown_by_their_noise(whole: Page, random_run: Path, tmp_path: Path) -> None:
    assert "lambda" not in whole.figures()
    first, second = page(tmp_path, random_run).view("lambda", "seq-digits", "SNCL, seed 0")["data"]
    assert (first["name"], len(first["x"]), len(second["x"])) == ("layer1.1", 100, 100)


def test_accuracy_against_size_is_shown_where_it_was_analysed(
    runs: Path, tmp_path: Path, copied: Copied, whole: Page
) -> None:
    assert "size" not in whole.figures()
    missing = "Not measured of seq-digits, SNCL (seeds 0, 1); digits-360, SNCL (seed 0): sncl analyze sparsity RUN"
    assert f'<h3>Accuracy against size</h3><p class="quiet">{missing}' in whole.text
    folders = [copied(f"sncl-{seed}", f"ours-{seed}") for seed in (0, 1)]
    keep_example(folders[0], read_described(folders[0]), class_il=40.0, task_il=60.0)
    one = page(tmp_path, runs / "er-0", *folders)
    assert "Not measured of seq-digits, SNCL (seed 1): sncl analyze" in one.text
    keep_example(folders[1], read_described(folders[1]), class_il=44.0, task_il=60.0)
    shown = page(tmp_path, runs / "er-0", *folders)
    assert "Not measured" not in shown.text and shown.notes == []
    figure = shown.figures()["size"]
    assert figure["title"] == "Accuracy against size" and "on 60 test samples" in figure["note"]
    for size, places in {"open neurons, %": [20, 50, 80], "parameters left, %": [10, 40, 70]}.items():
        (line,) = shown.view("size", "seq-digits", "Class-IL", size)["data"]
        assert (line["name"], line["x"], line["y"]) == ("SNCL", places, [22, 32, 42])
        assert line["deviation"] == pytest.approx([8**0.5] * 3, abs=1e-3)
    assert len(figure["views"]) == 4  # two read-outs


def test_an_analysis_that_is_damaged_or_of_another_run_is_noted(runs: Path, tmp_path: Path, copied: Copied) -> None:
    folder = copied("sncl-0", "ours")
    keep_example(folder, read_described(runs / "sncl-1"))
    note = "sparsity.json of ours is damaged or about another run, and not shown"
    assert page(tmp_path, folder).notes == [note]
    (folder / SWEEP).write_text("{")
    damaged = page(tmp_path, folder)
    assert damaged.notes == [note] and "Not measured of seq-digits, SNCL (seed 0)" in damaged.text


def test_the_images_of_the_memory_are_one_picture(whole: Page) -> None:
    sheets = re.findall(r'<img class="sheet" src="data:image/png;base64,([^"]+)".*?alt="([^"]+)"', whole.text)
    assert len(sheets) == 3  # the first seed of each
    assert sheets[0][1].startswith("30 of 30 images, row by row: class 0: ")
    with Image.open(BytesIO(base64.b64decode(sheets[0][0]))) as picture:
        assert picture.size == (20 * 42, 2 * 42)


def test_nothing_is_loaded_from_anywhere(whole: Page) -> None:
    assert not re.search(r"https?:|@import|url\(", whole.text)
    sources = re.findall(r'\b(?:src|href|action)="([^"]*)"', whole.text)
    assert all(source.startswith(("#", "data:")) for source in sources)
    assert "default-src &#x27;none&#x27;" in whole.text


def test_what_was_not_recorded_is_left_out(runs: Path, tmp_path: Path, copied: Copied) -> None:
    folder = copied("er-0", "old")
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    old = [{key: value for key, value in line.items() if not key.startswith("memory_by")} for line in lines]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    (folder / "checkpoint.safetensors").unlink()
    shown = page(tmp_path, folder)
    assert not {"memory", "sparsity"} & set(shown.sections())
    assert shown.notes == ["old has no checkpoint, so its memory and gates are not shown"]


def test_names_from_files_are_text(tmp_path: Path, copied: Copied) -> None:
    names = {"method": HOSTILE, "stream": HOSTILE}
    folder = copied(
        "sncl-0",
        "hostile",
        experiment=names | {"settings": {HOSTILE: HOSTILE}},
        result=names | {"manifest.device": HOSTILE, "manifest.versions": {HOSTILE: HOSTILE}},
    )
    shown = page(tmp_path, folder)
    assert "<img src=x" not in shown.text and "window.hacked = 1</script>" not in shown.text
    assert shown.view("losses", HOSTILE, f"{HOSTILE}, seed 0")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("protocol", "1999.9", "protocols are mixed: 2020.1, 1999.9"),
        ("validation", 0.1, "validation parts are mixed: 0.0, 0.1"),
        ("epochs", 7, "numbers of epochs are mixed: 1, 7"),
        ("data", "0" * 64, "data (their fingerprints differ) are mixed"),
    ],
)
def test_what_is_not_to_be_compared_is_said(
    runs: Path, tmp_path: Path, copied: Copied, key: str, value: Any, words: str
) -> None:
    folder = copied("sncl-0", "other", experiment={key: value}, result={f"manifest.{key}": value})
    shown = page(tmp_path, runs / "sncl-0", folder)
    assert '<p class="warning">seq-digits: runs of different ' + words in shown.text
    assert '<p class="warning">seq-digits' not in page(tmp_path, runs / "sncl-0").text


def test_titles_say_what_sets_groups_apart(runs: Path, tmp_path: Path, copied: Copied) -> None:
    folder = copied("sncl-0", "without", experiment={"settings.sparsity": 0.0})
    notes: list[str] = []
    groups = group_runs(read_runs([folder, runs], notes.append))
    usual = json.loads((runs / "sncl-0" / "experiment.json").read_text())["settings"]["sparsity"]
    assert {each.title: len(each.runs) for each in groups if each.stream == "seq-digits"} == {
        "ER": 2,
        "SNCL, sparsity 0.0": 1,
        f"SNCL, sparsity {usual}": 2,
    }


def test_a_run_counts_once(runs: Path, tmp_path: Path, copied: Copied) -> None:
    shown = page(tmp_path, runs / "er-0", runs / "er-0", copied("er-0", "twin"))
    assert shown.notes == ["twin is the same run as er-0 and left out"]
    assert "1 run<" in shown.text


def stand_in(stream: str, method: str, memory: int, tasks: int, **settings: Any) -> RunGroup:
    experiment = {"tasks": tasks, "epochs": 1, "validation": 0.0, "settings": settings}
    return RunGroup(stream, method, memory, method, (FinishedRun(Path(), experiment, result(method)),))


def test_the_papers_value_is_that_of_the_same_experiment() -> None:
    whole = {"alpha": 1.0, "gamma": 0.5, "gates": "grow", "sparsity": 0.3, "admission": "loss-aware"}
    without, earlier = whole | {"gates": "off"}, whole | {"gates": "natural", "eta": 0.1}
    assert paper(stand_in("perm-mnist", "sncl", 200, 20, **whole))["domain_il"].mean > 80
    assert paper(stand_in("perm-mnist", "sncl", 200, 20, **without))["domain_il"].mean == 85.61
    for threshold in (0.0, -7.0):  # the same network is scored
        masked = earlier | {"threshold": threshold, "compensate": 0.0}
        assert paper(stand_in("rot-mnist", "sncl", 200, 20, **masked))["domain_il"].mean == 91.54
    assert paper(stand_in("rot-mnist", "sncl", 200, 20, **without))["domain_il"].mean == 90.76
    assert paper(stand_in("perm-mnist", "sncl", 200, 3, **whole)) == {}
    assert paper(stand_in("seq-digits", "sncl", 200, 5, **whole)) == {}


def test_what_was_learned_at_once_is_a_level_line() -> None:
    assert accuracy_curve([[80.0, 60.0]], 2, None) == [70.0, 70.0]
    assert accuracy_curve([[80.0, 0.0], [70.0, 90.0]], 2, None) == [80.0, 80.0]
    assert falls([[80.0, 0.0], [70.0, 90.0]]) == [10.0]


# --- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def command(sncl: Sncl) -> Callable[..., str]:
    """Run a command that ends with this code; what it says on standard error."""

    def run(code: int, *arguments: str | Path) -> str:
        done = sncl(*arguments)
        assert done.code == code, done.err
        assert code == 0 or (done.err.startswith("error: ") and done.err.count("\n") == 1), done.err
        return done.err

    return run


def test_the_command_writes_the_page(command: Callable[..., str], runs: Path, tmp_path: Path) -> None:
    assert command(0, "report", runs / "er-0", runs / "er-1") == "report: report.html\n"
    assert 1_000_000 < (tmp_path / "report.html").stat().st_size < 1_200_000  # it can be mailed


def test_train_and_demo_write_one_too(command: Callable[..., str], tmp_path: Path) -> None:
    short = ["train", "--stream", "seq-digits", "--method", "er", "--tasks", "2", "--epochs", "1", "--device", "cpu"]
    assert "report: here.html" in command(0, *short, "--report", "here.html")
    assert "1 setting, 1 run<" in (tmp_path / "here.html").read_text()
    for words in (short, ["demo"], ["reproduce", "table2"]):
        assert "does not exist" in command(2, *words, "--report", "nowhere/here.html")


def test_reproduce_tells_of_the_runs_in_its_table(
    command: Callable[..., str], runs: Path, copied: Copied, tmp_path: Path
) -> None:
    experiment = plan("mnist-360", "sncl", memory=200, device="cpu")
    names = {"stream": "mnist-360", "memory": 200}
    copied("turning", "ours", experiment=experiment.identity(), result=names)
    copied("er-0", "another")
    words = ["reproduce", "table2", "--method", "sncl", "--device", "cpu", "--collect", "--report", "table.html"]
    assert command(0, *words, "--runs", "copies") == "report: table.html\n"
    text = (tmp_path / "table.html").read_text()
    assert "1 setting, 1 run<" in text
    assert '<th scope="col">paper, %</th>' in text
    assert "none of these runs is finished" in command(2, *words, "--runs", "nowhere")


def test_unfinished_runs_are_noted_and_left_out(command: Callable[..., str], runs: Path, copied: Copied) -> None:
    folder = copied("er-0", "half")
    (folder / "result.json").unlink()
    assert "note: half is not finished and left out\n" in command(0, "report", runs / "er-1", folder)
    assert "none of these runs is finished" in command(2, "report", folder)


def test_errors_are_one_line(command: Callable[..., str], runs: Path, tmp_path: Path, copied: Copied) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty holds no runs" in command(2, "report", "empty")
    assert "there is no folder nowhere" in command(2, "report", "nowhere")
    assert "does not exist" in command(2, "report", runs, "-o", "nowhere/a.html")
    assert "is an .html file" in command(2, "report", runs, "-o", "a.pdf")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("result.json", "{"),
        ("result.json", "[]"),
        ("result.json", '{"stream": "seq-digits"}'),
        ("experiment.json", "null"),
        ("log.jsonl", "{"),
        ("log.jsonl", '{"event": "evaluation", "step": 1, "open_neurons": 3}'),
        ("log.jsonl", '{"event": "losses", "step": 1, "losses": {"labels": NaN}}'),
    ],
)
def test_a_damaged_file_is_named(command: Callable[..., str], copied: Copied, file: str, content: str) -> None:
    folder = copied("er-0", "damaged")
    (folder / file).write_text(content)
    assert f"{file} is damaged" in command(2, "report", folder)


def test_a_folder_whose_name_is_no_text(command: Callable[..., str], copied: Copied, tmp_path: Path) -> None:
    folder = copied("er-0", os.fsdecode(b"run\xff"))
    command(0, "report", folder)
    assert r"run\udcff" in (tmp_path / "report.html").read_text()


def test_a_log_of_before_is_read(tmp_path: Path, copied: Copied, whole: Page) -> None:
    """Each evaluation with the whole overlap of the tasks, and accuracies of all tasks."""
    folder = copied("sncl-0", "before")
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    evaluations = [line for line in lines if line["event"] == "evaluation"]
    whole_use = evaluations[-1]["neuron_use"]
    for number, line in enumerate(evaluations, start=1):
        line["neuron_use"]["overlap"] = whole_use["overlap"][:number]
        line["neuron_use"]["used"] = {layer: parts[:number] for layer, parts in whole_use["used"].items()}
        line["accuracy"] = {readout: [*row, *[None] * (3 - len(row))] for readout, row in line["accuracy"].items()}
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = page(tmp_path, folder).figures()
    (ours,) = found["overlap"]["views"]
    assert ours["data"] == whole.view("overlap", "seq-digits", "SNCL, seed 0")["data"]


def test_a_damaged_checkpoint_costs_only_what_is_in_it(
    command: Callable[..., str], copied: Copied, tmp_path: Path
) -> None:
    folder = copied("sncl-0", "damaged")
    (folder / "checkpoint.safetensors").write_bytes(b"nothing")
    assert "note: the checkpoint of damaged is damaged" in command(0, "report", folder)
    assert 'id="figure-balance"' in (tmp_path / "report.html").read_text()


def test_a_folder_whose_name_is_no_utf8(runs: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    for name in (b"\xff-one", b"\xff-two"):
        shutil.copytree(runs / "er-0", Path(os.fsdecode(os.fsencode(tmp_path) + b"/copies/" + name)))
    assert r"\udcff-two is the same run as \udcff-one" in command(0, "report", tmp_path / "copies")
    assert r"\udcff-one" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_seeds_on_other_data_are_not_averaged_with_ours(runs: Path, tmp_path: Path, copied: Copied) -> None:
    changes = {"experiment": {"data": "0" * 64}, "result": {"manifest.data": "0" * 64}}
    folders = [runs / "er-0", copied("er-0", "same seed", **changes), copied("er-1", "another seed", **changes)]
    notes: list[str] = []
    groups = group_runs(read_runs(folders, notes.append))
    assert notes == [] and [len(group.runs) for group in groups] == [1, 2]
    assert groups[1].title == "ER, data 00000000"
