"""What the view shows, in terminals of every size, and that a pipe sees nothing of it."""

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from in_order import one_by_one
from rich.console import Console

from sncl.cli import jobs as cli_jobs
from sncl.cli import trials
from sncl.evaluation.collapse import Collapse
from sncl.live import jobs as live_jobs
from sncl.live.drawing import column, course, duration, shade, spark
from sncl.live.following import Followed
from sncl.live.view import LiveView, Overall, live
from sncl.runs.job import Job
from sncl.runs.plan import plan
from sncl.training.checkpoint import read_json
from sncl.training.events import Evaluation, Moment
from sncl.tuning.search import plan_search

INSIDE = {"memory_by_class": [30, 20, 25, 25, 0, 0], "open_neurons": {"layer1.1": [90, 100], "layer2.1": [45, 100]}}
LOSSES = {"labels": 0.25, "past_logits": 0.0123}


def drawn(view: LiveView, width: int, height: int = 40, color: bool = False) -> list[str]:
    """The lines a terminal of this size shows."""
    system = "truecolor" if color else None
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=system)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def in_the_middle(tasks: int = 5, seen: int = 2, title: str = "a run") -> Followed:
    """A run that has learned ``seen`` of its tasks and is learning the next."""
    row: list[float | None] = [97.0 - 10 * task for task in range(seen)]
    run = Followed(title, iter(range(1000)).__next__)
    run.tell(Moment(0, 1000, 0, tasks, memory=(0, 100)))
    score = Evaluation({"class_il": row, "task_il": [99.0] * seen}, INSIDE)
    run.tell(
        Moment(400, 1000, seen - 1, tasks, accuracy=score.means(), rows=12_800, memory=(100, 100), evaluation=score)
    )
    run.tell(Moment(420, 1000, seen, tasks, LOSSES, epoch=1, epochs=3, rows=13_440, memory=(80, 100)))
    return run


@pytest.mark.parametrize("width", [80, 120])
def test_a_panel_about_one_run(width: int) -> None:
    lines = drawn(LiveView("sncl on seq-digits", [in_the_middle()]), width)
    assert {len(line) for line in lines} == {width}
    text = "\n".join(lines)
    assert lines[0].startswith("╭─ sncl on seq-digits ─")
    for words in (
        " 42 %  0:03 left",
        "task 3/5 · epoch 2/3 · step 420/1,000 · 210 steps/s · 6,720 rows/s",
        "Class-IL 92.0 %   Task-IL 99.0 %   mean of 2 tasks seen",
        " 97   87   ▸    ·    · ",
        "labels         0.250  █",
        "past logits   0.0123  █",
        "80/100 rows · 20–30 in each of 4 classes █▅▇▇",
        "68 % · layer1.1 90 % · layer2.1 45 %",
    ):
        assert words in text


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("tasks", [1, 20, 100])
def test_no_line_is_longer_than_the_terminal(width: int, tasks: int) -> None:
    runs = [in_the_middle(tasks, tasks, f"sncl on a stream with a long name, memory 5120, seed {n}") for n in range(3)]
    for shown in (LiveView("a heading that is rather long for so small a terminal", each) for each in (runs[:1], runs)):
        assert {len(line) for line in drawn(shown, width)} == {width}


def test_many_tasks_stand_in_even_rows() -> None:
    lines = drawn(LiveView("", [in_the_middle(20, 20)]), 80)
    numbers = [re.findall(r"-?\d+", line) for line in lines if re.fullmatch(r"│ +(-?\d+ +){10}│", line)]
    assert numbers == [[f"{97 - 10 * task}" for task in tasks] for tasks in (range(10), range(10, 20))]


def test_many_layers_are_small_bars_and_the_emptiest_is_named() -> None:
    run = in_the_middle()
    layers = {f"block{number}.relu": [100 - 10 * number, 100] for number in range(8)}
    run.evaluation = Evaluation({"class_il": [50.0]}, {"open_neurons": layers})
    assert any("65 % █▇▆▆▅▄▃▂ · least in block7.relu: 30 %" in line for line in drawn(LiveView("", [run]), 80))


