"""An experiment and its files, in this process; what it computes, against independent arithmetic."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from run_folders import differences
from short_runs import short
from sklearn.datasets import load_digits
from torch import Tensor

from sncl.errors import SnclError
from sncl.networks.gating.gate import log_ratio
from sncl.runs.build import make_learner, make_stream
from sncl.runs.experiment import Experiment
from sncl.runs.loading import load_run
from sncl.runs.perform import perform, stored_result
from sncl.runs.plan import plan
from sncl.runs.result import Result
from sncl.streams.stream import Stream
from sncl.tensors.fields import Fields, within
from sncl.training.checkpoint import read_checkpoint, read_json, sealed, unsealed, write_json
from sncl.training.events import Moment
from sncl.training.log import LOG
from sncl.training.run import CHECKPOINT, run

DIGITS = ("seq-digits", "perm-digits", "rot-digits", "digits-360")


def weights(folder: Path) -> Fields:
    return within("network", read_checkpoint(folder / CHECKPOINT)[0])


def equal(one: Fields, other: Fields) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# --- what a run computes -----------------------------------------------------------------------------------------


def digits_tests() -> list[tuple[Tensor, Tensor]]:
    """The test sets of seq-digits by another road: class by class, every fifth image of the sorted list."""
    found = load_digits()
    order = sorted(range(len(found.target)), key=lambda row: (found.target[row], row))[::5]
    x = torch.tensor(found.images[order]).mul(255 / 16).round() / 255
    y = torch.tensor(found.target[order])
    return [(x[y // 2 == task].float(), y[y // 2 == task]) for task in range(5)]


def percent(net: Fields, x: Tensor, y: Tensor, allowed: list[int]) -> float:
    h = (x.flatten(1) @ net["layer1.0.weight"].T + net["layer1.0.bias"]).relu()
    h = (h @ net["layer2.0.weight"].T + net["layer2.0.bias"]).relu()
    logits = h @ net["head.weight"].T + net["head.bias"]
    answer = torch.tensor(allowed)[logits[:, allowed].argmax(1)]
    return 100 * float((answer == y).double().mean())


def test_the_last_row_is_the_stored_network_on_the_test_sets(tmp_path: Path) -> None:
    result = perform(short(tasks=3, epochs=2), tmp_path)
    net, tests = weights(tmp_path), digits_tests()[:3]
    class_il = [percent(net, x, y, list(range(10))) for x, y in tests]
    task_il = [percent(net, x, y, [2 * task, 2 * task + 1]) for task, (x, y) in enumerate(tests)]
    assert result.measures["class_il"].accuracy_matrix[-1] == pytest.approx(class_il, abs=1e-9)
    assert result.measures["task_il"].accuracy_matrix[-1] == pytest.approx(task_il, abs=1e-9)
    assert result.accuracy == pytest.approx({"class_il": sum(class_il) / 3, "task_il": sum(task_il) / 3})
    assert class_il != task_il


def test_untrained_accuracies_are_those_of_the_first_weights(tmp_path: Path) -> None:
    experiment = short(tasks=3)
    result = perform(experiment, tmp_path)
    net = dict(make_learner(experiment, make_stream(experiment, None)).body.state_dict())
    expected = [percent(net, x, y, list(range(10))) for x, y in digits_tests()[:3]]
    assert result.measures["class_il"].untrained == pytest.approx(expected, abs=1e-9)


def test_measures_follow_from_the_matrix(tmp_path: Path) -> None:
    result = perform(short(method="sgd", tasks=3), tmp_path)
    for measure in result.measures.values():
        a, u = measure.accuracy_matrix, measure.untrained
        assert [[value is None for value in row] for row in a] == [
            [False, False, True],  # tested on what it has seen and on what comes next
            [False, False, False],
            [False, False, False],
        ]
        falls = [max(a[0][0], a[1][0], a[2][0]) - a[2][0], max(a[1][1], a[2][1]) - a[2][1]]
        assert measure.forgetting == pytest.approx(sum(falls) / 2)
        assert measure.bwt == pytest.approx((a[2][0] - a[0][0] + a[2][1] - a[1][1]) / 2)
        assert measure.fwt == pytest.approx((a[0][1] - u[1] + a[1][2] - u[2]) / 2)
    main = result.measures["class_il"]
    assert (result.forgetting, result.bwt, result.fwt) == (main.forgetting, main.bwt, main.fwt)


@pytest.mark.parametrize(
    ("stream", "method"),
    [("seq-digits", "joint"), ("rot-digits", "joint"), ("digits-360", "er"), ("digits-360", "joint")],
)
def test_without_boundaries_there_is_one_row_and_nothing_to_forget(tmp_path: Path, stream: str, method: str) -> None:
    result = perform(short(stream, method), tmp_path)
    assert len(result.accuracy_matrix) == 1
    assert None not in result.accuracy_matrix[0]
    assert result.forgetting is result.bwt is result.fwt is None


def test_what_a_remembered_sample_costs(tmp_path: Path) -> None:
    image, label, logits, loss, features = 64, 8, 4 * 10, 4, 2 * (100 + 100)
    costs = {
        method: perform(short(method=method, tasks=1), tmp_path / method).memory_bytes_per_sample
        for method in ("sgd", "er", "der", "derpp", "sncl")
    }
    assert costs == {
        "sgd": 0,
        "er": image + label,
        "der": image + label + logits,
        "derpp": image + label + logits,
        "sncl": image + label + logits + loss + features,
    }


def test_a_fraction_of_the_neurons_stays_closed_by_default(tmp_path: Path) -> None:
    """The network starts with fewer open ones still, and the result says how many there are."""
    result = perform(short(method="sncl", tasks=5, settings={"fill": "0.3"}), tmp_path)
    assert result.active_fraction is not None and result.open_by_task is not None and result.open_by_layer is not None
    assert 0.35 < result.open_by_task[0] < result.active_fraction == result.open_by_task[-1] == 0.7
    assert result.open_by_task == sorted(result.open_by_task)
    assert sum(result.open_by_layer.values()) / 2 == pytest.approx(0.7)
    stored = read_json(tmp_path / "result.json")
    assert stored["active_fraction"] == 0.7 and stored["manifest"]["settings"]["sparsity"] == 0.3
    opened = [value for name, value in weights(tmp_path).items() if name.endswith(".opened")]
    assert int(torch.cat(opened).sum()) == 140


def test_with_no_neuron_in_reserve_a_run_begins_as_without_gates(tmp_path: Path) -> None:
    """Gates begin with means of 1, which are learned; nothing else is another, and every neuron is open."""
    nothing = {"sparsity": "0", "start": "1", "neurons": "0"}
    ours = perform(short(method="sncl", settings=nothing), tmp_path / "ours")
    theirs = perform(short(method="sncl", settings={"gates": "off"}), tmp_path / "theirs")
    assert {name: each.untrained for name, each in ours.measures.items()} == {
        name: each.untrained for name, each in theirs.measures.items()
    }
    assert (ours.active_fraction, theirs.active_fraction) == (1.0, None)
    one, other = (read_checkpoint(tmp_path / name / CHECKPOINT)[0] for name in ("ours", "theirs"))
    assert all(name.endswith((".opened", ".mu", "/gating.seen")) for name in one.keys() - other.keys())
    assert all(torch.equal(one[name], other[name]) for name in other if name.startswith("random/"))


class Killed(BaseException):
    """The end of the process as far as the run can tell."""


def test_a_run_that_is_killed_while_neurons_open_has_the_same_ones_open(tmp_path: Path) -> None:
    """Also those that were open at the end of each task: growth goes on where it was."""
    experiment = short(method="sncl", tasks=3, settings={"fill": "2"})
    alone = perform(experiment, tmp_path / "alone")

    def kill(moment: Moment) -> None:
        if moment.steps == 27:
            raise Killed

    with pytest.raises(Killed):
        perform(experiment, tmp_path / "killed", watch=kill, checkpoint_seconds=0)
    stored = read_checkpoint(tmp_path / "killed" / CHECKPOINT)[0]
    middle = int(sum(value.sum() for name, value in stored.items() if name.endswith(".opened")))
    again = perform(experiment, tmp_path / "killed")
    assert alone.open_by_task is not None and 70 <= middle < 200 * alone.open_by_task[-1] < 140
    assert again.open_by_task == alone.open_by_task and again.open_by_layer == alone.open_by_layer
    assert differences(tmp_path / "alone", tmp_path / "killed") == []


def test_open_neurons_are_those_of_the_network_that_predicts(tmp_path: Path) -> None:
    """With an average of the weights the paper's gates are others than in the network that trains."""
    closing = {"gates": "kl", "eta": "0.3", "ema": "0.95"}
    result = perform(short(method="sncl", epochs=3, settings=closing), tmp_path)
    stored, _ = read_checkpoint(tmp_path / CHECKPOINT)

    def fraction(part: str) -> float:
        means = {name: value for name, value in stored.items() if name.startswith(part) and name.endswith(".mu")}
        spreads = {name: stored[name.removesuffix("mu") + "log_variance"] for name in means}
        layers = [log_ratio(means[name], spreads[name]) < 0 for name in means]
        assert len(layers) == 2
        return float(torch.cat(layers).double().mean())

    assert result.active_fraction == pytest.approx(fraction("ema/"), abs=1e-6) != fraction("network/")
    assert 0 < result.active_fraction < 1
    assert len(result.open_by_task) == 2 and result.open_by_task[-1] == result.active_fraction
    last = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()][-1]
    is_open, neurons = (sum(each) for each in zip(*last["open_neurons"].values(), strict=True))
    assert is_open / neurons == pytest.approx(result.active_fraction) == last["active_fraction"]


