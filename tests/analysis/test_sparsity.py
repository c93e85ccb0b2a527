"""One trained network with more and more neurons closed: as it is, it is the run's result, and nothing of it stays."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from command_line import Sncl
from torch import Tensor

from sncl.analysis.groups import analysed
from sncl.analysis.relevance import relevance
from sncl.analysis.samples import samples_of_tests
from sncl.analysis.sparsity import least_relevant, remembered, sparsity, sweep
from sncl.errors import SnclError
from sncl.networks.gating.attach import open_neurons
from sncl.networks.pruning import prune
from sncl.runs.experiment import read_described
from sncl.runs.loading import Trained, load_run
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.sweep import OWN, SWEEP, keep_sweep, read_sweep

DENSE = 65 * 100 + 101 * 100 + 101 * 10  # parameters of the MLP 64-100-100-10


@pytest.fixture(scope="module")
def variational_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "kl"
    settings = {"gates": "kl", "eta": "0.03"}
    perform(plan("seq-digits", "sncl", memory=30, tasks=3, epochs=1, device="cpu", settings=settings), folder)
    return folder


@pytest.fixture(params=["grow", "kl"])
def either(request: pytest.FixtureRequest, runs: Path, variational_folder: Path) -> Trained:
    """A run with neurons in reserve, and one with the paper's gates."""
    return load_run(runs / "sncl-0" if request.param == "grow" else variational_folder, device="cpu")


def all_tests(run: Trained, rows: int = 0) -> list[tuple[Tensor, Tensor]]:
    return samples_of_tests(run.stream, rows, seed=0)


def test_as_it_is_it_gives_the_runs_result(either: Trained) -> None:
    (key,), (point,) = zip(*sweep(either, all_tests(either), ()).items(), strict=True)
    assert key == OWN and point.accuracy == either.result.accuracy
    assert point.open_fraction == pytest.approx(either.result.active_fraction)


def test_only_what_is_more_than_the_runs_own_is_closed(either: Trained) -> None:
    own = either.result.active_fraction
    assert own is not None
    points = sweep(either, all_tests(either, 30))
    assert list(points) == [OWN, *(f"{percent}" for percent in range(10, 100, 10) if percent > 100 * (1 - own) + 1e-6)]
    for key, point in points.items():
        assert point.open_fraction == pytest.approx(own if key == OWN else 1 - int(key) / 100)
    assert points["90"].accuracy != points[OWN].accuracy


