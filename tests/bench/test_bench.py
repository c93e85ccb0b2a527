"""``sncl bench`` says what it promises; how fast this machine is, no test asks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from background_tests import slow_tests
from command_line import Sncl

from sncl.bench import first_step, rows, single, start, subjects, suite
from sncl.bench.first_step import FirstStep
from sncl.bench.rows import RowTime
from sncl.bench.start import StartTime
from sncl.cli import timings
from sncl.errors import SnclError
from sncl.memory.admission import Reservoir
from sncl.memory.memory import Memory
from sncl.runs.plan import plan
from sncl.training.learner import Learner
from sncl.training.parallel import sharing_cores

ALL = ["rows", "outside", "single_rows", "start", "first_steps"]
KEYS = ["device", "stream", "method", "memory", "runs", "ms_per_step", "bound_ms", "ratio", "images_per_s", "peak_mb"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One method, few images and one round. A worker of several runs is a process of its own and has them all."""
    shapes = {"perm-mnist": ((1, 28, 28), 600, 100, 10)}
    monkeypatch.setattr(suite, "MEASURED_METHODS", ("derpp",))
    monkeypatch.setattr(suite, "MEMORIES", (20, 150))
    monkeypatch.setattr(suite, "RUNS", (1, 2))
    monkeypatch.setattr(suite, "SHAPES", shapes)
    monkeypatch.setattr(suite, "USUAL_STREAMS", tuple(shapes))
    monkeypatch.setattr(subjects, "SHAPES", shapes)
    monkeypatch.setattr(single, "TIMINGS", 1)
    monkeypatch.setattr(rows, "TIMINGS", 1)
    monkeypatch.setattr(rows, "ROWS_BEFORE", 3)
    monkeypatch.setattr(rows, "steps_within", lambda step, device: 2)


def test_the_json_has_a_row_for_every_memory_and_number_of_runs(small: None, sncl: Sncl) -> None:
    result = sncl("bench", "--device", "cpu", "--stream", "perm-mnist", "--json").json()
    assert [list(row) for row in result["rows"]] == [KEYS] * 3
    assert [(row["memory"], row["runs"]) for row in result["rows"]] == [(20, 1), (150, 1), (20, 2)]
    for row in result["rows"]:
        assert (row["device"], row["stream"], row["method"]) == ("cpu", "perm-mnist", "derpp")
        assert row["ratio"] == pytest.approx(row["ms_per_step"] / row["bound_ms"])
        assert row["peak_mb"] > 0
    for row, images in zip(result["rows"], (128 + 20 + 20, 128 + 128 + 128, 128 + 20 + 20), strict=True):
        assert row["images_per_s"] == pytest.approx(1000 * images / row["ms_per_step"])
    (outside,) = result["outside"]
    parts = sum(outside[name] for name in ("evaluation_s", "checkpoints_s", "logging_s"))
    assert outside["percent"] == pytest.approx(100 * parts / (parts + outside["steps_s"]))
    assert outside["tests_percent"] == pytest.approx(100 * outside["evaluation_s"] / (parts + outside["steps_s"]))
    assert list(result) == ALL
    assert [result[name] for name in ALL[2:]] == [[], [], []]  # a stream that is named is what is measured


def test_the_table_is_for_people(small: None, monkeypatch: pytest.MonkeyPatch, sncl: Sncl) -> None:
    monkeypatch.setattr(suite, "RUNS", (1,))
    monkeypatch.setattr(suite, "measure_start", lambda: [StartTime("import torch", 2.0, 1.0)])
    printed = sncl("bench", "--device", "cpu").out
    assert all(heading in printed for heading in ("ms a step", "bound, ms", "images/s", "peak MB", "outside steps"))
    assert all(heading in printed for heading in ("tests, s", "rows/s", "ms a row", "import torch  2.00  1.00"))


def test_tests_alone_are_measured_without_the_tables_of_steps(small: None, sncl: Sncl) -> None:
    result = sncl("bench", "--device", "cpu", "--what", "tests", "--stream", "perm-mnist", "--json").json()
    assert [(each["stream"], each["method"]) for each in result["outside"]] == [("perm-mnist", "derpp")]
    assert [result[name] for name in ALL if name != "outside"] == [[], [], [], []]


def test_what_a_run_loses_to_tests() -> None:
    test = single.TimeOfTest(alone=2.0, lost=0.5, steps=10)
    assert test.waited(3, steps=100) == 3 * 0.5
    assert test.waited(3, steps=20) == 2 * 0.5 + 2.0  # the third is waited for
    assert single.TimeOfTest(alone=2.0, lost=2.0, steps=0).waited(3, steps=20) == 3 * 2.0  # one core


