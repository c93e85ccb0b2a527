"""The command line: ``sncl list | train | tune | reproduce | analyze | export | report | demo | bench | data``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from sncl import __version__
from sncl.errors import SnclError

if TYPE_CHECKING:
    from sncl.analysis.groups import Group
    from sncl.experiment import Experiment
    from sncl.streams.own import Own

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Neural networks that learn from a stream without forgetting.",
)
data_app = typer.Typer(invoke_without_command=True, help="What data is there, and how to get more.")
app.add_typer(data_app, name="data")
analyze_app = typer.Typer(no_args_is_help=True, help="What the trained networks of finished runs are like.")
app.add_typer(analyze_app, name="analyze")

# Typer carries its own copy of click from some version on; these are that copy's exceptions, wherever it lies.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
ClickException: type[Exception] = UsageError.__mro__[1]

# A file name may hold [brackets], and a pipe has no width to cut a table down to.
out = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)
err = Console(highlight=False, markup=False, soft_wrap=True, stderr=True)

INTERRUPTED = 130  # what a shell calls Ctrl-C, and Typer too

DataOption = Annotated[
    Path | None, typer.Option("--data", help="Folder with the data sets (default: $SNCL_DATA or the user's cache)")
]
RunsArgument = Annotated[list[Path], typer.Argument(help="Run folders of sncl train; seeds of one method are averaged")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Also write all numbers to this .json file")]
PictureOption = Annotated[Path | None, typer.Option(help="Also draw the result (.png or .svg; needs matplotlib)")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda")]
RowsOption = Annotated[int, typer.Option(help="About how many rows to look at (0: all)", min=0)]
SeedOption = Annotated[int, typer.Option(help="Of everything random in the analysis")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")]
StreamOption = Annotated[str, typer.Option(help="A stream of `sncl list`, or folder:PATH, npz:PATH, table:PATH")]
OWN_DATA = "Your own data"
CutOption = Annotated[
    str | None,
    typer.Option(
        help="What makes a task: classes, domain, or none (one pass in file order, without boundaries). "
        "Default: domain where there are any, else classes",
        rich_help_panel=OWN_DATA,
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The labels of a table (default: the column target, label, class or y, else the last)",
        rich_help_panel=OWN_DATA,
    ),
]
DomainOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column or array of domains", rich_help_panel=OWN_DATA),
]
SizeOption = Annotated[
    int | None,
    typer.Option(help="Resize images to so many pixels a side", min=1, rich_help_panel=OWN_DATA),
]
SplitOption = Annotated[
    str | None, typer.Option(metavar="TASKSxCLASSES", help="Cut the classes like this, as 5x2; short for --set split=")
]
ClassesOption = Annotated[
    int | None, typer.Option("--classes-per-task", help="Cut the classes into tasks of so many", min=1)
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE.html", help="Also write a page about these runs (needs plotly)")
]
TensorboardOption = Annotated[
    bool, typer.Option("--tensorboard", help="Also write logs for TensorBoard into the run folder (needs tensorboard)")
]


def main() -> None:
    """Run the command line; every error a person can put right is one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except SnclError as error:
        fail(str(error))
    except ClickException as error:
        fail(error.format_message())  # type: ignore[attr-defined]
    except OSError as error:
        fail(f"{error.filename or 'the system says'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        err.print("stopped; the same command goes on from the last checkpoint")
    sys.exit(code if isinstance(code, int) else 0)


def fail(message: str) -> None:
    if message:  # a bare `sncl` has printed its help already
        print("error: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_table(headings: list[str], cells: list[list[str]], title: str | None = None) -> None:
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=heading != "")
    for row in cells:
        table.add_row(*row)
    out.print(table)


def pairs(texts: list[str] | None, option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """What an option that may be repeated says about each key."""
    found = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise SnclError(f"{option} takes {form}, not {text!r}")
        found[key.strip()] = value.strip()
    return found


def check(report: Path | None, tensorboard: bool = False) -> None:
    """Refuse a report or a log that could not be written, before the runs."""
    if tensorboard:
        from sncl.training.board import check_tensorboard

        check_tensorboard()
    if report is not None:
        from sncl.report import check_report

        check_report(report)


def tell(folders: Iterable[Path], report: Path | None) -> None:
    """Write the report that was asked for."""
    if report is not None:
        from sncl.report import write_report

        write_report(folders, report, lambda text: err.print(f"note: {text}"))
        err.print(f"report: {report}")


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"sncl {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Version")] = False,
) -> None:
    """Neural networks that learn from a stream without forgetting."""