def test_a_validation_split_leaves_the_test_set_alone(tmp_path: Path) -> None:
    validated = perform(short(validation=0.25), tmp_path / "validation")
    usual = perform(short(), tmp_path / "test")
    assert (validated.scored_on, usual.scored_on) == ("validation", "test")
    assert validated.manifest.validation == 0.25
    rows = {part: make_stream(short(validation=part), None) for part in (0.0, 0.25)}
    held, tested = (torch.cat([stream.test(task)[0] for task in range(2)]) for stream in (rows[0.25], rows[0.0]))
    assert not {bytes(each.numpy()) for each in held} & {bytes(each.numpy()) for each in tested}
    assert validated.steps < usual.steps


@pytest.mark.parametrize("stream", DIGITS)
def test_a_seed_decides_everything(tmp_path: Path, stream: str) -> None:
    first, again, other = (
        perform(short(stream, "sncl", seed=seed), tmp_path / name) for seed, name in ((0, "a"), (0, "b"), (1, "c"))
    )
    assert equal(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert first.accuracy_matrix == again.accuracy_matrix
    assert not equal(weights(tmp_path / "a"), weights(tmp_path / "c"))
    assert other.seed == 1


def test_the_first_weights_follow_from_the_seed_and_nothing_else() -> None:
    def first(seed: int, state: int) -> Fields:
        torch.manual_seed(state)
        experiment = short(seed=seed)
        return dict(make_learner(experiment, make_stream(experiment, None)).body.state_dict())

    assert equal(first(0, 1), first(0, 2))
    assert not equal(first(0, 1), first(1, 1))
    torch.manual_seed(3)
    expected = torch.rand(4)
    first(0, 3)
    assert torch.equal(torch.rand(4), expected)  # and the caller's own random numbers are left alone


@pytest.mark.parametrize("stream", ["seq-digits", "rot-digits", "digits-360"])
@pytest.mark.parametrize(
    ("alpha", "plain", "settings"),
    [("0.7", "derpp", {"logits": "0.3", "labels": "0.7"}), ("0", "der", {"logits": "0.3"})],
)
def test_sncl_with_everything_off_is_dark_experience_replay_bit_for_bit(
    tmp_path: Path, stream: str, alpha: str, plain: str, settings: dict[str, str]
) -> None:
    off = {"alpha": alpha, "beta": "0.3", "gamma": "0", "gates": "off", "admission": "reservoir"}
    common = {"lr": "0.1", "replay": "16", "ema": "0"}
    ours = perform(short(stream, "sncl", seed=3, settings=off | common), tmp_path / "sncl")
    theirs = perform(short(stream, plain, seed=3, settings=settings | common), tmp_path / plain)
    assert equal(weights(tmp_path / "sncl"), weights(tmp_path / plain))
    assert ours.measures == theirs.measures


@pytest.mark.parametrize(
    "part",
    [
        {"gamma": "0.1"},
        {"gates": "grow", "sparsity": "0.01"},
        {"gates": "kl", "eta": "1e-9"},
        {"admission": "loss-aware"},
        {"alpha": "0.701"},
    ],
)
def test_each_part_of_sncl_changes_the_weights(tmp_path: Path, part: dict[str, str]) -> None:
    off = {"alpha": "0.7", "beta": "0.3", "gamma": "0", "gates": "off", "admission": "reservoir"}
    perform(short(method="sncl", settings=off), tmp_path / "off")
    perform(short(method="sncl", settings=off | part), tmp_path / "on")
    plain = weights(tmp_path / "off")
    assert not equal(plain, {name: weights(tmp_path / "on")[name] for name in plain})


@pytest.mark.parametrize("method", ["gem", "agem"])
def test_a_split_says_how_many_tasks_share_the_memory(tmp_path: Path, method: str) -> None:
    experiment = plan("seq-digits", method, memory=30, epochs=1, device="cpu", settings={"split": "10x1"})
    assert (experiment.tasks, experiment.settings["parts"]) == (10, 10)
    assert len(perform(experiment, tmp_path).accuracy_matrix) == 10
    by_hand = plan("seq-digits", "gem", device="cpu", settings={"split": "10x1", "parts": "12"})
    assert by_hand.settings["parts"] == 12


def test_a_run_computes_on_its_threads_and_leaves_them_as_they_were(tmp_path: Path) -> None:
    seen = []
    before = torch.get_num_threads()
    experiment = plan("seq-digits", "er", tasks=1, epochs=1, device="cpu", threads=2)
    result = perform(experiment, tmp_path / "run", watch=lambda moment: seen.append(torch.get_num_threads()))
    assert set(seen) == {2} and torch.get_num_threads() == before and result.manifest.threads == 2


# --- the run folder ----------------------------------------------------------------------------------------------


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    moments: list[Moment] = []
    first = perform(short(), tmp_path, watch=moments.append)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(moments) > 0
    moments.clear()
    assert perform(short(), tmp_path, watch=moments.append) == first
    assert moments == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_who_watches_is_told_of_every_step_and_score(tmp_path: Path) -> None:
    moments: list[Moment] = []
    result = perform(short(), tmp_path, watch=moments.append)
    steps = [moment.steps for moment in moments if not moment.accuracy]
    assert steps == list(range(1, result.steps + 1))
    assert {(moment.total, moment.tasks) for moment in moments} == {(result.steps, 2)}
    (_, last) = [moment.accuracy for moment in moments if moment.accuracy]
    assert last == result.accuracy


def test_the_log_tells_of_the_losses_and_scores(tmp_path: Path) -> None:
    result = perform(short(method="derpp"), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [line for line in lines if line["event"] == "losses"]
    assert [line["step"] for line in losses] == list(range(1, result.steps + 1))
    assert set(losses[0]["losses"]) == {"labels"}  # nothing is remembered yet
    assert set(losses[-1]["losses"]) == {"labels", "past_logits", "past_labels"}
    scores = [line for line in lines if line["event"] == "evaluation"]
    rows = [[round(value, 2) for value in row if value is not None] for row in result.accuracy_matrix]
    assert [line["accuracy"]["class_il"] for line in scores] == rows
    assert [line["memory"] for line in scores] == [30, 30]
    assert [sum(line["memory_by_class"]) for line in scores] == [30, 30]
    assert [sum(count > 0 for count in line["memory_by_task"]) for line in scores] == [1, 2]
    assert "neuron_use" not in scores[-1]  # no gates


def test_the_log_tells_which_neurons_are_open_and_which_task_uses_them(tmp_path: Path) -> None:
    result = perform(plan("rot-digits", "sncl", memory=30, tasks=3, epochs=1, device="cpu"), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    *_, last = scores = [line for line in lines if line["event"] == "evaluation"]
    assert all("memory_by_task" not in line for line in scores)  # all classes in every task: nobody knows
    assert set(last["open_neurons"]) == {"layer1.1", "layer2.1"}
    is_open, neurons = (sum(each) for each in zip(*last["open_neurons"].values(), strict=True))
    assert is_open / neurons == pytest.approx(result.active_fraction)
    rows = [[len(row) for row in line["neuron_use"]["overlap"]] for line in scores]
    assert rows == [[1], [2], [1, 2, 3]]  # the new task beside those before it; all of them in the end
    for line in scores:
        use = line["neuron_use"]
        for layer, (is_open, neurons) in line["open_neurons"].items():
            assert len(use["used"][layer]) == len(use["overlap"])
            assert max(use["used"][layer]) <= use["any"][layer] <= is_open / neurons + 1e-4
        assert all(row[-1] == 1 and all(0 <= value <= 1 for value in row) for row in use["overlap"])


def test_what_a_killed_process_left_half_written_is_swept_away(tmp_path: Path) -> None:
    ours = (".checkpoint.safetensors.123.part", ".result.json.9-9-abcdef01.part", ".task-02.safetensors.9.part")
    others = ("notes.part", ".notes.part", ".film.mkv.part", ".result.json.part", ".my-result.json.9.part")
    for name in (*ours, *others):
        (tmp_path / name).write_bytes(b"half of i")
    perform(short(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {
        *("experiment.json", "preprocessing.json", CHECKPOINT, "log.jsonl", "result.json", *others)
    }


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"stream": "seq-digits", "method": "der", "seed": 0}'])
def test_a_result_that_is_not_of_this_run_is_refused(tmp_path: Path, content: str) -> None:
    perform(short(), tmp_path)
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(SnclError, match=r"result\.json is damaged"):
        perform(short(), tmp_path)
    assert (tmp_path / "result.json").read_text() == content


def test_a_lost_result_is_written_again_from_the_checkpoint(tmp_path: Path) -> None:
    first = perform(short(), tmp_path)
    (tmp_path / "result.json").unlink()
    moments: list[Moment] = []
    assert perform(short(), tmp_path, watch=moments.append) == first
    assert moments == []


def test_a_run_without_its_description_is_not_taken_over(tmp_path: Path) -> None:
    perform(short(), tmp_path)
    (tmp_path / "experiment.json").unlink()
    for name in (CHECKPOINT, "result.json"):
        with pytest.raises(SnclError, match=rf"holds a {name} but no experiment\.json"):
            stored_result(short(method="der"), tmp_path)
        (tmp_path / name).unlink()
    assert stored_result(short(method="der"), tmp_path) is None


def test_a_folder_that_another_run_took_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was empty when it was first looked at; the other process is done when the lock is taken."""

    def meanwhile(experiment: Experiment, *rest: Any) -> Stream:
        if experiment.seed == 1 and not (tmp_path / "experiment.json").exists():
            perform(short(), tmp_path)
        return make_stream(experiment, *rest)

    monkeypatch.setattr("sncl.runs.perform.make_stream", meanwhile)
    with pytest.raises(SnclError, match="holds another experiment; choose another `out`"):
        perform(short(seed=1), tmp_path)
    assert read_json(tmp_path / "experiment.json")["seed"] == 0
    assert load_run(tmp_path, device="cpu").result == stored_result(short(), tmp_path)


def test_a_run_that_another_process_finished_meanwhile_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[Result] = []

    def meanwhile(experiment: Experiment, *rest: Any) -> Stream:
        monkeypatch.setattr("sncl.runs.perform.make_stream", make_stream)
        others.append(perform(experiment, tmp_path))
        return make_stream(experiment, *rest)

    monkeypatch.setattr("sncl.runs.perform.make_stream", meanwhile)
    assert [perform(short(), tmp_path)] == others


def test_a_checkpoint_of_another_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for seed in (0, 1):
        perform(short(seed=seed), tmp_path / str(seed))
    shutil.copy(tmp_path / "1" / CHECKPOINT, tmp_path / "0" / CHECKPOINT)
    (tmp_path / "0" / "result.json").unlink()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "0").iterdir() if path.name != ".lock"}
    with pytest.raises(SnclError, match="holds a checkpoint of another experiment; choose another `out`"):
        perform(short(), tmp_path / "0")
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "0").iterdir() if path.name != ".lock"}
    assert after == before


def test_a_result_with_other_settings_is_refused(tmp_path: Path) -> None:
    perform(short(), tmp_path)
    result = unsealed(read_json(tmp_path / "result.json"))
    result["manifest"]["settings"]["lr"] = 0.5
    write_json(tmp_path / "result.json", sealed(result))
    with pytest.raises(SnclError, match=r"result\.json is damaged: it is about another run"):
        perform(short(), tmp_path)


# --- a network that breaks ---------------------------------------------------------------------------------------


def test_a_network_broken_by_the_very_last_update_is_neither_stored_nor_scored(tmp_path: Path) -> None:
    """Its losses were all finite, so nothing but its weights can tell."""
    experiment = short(method="sgd")
    stream = make_stream(experiment, None)
    learner = make_learner(experiment, stream)
    steps = sum(len(stream.positions(task, 0)) for task in range(stream.tasks))

    def break_it(moment: Moment) -> None:
        if moment.steps == steps:
            with torch.no_grad():
                learner.body.get_parameter("head.bias")[0] = torch.nan

    with pytest.raises(SnclError, match=rf"weights 'head\.bias' became .* by step {steps}"):
        run(learner, stream, 1, tmp_path, {"name": "broken"}, watch=break_it)
    kept, description = read_checkpoint(tmp_path / CHECKPOINT)
    assert description["place"] == [1, 0, 0]  # the end of the first task
    assert all(bool(torch.isfinite(value).all()) for value in within("network", kept).values())


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_what_there_was(tmp_path: Path) -> None:
    experiment = short(method="sgd", tasks=2)
    stream = make_stream(experiment, None)
    learner = make_learner(experiment, stream)
    second = len(stream.positions(0, 0)) + 3

    def break_it(moment: Moment) -> None:
        if moment.steps == second:
            with torch.no_grad():
                learner.body.get_parameter("head.weight").fill_(torch.inf)

    with pytest.raises(SnclError, match=rf"loss 'labels' became nan by step {second + 1}"):
        run(learner, stream, 1, tmp_path, {"name": "broken"}, watch=break_it)
    assert read_checkpoint(tmp_path / CHECKPOINT)[1]["place"] == [1, 0, 0]