def test_tests_are_timed_beside_steps_where_a_core_lies_idle(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, stream, batches = subjects.subject(plan("perm-mnist", "er", memory=20, tasks=2, device="cpu"))
    with slow_tests(monkeypatch) as slow:
        lost, steps = single.beside_steps(learner, stream, batches, range(2))
        assert slow.begun == 0 and steps == 0 and lost > 0
        with sharing_cores():
            lost, steps = single.beside_steps(learner, stream, batches, range(2))
    assert slow.begun == 1 and steps > slow.steps / 2 and lost >= 0


# --- single rows ---------------------------------------------------------------------------------------------------


def test_single_rows_go_through_a_learner_and_an_estimator(small: None, sncl: Sncl) -> None:
    found = sncl("bench", "--device", "cpu", "--what", "rows", "--json").json()["single_rows"]
    assert [(row["method"], row["through"]) for row in found] == [
        (method, through) for method in ("er", "sncl") for through in ("learner", "estimator")
    ]
    for row in found:
        assert list(row) == list(RowTime.__dataclass_fields__)
        assert (row["device"], row["features"]) == ("cpu", 30)
        assert row["rows_per_s"] == pytest.approx(1000 / row["ms_per_row"])
        assert row["ratio"] == pytest.approx(row["ms_per_row"] / row["bound_ms"])


@pytest.mark.parametrize("through", rows.THROUGH)
@pytest.mark.parametrize(("method", "draws"), [("er", 1), ("derpp", 2), ("sncl", 2)])
def test_a_row_is_learned_and_predicted_once(
    through: str, method: str, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []
    learn, logits = Learner.learn, Learner.logits
    monkeypatch.setattr(
        Learner, "learn", lambda self, x, *more: (calls.append(("learn", len(x))), learn(self, x, *more))[1]
    )
    monkeypatch.setattr(
        Learner, "logits", lambda self, x, *more: (calls.append(("predict", len(x))), logits(self, x, *more))[1]
    )
    step, replayed = rows.one_row(method, through, "cpu")
    calls.clear()
    step()
    step()
    assert calls == [("learn", 1), ("predict", 1)] * 2
    assert replayed == draws


# --- first seconds -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_first_seconds_are_those_of_whole_processes(monkeypatch: pytest.MonkeyPatch, sncl: Sncl) -> None:
    monkeypatch.setattr(start, "TURNS", 1)
    found = sncl("bench", "--device", "cpu", "--what", "start", "--json").json()["start"]
    assert [each["what"] for each in found] == [
        "import torch",
        "import sncl; sncl.Learner",
        "sncl train, finished",
        "sncl train, 3 seeds, finished",
    ]
    for each in found:
        assert each["ratio"] == pytest.approx(each["seconds"] / found[0]["seconds"])


def test_what_is_measured_is_the_median_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs that are shown later come first and do not count."""
    taken, commands = iter([100.0, 2, 3, 1, 1, 4, 4, 8, 1, 3, 9, 2, 1]), []
    monkeypatch.setattr(start, "seconds", lambda command: (commands.append(command), next(taken))[1])
    found = start.measure_start()
    assert [(each.seconds, each.ratio) for each in found] == [(3, 1), (4, 4 / 3), (2, 2 / 3), (1, 1 / 3)]
    made, *_, one, some = commands
    assert made == some and "--seeds=3" in made and "--seed=0" in one
    folder = made[-1].removeprefix("--out=")
    assert one[-1] == f"--out={folder}/seed-0"


def test_a_process_that_fails_is_an_error_with_its_last_line() -> None:
    with pytest.raises(SnclError, match="failed here: no such luck"):
        start.seconds(start.python("raise SystemExit('no such luck')"))


# --- the first step ------------------------------------------------------------------------------------------------


def test_the_first_step_is_cold_then_warm_then_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def process(chosen: dict, folder: str) -> tuple[float, float]:
        asked.append((chosen["engine"], folder))
        return [(40.0, 0.002), (10.0, 0.002), (1.0, 0.005)][len(asked) - 1]

    monkeypatch.setattr(first_step, "in_a_process", process)
    found = first_step.measure_first_step("perm-mnist", "er", "cuda")
    assert [engine for engine, _ in asked] == ["graph", "graph", "eager"]
    assert len({folder for _, folder in asked}) == 1  # what the first one leaves
    assert (found.cold_s, found.warm_s, found.eager_s, found.ratio) == (40.0, 10.0, 1.0, 0.25)
    assert found.pays_after == 3000  # 9 s later, and 3 ms faster each


def test_a_process_says_how_long_its_first_steps_took(tmp_path: Path) -> None:
    """As written on the CPU: what is compiled needs a GPU."""
    chosen = {"stream": "perm-mnist", "method": "er", "device": "cpu", "engine": "eager"}
    first, following = first_step.in_a_process(chosen, str(tmp_path))
    assert first >= 0 and following > 0


def test_the_table_of_first_steps_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    step = FirstStep("cuda", "perm-mnist", "er", 40.0, 10.0, 1.0, 0.25, 2.0, 5.0, None)
    timings.show(suite.Measured(first_steps=[step]), "cuda")
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("cold, s", "warm, s", "pays after", "40.0", "never"))


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--what", "speed"], "bench measures steps, tests, rows, start, first-step, not 'speed'"),
        (["--what", "rows,speed"], "not 'speed'"),
        (
            ["--what", "rows", "--what", "start", "--stream", "perm-mnist"],
            "--stream is of steps, tests, first-step alone",
        ),
        (["--what", "first-step"], "first-step is measured on a GPU"),
        (["--what", "rows", "--method", "gem"], "bench measures er, derpp, sncl, not 'gem'"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: list[str], words: str, sncl: Sncl) -> None:
    done = sncl("bench", "--device", "cpu", *options)
    assert (done.code, done.out) == (2, "")
    assert words in done.err and len(done.err.strip().splitlines()) == 1


def test_a_stream_of_unknown_shape_is_refused() -> None:
    with pytest.raises(
        SnclError, match="bench knows the shapes of perm-mnist, seq-cifar10, seq-tinyimagenet, not of 'rot-mnist'"
    ):
        suite.bench("cpu", ("rot-mnist",))


def test_a_method_that_is_not_measured_is_refused() -> None:
    with pytest.raises(SnclError, match="bench measures er, derpp, sncl, not 'gem'"):
        suite.bench("cpu", methods=("gem",))


def test_a_filled_memory_is_full_and_in_mid_stream() -> None:
    memory = Memory(7, Reservoir())
    memory.admit({"x": torch.tensor([1, 2, 3])}, torch.rand(3, 3, dtype=torch.float64))
    subjects.fill(memory, seen=1000)
    assert memory.content()["x"].tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert memory.count.seen == 1000
