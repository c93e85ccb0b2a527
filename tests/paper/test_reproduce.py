"""Which stored results count, and whole calls of ``sncl reproduce`` on the digits."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from command_line import Sncl

from sncl.cli.tables import command_line
from sncl.errors import SnclError
from sncl.live import jobs as live_jobs
from sncl.paper import records, reproduce
from sncl.paper import tables as paper
from sncl.paper.comparison import Command, markdown
from sncl.paper.tables import cells
from sncl.runs import perform as runs_perform
from sncl.runs.experiment import Experiment
from sncl.runs.job import Job, work
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import Result
from sncl.runs.settings import defaults_table
from sncl.training.checkpoint import read_json, sealed, unsealed, write_json
from sncl.training.events import Moment

DIGITS = {
    "seq-digits": {
        "sgd": {"0": {"class_il": [20.0, 1.0], "task_il": [60.0, 1.0]}},
        "er": {"40": {"class_il": [70.0, 2.0], "task_il": [90.0, 1.0]}},
    }
}
ONE = ["reproduce", "table2", "--method", "er", "--seeds", "1", "--device", "cpu"]


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 2 over the embedded digits, where a run takes a second."""
    monkeypatch.setitem(paper.values(), "table2", DIGITS)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """The experiments that are performed; those of several jobs in this process too."""
    found: list[Experiment] = []

    def noted(experiment: Experiment, *rest: Any) -> Result:
        found.append(experiment)
        return perform(experiment, *rest)

    monkeypatch.setattr(runs_perform, "perform", noted)
    monkeypatch.setattr(live_jobs, "run_all", one_by_one)
    return found


def one_by_one(
    function: Callable[..., Any], jobs: Sequence[Any], workers: int, watch: Callable[..., None]
) -> list[Any]:
    return [function(job, partial(watch, number)) for number, job in enumerate(jobs)]


# --- which stored results count ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one finished run of seq-digits, ER, memory 40, seed 0."""
    folder = tmp_path_factory.mktemp("finished")
    perform(plan("seq-digits", "er", memory=40, device="cpu"), folder)
    return folder


def copied(finished: Path, folder: Path, **changed: Any) -> Path:
    """The run as if it had been made, or had ended, otherwise; both of its files say so."""
    folder.mkdir(parents=True)
    experiment, result = (unsealed(read_json(finished / name)) for name in ("experiment.json", "result.json"))
    experiment |= {key: value for key, value in changed.items() if key in experiment}
    write_json(folder / "experiment.json", sealed(experiment))
    result |= {key: value for key, value in changed.items() if key in result}
    for readout, accuracy in result["accuracy"].items():
        result["measures"][readout]["accuracy"] = accuracy
    result["manifest"] |= {key: value for key, value in changed.items() if key in result["manifest"]}
    write_json(folder / "result.json", sealed(result))
    return folder


OTHERS: list[tuple[str, Any, bool]] = [
    ("device", "cuda", True),
    ("precision", "bfloat16", True),
    ("engine", "graph", True),
    ("threads", 8, True),
    ("memory", 41, False),
    ("epochs", 4, False),
    ("tasks", 4, False),
    ("validation", 0.1, False),
    ("protocol", "2019.1", False),
    ("settings", {"lr": 0.05}, False),
]


@pytest.mark.parametrize(("key", "value", "counts"), OTHERS)
def test_a_run_from_elsewhere_counts_and_another_experiment_does_not(
    sncl: Sncl, tmp_path: Path, digits: None, finished: Path, key: str, value: Any, counts: bool
) -> None:
    if key == "settings":
        value = read_json(finished / "experiment.json")["settings"] | value
    copied(finished, tmp_path / "runs" / "from-elsewhere" / "seed-0", **{key: value})
    done = sncl(*ONE, "--collect", "--json")
    assert done.code == 0
    assert [row["seeds"] for row in json.loads(done.out)["rows"]] == [[0] if counts else []] * 2


