"""Many runs at once, in real processes that finish, fail, die and are interrupted."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from processes import alive

from sncl.errors import SnclError
from sncl.training.parallel import cores, run_all, run_here, run_in_threads

# What the workers do lies in a module of its own, which a fresh process can import wherever the tests lie.
WORK = """
import os, time
from pathlib import Path
import torch
from sncl.errors import SnclError

def work(job, report):
    what, folder = job
    report(("began", what))
    if what == "fail":
        raise SnclError("this job cannot be done")
    if what == "bug":
        raise KeyError("a programming error")
    if what == "die":
        os._exit(7)
    if what == "unsendable":
        return lambda: None
    if what == "stay":
        time.sleep(60)
    if what == "late":
        time.sleep(0.5)
    Path(folder, f"{what} was done").touch()
    report(("ended", what))
    return what, os.getpid()
"""
TORCH = ""  # standing in for the real one saves every worker seconds of loading; test_cli.py goes through that
SCRIPT = """
import sys
from fleet_jobs import work
from sncl.training.parallel import run_all

if __name__ == "__main__":
    jobs = [("stay", sys.argv[1])] * 3
    run_all(work, jobs, 2, watch=lambda number, report: print(number, flush=True))
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "fleet_jobs.py").write_text(WORK)
    (tmp_path / "torch.py").write_text(TORCH)
    monkeypatch.syspath_prepend(tmp_path)
    import fleet_jobs  # type: ignore[import-not-found]

    yield fleet_jobs.work
    del sys.modules["fleet_jobs"]


def test_results_come_in_the_order_of_the_jobs_and_reports_by_their_number(work: Any, tmp_path: Path) -> None:
    reports: dict[int, list[Any]] = defaultdict(list)
    jobs = [(what, str(tmp_path)) for what in ("late", "one", "two", "three")]
    results = run_all(work, jobs, 2, watch=lambda number, report: reports[number].append(report))
    assert [what for what, _ in results] == ["late", "one", "two", "three"]
    assert reports == {number: [("began", what), ("ended", what)] for number, (what, _) in enumerate(jobs)}
    assert os.getpid() not in {process for _, process in results}


def test_a_failing_job_does_not_stop_the_others_and_its_error_surfaces(work: Any, tmp_path: Path) -> None:
    jobs = [(what, str(tmp_path)) for what in ("one", "fail", "late", "two")]
    message = r"^this job cannot be done \(1 of 4 runs failed; the others are stored\)$"
    with pytest.raises(SnclError, match=message):
        run_all(work, jobs, 2)
    done = {path.name for path in tmp_path.glob("*was done")}
    assert done == {"one was done", "late was done", "two was done"}


def test_a_programming_error_shows_where_it_happened(work: Any, tmp_path: Path) -> None:
    jobs = [("bug", str(tmp_path)), ("one", str(tmp_path))]
    with pytest.raises(RuntimeError, match=r"(?s)fleet_jobs\.py.*KeyError: 'a programming error'"):
        run_all(work, jobs, 1)
    assert (tmp_path / "one was done").exists()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_worker_that_dies_is_an_error_and_no_hang(work: Any, tmp_path: Path, workers: int) -> None:
    jobs = [(what, str(tmp_path)) for what in ("late", "die", "one")]
    with pytest.raises(SnclError, match=r"was killed \(exit code 7\).*\(1 of 3 runs failed; the others are stored\)"):
        run_all(work, jobs, workers)
    assert {path.name for path in tmp_path.glob("*was done")} == {"late was done", "one was done"}


def test_workers_that_all_die_are_an_error(work: Any, tmp_path: Path) -> None:
    with pytest.raises(SnclError, match=r"was killed \(exit code 7\).*\(3 of 3 runs failed\)$"):
        run_all(work, [("die", str(tmp_path))] * 3, 2)


def test_what_cannot_be_sent_back_is_an_error(work: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="pickle"):
        run_all(work, [("unsendable", str(tmp_path)), ("one", str(tmp_path))], 1)
    assert (tmp_path / "one was done").exists()