def test_a_run_that_has_collapsed_is_marked() -> None:
    run = in_the_middle(title="seed 0")
    collapsed = (Collapse(1, 50.0, 50.0), Collapse(2, 51.0, 50.0))
    run.evaluation = Evaluation({"class_il": [50.0, 51.0]}, INSIDE, collapsed)
    alone = "\n".join(drawn(LiveView("", [run]), 80))
    assert "Class-IL 50.5 %   † 2 not learned   mean of 2 tasks seen" in alone
    together = drawn(LiveView("2 runs", [run, in_the_middle(title="seed 1")]), 80)
    assert ["50.5 %†" in line for line in together if "seed" in line] == [True, False]


def test_before_the_first_evaluation() -> None:
    run = Followed("a run")
    run.tell(Moment(1, 10, 0, 1, {"labels": 1.0}))
    text = "\n".join(drawn(LiveView("sgd", [run]), 80))
    assert "accuracy   at the end" in text
    assert not re.search("memory|open gates", text)
    run.tell(Moment(3_000, 100_000, 0, 1, reading=True))
    text = "\n".join(drawn(LiveView("sgd", [run]), 80))
    assert "reading the images, once" in text
    assert "3,000 of 100,000 images" in text


def test_colours_are_left_out_where_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    view = LiveView("sncl", [in_the_middle()])
    assert "\x1b[38;2;" in "".join(drawn(view, 80, color=True))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[(?!1m|0m|22m)[\d;]+m", "".join(drawn(view, 80, color=True)))


@pytest.mark.parametrize(
    ("width", "heading", "line"),
    [
        (80, "progress left task steps/s memory open accuracy", "▸ seed 1 42 % 0:03 3/5 210 80 % 68 % 92.0 %"),
        (
            120,
            "progress left task epoch steps/s rows/s loss memory open accuracy by task",
            "▸ seed 1 42 % 0:03 3/5 2/3 210 6,720 0.262 80 % 68 % 92.0 % █▇",
        ),
        (48, "progress left accuracy", "▸ seed 1 42 % 0:03 92.0 %"),
    ],
)
def test_a_table_of_many_runs(width: int, heading: str, line: str) -> None:
    finished = in_the_middle(title="seed 0")
    finished.tell(Moment(1000, 1000, 4, 5))
    finished.tell(None)
    failed = in_the_middle(title="seed 2")
    failed.tell(None)
    view = LiveView(
        "2 runs", [finished, in_the_middle(title="seed 1"), failed, Followed("seed 3")], iter([10, 40]).__next__
    )
    _, head, first, second, third, _, together, _ = drawn(view, width, color=False)
    words = [re.sub(r"[│━─╭╮╰╯]", " ", each).split() for each in (head, first, second, third)]
    assert words[0] == heading.split()
    assert words[1][:5] == ["✓", "seed", "0", "100", "%"]
    assert words[2] == line.split()
    assert "stopped" in words[3]
    if width > 48:
        # 2.42 of 4 took half a minute
        assert "2/4 · 0:30 · about 0:20 left · 1 stopped" in together


def test_what_was_there_does_not_count_in_the_time_left() -> None:
    stored, resumed = Followed("0"), Followed("1")
    stored.tell(None)
    resumed.tell(Moment(500, 1000, 0, 1))
    resumed.tell(Moment(750, 1000, 0, 1))
    view = LiveView("2 runs", [stored, resumed], iter([10, 40]).__next__)
    assert "1/2 · 0:30 · about 0:30 left" in drawn(view, 80)[-2]


@pytest.mark.parametrize(("number", "height", "shown"), [(12, 40, 12), (13, 40, 2), (12, 10, 4)])
def test_of_too_many_runs_those_that_run_are_shown(number: int, height: int, shown: int) -> None:
    runs = [in_the_middle(title=f"seed {each}") for each in range(number)]
    for run in runs[:-2]:
        run.tell(None)
    lines = drawn(LiveView(f"{number} runs", runs), 80, height)
    seeds = [each for line in lines for each in re.findall(r"[▸✗] (seed \d+)", line)]
    assert len(lines) <= height
    assert len(seeds) == shown
    assert {f"seed {number - 2}", f"seed {number - 1}"} <= set(seeds)
    assert any(f"and {number - shown} more" in line for line in lines) == (height == 10)


def test_a_study_counts_its_trials() -> None:
    view = LiveView("er, trials", [in_the_middle(title="trial 7, seed 1"), Followed("")], iter([0, 60]).__next__)
    view.overall = Overall(6, 30, 6 / 30, 3 / 30, "best so far 81.25 %")
    *_, run, _, together, _ = drawn(view, 100)
    assert run.split()[:6] == ["│", "▸", "trial", "7,", "seed", "1"]
    assert "6/30 · 1:00 · about 8:00 left · best so far 81.25 %" in together


def test_small_pictures() -> None:
    assert [column(part, 2) for part in (0, 0.01, 0.5, 0.75, 1)] == ["  ", " ▁", " █", "▄█", "██"]
    assert spark([0, 1, 4, 8], 10) == " ▁▄█"
    assert spark([2, 4, 1, 3, 8, 8], 3) == "▃▂█"
    assert (spark([], 5), spark([0.0], 5)) == ("", " ")
    assert course([1, 0.1, 0.01], 10) == "█▅▁"
    assert course([1.0, 0.95, 1.0], 10) == "███"  # hardly moves
    assert (course([], 5), course([2, 0], 5)) == ("", "█ ")
    assert [duration(seconds) for seconds in (None, 0, 61.4, 36_000)] == ["–:––", "0:00", "1:01", "10:00:00"]
    assert [shade(percent) for percent in (-5, 0, 50, 100, 120)] == [
        *("#de584c", "#de584c", "#e5b240", "#48b670", "#48b670")
    ]


# --- real runs -------------------------------------------------------------------------------------------------------


def test_jobs_are_named_by_what_they_differ_in() -> None:
    def named(*what: tuple[str, str, int, int]) -> tuple[str, list[str]]:
        return live_jobs.run_titles([plan(s, m, memory=size, seed=seed, device="cpu") for s, m, size, seed in what])

    assert named(("seq-digits", "er", 50, 3)) == ("er on seq-digits, memory 50, seed 3", [""])
    assert named(("seq-digits", "er", 50, 0), ("seq-digits", "er", 50, 1)) == (
        *("er on seq-digits, memory 50", ["seed 0", "seed 1"]),
    )
    assert named(("seq-digits", "sgd", 50, 0), ("rot-digits", "er", 50, 0)) == (
        *("memory 50, seed 0", ["sgd on seq-digits", "er on rot-digits"]),
    )
    assert named(("seq-digits", "er", 20, 0), ("seq-digits", "er", 50, 0)) == (
        *("er on seq-digits, seed 0", ["memory 20", "memory 50"]),
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_runs_are_shown_on_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    monkeypatch.setattr(live_jobs, "run_all", one_by_one)
    monkeypatch.delenv("TERM", raising=False)
    jobs = [
        Job(plan("seq-digits", "er", memory=20, tasks=2, epochs=1, seed=seed, device="cpu"), tmp_path / f"{seed}")
        for seed in range(2)
    ]
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, soft_wrap=True, stderr=True)
    results = cli_jobs.run_jobs(jobs, console)
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", console.file.getvalue())
    if not terminal:
        assert text == ""
        return
    last = text[text.rindex("╭") :]
    assert "2 runs: er on seq-digits, memory 20" in last
    for seed, result in enumerate(results):
        (line,) = [line for line in last.splitlines() if f"✓ seed {seed} " in line]
        assert f"{result.accuracy['class_il']:.1f} %" in line
    assert "2/2" in last


def test_a_study_shows_its_trials_and_never_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    views: list[LiveView] = []
    seen: list[tuple[str, Overall | None]] = []

    class Noted(LiveView):
        def tell(self, number: int, moment: Moment | None) -> None:
            super().tell(number, moment)
            views.append(self)
            seen.append((self.runs[number].title, self.overall))

    monkeypatch.setattr(trials, "LiveView", Noted)
    where = {"lr": "0.01..0.5:log"}
    search = plan_search("seq-digits", "er", memory=20, tasks=1, epochs=1, seeds=2, device="cpu", searched=where)
    trials.tune(search, 2, tmp_path / "a.journal", tmp_path / "a.toml", Console(file=io.StringIO()), workers=1)
    titles = [f"trial {trial}, seed {seed}" for trial in range(2) for seed in range(2)]
    assert list(dict.fromkeys(title for title, _ in seen)) == titles
    assert [overall.ended for _, overall in seen if overall] == sorted(
        0 if "trial 0" in title else 1 for title, _ in seen
    )
    (view,) = set(views)
    assert "2/2 · 0:0" in drawn(view, 80)[-2]
    assert re.search(r"best so far \d+\.\d\d %", drawn(view, 80)[-2])
    assert len(drawn(view, 80)) == 3  # no trial runs any more


def test_a_result_that_was_there_leaves_the_terminal_alone(tmp_path: Path) -> None:
    job = Job(plan("seq-digits", "sgd", tasks=1, epochs=1, device="cpu"), tmp_path)
    quiet = Console(file=io.StringIO())
    cli_jobs.run_jobs([job], quiet)
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    cli_jobs.run_jobs([job], console)
    assert isinstance(console.file, io.StringIO)
    assert re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", console.file.getvalue()).strip() == ""


def test_a_terminal_that_cannot_move_its_cursor_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with live(LiveView("", [in_the_middle()]), console):
        pass
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == ""


def on_a_terminal(command: list[str], folder: Path, columns: int) -> str:
    """What a program writes to the terminal it runs in, without the control sequences."""
    master, slave = pty.openpty()
    words: list[bytes] = []

    def read() -> None:
        while True:
            try:
                words.append(os.read(master, 65536))
            except OSError:  # nobody writes any more
                return

    reader = threading.Thread(target=read)
    reader.start()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
    try:
        process = subprocess.Popen(command, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        assert process.wait(120) == 0
        reader.join(10)
    finally:
        os.close(master)
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]|\r", "", b"".join(words).decode())


def test_a_run_in_a_real_terminal(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sncl.cli",
        "train",
        "--stream",
        "seq-digits",
        "--method",
        "sncl",
        "--memory",
        "30",
    ]
    text = on_a_terminal([*command, "--tasks", "2", "--epochs", "1", "--out", "run"], tmp_path, 80)
    result = read_json(tmp_path / "run" / "result.json")
    frames = text.split("╭")[1:]
    assert all("─ sncl on seq-digits, memory 30, seed 0 ─" in frame for frame in frames)
    last = frames[-1]
    accuracy, steps = result["accuracy"], result["steps"]
    assert "100 %  done" in last
    assert f"task 2/2 · epoch 1/1 · step {steps}/{steps} · " in last
    assert f"Class-IL {accuracy['class_il']:.1f} %   Task-IL {accuracy['task_il']:.1f} %   mean of 2 tasks" in last
    assert [f"{value:.0f}" for value in result["accuracy_matrix"][-1]] in [
        line.strip("│ ").split() for line in last.splitlines()
    ]
    assert re.search(r"past features +\d", last)
    assert "30/30 rows" in last
    assert f"{100 * result['active_fraction']:.0f} % · layer1.1" in last
    assert text.rstrip().endswith("run folder: run")  # the table follows as ever


def test_a_run_in_a_pipe_shows_nothing_of_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sncl.cli", "train", "--stream", "seq-digits", "--method", "sgd", "--tasks", "1"]
    command += ["--epochs", "1", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "run folder: run\n")
    assert len(done.stdout.splitlines()) == 2