def test_runs_that_collapsed_are_marked(sncl: Sncl, tmp_path: Path, digits: None, finished: Path) -> None:
    for seed in range(3):
        bad = [{"task": 4, "recall": 50.0, "chance": 50.0}] if seed == 1 else []
        copied(finished, tmp_path / "runs" / f"{seed}", seed=seed, collapsed=bad)
    call = ["--collect", "--results", "results"]
    assert [row["collapsed"] for row in sncl(*ONE, *call, "--json").json()["rows"]] == [[1], [1]]
    (tmp_path / "runs").rename(tmp_path / "away")  # the lines say it too
    shown = sncl(*ONE, *call).out
    assert shown.count("3/3, 1 of 3 collapsed") == 2
    assert len(re.findall(r"\d ± 0\.00 †", shown)) == 2
    assert "\n† collapsed: " in shown and "a smaller --set lr=... or more --epochs\n" in shown
    page = (tmp_path / "results" / "table2.md").read_text()
    assert re.search(r"\| 3/3, 1 of 3 collapsed \| \d+\.\d\d ± 0\.00 † \|", page)
    assert "\n\n† collapsed: " in page and "a smaller `lr` or more `epochs`\n" in page


def test_older_lines_do_not_say_what_collapsed(sncl: Sncl, tmp_path: Path, digits: None, finished: Path) -> None:
    copied(finished, tmp_path / "runs" / "0")
    call = [*ONE, "--collect", "--results", "results"]
    assert sncl(*call).code == 0
    path = tmp_path / "results" / "table2.jsonl"
    line = json.loads(path.read_text())
    del line["collapsed"]
    path.write_text(json.dumps(line) + "\n")
    (tmp_path / "runs").rename(tmp_path / "away")
    done = sncl(*call)
    assert (done.code, "†" in done.out) == (0, False)
    assert json.loads(path.read_text()) == line


def test_runs_on_different_data_do_not_share_a_table(sncl: Sncl, tmp_path: Path, digits: None, finished: Path) -> None:
    copied(finished, tmp_path / "runs" / "ours")
    assert sncl(*ONE, "--collect", "--json").code == 0
    copied(finished, tmp_path / "runs" / "theirs", seed=1, data="0" * 64)
    done = sncl(*ONE, "--collect")
    assert done.code == 2 and "the runs of this table on seq-digits were made with different data" in done.err


def test_missing_runs_are_made_on_the_data_of_those_there_are(
    sncl: Sncl, tmp_path: Path, digits: None, finished: Path
) -> None:
    copied(finished, tmp_path / "runs" / "theirs", data="0" * 64)
    done = sncl(*ONE, "--seeds", "2")
    assert done.code == 2 and "are not those that this run is about" in " ".join(done.err.split())