def needs(name: str) -> list[str]:
    """Where a method applies: whether it keeps a memory, must be told where tasks end, and the task at test time."""
    from sncl.methods.table import METHODS, make

    method = make(name)
    said = (METHODS[name].memory, method.needs_boundaries, method.needs_task_at_test)
    return ["yes" if each else "–" for each in said]


@app.command("list")
def list_names(as_json: JsonOption = False) -> None:
    """The methods and streams there are, and where each method applies."""
    from sncl.methods.table import METHODS
    from sncl.streams.benchmarks import STREAMS
    from sncl.streams.own import FORMS

    if as_json:
        print_json({"methods": list(METHODS), "streams": list(STREAMS), "own": list(FORMS)})
        return
    methods = [[name, entry.title, *needs(name), entry.reference] for name, entry in METHODS.items()]
    print_table(["method", "", "memory", "boundaries", "task at test", "reference"], methods)
    out.print()
    streams = [[name, each.network, str(each.epochs), each.description] for name, each in STREAMS.items()]
    print_table(["stream", "network", "epochs", ""], streams)
    out.print()
    print_table(["your own data", ""], [[form, what] for form, what in FORMS.items()])


class Chosen(NamedTuple):
    """The stream that options name, what is known of it where it is a person's own, and settings from `--set`."""

    stream: str
    own: Own | None
    settings: dict[str, str]
    notes: list[str]

    def tell(self, experiment: Experiment) -> None:
        """Say how a person's own data were understood and what is done with them, by default or by choice."""
        for note in self.notes:
            err.print(f"{self.stream}: {note}")
        if self.own is not None:
            tasks = f"{experiment.tasks} task{'s' if experiment.tasks > 1 else ''}"
            split = ""
            if "split" in experiment.settings:
                parts, together = map(int, str(experiment.settings["split"]).split("x"))
                split = f" (split {parts}x{together}"
                if parts * together > self.own.classes:
                    split += f", the last of {self.own.classes - (parts - 1) * together}"
                elif parts * together < self.own.classes:
                    split += f": the first {parts * together} of {self.own.classes} classes"
                split += ")"
            epochs = f"{experiment.epochs} epoch{'s' if experiment.epochs > 1 else ''}"
            err.print(f"{self.stream}: {tasks}{split}, {epochs}, network {self.own.network}")


def choose(
    stream: str,
    cut: str | None,
    target: str | None,
    domain: str | None,
    size: int | None,
    split: str | None = None,
    classes: int | None = None,
    set_: list[str] | None = None,
) -> Chosen:
    """Understand the options that name a stream; a person's own data are read."""
    from sncl.commands import reading_bar
    from sncl.streams.benchmarks import named
    from sncl.streams.own import ask, read

    settings = pairs(set_, "--set")
    if sum(each is not None for each in (split, classes, settings.get("split"))) > 1:
        raise SnclError("give one of --split, --classes-per-task and --set split=")
    notes: list[str] = []
    asked, own = ask(stream, cut, target, domain, size), None
    if asked is not None:
        with reading_bar(err) as progress:
            _, own, notes = read(asked, progress)
        stream = own.name
    if classes is not None:
        if own is None:
            benchmark = named(stream)
            total = benchmark.tasks * benchmark.classes_per_task if benchmark.kind == "seq" else 0
        else:
            total = own.classes if own.cut == "classes" else 0
        if not total:
            raise SnclError(f"--classes-per-task is for streams that are cut by classes, which {stream} is not")
        split = f"{-(-total // classes)}x{classes}"
    return Chosen(stream, own, settings if split is None else settings | {"split": split}, notes)


