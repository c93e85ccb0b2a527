"""The command line as a person and a script meet it: what it prints, what it leaves behind, how it fails.

Most commands run in this process through the same ``main`` that the program calls, which takes milliseconds instead of
the seconds that loading torch takes; an exception that would be a traceback fails the test. Some run as a program.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from command_line import Done, Sncl

from sncl.cli import demo
from sncl.runs.build import make_stream
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import Result, read_result
from sncl.runs.summary import results_table
from sncl.tensors.fields import Fields
from sncl.training.checkpoint import read_checkpoint
from sncl.training.events import Moment

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["train", "--stream", "seq-digits", "--method", "er", "--tasks", "2", "--epochs", "1", "--device", "cpu"]
STREAMS = [
    *("seq-cifar10", "seq-tinyimagenet", "perm-mnist", "rot-mnist", "mnist-360"),
    *("seq-mnist", "seq-digits", "perm-digits", "rot-digits", "digits-360"),
]


def program(*arguments: str | Path, folder: Path | None = None) -> Done:
    """Run a command as a program of its own."""
    command = [sys.executable, "-m", "sncl.cli", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def is_one_line_of_error(done: Done, *words: str) -> bool:
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1 and done.err.endswith("\n")
    assert len(done.err.split()) > 3
    for word in words:
        assert word in done.err
    return True


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tensors(folder: Path) -> Fields:
    return read_checkpoint(folder / "checkpoint.safetensors")[0]


def equal(one: Fields, other: Fields) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# --- what there is -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_list_as_a_program() -> None:
    done = program("list", "--json")
    assert done.err == ""  # no warnings either
    found = done.json()
    assert set(found) == {"methods", "streams", "user_data"}
    assert {"sgd", "joint", "er", "der", "derpp", "sncl"} <= set(found["methods"])
    assert found["streams"] == STREAMS


def test_list_as_a_table(sncl: Sncl) -> None:
    done = sncl("list")
    assert done.code == 0
    for word in (
        "DER++",
        "Buzzega et al., NeurIPS 2020",
        "CIFAR-10, 5 tasks of 2 classes (class- and task-IL)",
        *STREAMS,
    ):
        assert word in done.out


def test_version_as_a_program() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        written = tomllib.load(file)["project"]["version"]
    assert program("--version") == (0, f"sncl {written}\n", "")
    assert version("sncl") == written


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", ["list", "train", "tune", "analyze", "demo", "data"]),
        ("list", ["--json"]),
        (
            "train",
            [
                *("--stream", "--method", "--memory", "--seed", "--seeds", "--epochs", "--tasks", "--set", "--data"),
                *(
                    "--out",
                    "--device",
                    "--precision",
                    "--engine",
                    "--threads",
                    "--validation",
                    "--checkpoint",
                    "--keep-tasks",
                    "--tensorboard",
                    "--settings",
                    "--json",
                ),
            ],
        ),
        (
            "tune",
            [
                *("--stream", "--method", "--memory", "--trials", "--seeds", "--validation", "--epochs", "--tasks"),
                *("--set", "--search", "--storage", "--data", "--device", "--workers", "--out", "--json"),
            ],
        ),
        ("demo", ["--seeds", "--out", "--picture", "--json"]),
        ("data", ["fetch", "--data", "--json"]),
        ("data fetch", ["name", "--data", "--mirror"]),
    ],
)
def test_help_of_every_command(sncl: Sncl, command: str, words: list[str]) -> None:
    done = sncl(*command.split(), "--help")
    assert (done.code, done.err) == (0, "")
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.out)
    assert "Usage:" in text
    for word in words:
        assert re.search(rf"(?<![\w-]){word}(?![\w-])", text), word


def test_no_command_shows_the_help(sncl: Sncl) -> None:
    done = sncl()
    assert done.code == 2
    assert "Usage:" in done.out + done.err
    assert "error" not in done.err


def test_data(sncl: Sncl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sncl("data", "--data", tmp_path, "--json").json()
    assert found["root"] == str(tmp_path)
    there = {each["name"]: each["present"] for each in found["data"]}
    assert there == {"mnist": False, "cifar10": False, "tiny-imagenet": False, "digits": True}
    for name in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (tmp_path / name).touch()
    monkeypatch.setenv("SNCL_DATA", str(tmp_path))
    (mnist, *_) = sncl("data", "--json").json()["data"]
    assert (mnist["name"], mnist["present"], mnist["path"]) == ("mnist", True, str(tmp_path))
    assert f"data folder: {tmp_path}\n" in sncl("data").out


# --- training ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_train_as_a_program(tmp_path: Path, sncl: Sncl) -> None:
    run = tmp_path / "run"
    command = ["train", "--stream", "seq-digits", "--method", "sncl", "--memory", "50", "--seed", "4", "--tasks", "3"]
    command += ["--epochs", "2", "--set", "lr=0.05", "--set", "gamma=0.25", "--out", str(run), "--json"]
    done = program(*command, folder=tmp_path)
    assert done.err == ""
    result = done.json()
    assert set(result) >= {
        *("stream", "method", "memory", "seed", "accuracy", "accuracy_matrix", "forgetting", "bwt", "fwt", "steps"),
        *("seconds", "memory_bytes_per_sample", "active_fraction", "manifest"),
    }
    assert [result[key] for key in ("stream", "method", "memory", "seed")] == ["seq-digits", "sncl", 50, 4]
    assert set(result["accuracy"]) == {"class_il", "task_il"}
    assert result["accuracy"]["class_il"] == pytest.approx(sum(result["accuracy_matrix"][-1]) / 3)
    assert [len(row) for row in result["accuracy_matrix"]] == [3, 3, 3]
    assert 0 < result["active_fraction"] <= 1
    assert 0 < result["seconds"] < 60
    manifest = result["manifest"]
    assert set(manifest) >= {"protocol", "data", "versions", "settings"}
    assert re.fullmatch("[0-9a-f]{64}", manifest["data"])
    assert manifest["versions"]["torch"] == torch.__version__
    assert (manifest["settings"]["lr"], manifest["settings"]["gamma"]) == (0.05, 0.25)
    assert (manifest["epochs"], manifest["tasks"], manifest["validation"]) == (2, 3, 0.0)
    assert {path.name for path in run.iterdir()} - {".lock"} == {
        *("experiment.json", "preprocessing.json", "log.jsonl", "result.json", "checkpoint.safetensors")
    }
    assert read_result(run / "result.json").to_json() == result
    written = json.loads((run / "experiment.json").read_text())
    assert (written["stream"], written["seed"], written["settings"]["gamma"]) == ("seq-digits", 4, 0.25)
    assert len((run / "log.jsonl").read_text().splitlines()) == result["steps"] + 3
    before = contents(run)
    again = sncl(*command)
    assert again.json() == result
    assert again.err == f"already finished: {run} (the stored result is shown)\n"
    assert contents(run) == before


def test_networks_after_each_task_are_kept_on_demand(sncl: Sncl, tmp_path: Path) -> None:
    assert sncl(*SHORT, "--out", "kept", "--keep-tasks").code == 0
    assert sncl(*SHORT, "--out", "plain").code == 0
    kept, plain = ({path.name for path in (tmp_path / name).iterdir()} for name in ("kept", "plain"))
    assert kept - plain == {"task-01.safetensors", "task-02.safetensors"}
    assert equal(tensors(tmp_path / "kept"), tensors(tmp_path / "plain"))
    assert "note: it was made without --keep-tasks" in sncl(*SHORT, "--out", "plain", "--keep-tasks").err
    assert "note:" not in sncl(*SHORT, "--out", "kept", "--keep-tasks").err


@pytest.mark.parametrize(
    ("stream", "readouts", "rows"),
    [
        ("seq-digits", ["class_il", "task_il"], 2),
        ("perm-digits", ["domain_il"], 2),
        ("rot-digits", ["domain_il"], 2),
        ("digits-360", ["gcl"], 1),
    ],
)
def test_each_kind_of_stream_has_its_accuracies(sncl: Sncl, stream: str, readouts: list[str], rows: int) -> None:
    few = ["--set", "batch_size=64"] if rows == 1 else ["--tasks", "2", "--epochs", "1", "--set", "batch_size=64"]
    result = sncl("train", "--stream", stream, "--method", "derpp", "--out", "run", "--json", *few).json()
    assert list(result["accuracy"]) == readouts
    last = result["accuracy_matrix"][-1]
    assert len(result["accuracy_matrix"]) == len(last) == rows
    assert result["accuracy"][readouts[0]] == pytest.approx(sum(last) / rows)
    for readout in readouts:
        row = result["measures"][readout]["accuracy_matrix"][-1]
        assert result["accuracy"][readout] == pytest.approx(sum(row) / rows)
    assert (result["forgetting"] is None) == (rows == 1)


def test_options_reach_the_run(sncl: Sncl) -> None:
    options = ["--epochs", "1", "--set", "batch_size=32", "--validation", "0.25", "--memory", "17", "--json"]
    train = ["train", "--stream", "seq-digits", "--method", "er"]
    result = sncl(*train, "--tasks", "3", *options, "--out", "run").json()
    assert result["scored_on"] == "validation"
    assert result["manifest"]["settings"]["batch_size"] == 32
    assert (result["memory"], result["manifest"]["tasks"], result["manifest"]["validation"]) == (17, 3, 0.25)
    experiment = plan("seq-digits", "er", tasks=3, validation=0.25, device="cpu")
    assert result["steps"] == sum(-(-len(phase.rows) // 32) for phase in make_stream(experiment, None).phases)
    split = sncl(*train, *options, "--set", "split=3x3", "--out", "split").json()
    assert [len(row) for row in split["accuracy_matrix"]] == [3, 3, 3]


def test_the_table_shows_every_word_even_in_a_pipe(sncl: Sncl, tmp_path: Path) -> None:
    done = sncl(*SHORT, "--out", "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    headings, row = done.out.splitlines()
    assert re.split(r"\s{2,}", headings.strip()) == results_table([Result.from_json(result)])[0]
    accuracies = [f"{result['accuracy'][readout]:.2f}" for readout in ("class_il", "task_il")]
    assert row.split()[:6] == ["seq-digits", "ER", "200", "1", *accuracies]
    assert done.err == "run folder: run\n"


def test_without_out_each_experiment_has_its_own_folder(sncl: Sncl, tmp_path: Path) -> None:
    for more in ([], ["--set", "lr=0.05"], ["--seed", "1"]):
        assert sncl(*SHORT, *more).code == 0
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(folders) == 3
    assert all(re.fullmatch(r"seq-digits-er-200-seed[01]-[0-9a-f]{8}", name) for name in folders)
    assert "already finished" in sncl(*SHORT).err


@pytest.mark.parametrize("name", ["run [bold]", "[/b]", "x" * 150, "µ ± 1"])
def test_odd_names_are_shown_as_they_are(sncl: Sncl, name: str) -> None:
    assert sncl(*SHORT, "--tasks", "1", "--out", name).err == f"run folder: {name}\n"
    assert f"already finished: {name} (" in sncl(*SHORT, "--tasks", "1", "--out", name).err


def test_a_memory_that_changes_nothing_is_mentioned(sncl: Sncl) -> None:
    done = sncl("train", "--stream", "seq-digits", "--method", "sgd", "--tasks", "1", "--epochs", "1", "--memory", "9")
    assert done.code == 0
    assert done.err.startswith("note: sgd keeps no memory, so --memory 9 changes nothing\n")


@pytest.mark.slow
def test_several_seeds_are_the_single_runs_bit_for_bit(sncl: Sncl, tmp_path: Path) -> None:
    """Seed 0 fails at first, which does not keep seed 1 from finishing; the same command then completes both."""
    train = ["train", "--stream", "seq-digits", "--method", "sncl", "--memory", "30", "--tasks", "2", "--epochs", "2"]
    several, both = [*train, "--seeds", "2", "--out", "both", "--json"], tmp_path / "both"
    both.mkdir()
    (both / "seed-0").write_text("in the way")
    assert is_one_line_of_error(sncl(*several), "seed-0", "1 of 2 runs failed; the others are stored")
    second = contents(both / "seed-1")
    assert "result.json" in second
    (both / "seed-0").unlink()
    done = sncl(*several)
    assert done.err == "already finished: both/seed-1 (the stored result is shown)\n"
    assert contents(both / "seed-1") == second
    results = done.json()["runs"]
    assert [result["seed"] for result in results] == [0, 1]
    assert results[0]["measures"] != results[1]["measures"]
    for seed, result in enumerate(results):
        single = sncl(*train, "--seed", str(seed), "--out", f"single-{seed}", "--json").json()
        assert result["measures"] == single["measures"]
        assert result["accuracy_matrix"] == single["accuracy_matrix"]
        one, other = both / f"seed-{seed}", tmp_path / f"single-{seed}"
        assert equal(tensors(one), tensors(other))
        assert (one / "log.jsonl").read_bytes() == (other / "log.jsonl").read_bytes()


@pytest.mark.slow
def test_demo(sncl: Sncl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "DEMO_STREAMS", ("seq-digits",))
    monkeypatch.setattr(demo, "DEMO_METHODS", ("sgd", "sncl"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = sncl("demo", "--seeds", "1", "--picture", "demo.png")
    assert done.code == 0
    assert done.err == "picture: demo.png\n"
    assert [path.name for path in tmp_path.iterdir()] == ["demo.png"]  # and no trace of the runs
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    sgd, ours = (line.split() for line in done.out.splitlines() if line.startswith("seq-digits"))
    assert (sgd[1], ours[1]) == ("SGD", "SNCL")
    assert float(ours[4]) > float(sgd[4]) + 20  # Class-IL: it forgets far less


def test_the_demo_is_the_same_seeds_for_every_method(tmp_path: Path) -> None:
    jobs = demo.demo_jobs(2, tmp_path)
    plans = {(job.experiment.stream, job.experiment.method, job.experiment.seed) for job in jobs}
    streams, methods = ("seq-digits", "perm-digits", "rot-digits", "digits-360"), ("sgd", "er", "derpp", "sncl")
    assert plans == {(stream, method, seed) for stream in streams for method in methods for seed in (0, 1)}
    assert len({job.folder for job in jobs}) == len(jobs) == 32


def test_ctrl_c_says_how_to_go_on(sncl: Sncl, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sncl.cli.jobs.run_jobs", interrupted)
    assert sncl(*SHORT) == (130, "", "stopped; the same command goes on from the last checkpoint\n")


# --- errors a person can put right -------------------------------------------------------------------------------

TRAIN = ["train", "--stream", "seq-digits", "--method", "derpp"]
SNCL = ["train", "--stream", "seq-digits", "--method", "sncl"]
ERRORS: dict[str, tuple[list[str], list[str]]] = {
    "unknown command": (["trian"], ["trian"]),
    "unknown option": ([*TRAIN, "--epoch", "3"], ["--epoch"]),
    "missing stream": (["train", "--method", "er"], ["--stream"]),
    "missing method": (["train", "--stream", "seq-digits"], ["--method"]),
    "missing value": ([*TRAIN, "--memory"], ["--memory"]),
    "stray argument": ([*TRAIN, "again"], ["again"]),
    "unknown stream": (["train", "--stream", "seq-svhn", "--method", "er"], ["'seq-svhn'", *STREAMS]),
    "unknown method": (["train", "--stream", "seq-digits", "--method", "nosuch"], ["'nosuch'", "derpp", "sncl"]),
    "unknown setting": ([*TRAIN, "--set", "alpha=1"], ["'alpha'", "batch_size", "labels", "logits", "lr", "replay"]),
    "setting of the wrong type": ([*TRAIN, "--set", "lr=fast"], ["lr", "'fast'"]),
    "setting that is no whole number": ([*TRAIN, "--set", "replay=1.5"], ["replay", "'1.5'"]),
    "setting that is not finite": ([*TRAIN, "--set", "logits=nan"], ["logits", "'nan'"]),
    "setting without a value": ([*TRAIN, "--set", "lr"], ["KEY=VALUE", "'lr'"]),
    "setting that is not positive": ([*TRAIN, "--set", "lr=0"], ["lr", "positive"]),
    "setting out of its choices": (
        ["train", "--stream", "seq-digits", "--method", "sncl", "--set", "admission=first"],
        ["--set admission", "loss-aware, reservoir", "'first'"],
    ),
    "gates that are none": ([*SNCL, "--set", "gates=ajar"], ["--set gates", "off, grow, kl", "'ajar'"]),
    "gates that are gone": (
        [*SNCL, "--set", "gates=natural", "--set", "eta=0.01"],
        ["--set gates=natural is gone; --set gates=grow is there instead, with --set sparsity=..., the fraction"],
    ),
    "more gates that are gone": ([*SNCL, "--set", "gates=target"], ["--set gates=target is gone; --set gates=grow is"]),
    "setting of other gates": (
        [*SNCL, "--set", "eta=0.1"],
        ["eta belongs to gates=kl, and here it is gates=grow", "--set gates"],
    ),
    "setting of gates that are off": (
        [*SNCL, "--set", "gates=off", "--set", "sparsity=0.1"],
        ["sparsity belongs to gates=grow, and here it is gates=off", "--set gates"],
    ),
    "setting that is gone": ([*SNCL, "--set", "threshold=-1"], ["threshold is gone; sncl analyze sparsity RUN"]),
    "sparsity out of range": ([*SNCL, "--set", "sparsity=1"], ["--set sparsity", "0 or more, below 1, not 1.0"]),
    "nothing open at first": ([*SNCL, "--set", "start=0"], ["--set start", "above 0 and at most 1, not 0.0"]),
    "a start of earlier versions": ([*SNCL, "--set", "start=closed"], ["start=", "like 0.5, not 'closed'"]),
    "full after no samples": ([*SNCL, "--set", "fill=0"], ["--set fill", "above 0, not 0.0"]),
    "less than no neurons": ([*SNCL, "--set", "neurons=-1"], ["--set neurons", "0 or more, not -1"]),
    "setting under its old name": ([*SNCL, "--set", "average=0.9"], ["average is called ema since sncl 0.2"]),
    "layer that is not there": (
        ["train", "--stream", "seq-digits", "--method", "sncl", "--set", "features=layer9"],
        ["'layer9'", "layer1"],
    ),
    "split that is none": ([*TRAIN, "--set", "split=many"], ["--split 'many'", "5x2"]),
    "split with too many classes": ([*TRAIN, "--set", "split=6x2"], ["12 classes", "10"]),
    "memory of the wrong type": ([*TRAIN, "--memory", "lots"], ["--memory", "integer"]),
    "memory 0": ([*TRAIN, "--memory", "0"], ["--memory", "at least 1"]),
    "memory negative": ([*TRAIN, "--memory", "-5"], ["--memory", "-5"]),
    "memory larger than the stream": ([*TRAIN, "--memory", "2000"], ["2000", "1437"]),
    "memory larger than the first task": ([*TRAIN, "--tasks", "1", "--memory", "300"], ["300", "288"]),
    "tasks 0": ([*TRAIN, "--tasks", "0"], ["0 tasks", "1 to 5"]),
    "too many tasks": ([*TRAIN, "--tasks", "6"], ["6 tasks", "1 to 5"]),
    "epochs 0": ([*TRAIN, "--epochs", "0"], ["--epochs", "at least 1"]),
    "epochs of the wrong type": ([*TRAIN, "--epochs", "1.5"], ["--epochs"]),
    "a second look at a stream that has none": (
        ["train", "--stream", "digits-360", "--method", "er", "--epochs", "2"],
        ["digits-360", "--epochs"],
    ),
    "a method that must be told more than the stream says": (
        ["train", "--stream", "digits-360", "--method", "gem"],
        ["gem", "digits-360", "boundaries"],
    ),
    "a method that must be told the task": (["train", "--stream", "rot-digits", "--method", "pnn"], ["pnn", "Task-IL"]),
    "validation too large": ([*TRAIN, "--validation", "1.5"], ["validation", "1.5"]),
    "validation negative": ([*TRAIN, "--validation", "-0.1"], ["validation", "-0.1"]),
    "validation that leaves nothing": ([*TRAIN, "--validation", "0.999"], ["validation", "0.999"]),
    "seed and seeds": ([*TRAIN, "--seed", "1", "--seeds", "2"], ["--seed", "--seeds"]),
    "seeds 0": ([*TRAIN, "--seeds", "0"], ["--seeds"]),
    "checkpoint negative": ([*TRAIN, "--checkpoint", "-1"], ["--checkpoint"]),
    "unknown device": ([*TRAIN, "--device", "tpu9"], ["'tpu9'", "cpu"]),
    "graph without a GPU": ([*TRAIN, "--device", "cpu", "--engine", "graph"], ["CUDA", "auto or eager"]),
    "unknown engine": ([*TRAIN, "--device", "cpu", "--engine", "jit"], ["'jit'", "auto, eager or graph"]),
    "half without a GPU": ([*TRAIN, "--device", "cpu", "--precision", "bfloat16"], ["CUDA", "auto or float32"]),
    "unknown precision": ([*TRAIN, "--device", "cpu", "--precision", "half"], ["'half'", "auto, float32 or bfloat16"]),
    "no threads": ([*TRAIN, "--device", "cpu", "--threads", "0"], ["--threads", "at least 1"]),
    "device without a run": ([*TRAIN, "--device", "meta"], ["'meta'", "cpu"]),
    "no such data": (
        ["train", "--stream", "perm-mnist", "--method", "er", "--data", "empty"],
        ["mnist", "empty", "sncl data fetch mnist", "--data", "SNCL_DATA"],
    ),
    "fetch of nothing known": (["data", "fetch", "svhn"], ["svhn", "mnist, cifar10, tiny-imagenet"]),
    "picture of no kind": (["demo", "--picture", "demo.xyz"], [".png", "demo.xyz"]),
    "picture nowhere": (["demo", "--picture", "nowhere/demo.png"], ["nowhere"]),
    "demo without seeds": (["demo", "--seeds", "0"], ["--seeds"]),
}


def test_no_gates_may_be_spelled_as_before_for_a_while(sncl: Sncl, tmp_path: Path) -> None:
    short = [*SNCL, "--memory", "30", "--tasks", "1", "--epochs", "1", "--device", "cpu", "--json", "--set"]
    before, now = sncl(*short, "eta=0", "--out", "before"), sncl(*short, "gates=off", "--out", "now")
    assert before.err.splitlines()[0].startswith("note: --set eta=0 is --set gates=off since sncl 0.2")
    assert (tmp_path / "before/experiment.json").read_bytes() == (tmp_path / "now/experiment.json").read_bytes()
    assert "eta" not in before.json()["manifest"]["settings"] and now.err.count("note") == 0


def test_a_run_of_version_01_is_refused_in_one_line(sncl: Sncl, tmp_path: Path) -> None:
    assert sncl(*SHORT, "--out", "run").code == 0
    path = tmp_path / "run/experiment.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "format"}))
    for arguments in (
        [*SHORT, "--out", "run"],
        ["analyze", "calibration", "run"],
        ["report", "run", "-o", "page.html"],
    ):
        assert is_one_line_of_error(sncl(*arguments), "run was made by sncl 0.1, whose runs cannot be read here")


@pytest.mark.parametrize("what", ERRORS)
def test_errors_are_one_line(sncl: Sncl, tmp_path: Path, what: str) -> None:
    arguments, words = ERRORS[what]
    assert is_one_line_of_error(sncl(*arguments), *words)
    assert list(tmp_path.iterdir()) == []  # so that the corrected command finds nothing in its way


@pytest.mark.parametrize("what", ["unknown option", "missing stream", "unknown stream"])
def test_errors_of_the_program_are_one_line(tmp_path: Path, what: str) -> None:
    arguments, words = ERRORS[what]
    assert is_one_line_of_error(program(*arguments, folder=tmp_path), *words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_missing_gpu_is_an_error(sncl: Sncl) -> None:
    assert is_one_line_of_error(sncl(*TRAIN, "--device", "cuda"), "no CUDA device", "--device cpu")


def test_a_damaged_data_file_is_named(sncl: Sncl, tmp_path: Path) -> None:
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for name in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (folder / name).write_bytes(b"\x00\x00\x08\x03garbage")
    done = sncl("train", "--stream", "perm-mnist", "--method", "er", "--data", tmp_path)
    assert is_one_line_of_error(done, str(folder / "train-images-idx3-ubyte"))


@pytest.mark.parametrize("out", ["file", "file/below", "file/two\nlines", "x" * 300])
def test_a_folder_that_cannot_be_made_is_named(sncl: Sncl, tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("precious")
    assert is_one_line_of_error(sncl(*SHORT, "--out", out), out.replace("\n", " "))
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("name", ["experiment.json", "result.json", "checkpoint.safetensors"])
@pytest.mark.parametrize("damage", ["cut off", "garbage", "empty"])
def test_a_damaged_file_of_a_run_is_named_and_left_alone(sncl: Sncl, tmp_path: Path, name: str, damage: str) -> None:
    run = tmp_path / "run"
    assert sncl(*SHORT, "--tasks", "1", "--out", run).code == 0
    if name == "checkpoint.safetensors":
        (run / "result.json").unlink()
    whole = (run / name).read_bytes()
    (run / name).write_bytes({"cut off": whole[: len(whole) // 2], "garbage": b"\x80\x04garbage", "empty": b""}[damage])
    before = contents(run)
    assert is_one_line_of_error(sncl(*SHORT, "--tasks", "1", "--out", run), str(run / name), "damaged")
    assert contents(run) == before
    (run / name).write_bytes(whole)
    assert sncl(*SHORT, "--tasks", "1", "--out", run).code == 0


@pytest.mark.parametrize(
    "other", [["--method", "der"], ["--seed", "1"], ["--memory", "20"], ["--set", "lr=0.01"], ["--epochs", "2"]]
)
@pytest.mark.parametrize("finished", [True, False])
def test_the_folder_of_another_experiment_is_refused(
    sncl: Sncl, tmp_path: Path, other: list[str], finished: bool
) -> None:
    run = tmp_path / "run"
    assert sncl(*SHORT, "--tasks", "1", "--out", run).code == 0
    if not finished:
        (run / "result.json").unlink()
    before = contents(run)
    assert is_one_line_of_error(sncl(*SHORT, "--tasks", "1", *other, "--out", run), str(run), "another experiment")
    assert contents(run) == before


def test_the_checkpoint_of_another_experiment_is_refused(sncl: Sncl, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    assert sncl(*SHORT, "--out", run).code == 0
    assert sncl(*SHORT, "--seed", "1", "--out", other).code == 0
    (run / "result.json").unlink()
    (run / "checkpoint.safetensors").write_bytes((other / "checkpoint.safetensors").read_bytes())
    before = contents(run)
    assert is_one_line_of_error(sncl(*SHORT, "--out", run), str(run), "checkpoint of another experiment")
    assert contents(run) == before


@pytest.mark.parametrize("method", ["sgd", "er", "der", "derpp", "sncl"])
def test_a_loss_that_is_no_number_keeps_what_was_stored(sncl: Sncl, tmp_path: Path, method: str) -> None:
    train = ["train", "--stream", "seq-digits", "--method", method, "--set", "lr=1e9", "--checkpoint", "0"]
    done = sncl(*train, "--out", "run")
    assert is_one_line_of_error(done, "became", "use a smaller", "untouched")
    step = re.search(r"by step (\d+)", done.err)
    assert step is not None
    files = contents(tmp_path / "run")
    assert set(files) - {".lock"} >= {"experiment.json", "log.jsonl"}
    stored = 0
    if int(step[1]) > 1:
        stored = read_checkpoint(tmp_path / "run" / "checkpoint.safetensors")[1]["learner"]["steps"]
        assert all(
            bool(torch.isfinite(value).all()) for name, value in tensors(tmp_path / "run").items() if "network/" in name
        )
    assert stored == int(step[1]) - 1
    assert sncl(*train, "--out", "run").err == done.err
    assert contents(tmp_path / "run").get("checkpoint.safetensors") == files.get("checkpoint.safetensors")


LOCK = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1], timeout=0):
    print("mine", flush=True)
    input()
"""


