"""Ctrl-C and SIGTERM, sent to real programs: a checkpoint first, one line, and exactly the same result in the end."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import Sncl
from processes import left_behind
from terminals import HIDDEN, SHOWN, OnTerminal

from sncl.cli import STOPPED
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training.checkpoint import read_checkpoint, read_json
from sncl.training.parallel import cores
from sncl.training.run import CHECKPOINT
from sncl.training.schedule import Place

TASKS, EPOCHS = 2, 60
TRAIN = ("train", "--stream", "seq-digits", "--method", "derpp", "--memory", "40", "--device", "cpu")
TRAIN += ("--tasks", str(TASKS), "--epochs", str(EPOCHS), "--checkpoint", "1000")  # else only where a task ends


def go_on(folder: Path, seed: int = 0) -> None:
    """The same run in this process."""
    perform(plan("seq-digits", "derpp", memory=40, tasks=TASKS, epochs=EPOCHS, seed=seed, device="cpu"), folder)


def stored_in_between(folder: Path) -> bool:
    """Whether the checkpoint in a folder is one that no end of a task has written."""
    assert not (folder / "result.json").exists()
    return Place(*read_checkpoint(folder / CHECKPOINT)[1]["place"]) not in (Place(1), Place(2))


def await_shown(program: OnTerminal, *patterns: str) -> None:
    """Wait until each of these can be seen in the terminal."""
    while program.process.poll() is None:
        text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", b"".join(program.words).decode(errors="replace"))
        if all(re.search(each, text) for each in patterns):
            return
        time.sleep(0.01)


def numbers(folder: Path) -> dict[str, object]:
    """What a result says, but for the time it took, and the checksum over that."""
    facts = read_json(folder / "result.json")
    return {key: value for key, value in facts.items() if key not in ("seconds", "crc32")}


def ended_well(text: str) -> bool:
    """One line about it, a visible cursor, and no traceback."""
    assert "Traceback" not in text and "ignored in" not in text, text
    assert text.rfind(SHOWN) > text.rfind(HIDDEN) >= 0
    return text.rstrip().endswith(STOPPED) and text.count("stopped;") == 1


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs, never stopped."""
    folder = tmp_path_factory.mktemp("alone")
    for seed in range(2):
        go_on(folder / f"seed-{seed}", seed)
    return folder


@pytest.mark.parametrize(("sent", "times"), [(signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_a_run_stores_a_checkpoint_and_goes_on(tmp_path: Path, alone: Path, sent: signal.Signals, times: int) -> None:
    program = OnTerminal.sncl(*TRAIN, "--out", "run", folder=tmp_path)
    await_shown(program, rf"epoch ([2-9]|[1-5]\d)/{EPOCHS}")
    for _ in range(times):  # `timeout` sends SIGTERM twice
        program.process.send_signal(sent)
    code, text = program.end()
    assert code == 128 + sent
    assert ended_well(text)
    assert stored_in_between(tmp_path / "run")
    go_on(tmp_path / "run")
    assert numbers(tmp_path / "run") == numbers(alone / "seed-0")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize(
    ("sent", "to_all"),
    [
        (signal.SIGTERM, False),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, True, marks=pytest.mark.slow),
    ],
)
def test_every_worker_stores_a_checkpoint(tmp_path: Path, alone: Path, sent: signal.Signals, to_all: bool) -> None:
    if cores() < 2:
        pytest.skip("two runs at once need two cores")
    program = OnTerminal.sncl(*TRAIN, "--seeds", "2", "--threads", "1", "--out", "runs", folder=tmp_path)
    folders = [tmp_path / "runs" / f"seed-{seed}" for seed in range(2)]
    await_shown(program, *(rf"seed {seed}\D+[1-9]\d? %" for seed in range(2)))
    if to_all:
        os.killpg(program.process.pid, sent)
    else:
        program.process.send_signal(sent)
    code, text = program.end()
    assert code == 128 + sent
    assert ended_well(text)
    assert left_behind(program.process.pid) == []
    for seed, folder in enumerate(folders):
        assert stored_in_between(folder)
        go_on(folder, seed)
        assert numbers(folder) == numbers(alone / f"seed-{seed}")


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_search_goes_on(tmp_path: Path, sncl: Sncl, sent: signal.Signals) -> None:
    """The trial at which it was stopped is tried again, and nothing else differs."""
    tune = ("tune", "--stream", "seq-digits", "--method", "derpp", "--memory", "40", "--device", "cpu", "--tasks", "2")
    tune += ("--epochs", "20", "--trials", "1", "--seeds", "1", "--workers", "1", "--storage")
    program = OnTerminal.sncl(*tune, "study.journal", folder=tmp_path)
    while not (tmp_path / "study.journal.running/trial-0/seed-0/log.jsonl").exists() and program.process.poll() is None:
        time.sleep(0.01)
    program.process.send_signal(sent)
    code, text = program.end()
    assert code == 128 + sent and "Traceback" not in text
    assert text.rfind(SHOWN) > text.rfind(HIDDEN) >= 0
    assert text.rstrip().endswith("stopped; finished trials are kept in study.journal, and the same command goes on")
    alone, again = (sncl(*tune, name, "--json").json()["trials"] for name in ("alone.journal", "study.journal"))
    assert [trial["state"] for trial in again] == ["failed", "complete"]
    assert (again[1]["scores"], again[1]["params"]) == (alone[0]["scores"], alone[0]["params"])


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_while_modules_are_loaded(tmp_path: Path, sent: signal.Signals) -> None:
    (tmp_path / "torch.py").write_text(
        "import pathlib, time\npathlib.Path('loading').touch()\ntry:\n    time.sleep(60)\n"
        "except BaseException as error:\n    raise ImportError('no torch') from error\n"
    )
    path = os.pathsep.join([str(tmp_path), *(each for each in sys.path if each)])
    process = subprocess.Popen(
        [sys.executable, "-m", "sncl.cli", *TRAIN],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "loading").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(sent)
    _, text = process.communicate(timeout=30)
    assert (process.returncode, text) == (128 + sent, f"{STOPPED}\n")


STUBBORN = """
import time
from sncl.training.stopping import finishing, heed_signals, stop_asked

heed_signals("")
with finishing():
    print("begun", flush=True)
    while not stop_asked():
        time.sleep(0.01)
    print("asked", flush=True)
    while True:
        time.sleep(0.01)
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_the_second_time_it_ends_at_once(tmp_path: Path, sent: signal.Signals) -> None:
    program = OnTerminal([sys.executable, "-c", STUBBORN], tmp_path)
    for word in (b"begun", b"asked"):
        while word not in b"".join(program.words) and program.process.poll() is None:
            time.sleep(0.01)
        program.process.send_signal(sent)
        time.sleep(0.4)  # or it would be taken for the same one
    while program.process.poll() is None:  # the one behind "asked" may have come too soon
        program.process.send_signal(sent)
        time.sleep(0.4)
    code, text = program.end()
    assert code == 128 + sent
    assert text.replace("^C", "").split("\r\n") == ["begun", "asked", SHOWN]


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As nohup has it, and shells for what runs in the background."""
    code = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "from sncl.training.stopping import heed_signals\nheed_signals('')\n"
    code += "os.kill(os.getpid(), signal.SIGINT); print('on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")