def test_a_worker_that_cannot_even_start_is_an_error(work: Any, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit(9)")
    with pytest.raises(SnclError, match=r"exit code 9.*\(2 of 2 runs failed\)"):
        run_all(work, [("one", str(tmp_path)), ("two", str(tmp_path))], 2)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize("ending", ["Ctrl-C", "SIGINT to the main process", "SIGTERM", "SIGKILL"])
def test_no_worker_outlives_the_main_process(work: Any, tmp_path: Path, ending: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    main = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert main.stdout is not None
        assert {main.stdout.readline(), main.stdout.readline()} == {"0\n", "1\n"}  # two jobs run, the third waits
        assert len(alive(main.pid)) >= 3
        if ending == "Ctrl-C":
            os.killpg(main.pid, signal.SIGINT)
        elif ending == "SIGINT to the main process":
            main.send_signal(signal.SIGINT)
        else:
            main.send_signal(signal.Signals[ending])
        out, _ = main.communicate(timeout=20)
        assert out == ""  # the third job was not begun
        assert main.returncode in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL)
        until = time.monotonic() + 10
        while alive(main.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert alive(main.pid) == []
    finally:
        for process in alive(main.pid):
            os.kill(process, signal.SIGKILL)
        main.wait()


def test_workers_are_deaf_to_ctrl_c_from_the_start(work: Any, tmp_path: Path) -> None:
    """Also while they load torch, so that nobody has to read the tracebacks of workers."""
    notes = "import os, pathlib, signal\nblocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
    notes += f"pathlib.Path({str(tmp_path)!r}, f'{{os.getpid()}}.deaf').write_text(str(signal.SIGINT in blocked))\n"
    (tmp_path / "torch.py").write_text(notes + TORCH)
    (tmp_path / "script.py").write_text(SCRIPT.replace("stay", "one"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path)]
    subprocess.run(command, env=environment, check=True, capture_output=True)  # a fresh process, with its first workers
    assert sorted(path.read_text() for path in tmp_path.glob("*.deaf")) == ["False", "True", "True"]


def test_cores_are_those_this_process_may_use() -> None:
    code = "import os; os.sched_setaffinity(0, {0}); from sncl.training.parallel import cores; print(cores())"
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("the system does not bind processes to cores")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert cores() == len(os.sched_getaffinity(0))


# --- threads that share a GPU; without one they only run ---------------------------------------------------------


def test_threads_return_in_the_order_of_the_jobs_and_report_by_their_number() -> None:
    together = Barrier(3, timeout=10)
    reports: list[tuple[int, str]] = []

    def job(name: str, report: Any) -> str:
        together.wait()  # all three are running
        report(f"{name} began")
        return name.upper()

    results = run_in_threads(job, ["one", "two", "three"], 3, lambda number, value: reports.append((number, value)))
    assert results == ["ONE", "TWO", "THREE"]
    assert sorted(reports) == [(0, "one began"), (1, "two began"), (2, "three began")]


def test_a_thread_that_fails_does_not_stop_the_others() -> None:
    done: list[int] = []

    def job(number: int, report: Any) -> None:
        if number == 1:
            raise SnclError("this job cannot be done")
        done.append(number)

    with pytest.raises(SnclError, match=r"this job cannot be done \(1 of 4 runs failed; the others are stored\)"):
        run_in_threads(job, [0, 1, 2, 3], 1)
    assert done == [0, 2, 3]


def test_a_programming_error_in_a_thread_stays_what_it_is() -> None:
    def job(number: int, report: Any) -> None:
        raise KeyError("a programming error")

    with pytest.raises(KeyError, match="a programming error"):
        run_in_threads(job, [0, 1], 2)


SHARES = """
from sncl.training.parallel import SHARE

def share(job, report):
    return SHARE.get()
"""


def test_workers_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "share_jobs.py").write_text(SHARES)
    monkeypatch.syspath_prepend(tmp_path)
    share = importlib.import_module("share_jobs").share
    assert run_all(share, [0, 1, 2], 2, load_program=False) == [cores() // 2] * 3
    assert run_all(share, [0], 2, load_program=False) == run_here(share, [0]) == [cores()]
