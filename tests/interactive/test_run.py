"""``sncl.run`` runs what ``sncl train`` runs: in the same folders, with the same settings, and goes on after a stop."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Sncl
from in_order import one_by_one
from own_methods import write_module
from user_files import save_table

import sncl as package
from sncl.errors import SnclError
from sncl.interactive import displays, experiments
from sncl.interactive.displays import LineDisplay, NoDisplay, NotebookDisplay, choose_display
from sncl.live.jobs import ConsoleDisplay
from sncl.live.view import LiveView
from sncl.runs.experiment import read_described
from sncl.runs.result import RESULT
from sncl.training.run import CHECKPOINT

ROOT = Path(__file__).resolve().parents[2]


def short(*methods: Any, **options: Any) -> package.Results:
    """Runs of well under a second, in this process where there is one."""
    usual: dict[str, Any] = {"memory": 40, "epochs": 1, "tasks": 2, "device": "cpu", "progress": False}
    return package.run("seq-digits", methods[0] if len(methods) == 1 else methods, **usual | options)


# --- the same as the command line ------------------------------------------------------------------------------------


def test_runs_of_the_command_line_are_found_and_the_other_way_round(sncl: Sncl) -> None:
    command = ["train", "--stream", "seq-digits", "--memory", "40", "--epochs", "1", "--tasks", "2"]
    made = sncl(*command, "--method", "er", "--set", "lr=0.05", "--json").json()
    (folder,) = Path("runs").iterdir()
    written = (folder / RESULT).stat().st_mtime_ns
    results = short("er", lr=0.05)
    assert results.folders == [folder] and (folder / RESULT).stat().st_mtime_ns == written
    assert results[0].to_json() == made
    mine = short("derpp", seeds=[3], labels=1, validation=0.1)
    shown = sncl(*command, "--method", "derpp", "--seed", "3", "--set", "labels=1", "--validation", "0.1")
    assert f"already finished: {mine.folders[0]} (the stored result is shown)" in shown.err
    assert len(list(Path("runs").iterdir())) == 2


def test_what_is_finished_is_said_and_shown_without_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = short("er", seeds=1, folder=tmp_path)
    monkeypatch.setattr(experiments, "run_watched", pytest.fail)
    again = short("er", "er", seeds=1, folder=tmp_path, progress=True)
    assert list(again) == list(first) and again.folders == first.folders
    assert capfd.readouterr().err == "1 of 1 runs were finished already, and are shown as they are\n"


def test_your_own_data_take_the_options_of_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = save_table(tmp_path / "iris.csv")
    results = package.run(table, "sgd", target="kind", classes_per_task=2, epochs=2, folder=tmp_path, device="cpu")
    assert results[0].stream == "table:iris.csv" and results[0].manifest.settings["split"] == "2x2"
    said = capfd.readouterr().err
    assert "3 classes" in said and "2 tasks (split 2x2, the last of 1), 2 epochs, network mlp" in said
    whole = package.run(table, "sgd", target="kind", cut="none", epochs=1, folder=tmp_path, progress=False)
    assert "gcl" in whole[0].measures


# --- what is given ---------------------------------------------------------------------------------------------------


def settings_at(folders: list[Path]) -> list[dict[str, Any]]:
    return [read_described(folder)["settings"] for folder in folders]


def test_settings_go_to_the_methods_that_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "run_all", one_by_one)
    results = short({"er": {"lr": 0.02}, "derpp": {}}, folder=tmp_path, logits=0.25, replay=8, seeds=[5])
    er, derpp = settings_at(results.folders)
    assert (er["lr"], er["replay"], "logits" in er) == (0.02, 8, False)
    assert (derpp["logits"], derpp["replay"]) == (0.25, 8) and derpp["lr"] != 0.02
    assert [result.seed for result in results] == [5, 5] and [result.method for result in results] == ["er", "derpp"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: short("er", lrr=0.1),
            "no argument and no setting 'lrr'; did you mean lr or lr_drop? the settings are ace, batch_size,",
        ),
        (lambda: short("er", "derpp", sparsity=0.1), "no setting 'sparsity'"),
        (lambda: short({"er": {"logits": 0.1}, "derpp": {}}), "no setting 'logits'"),
        (lambda: short("er", lr="fast"), "lr= takes a value like"),
        (lambda: short("er", lr=None), "`lr` is a number or a text, not None"),
        (lambda: short("eer"), "there is no method 'eer'; did you mean er"),
        (lambda: short([]), "`methods` names no method"),
        (lambda: short(["er", 3]), "`methods` takes names and methods"),
        (lambda: short("er", seeds=0), "`seeds` is at least 1"),
        (lambda: short("er", seeds=["0"]), "`seeds` is at least 1, or a list of whole numbers"),
        (lambda: package.run("seq-digts", "er"), "did you mean seq-digits"),
        (lambda: short("er", target="x"), "`target` is for user data"),
        (lambda: short("er", split="5x2", classes_per_task=2), "give one of `split`, `classes_per_task`"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SnclError) as error:
        call()
    assert words in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


# --- stopping --------------------------------------------------------------------------------------------------------


class Interrupting(NoDisplay):
    """Sends Ctrl-C when a run has learned a few batches."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def told(self, view: LiveView, number: int) -> None:
        moment = view.runs[number].moment
        if moment is not None and moment.steps >= 5 and not moment.reading:
            os.kill(os.getpid(), signal.SIGINT)

    def say(self, text: str) -> None:
        self.said.append(text)


