"""``sncl tune``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sncl.cli.choosing import choose_method, choose_stream, tell
from sncl.cli.completion import complete_setting
from sncl.cli.console import err, print_json, print_table
from sncl.cli.options import (
    CategoryOption,
    ClassesOption,
    CutOption,
    DataOption,
    DeviceOption,
    DomainOption,
    EpochsOption,
    IgnoreOption,
    JsonOption,
    MemoryOption,
    MethodOption,
    NumberOption,
    OnOption,
    SizeOption,
    SlurmOption,
    SplitOption,
    StreamOption,
    TargetOption,
    TasksOption,
    fleet_of,
    pairs,
)
from sncl.errors import SnclError
from sncl.training.stopping import stop_code

if TYPE_CHECKING:
    from sncl.runs.experiment import Experiment
    from sncl.tuning.address import Database
    from sncl.tuning.search import Search
    from sncl.tuning.trial import Trial

SHOWN_TRIALS = 10  # of the best trials


def tune_command(
    stream: StreamOption,
    method: MethodOption,
    memory: MemoryOption = None,
    trials: Annotated[int, typer.Option(help="How many settings to try; the first are the shipped ones")] = 30,
    seeds: Annotated[int, typer.Option(help="A trial's score is the mean over the seeds 0 .. N-1")] = 2,
    validation: Annotated[float, typer.Option(help="The part of the training data to hold out and score on")] = 0.1,
    epochs: EpochsOption = None,
    tasks: TasksOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    cut: CutOption = None,
    target: TargetOption = None,
    domain: DomainOption = None,
    ignore: IgnoreOption = None,
    category: CategoryOption = None,
    number: NumberOption = None,
    size: SizeOption = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Fix one setting", autocompletion=complete_setting),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=WHERE", help="Search one more setting: LOW..HIGH, LOW..HIGH:log or A,B,C"),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|ADDRESS",
            help="Journal of the study, or postgresql://USER@HOST/DATABASE; many processes may share it "
            "(default: runs/...)",
        ),
    ] = None,
    data: DataOption = None,
    device: DeviceOption = "auto",
    workers: Annotated[int | None, typer.Option(help="Trials at once (default: cores / threads)", min=1)] = None,
    on: OnOption = "local",
    slurm: SlurmOption = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="Where the chosen settings go, as TOML (default: beside the journal)")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose settings on held-out training data. The same command goes on, also beside others."""
    from sncl.cli.trials import tune
    from sncl.tuning.search import plan_search

    if trials < 1:
        raise SnclError(f"--trials is at least 1, not {trials}")
    method, fleet = choose_method(method), fleet_of(on, slurm)
    chosen = choose_stream(stream, cut, target, domain, size, split, classes, set_, ignore, category, number)
    sought = plan_search(
        chosen.stream,
        method,
        memory=memory,
        seeds=seeds,
        validation=validation,
        epochs=epochs,
        tasks=tasks,
        device=device,
        fixed=chosen.settings,
        searched=pairs(search, "--search", "KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A,B,C"),
        user_data=chosen.user_data,
        elsewhere=fleet is not None,
    )
    usual = sought.experiment({}, 0)
    tell(chosen, usual)
    kept, written = files_of(usual, storage, file)
    try:
        found = tune(sought, trials, kept, written, err, data, workers, fleet)
    except KeyboardInterrupt:
        err.print(f"stopped; finished trials are kept in {kept}, and the same command goes on")
        sys.exit(stop_code())
    show_trials(sought, found, written, as_json)


def files_of(usual: Experiment, storage: str | None, file: Path | None) -> tuple[Path | Database, Path]:
    """Where the study is kept and the file of the chosen settings, the usual ones where none is named.

    In a database the study has the name of that file.
    """
    from sncl.runs.experiment import file_name
    from sncl.tuning.address import is_address, parse_address

    name = f"tune-{file_name(usual.stream)}-{file_name(usual.method)}-{usual.memory}.journal"
    in_database = storage is not None and is_address(storage)
    journal = Path("runs") / name if storage is None or in_database else Path(storage)
    for path in (journal, file):
        if path is not None and path.is_dir():
            raise SnclError(f"{path} is a directory; --storage and --out name files")
    written = file or journal.with_suffix(".toml")
    if written.suffix != ".toml" or journal in (written, written.with_suffix(".jsonl")):
        raise SnclError(f"--out is a .toml file and --storage another one, not {written} and {journal}")
    return parse_address(storage, written.stem) if storage is not None and in_database else journal, written


def show_trials(sought: Search, found: list[Trial], written: Path, as_json: bool) -> None:
    """Print the best trials as a table or all of them as JSON; an error if none was complete."""
    from sncl.tuning.trial import count_states, ranking

    best = ranking(found)
    if as_json:
        winner = best[0].as_json() | {"settings": sought.row(best[0].params)} if best else None
        print_json({"chosen": winner, "trials": [trial.as_json() for trial in found], "file": str(written)})
    if not best:
        raise SnclError(f"no trial was complete; {written.with_suffix('.jsonl')} says why")
    if as_json:
        return
    headings = ["trial", "validation, %", "seconds", *sought.space]
    cells = [
        [
            f"{trial.number} (defaults)" if trial.default else str(trial.number),
            trial.shown(),
            f"{trial.seconds:.1f}",
            *(str(trial.params[key]) for key in sought.space),
        ]
        for trial in best[:SHOWN_TRIALS]
    ]
    states = ", ".join(f"{number} {state}" for state, number in count_states(found).items())
    print_table(headings, cells)
    err.print(f"trials: {states}")
    err.print(f"chosen settings: {written} (for sncl train --settings)")
