"""How a report, and the search for finished runs, grow with the number of runs: by instructions and bytes."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from growth import assert_linear, work

from sncl.paper.records import known
from sncl.report import write_report
from sncl.report.collect import FinishedRun, read_runs
from sncl.report.groups import group_runs
from sncl.training.checkpoint import read_json, sealed, unsealed, write_json

FEW = (5, 50)


def save(folder: Path, source: Path, count: int, alike: bool) -> Path:
    """So many runs that differ in their seed, or in their step size."""
    for number in range(count):
        run = folder / str(number)
        shutil.copytree(source, run, ignore=shutil.ignore_patterns("checkpoint*", ".lock"))
        experiment, result = (unsealed(read_json(run / name)) for name in ("experiment.json", "result.json"))
        if alike:
            experiment["seed"] = result["seed"] = number
        else:
            experiment["settings"]["lr"] = result["manifest"]["settings"]["lr"] = 0.001 * (number + 1)
        write_json(run / "experiment.json", sealed(experiment))
        write_json(run / "result.json", sealed(result))
    return folder


def quiet(note: str) -> None:
    pass


def test_reading(runs: Path, tmp_path: Path) -> None:
    folders = {count: save(tmp_path / str(count), runs / "er-0", count, alike=True) for count in FEW}
    assert_linear({count: work(lambda folder=folder: read_runs([folder], quiet)) for count, folder in folders.items()})
    assert_linear({count: work(lambda folder=folder: known(folder, [])) for count, folder in folders.items()})


@pytest.mark.parametrize("alike", [True, False], ids=["seeds", "settings"])
def test_groups(runs: Path, alike: bool) -> None:
    """Each of a thousand runs with a title that sets it apart from all others."""
    (one,) = read_runs([runs / "er-0"], print)

    def many(count: int) -> list[FinishedRun]:
        if alike:
            return [replace(one, result=replace(one.result, seed=number)) for number in range(count)]
        settings = [one.experiment["settings"] | {"lr": 0.001 * (number + 1)} for number in range(count)]
        return [replace(one, experiment=one.experiment | {"settings": each}) for each in settings]

    assert len({group.title for group in group_runs(many(10))}) == (1 if alike else 10)
    lists = {count: many(count) for count in (10, 100, 1000)}
    assert_linear({count: work(lambda found=found: group_runs(found)) for count, found in lists.items()})


def test_page(runs: Path, tmp_path: Path) -> None:
    """Beside what every page brings along."""
    costs, sizes = {}, {}
    for count in FEW:
        folder, page = save(tmp_path / str(count), runs / "er-0", count, alike=False), tmp_path / f"{count}.html"
        costs[count] = work(lambda folder=folder, page=page: write_report([folder], page, quiet))
        sizes[count] = page.stat().st_size
    assert_linear(costs)
    assert sizes[50] - sizes[5] < 45 * 20_000