def test_a_folder_that_another_process_uses_is_refused(sncl: Sncl, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", LOCK, str(tmp_path / "run" / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "mine\n"
        assert is_one_line_of_error(sncl(*SHORT, "--out", "run"), "run", "another process")
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
        other.stdin.write("\n")
    assert sncl(*SHORT, "--out", "run").code == 0


@pytest.mark.slow
def test_two_programs_do_not_share_a_folder(tmp_path: Path) -> None:
    """A second one is started while the first is in the middle of its run; the first does not notice."""
    experiment = plan("seq-digits", "er", tasks=2, epochs=1, device="cpu")
    answers: list[Done] = []

    def second(moment: Moment) -> None:
        if moment.steps == 5:
            answers.append(program(*SHORT, "--out", tmp_path / "shared"))

    watched = perform(experiment, tmp_path / "shared", watch=second)
    (answer,) = answers
    assert is_one_line_of_error(answer, str(tmp_path / "shared"), "another process")
    assert watched.measures == perform(experiment, tmp_path / "alone").measures
    assert equal(tensors(tmp_path / "shared"), tensors(tmp_path / "alone"))


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(sncl: Sncl, tmp_path: Path) -> None:
    """The system refuses files of more than 30 kB for a while; the checkpoint alone is larger."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, usual[1]))
    try:
        done = sncl(*SHORT, "--out", "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert is_one_line_of_error(done, "cannot write", os.strerror(27))
    assert not list((tmp_path / "full").glob("*.part")) + list((tmp_path / "full").glob(".*.part"))
    assert sncl(*SHORT, "--out", "full").code == 0
    assert sncl(*SHORT, "--out", "room").code == 0
    assert equal(tensors(tmp_path / "full"), tensors(tmp_path / "room"))
    assert (tmp_path / "full" / "log.jsonl").read_bytes() == (tmp_path / "room" / "log.jsonl").read_bytes()