@pytest.mark.parametrize("damaged", ["experiment.json", "result.json"])
def test_a_damaged_or_unfinished_run_does_not_count(
    sncl: Sncl, tmp_path: Path, digits: None, finished: Path, damaged: str
) -> None:
    run = copied(finished, tmp_path / "runs" / "cut-off")
    text = (run / damaged).read_text()
    for content in (text[: len(text) // 2], "[]", None):
        if content is None:
            (run / damaged).unlink()
        else:
            (run / damaged).write_text(content)
        rows = json.loads(sncl(*ONE, "--collect", "--json").out)["rows"]
        assert [row["seeds"] for row in rows] == [[], []]


def test_seeds_beyond_the_wanted_ones_count_too(sncl: Sncl, tmp_path: Path, digits: None, finished: Path) -> None:
    copied(finished, tmp_path / "runs" / "seed-7", seed=7)
    row, _ = json.loads(sncl(*ONE, "--collect", "--json").out)["rows"]
    assert (row["seeds"], row["missing"], row["ours"]["deviation"], row["mark"]) == ([7], [0], 0.0, None)
    assert re.search(r"ER +40 +Class-IL +1/2 ", sncl(*ONE, "--collect").out)


def test_the_numbers_of_a_row(sncl: Sncl, tmp_path: Path, digits: None, finished: Path) -> None:
    for seed, accuracy in enumerate((60.0, 62.0)):
        copied(finished, tmp_path / "runs" / str(seed), seed=seed, accuracy={"class_il": accuracy, "task_il": 90.0})
    done = sncl(*ONE, "--collect")
    # class_il: 61 ± sqrt(2) against 70 ± 2: -9, limit 2 sqrt(2/2 + 4/10) = 2.37; task_il: 90 against 90
    assert re.search(r"ER +40 +Class-IL +2/2 +61\.00 ± 1\.41 +70\.00 ± 2\.00 +-9\.00 +worse +–", done.out)
    assert re.search(r"ER +40 +Task-IL +2/2 +90\.00 ± 0\.00 +90\.00 ± 1\.00 +\+0\.00 +equal +–", done.out)
    assert "to fill" not in done.out


def test_calls_side_by_side_lose_no_line(tmp_path: Path, digits: None, finished: Path) -> None:
    """The second call comes while the first one has read the lines and not yet written them."""
    for seed in (0, 1):
        copied(finished, tmp_path / str(seed) / "run", seed=seed)

    def collect(seed: int, command: Command) -> None:
        request = reproduce.Request("table2", methods=["er"], seeds=1, runs=tmp_path / str(seed), collect=True)
        request = replace(request, results=tmp_path, device="cpu")
        reproduce.reproduce(request, lambda jobs, attempt: [], notes.append, command)

    notes: list[str] = []
    second = Thread(target=collect, args=(1, command_line))

    def in_between(table: str, rows: Sequence[records.TableRow]) -> str:
        if not second.ident:
            second.start()
            second.join(1.0)
        return command_line(table, rows)

    collect(0, in_between)
    second.join()
    assert [line["seed"] for line in records.read_lines(tmp_path / "table2.jsonl")] == [0, 1]
    assert "| ER | 40 | Class-IL | 2/2 |" in (tmp_path / "table2.md").read_text()


# --- open cells --------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """The experiments of the jobs that would be run; none is."""
    found: list[Experiment] = []

    def note(jobs: list[Job], *_: Any) -> list[None]:
        found.extend(job.experiment for job in jobs)
        return [None] * len(jobs)

    monkeypatch.setattr("sncl.cli.jobs.run_jobs", note)
    return found


@pytest.mark.parametrize(
    ("call", "commands_wanted", "per_command"),
    [
        (["table1"], 24, 2),
        (["table1", "--stream", "seq-cifar10,perm-mnist", "--method", "sgd", "--method", "pnn,er"], 9, 2),
        (["table2", "--memory", "100"], 4, 2),
        (["ablation"], 2, 20),
        (["layers", "--stream", "rot-mnist"], 1, 14),
    ],
)
def test_the_commands_of_open_cells_run_just_what_is_missing(
    sncl: Sncl, asked: list[Experiment], call: list[str], commands_wanted: int, per_command: int
) -> None:
    everything = sncl("reproduce", *call, "--seeds", "2", "--device", "cpu", "--runs", "other runs", "--collect")
    assert (everything.code, everything.err, asked) == (0, "", [])
    commands_given = [line.strip() for line in everything.out.splitlines() if line.startswith("  sncl ")]
    assert len(commands_given) == commands_wanted
    assert sncl("reproduce", *call, "--seeds", "2", "--device", "cpu", "--runs", "other runs").code == 0
    together = [experiment.name() for experiment in asked]
    assert len(set(together)) == len(together)
    asked.clear()
    for text in commands_given:
        before = len(asked)
        assert sncl(*shlex.split(text)[1:]).code == 0
        assert len(asked) - before == per_command
    assert sorted(experiment.name() for experiment in asked) == sorted(together)


def test_a_cell_is_the_experiment_that_train_makes(sncl: Sncl, asked: list[Experiment], tmp_path: Path) -> None:
    sncl("reproduce", "table1", "--stream", "rot-mnist", "--method", "sncl", "--memory", "500", "--seeds", "2")
    assert asked == [plan("rot-mnist", "sncl", memory=500, seed=seed) for seed in (0, 1)]


def test_a_method_is_left_out_where_it_cannot_run(sncl: Sncl, asked: list[Experiment]) -> None:
    assert sncl("reproduce", "table1", "--stream", "seq-cifar10,rot-mnist", "--method", "pnn", "--seeds", "1").code == 0
    assert [experiment.stream for experiment in asked] == ["seq-cifar10"]


# --- whole calls -------------------------------------------------------------------------------------------------


def test_what_is_missing_is_run_once(sncl: Sncl, tmp_path: Path, digits: None, made: list[Experiment]) -> None:
    assert sncl(*ONE, "--collect").code == 0
    assert (made, list(tmp_path.iterdir())) == ([], [])
    first = sncl(*ONE)
    assert (first.code, first.err) == (0, "runs: 0 there, 1 to be made\n")
    (experiment,) = made
    assert experiment == plan("seq-digits", "er", memory=40, device="cpu")
    result = read_json(tmp_path / "runs" / experiment.name() / "result.json")
    assert f" {result['accuracy']['class_il']:.2f} " in first.out
    second = sncl(*ONE)
    assert (second.out, second.err, len(made)) == (first.out, "", 1)
    assert sncl(*ONE, "--method", "sgd", "--seeds", "2").code == 0
    assert [(each.method, each.seed) for each in made[1:]] == [("sgd", 0), ("sgd", 1), ("er", 1)]


def test_an_interrupted_run_goes_on(
    sncl: Sncl, tmp_path: Path, digits: None, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def stopped(experiment: Experiment, folder: Path, data: Any, watch: Callable[[Moment], None], *rest: Any) -> Any:
        def noted(moment: Moment) -> None:
            steps.append(moment.steps)
            watch(moment)
            if moment.task == 2 and len(steps) == moment.steps + 2:  # two evaluations before; once
                raise KeyboardInterrupt

        return perform(experiment, folder, data, noted, *rest)

    monkeypatch.setattr(runs_perform, "perform", stopped)
    assert sncl(*ONE) == (
        130,
        "",
        "runs: 0 there, 1 to be made\nstopped; the same command goes on from the last checkpoint\n",
    )
    reached = len(steps)
    assert "open" in sncl(*ONE, "--collect").out
    assert sncl(*ONE).code == 0
    assert steps[reached] == steps[reached - 1] > 100  # the batch behind the checkpoint, not the first
    (stored,) = (tmp_path / "runs").glob("*/result.json")
    whole, resumed = read_json(finished / "result.json"), read_json(stored)
    assert resumed["measures"] == whole["measures"]


def test_a_failed_run_is_named_and_the_others_are_shown(
    sncl: Sncl, tmp_path: Path, digits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of their own: ER diverges, SGD does not."""
    monkeypatch.setattr(live_jobs, "cores", lambda: 1)
    monkeypatch.setitem(defaults_table()["seq-digits"]["er"]["any"], "lr", 1e9)
    done = sncl(*ONE, "--method", "sgd", "--results", "results")
    assert done.code == 2
    assert re.search(r"^SGD +– +Class-IL +1/1 +\d+\.\d+ ", done.out, re.MULTILINE)
    assert re.search(r"^ER +40 +Class-IL +0/1 +open ", done.out, re.MULTILINE)
    name = plan("seq-digits", "er", memory=40, device="cpu").name()
    last = done.err.splitlines()[-1]
    assert last.startswith(f"error: 1 of 2 runs failed: {name}: the loss ") and "use a smaller" in last
    page = (tmp_path / "results" / "table2.md").read_text()
    assert f"## Failed\n\n- `{name}`\n" in page
    assert [line["method"] for line in records.read_lines(tmp_path / "results" / "table2.jsonl")] == ["sgd"]


def test_many_failures_are_one_line() -> None:
    failed = {f"run-{number}": "no data" for number in range(5)} | {"other": "too hot"}
    error = reproduce.Failures(failed, 7)
    assert str(error) == "6 of 7 runs failed: run-0, run-1, run-2 and 2 more: no data; other: too hot"
    assert error.names == ["other", "run-0", "run-1", "run-2", "run-3", "run-4"]


# --- the files ---------------------------------------------------------------------------------------------------


def test_the_files_of_a_table(sncl: Sncl, tmp_path: Path, digits: None, made: list[Experiment]) -> None:
    results = ["--results", "results"]
    assert sncl(*ONE, "--seeds", "2", *results).code == 0
    path = tmp_path / "results" / "table2.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [list(line) for line in lines] == [[*records.FIELDS, records.COLLAPSED_TASKS]] * 2
    assert [line["seed"] for line in lines] == [0, 1]
    stored = read_json(tmp_path / "runs" / made[0].name() / "result.json")
    assert lines[0]["accuracy"] == {key: round(value, 4) for key, value in stored["accuracy"].items()}
    assert lines[0]["settings"] == stored["manifest"]["settings"]
    assert (lines[0]["title"], lines[0]["epochs"], lines[0]["engine"]) == ("ER", 5, "eager")
    page = (tmp_path / "results" / "table2.md").read_text()
    assert page.startswith("# Table 2: MNIST-360\n")
    assert "## seq-digits\n\n| row | memory |" in page
    assert "\nsncl reproduce table2 --stream seq-digits --method er --memory 40 --seeds 2\n" in page
    assert f"- 2 runs on {stored['manifest']['device']} (float32, eager): sncl " in page
    assert "## Open" not in page and "## Failed" not in page and str(tmp_path) not in page
    # The runs themselves may go: the lines are known results.
    (tmp_path / "runs").rename(tmp_path / "away")
    again = sncl(*ONE, "--seeds", "2", *results)
    assert (again.code, again.err, len(made)) == (0, "", 2)
    assert [json.loads(line) for line in path.read_text().splitlines()] == lines
    assert (tmp_path / "results" / "table2.md").read_text() == page
    # Asking for less leaves what is there, and the command that makes it.
    assert sncl(*ONE, "--collect", *results).code == 0
    assert (tmp_path / "results" / "table2.md").read_text() == page
    # Another choice keeps what it did not ask for.
    assert sncl("reproduce", "table2", "--method", "sgd", "--seeds", "1", "--collect", *results).code == 0
    kept = (tmp_path / "results" / "table2.md").read_text()
    assert "| ER | 40 | Class-IL | 2/2 |" in kept and "| SGD | – | Class-IL | 0/1 | open |" in kept
    assert "## Open\n\n- seq-digits, SGD: 1 of 1 seeds\n\n```console\nsncl reproduce table2 --stream seq-digits" in kept
    assert [json.loads(line) for line in path.read_text().splitlines()] == lines
    assert {each.name for each in (tmp_path / "results").iterdir()} - {".table2.lock"} == {"table2.jsonl", "table2.md"}


def test_a_line_made_with_other_settings_is_dropped(
    sncl: Sncl, tmp_path: Path, digits: None, made: list[Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results" / "table2.jsonl"
    assert sncl(*ONE, "--results", "results").code == 0
    (old,) = records.read_lines(path)
    monkeypatch.setitem(defaults_table()["seq-digits"]["er"]["any"], "lr", 0.07)
    collected = sncl(*ONE, "--results", "results", "--collect")
    assert collected.err == "note: lines of table2.jsonl left out because settings have changed: 1\n"
    assert re.search(r"ER +40 +Class-IL +0/1 +open ", collected.out)
    assert path.read_text() == ""
    path.write_text(json.dumps(old) + "\n")
    assert sncl(*ONE, "--results", "results").code == 0
    (new,) = records.read_lines(path)
    assert (old["settings"]["lr"], new["settings"]["lr"], len(made)) == (0.1, 0.07, 2)


def test_settings_are_not_rounded(finished: Path) -> None:
    result = read_json(finished / "result.json")
    result["manifest"]["settings"]["decay"] = 1e-05
    result["active_fraction"], result["open_by_task"] = 0.123456, [0.98765, 0.5]
    line = records.results_line(Result.from_json(result))
    assert line["settings"]["decay"] == 1e-05
    assert (line["active_fraction"], line["open_by_task"]) == (0.1235, [0.9877, 0.5])


def test_open_neurons_are_shown(finished: Path, tmp_path: Path, sncl: Sncl, digits: None) -> None:
    for seed, fraction in enumerate((0.5, 0.7)):
        copied(finished, tmp_path / "runs" / str(seed), seed=seed, active_fraction=fraction)
    assert re.search(r"ER +40 +Class-IL .* 60 %", sncl(*ONE, "--collect").out)


@pytest.mark.parametrize("table", ["table1", "table2", "ablation", "layers"])
def test_every_table_is_a_page(table: str) -> None:
    rows = reproduce.gather(reproduce.planned(cells(table), "cpu"), 10, {})
    page = markdown(table, rows, command_line)
    assert max(map(len, page.split("```")[0].splitlines())) <= 120
    for stream in {row.cell.stream for row in rows}:
        assert page.count(f"\n## {stream}\n\n| row | ") == 1
    for row in rows:
        assert f"| {row.cell.title} | {row.cell.memory} | " in page
    assert "Nothing yet." in page and "## Open" in page
    if table == "ablation":
        assert "- +VBS: `alpha=0 gamma=0 admission=reservoir`\n" in page
        assert "- SNCL: nothing changed\n" in page


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table3"], ["'table3'", "table1, table2, ablation, layers"]),
        (["table1", "--stream", "mnist-360"], ["'mnist-360'", "seq-cifar10, seq-tinyimagenet, perm-mnist, rot-mnist"]),
        (["layers", "--stream", "seq-cifar10"], ["'seq-cifar10'", "perm-mnist, rot-mnist"]),
        (["table2", "--method", "nosuch"], ["'nosuch'", "derpp, er-ace, sncl"]),
        (["table2", "--method", "gem"], ["gem", "mnist-360", "boundaries"]),
        (["ablation", "--method", "er"], ["ablation", "variants of sncl", "table1 and table2"]),
        (["table1", "--memory", "0"], ["--memory", "at least 1", "not 0"]),
        (["table1", "--method", "sgd", "--memory", "-3"], ["--memory", "not -3"]),
        (["table1", "--memory", "lots"], ["--memory", "integer"]),
        (["table1", "--seeds", "0"], ["--seeds", "at least 1", "not 0"]),
        (["table1", "--device", "tpu9"], ["'tpu9'", "cpu"]),
        ([], ["table", "missing"]),
    ],
)
def test_errors_are_one_line(sncl: Sncl, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    done = sncl("reproduce", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("error: ")
    for word in words:
        assert word.lower() in done.err.lower()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"stream": "seq-digits"}'])
def test_a_results_file_that_is_none_is_named(sncl: Sncl, tmp_path: Path, digits: None, text: str) -> None:
    (tmp_path / "table2.jsonl").write_text(text)
    done = sncl(*ONE, "--results", ".", "--collect")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: line 1 of table2.jsonl is no ")
    assert (tmp_path / "table2.jsonl").read_text() == text


def test_help_says_what_is_left_out(sncl: Sncl) -> None:
    done = sncl("reproduce", "--help")
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m|│", " ", done.out).split())
    for word in (
        "--stream",
        "--method",
        "--memory",
        "--seeds",
        "--runs",
        "--results",
        "--collect",
        "--device",
        "--json",
    ):
        assert word in text
    assert "all but seq-cifar10 and" in text


# --- the live view -----------------------------------------------------------------------------------------------


def test_runs_may_leave_a_log_for_tensorboard(sncl: Sncl, tmp_path: Path, digits: None, made: list[Experiment]) -> None:
    assert sncl(*ONE, "--tensorboard").code == 0
    assert [(tmp_path / "runs" / each.name() / "tensorboard").is_dir() for each in made] == [True] * len(made)
    assert made


def test_a_job_that_fails_tells_that_it_has_ended(tmp_path: Path) -> None:
    reports: list[Moment | None] = []
    job = Job(plan("perm-mnist", "er", device="cpu"), tmp_path / "run", data=tmp_path / "nothing")
    with pytest.raises(SnclError, match="mnist"):
        work(job, reports.append)
    assert reports == [None]


def test_an_averaged_run_is_also_a_run_without_the_average(digits: None, sncl: Sncl, tmp_path: Path) -> None:
    averaged = perform(
        plan("seq-digits", "er", memory=40, device="cpu", settings={"ema": "0.9"}), tmp_path / "runs" / "averaged"
    )
    plain = perform(plan("seq-digits", "er", memory=40, device="cpu"), tmp_path / "plain")
    assert averaged.accuracy_variants["as_trained"] == plain.accuracy != averaged.accuracy
    row, _ = sncl(*ONE, "--collect", "--runs", str(tmp_path / "runs"), "--json").json()["rows"]
    assert (row["readout"], row["seeds"]) == ("class_il", [0])
    assert row["ours"]["mean"] == pytest.approx(plain.accuracy["class_il"], abs=1e-3)
    assert row["accuracy_variants"]["averaged by 0.9"]["mean"] == pytest.approx(averaged.accuracy["class_il"], abs=1e-3)