@app.command()
def train(
    stream: StreamOption,
    method: Annotated[str, typer.Option(help="A method of `sncl list`")],
    memory: Annotated[int | None, typer.Option(help="Samples that may be kept (default: 200)")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of one run (default: 0)")] = None,
    seeds: Annotated[int | None, typer.Option(help="Run the seeds 0 .. N-1, several at once")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over each task (default: the stream's)")] = None,
    tasks: Annotated[int | None, typer.Option(help="Only the first T tasks")] = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    cut: CutOption = None,
    target: TargetOption = None,
    domain: DomainOption = None,
    size: SizeOption = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting")] = None,
    file: Annotated[Path | None, typer.Option("--settings", help="A file that `sncl tune` wrote")] = None,
    data: DataOption = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Run folder (default: runs/...)")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16 (auto: bfloat16 on a GPU)")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, eager or graph (auto: a CUDA graph on a GPU)")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads of one run (default: 1; ResNets: all cores)")] = None,
    validation: Annotated[float, typer.Option(help="Hold out this part of training data and score on it")] = 0.0,
    checkpoint: Annotated[float, typer.Option(help="Seconds between checkpoints", min=0)] = 30.0,
    keep_tasks: Annotated[
        bool, typer.Option("--keep-tasks", help="Also keep the network after each task, for `sncl analyze tsne`")
    ] = False,
    tensorboard: TensorboardOption = False,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a method on a stream. The same command on the same folder goes on where it stopped."""
    from sncl.commands import Job, run_jobs
    from sncl.experiment import plan, stored_result
    from sncl.methods.table import entry
    from sncl.results import table
    from sncl.training.run import BOARD, TASK_NETWORK

    if seed is not None and seeds is not None:
        raise SnclError("give either --seed or --seeds, not both")
    if seeds is not None and seeds < 1:
        raise SnclError(f"--seeds is at least 1, not {seeds}")
    check(report, tensorboard)
    chosen = choose(stream, cut, target, domain, size, split, classes, set_)
    settings = chosen.settings
    if file is not None:
        settings = from_file(file, chosen, method, memory) | settings
    jobs = []
    for number in [seed or 0] if seeds is None else range(seeds):
        experiment = plan(
            chosen.stream,
            method,
            memory=memory,
            seed=number,
            epochs=epochs,
            tasks=tasks,
            validation=validation,
            device=device,
            precision=precision,
            engine=engine,
            threads=threads,
            settings=settings,
            own=chosen.own,
        )
        place = Path("runs") / experiment.name() if folder is None else folder
        own = place / f"seed-{number}" if folder and seeds is not None else place
        jobs.append(Job(experiment, own, data, checkpoint, keep_tasks, tensorboard))
    done = [job for job in jobs if stored_result(job.experiment, job.folder) is not None]
    chosen.tell(jobs[0].experiment)
    if memory is not None and not entry(method).memory:
        err.print(f"note: {method} keeps no memory, so --memory {memory} changes nothing")
    for job in done:
        err.print(f"already finished: {job.folder} (the stored result is shown)")
        if keep_tasks and not (job.folder / TASK_NETWORK.format(1)).exists():
            err.print("note: it was made without --keep-tasks; give another --out to make it again with them")
        if tensorboard and not (job.folder / BOARD).is_dir():
            err.print("note: it was made without --tensorboard; give another --out to make it again with it")
    results = run_jobs(jobs, err)
    if as_json:
        print_json(results[0] if seeds is None else {"runs": results})
    else:
        print_table(*table(results))
        err.print("run folder" + ("s" if len(jobs) > 1 else "") + ":", *(str(job.folder) for job in jobs))
    tell([job.folder for job in jobs], report)


def from_file(file: Path, chosen: Chosen, method: str, memory: int | None) -> dict[str, str]:
    """The settings in a file, checked by themselves, so that an error says where it comes from."""
    from sncl.defaults import read_settings
    from sncl.experiment import parse, plan

    usual = plan(chosen.stream, method, memory=memory, own=chosen.own)
    settings = read_settings(file, chosen.stream, method, usual.memory)
    for key, text in settings.items():
        parse(key, text, usual.settings, f"{file}:")
    return settings


@app.command("tune")
def tune_command(
    stream: StreamOption,
    method: Annotated[str, typer.Option(help="A method of `sncl list`")],
    memory: Annotated[int | None, typer.Option(help="Samples that may be kept (default: 200)")] = None,
    trials: Annotated[int, typer.Option(help="How many settings to try; the first are the shipped ones")] = 30,
    seeds: Annotated[int, typer.Option(help="A trial's score is the mean over the seeds 0 .. N-1")] = 2,
    validation: Annotated[float, typer.Option(help="The part of the training data to hold out and score on")] = 0.1,
    epochs: Annotated[int | None, typer.Option(help="Passes over each task (default: the stream's)")] = None,
    tasks: Annotated[int | None, typer.Option(help="Only the first T tasks")] = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    cut: CutOption = None,
    target: TargetOption = None,
    domain: DomainOption = None,
    size: SizeOption = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Fix one setting")] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=WHERE", help="Search one more setting: LOW..HIGH, LOW..HIGH:log or A,B,C"),
    ] = None,
    storage: Annotated[
        Path | None, typer.Option(help="Journal of the study, which several processes may share (default: runs/...)")
    ] = None,
    data: DataOption = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    workers: Annotated[int | None, typer.Option(help="Trials at once (default: cores / threads)", min=1)] = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="Where the chosen settings go, as TOML (default: beside the journal)")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose settings on held-out training data. The same command goes on, also beside others."""
    from sncl.commands import tune
    from sncl.experiment import file_name
    from sncl.tuning import count, plan_search, ranking

    if trials < 1:
        raise SnclError(f"--trials is at least 1, not {trials}")
    chosen = choose(stream, cut, target, domain, size, split, classes, set_)
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
        own=chosen.own,
    )
    usual = sought.experiment({}, 0)
    chosen.tell(usual)
    journal = storage or Path("runs") / f"tune-{file_name(chosen.stream)}-{method}-{usual.memory}.journal"
    for path in (journal, file):
        if path is not None and path.is_dir():
            raise SnclError(f"{path} is a directory; --storage and --out name files")
    written = file or journal.with_suffix(".toml")
    if written.suffix != ".toml" or journal in (written, written.with_suffix(".jsonl")):
        raise SnclError(f"--out is a .toml file and --storage another one, not {written} and {journal}")
    try:
        found = tune(sought, trials, journal, written, err, data, workers)
    except KeyboardInterrupt:
        err.print(f"stopped; finished trials are kept in {journal}, and the same command goes on")
        sys.exit(INTERRUPTED)
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
        for trial in best[:10]
    ]
    states = ", ".join(f"{number} {state}" for state, number in count(found).items())
    print_table(headings, cells)
    err.print(f"trials: {states}")
    err.print(f"chosen settings: {written} (for sncl train --settings)")