def test_ctrl_c_leaves_a_checkpoint_and_the_same_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    display, handler = Interrupting(), signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(experiments, "choose_display", lambda progress: display)
        with pytest.raises(KeyboardInterrupt):
            short("er", folder=tmp_path / "stopped", epochs=3)
    assert display.said == ["stopped; the same call goes on from the last checkpoint"]
    assert signal.getsignal(signal.SIGINT) is handler
    (folder,) = (tmp_path / "stopped").iterdir()
    assert (folder / CHECKPOINT).exists() and not (folder / RESULT).exists()
    resumed, whole = (short("er", folder=tmp_path / name, epochs=3) for name in ("stopped", "whole"))
    assert resumed.folders == [folder] and resumed[0].measures == whole[0].measures


SCRIPT = """
import sncl
from mine import WeightedReplay

results = sncl.run("seq-digits", ["er", WeightedReplay(2.0)], seeds=1, memory=40, epochs=1, tasks=2)
print(results)
"""


def test_a_script_without_a_guard_runs_in_processes_of_their_own(tmp_path: Path) -> None:
    """Which do not run the script again, and find a method that it imported."""
    write_module(tmp_path, "mine")
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(re.sub(r"^\d/2 (.*): \d+\.\d\d %$", r"\1", line) for line in done.stderr.splitlines())
    assert lines == ["WeightedReplay", "er"]
    assert done.stdout.count("seq-digits") == 2 and "WeightedReplay" in done.stdout


# --- what is shown meanwhile -----------------------------------------------------------------------------------------


def test_the_display_suits_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(choose_display(False)) is NoDisplay
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(choose_display(True), LineDisplay)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(choose_display(True), ConsoleDisplay)
    monkeypatch.setattr(displays, "notebook_shell", object)
    pytest.importorskip("IPython")
    assert isinstance(choose_display(True), NotebookDisplay)


class Cell:
    """What a notebook shows: each output as it was last drawn."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, str]] = []
        self.drawn = 0

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool = False) -> Any:
        assert raw
        self.outputs.append(data)
        number, cell = len(self.outputs) - 1, self

        class Handle:
            def update(self, data: dict[str, str], *, raw: bool) -> None:
                assert raw
                cell.drawn += 1
                cell.outputs[number] = data

        return Handle() if display_id else None


def test_a_notebook_is_drawn_in_place_and_ends_as_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, pictures = Cell(), []
    moments = iter(range(10**6))
    display = NotebookDisplay(cell.display, clock=lambda: float(next(moments)))

    def picture(view: LiveView) -> dict[str, str]:
        pictures.append(drawn(view))
        return pictures[-1]

    drawn = displays.picture
    monkeypatch.setattr(displays, "picture", picture)
    monkeypatch.setattr(experiments, "choose_display", lambda progress: display)
    short("er", folder=tmp_path)
    assert len(cell.outputs) == 1 and cell.drawn > 2
    assert re.fullmatch(r"er on seq-digits, memory 40, seed 0, \d:\d\d", cell.outputs[0]["text/plain"])
    last = pictures[-1]
    assert "er on seq-digits" in last["text/plain"] and "Class-IL" in last["text/plain"]
    assert last["text/html"].startswith("<pre ") and "<span" in last["text/html"] and "\x1b" not in last["text/html"]
    display.say("<b>bold</b>\x1b[31m")
    assert cell.outputs[1]["text/html"] == "<div>&lt;b&gt;bold&lt;/b&gt;\\x1b[31m</div>"