def test_the_least_relevant_neurons_close(either: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the parameters left are those of the smaller MLP."""
    seen: list[dict[str, Tensor]] = []
    usual = prune._attempt

    def spy(*given: object) -> object:
        with either.learner.predicting():
            seen.append(open_neurons(either.learner.net.body))
        return usual(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(prune, "_attempt", spy)
    points = sweep(either, all_tests(either, 30), (60.0, 85.0))
    known = torch.cat(list(relevance(either.learner, remembered(either)).values()))
    own, *others = (torch.cat(list(layers.values())) for layers in seen)
    for is_open in others:
        closed = own & ~is_open
        assert (is_open <= own).all() and closed.any()
        assert known[closed].max() <= known[is_open].min()
    for point, layers in zip(points.values(), seen, strict=True):
        first, second = (int(layer.sum()) for layer in layers.values())
        assert point.parameters == 65 * first + (first + 1) * second + (second + 1) * 10


def test_every_layer_keeps_its_most_relevant_neuron() -> None:
    opened = {
        "one": torch.tensor([True, True, False]),
        "two": torch.tensor([True, True, True]),
        "shut": torch.tensor([False, False]),
    }
    known = {
        "one": torch.tensor([0.1, 0.2, 0.0]),
        "two": torch.tensor([5.0, 7.0, 6.0]),
        "shut": torch.tensor([9.0, 9.0]),
    }
    closed = {
        0: [0, 0, 0, 0, 0, 0],
        1: [1, 0, 0, 0, 0, 0],
        2: [1, 0, 0, 1, 0, 0],
        3: [1, 0, 0, 1, 0, 1],
        9: [1, 0, 0, 1, 0, 1],
    }
    for count, expected in closed.items():
        found = least_relevant(opened, known, count)
        assert torch.cat([found["one"], found["two"]]).int().tolist() == expected
        assert found["shut"].tolist() == [False, False]


def test_the_learner_stays_as_it_was_after_an_error_too(either: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, (x, _) = either.learner, all_tests(either, 30)[0]
    before, logits = learner.state(), learner.logits(x)

    def unchanged() -> bool:
        after = learner.state()
        same = all(torch.equal(value, after[name]) for name, value in before.items())
        return same and before.keys() == after.keys() and torch.equal(learner.logits(x), logits)

    sweep(either, all_tests(either, 30), (90.0,))
    assert unchanged()
    monkeypatch.setattr(prune, "_attempt", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sweep(either, all_tests(either, 30), (90.0,))
    assert unchanged()


def test_of_a_run(either: Trained, plain: Trained) -> None:
    told: list[tuple[int, int]] = []
    found = sparsity(either, closed=(50.0, 90.0), rows=30, progress=lambda *numbers: told.append(numbers))
    assert found == sparsity(either, closed=(50.0, 90.0), rows=30)
    assert told == [(1, 3), (2, 3), (3, 3)]
    own, half, most = found["measures"].values()
    assert own.keys() == {"open", "parameters_left", "accuracy/class_il", "accuracy/task_il"}
    assert (half["open"], most["open"]) == pytest.approx((50, 10))
    assert most["parameters_left"] < half["parameters_left"] < own["parameters_left"] <= 100
    assert (found["parameters"], found["test_rows"], found["memory_rows"]) == (DENSE, 30, 30)
    with pytest.raises(SnclError, match="er-0 has no gates"):
        sparsity(plain)
    for percent in (0.0, 100.0, -10.0):
        with pytest.raises(SnclError, match="`closed` takes percent of all neurons, above 0 and below 100"):
            sparsity(either, closed=(percent,), rows=30)


def test_the_command(sncl: Sncl, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "sncl-0", tmp_path / "run")
    command = ["analyze", "sparsity", "run", "--rows", "60", "--closed", "50,75", "--device", "cpu"]
    done = sncl(*command, "--picture", "found.png", "--out", "found.json")
    assert (done.code, done.err) == (0, "picture: found.png\n")
    header, *lines = done.out.splitlines()
    assert header.split("  ")[0] == "method" and "open neurons, %" in header and "Class-IL, %" in header
    assert "parameters left, %" in header
    assert [line.split()[:3] for line in lines] == [["SNCL", "1", closed] for closed in (OWN, "50", "75")]
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    found = sncl(*command, "--json").json()
    assert found == json.loads((tmp_path / "found.json").read_text())
    assert found["groups"][0]["summary"]["75"]["open"]["mean"] == pytest.approx(25)
    stored = read_sweep(tmp_path / "run", read_described(tmp_path / "run"))
    assert stored is not None and stored.test_rows == 60
    measures = found["runs"][0]["measures"]
    assert list(stored.points) == list(measures) == [OWN, "50", "75"]
    for key, point in stored.points.items():
        assert (point.open, point.parameters_left) == (measures[key]["open"], measures[key]["parameters_left"])
        assert point.accuracy["task_il"] == measures[key]["accuracy/task_il"]
    for value, words in {"a": "numbers with commas", "50,20": "that grow", "100": "--closed takes percent"}.items():
        failed = sncl("analyze", "sparsity", runs / "sncl-0", "--closed", value)
        assert failed.code == 2 and words in failed.err and failed.err.count("\n") == 1


def test_a_folder_that_takes_no_file_is_noted(sncl: Sncl, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "sncl-0", tmp_path / "run")
    (tmp_path / "run" / SWEEP).mkdir()
    done = sncl("analyze", "sparsity", "run", "--rows", "30", "--closed", "50")
    assert done.code == 0 and "SNCL" in done.out
    assert done.err.startswith("note: cannot write run/sparsity.json") and "report will not show it" in done.err


def test_what_is_kept_is_read_again_or_refused(gated: Trained, tmp_path: Path) -> None:
    found = analysed(gated, sparsity(gated, closed=(50.0, 75.0), rows=30))
    ours = gated.experiment.identity()
    assert read_sweep(tmp_path, ours) is None
    keep_sweep(tmp_path, found)
    stored = read_sweep(tmp_path, ours)
    assert stored is not None and list(stored.points) == [OWN, "50", "75"]
    with pytest.raises(SnclError, match=r"sparsity\.json is about another run; analyse the run again"):
        read_sweep(tmp_path, ours | {"seed": 7})
    for spoiled in ({"measures": {}}, {"test_rows": "many"}, {"measures": found["measures"] | {"50": 3}}):
        keep_sweep(tmp_path, found | spoiled)
        with pytest.raises(SnclError, match=r"sparsity\.json is damaged: .*; analyse the run again"):
            read_sweep(tmp_path, ours)
    keep_sweep(tmp_path, found)
    text = (tmp_path / SWEEP).read_text()
    (tmp_path / SWEEP).write_text(text.replace('"test_rows": 30', '"test_rows": 31'))
    with pytest.raises(SnclError, match="checksum does not fit"):
        read_sweep(tmp_path, ours)