def names(given: list[str] | None) -> list[str]:
    """Names from an option that may be repeated and may hold commas."""
    return [name.strip() for text in given or [] for name in text.split(",")]


@app.command("reproduce")
def reproduce_command(
    table: Annotated[str, typer.Argument(help="table1, table2, ablation or layers")],
    stream: Annotated[
        list[str] | None,
        typer.Option(
            help="A stream of the table; may be repeated (default: all but seq-cifar10 and seq-tinyimagenet, which "
            "need a GPU for hours and days)"
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method of `sncl list`, for table1 and table2; may be repeated (default: er der derpp sncl)"
        ),
    ] = None,
    memory: Annotated[
        list[int] | None, typer.Option(help="Samples that may be kept; may be repeated (default: the paper's)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0 .. N-1; others that are there count as well")] = 10,
    data: DataOption = None,
    runs: Annotated[Path, typer.Option(help="Where runs are looked for and made")] = Path("runs"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16 (auto: bfloat16 on a GPU)")] = "auto",
    results: Annotated[
        Path | None, typer.Option(help="Read TABLE.jsonl from this folder; write it and TABLE.md there")
    ] = None,
    collect: Annotated[bool, typer.Option("--collect", help="Show what is there and run nothing")] = False,
    tensorboard: TensorboardOption = False,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """A table of the paper beside our numbers: finds the runs that are there and makes those that are missing.

    A run from another device counts if its settings agree. "equal": the difference is at most twice its standard error.
    """
    from sncl.comparison import HEADINGS, by_stream, open_commands
    from sncl.comparison import as_json as to_json
    from sncl.records import folders_of
    from sncl.reproduce import Request, reproduce

    check(report, tensorboard)
    asked = (table, names(stream), names(method), memory or [], seeds)
    request = Request(*asked, runs, results, data, device, precision, collect, tensorboard)
    rows, failure = reproduce(request, err)
    if as_json:
        print_json(to_json(table, rows, request.options()))
    else:
        for name, lines in by_stream(table, rows).items():
            print_table(HEADINGS, lines, title=name)
            out.print()
        if missing := open_commands(table, rows, request.options()):
            out.print("open; to fill:", *missing, sep="\n  ", soft_wrap=True)
    if report is not None and ((folders := folders_of(rows, runs)) or failure is None):
        tell(folders, report)
    if failure is not None:
        raise failure


@analyze_app.command("perturbation")
def analyze_perturbation(
    runs: RunsArgument,
    absolute: Annotated[str | None, typer.Option(help="Sizes of the noise, with commas between them")] = None,
    relative: Annotated[str | None, typer.Option(help="Sizes relative to the norm of each filter")] = None,
    draws: Annotated[int, typer.Option(help="Draws of noise for each size", min=1)] = 5,
    rows: RowsOption = 10_000,
    seed: SeedOption = 0,
    data: DataOption = None,
    device: DeviceOption = "auto",
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Loss and accuracy under Gaussian noise on the weights: flat minima bear more of it."""
    from sncl.analysis.perturbation import SIZES, perturbation
    from sncl.analysis.pictures import draw_perturbation
    from sncl.analysis.tables import perturbation_table

    sizes = SIZES | {
        kind: numbers(text, f"--{kind}") for kind, text in (("absolute", absolute), ("relative", relative)) if text
    }
    options = {"sizes": sizes, "draws": draws, "rows": rows, "seed": seed}
    show = Shown("perturbation", perturbation_table, draw_perturbation, file, picture, as_json)
    analyze(perturbation, options, runs, show, data, device)


@analyze_app.command("fisher")
def analyze_fisher(
    runs: RunsArgument,
    eigenvalues: Annotated[int, typer.Option(help="How many of the largest eigenvalues (0: none)", min=0)] = 10,
    rows: RowsOption = 5_000,
    seed: SeedOption = 0,
    data: DataOption = None,
    device: DeviceOption = "auto",
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Trace and largest eigenvalues of the empirical Fisher information on training rows."""
    from sncl.analysis.fisher import fisher
    from sncl.analysis.pictures import draw_fisher
    from sncl.analysis.tables import fisher_table

    options = {"eigenvalues": eigenvalues, "rows": rows, "seed": seed}
    show = Shown("fisher", fisher_table, draw_fisher, file, picture, as_json)
    analyze(fisher, options, runs, show, data, device)


@analyze_app.command("tsne")
def analyze_tsne(
    runs: RunsArgument,
    task: Annotated[
        int | None, typer.Option(help="Also this task, counted from 1, now beside right after it (--keep-tasks)")
    ] = None,
    rows: RowsOption = 2_000,
    seed: SeedOption = 0,
    data: DataOption = None,
    device: DeviceOption = "auto",
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """The last features of test rows in two dimensions: how far classes lie apart, how far a task has drifted."""
    from sncl.analysis.embedding import tsne, without_task
    from sncl.analysis.pictures import draw_tsne
    from sncl.analysis.tables import tsne_table

    show = Shown("tsne", tsne_table, draw_tsne, file, picture, as_json)
    groups = analyze(tsne, {"task": task, "rows": rows, "seed": seed}, runs, show, data, device)
    for folder in without_task([run for group in groups for run in group.runs]):
        err.print(
            f"note: {folder} did not keep its network after task {task}; for that picture run its sncl train command "
            "again with --keep-tasks and another --out"
        )


@analyze_app.command("calibration")
def analyze_calibration(
    runs: RunsArgument,
    samples: Annotated[int, typer.Option(help="Samples of the gates' posterior to average", min=1)] = 20,
    bins: Annotated[int, typer.Option(help="Bins of confidence", min=1)] = 15,
    rows: RowsOption = 10_000,
    seed: SeedOption = 0,
    data: DataOption = None,
    device: DeviceOption = "auto",
    file: OutOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Whether networks are right as often as they are sure, as they predict and with their gates sampled."""
    from sncl.analysis.calibration import calibration
    from sncl.analysis.pictures import draw_calibration
    from sncl.analysis.tables import calibration_table

    options = {"samples": samples, "bins": bins, "rows": rows, "seed": seed}
    show = Shown("calibration", calibration_table, draw_calibration, file, picture, as_json)
    analyze(calibration, options, runs, show, data, device)


class Shown(NamedTuple):
    """What is made of an analysis: its name, its table, its picture, and where they go."""

    name: str
    table: Callable[[Sequence[Group]], tuple[list[str], list[list[str]]]]
    draw: Callable[[Sequence[Group], Path], None]
    file: Path | None
    picture: Path | None
    as_json: bool


def analyze(
    analysis: Callable[..., dict[str, Any]],
    options: dict[str, Any],
    runs: list[Path],
    show: Shown,
    data: Path | None,
    device: str,
) -> list[Group]:
    """Analyse the runs, and show, write and draw what was found."""
    from sncl.commands import analyse, check_picture
    from sncl.training.checkpoint import write_json

    if show.file is not None and (show.file.suffix != ".json" or not show.file.parent.is_dir()):
        raise SnclError(f"--out is a .json file in a folder that exists, not {show.file}")
    if show.picture is not None:
        check_picture(show.picture)
    try:
        groups = analyse(runs, partial(analysis, **options), err, data, device)
    except KeyboardInterrupt:
        err.print("stopped; nothing was written")
        sys.exit(INTERRUPTED)
    found = {
        "analysis": show.name,
        "options": options,
        "groups": [group.as_json() for group in groups],
        "runs": [run for group in groups for run in group.runs],
    }
    if show.file is not None:
        write_json(show.file, found)
    if show.as_json:
        print_json(found)
    else:
        print_table(*show.table(groups))
    if show.picture is not None:
        show.draw(groups, show.picture)
        err.print(f"picture: {show.picture}")
    return groups


def numbers(text: str, option: str) -> tuple[float, ...]:
    """Sizes from an option that holds commas: none is negative, and they grow."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise SnclError(f"{option} takes numbers with commas between them, not {text!r}") from error
    if not all(0 <= size < math.inf for size in found) or sorted(set(found)) != list(found):
        raise SnclError(f"{option} takes numbers from 0 on that grow, not {text!r}")
    return found


@app.command("export")
def export_command(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run of sncl train")],
    onnx: Annotated[bool, typer.Option("--onnx", help="An ONNX file (the default; needs the extra export)")] = False,
    torch_program: Annotated[bool, typer.Option("--torch", help="A program for torch.export.load")] = False,
    file: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to (default: RUN/model.onnx or .pt2)")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there")] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the network of a run as one file that predicts without sncl, closed neurons removed.

    From images as they are stored to logits; compared on the test data, and measured, before it is written.
    """
    from sncl.analysis.loading import load_run
    from sncl.export import account_file, choose, export
    from sncl.export.measures import shown

    asked = [name for name, wanted in (("onnx", onnx), ("torch", torch_program)) if wanted]
    form = choose(asked, file)
    written = file or run / f"model{form.suffix}"
    if not force and (there := next((each for each in (written, account_file(written)) if each.exists()), None)):
        raise SnclError(f"{there} is there already; --force replaces it, --out names another file")
    if file is not None and not written.parent.is_dir():
        raise SnclError(f"--out is a file in a folder that exists, not {written}")
    try:
        with err.status("loading the run") as status:
            found = export(load_run(run, data, "cpu"), form, written, status.update)
    except KeyboardInterrupt:
        err.print("stopped; nothing was written")
        sys.exit(INTERRUPTED)
    if as_json:
        print_json(found)
        return
    print_table(*shown(found, written.name))
    out.print()
    out.print(found["summary"], soft_wrap=True)
    out.print(
        f"the same predictions on all {found['test_rows']:,} {found['scored_on']} rows; logits differ by at most "
        f"{found['largest_logit_difference']:.1e}",
        soft_wrap=True,
    )
    threads = found["machine"]["threads"]
    out.print("bytes: of the weights as safetensors, beside those of the file")
    out.print(f"ms: median, measured on this machine's CPU with {threads} thread{'s' * (threads > 1)}")
    err.print(f"model: {written}")


@app.command("report")
def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold run folders")],
    file: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page")] = Path("report.html"),
) -> None:
    """Turn runs into one web page that can be mailed: tables, charts, the memory's images. Needs plotly.

    Runs that differ in nothing but the seed are shown as mean and deviation; unfinished ones are left out.
    """
    tell(runs, file)


@app.command()
def demo(
    seeds: Annotated[int, typer.Option(help="How many seeds", min=1)] = 3,
    folder: Annotated[Path | None, typer.Option("--out", help="Keep the runs here (default: a temporary one)")] = None,
    picture: Annotated[Path | None, typer.Option(help="Also draw the result (.png or .svg; needs matplotlib)")] = None,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch SGD, ER, DER++ and SNCL learn the embedded streams: no download, under two minutes."""
    from sncl.commands import check_picture, demo_jobs, draw, run_jobs, working_folder
    from sncl.results import table

    if picture is not None:
        check_picture(picture)
    check(report)
    with working_folder(folder) as place:
        jobs = demo_jobs(seeds, place)
        results = run_jobs(jobs, err)
        if as_json:
            print_json({"runs": results})
        else:
            for stream in dict.fromkeys(result["stream"] for result in results):
                print_table(*table([result for result in results if result["stream"] == stream]))
                out.print()
        if picture is not None:
            draw(results, picture)
            err.print(f"picture: {picture}")
        tell([job.folder for job in jobs], report)


@app.command("bench")
def bench_command(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    stream: Annotated[
        str | None,
        typer.Option(help="Only the shapes of perm-mnist or seq-cifar10, or your own data: folder:PATH"),
    ] = None,
    method: Annotated[str | None, typer.Option(help="Only er, derpp or sncl")] = None,
    cut: CutOption = None,
    target: TargetOption = None,
    domain: DomainOption = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """How fast a training step is here, beside the bare network's passes on as many images (the bound)."""
    from sncl.bench import as_json as to_json
    from sncl.bench import bench
    from sncl.training.learner import choose_device

    place = str(choose_device(device))
    if stream is None and any(each is not None for each in (cut, target, domain, size)):
        raise SnclError("--cut, --target, --domain and --size need a --stream of your own data")
    chosen = None if stream is None else choose(stream, cut, target, domain, size)
    with err.status("measuring ...") as status:
        streams, methods = ([name] if name else None for name in (chosen.stream if chosen else None, method))
        own = chosen.own if chosen else None
        rows, outside = bench(place, streams, methods, lambda what: status.update(f"measuring {what}"), own)
    if as_json:
        print_json(to_json(rows, outside))
        return
    headings = ["stream", "method", "memory", "runs", "ms a step", "bound, ms", "ratio", "images/s", "peak MB"]
    cells = [
        [
            row.stream,
            row.method,
            str(row.memory),
            str(row.runs),
            f"{row.ms_per_step:.2f}",
            f"{row.bound_ms:.2f}",
            f"{row.ratio:.2f}",
            f"{row.images_per_s:,.0f}",
            f"{row.peak_mb:,.0f}",
        ]
        for row in rows
    ]
    print_table(
        headings, cells, title=f"one step on {place}; with several runs at once, time divided by the steps of all"
    )
    out.print()
    headings = ["stream", "method", "outside steps", "evaluation, s", "checkpoints, s", "losses, s", "steps, s"]
    cells = [
        [
            each.stream,
            each.method,
            f"{each.percent:.1f} %",
            f"{each.evaluation_s:.1f}",
            f"{each.checkpoints_s:.1f}",
            f"{each.logging_s:.1f}",
            f"{each.steps_s:.0f}",
        ]
        for each in outside
    ]
    print_table(headings, cells, title="a whole run, reckoned from its parts")


@data_app.callback()
def data_inventory(context: typer.Context, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Say which data sets are there."""
    from sncl.streams.sources import data_root, inventory

    if context.invoked_subcommand is not None:
        return
    root = data_root(data)
    found = inventory(root)
    if as_json:
        print_json({"root": str(root), "data": [each._asdict() for each in found]})
        return
    out.print(f"data folder: {root}", soft_wrap=True)
    cells = [[each.name, "yes" if each.present else "no", each.detail, each.path] for each in found]
    print_table(["data set", "there", "", "where"], cells)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="mnist, cifar10 or tiny-imagenet")],
    data: DataOption = None,
    mirror: Annotated[str | None, typer.Option(help="Base address to download from instead")] = None,
) -> None:
    """Download a data set from its official place, with checksum; an interrupted download goes on."""
    from sncl.commands import download_bar
    from sncl.streams.fetch import fetch
    from sncl.streams.sources import data_root

    root = data_root(data)
    with download_bar(err) as progress:
        paths = fetch(name, root, mirror=mirror, progress=progress)
    for path in paths:
        out.print(str(path), soft_wrap=True)


if __name__ == "__main__":
    main()
