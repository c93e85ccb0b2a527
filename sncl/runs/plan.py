"""From names and a few choices to a complete experiment: defaults are filled in, names and values are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sncl.errors import SnclError
from sncl.methods.table import METHODS, Settings, entry, method_name
from sncl.runs.experiment import Experiment
from sncl.runs.length import is_short, planned_steps
from sncl.runs.settings import MEMORY, NEUTRAL, TRAINING, USER, USER_MLP, make_method, neutral_of, resolve
from sncl.streams.benchmarks import Benchmark, augmentation, augmented, named, stream_name, user_benchmark
from sncl.training.gpu import may_have_gpu
from sncl.training.parallel import cores

if TYPE_CHECKING:
    from sncl.methods.method import Method
    from sncl.streams.user.identity import UserData

CPU = "cpu"
ON_CPU = ("float32", "eager")  # precision and engine: all there is


def plan(
    stream: str,
    method: str,
    *,
    memory: int | None = None,
    seed: int = 0,
    epochs: int | None = None,
    tasks: int | None = None,
    validation: float = 0.0,
    device: str = "auto",
    precision: str = "auto",
    engine: str = "auto",
    threads: int | None = None,
    settings: dict[str, str] | None = None,
    user_data: UserData | None = None,
    unchecked: bool = False,
    elsewhere: bool = False,
) -> Experiment:
    """Fill in the defaults and check every name and value, before anything is loaded or written.

    ``user_data`` is what :func:`sncl.streams.user.data.read` found out about the user's data, which are then the
    stream. ``unchecked`` leaves out what only the method itself could tell, where nothing else depends on it: enough to
    find a finished run, and quick, since torch is not loaded. ``elsewhere``: the run is made on a machine
    that may have the GPU which this one lacks.
    """
    given = settings or {}
    benchmark = benchmark_of(stream, user_data, given)
    stream = stream_name(stream) if user_data is None else user_data.name
    method = method_name(method)
    memory = choose_memory(method, memory, user_data)
    epochs = choose_epochs(stream, benchmark, epochs)
    tasks = choose_tasks(benchmark, tasks, given)
    usual, neutral = usual_settings(benchmark, user_data), neutral_settings(method, benchmark, user_data)
    chosen = resolve(stream, method, memory, usual, neutral, given, tasks, length=epochs / benchmark.epochs)
    place = choose_place(device, elsewhere)
    if unchecked and place == CPU and precision in ("auto", ON_CPU[0]) and engine in ("auto", ON_CPU[1]):
        precision, engine = ON_CPU
    else:
        made = make_method(method, chosen)
        check_suits(method, made, stream, benchmark, user_data)
        check_training(chosen, made, benchmark)
        if engine == "auto" and is_short(planned_steps(benchmark, tasks, epochs, chosen, user_data), benchmark):
            engine = "eager"
        precision, engine = choose_execution(precision, engine, place, made)
    return Experiment(
        stream=stream,
        method=method,
        memory=memory,
        seed=seed,
        epochs=epochs,
        tasks=tasks,
        validation=validation,
        threads=choose_threads(threads, benchmark, place),
        device=place,
        precision=precision,
        engine=engine,
        settings=chosen,
        user_data=user_data,
        code=code_of(method),
    )


def code_of(method: str) -> str | None:
    """The fingerprint of a method that is none of ours."""
    if method in METHODS:
        return None
    from sncl.methods.constructor import code_digest

    return code_digest(entry(method).make)


def choose_place(device: str, elsewhere: bool = False) -> str:
    """The device as runs name it. The CPU is known without torch, if it was asked for or is all there is."""
    if device == CPU or (device == "auto" and not may_have_gpu()):
        return CPU
    if device == "cuda" and elsewhere:
        return device
    from sncl.training.engine import choose_device

    place = choose_device(device)
    if place.type not in (CPU, "cuda"):
        raise SnclError(f"runs are made on cpu or cuda, not on {device!r}")
    return str(place)


def choose_execution(precision: str, engine: str, place: str, made: Method) -> tuple[str, str]:
    """Precision and engine, as runs name them."""
    from torch import device as Device

    from sncl.training.engine import choose_engine, choose_precision

    there = Device(place)
    precision = str(choose_precision(precision, there, made)).removeprefix("torch.")
    return precision, choose_engine(engine, there, made)


def benchmark_of(stream: str, user_data: UserData | None, given: dict[str, str]) -> Benchmark:
    """What the stream is made of, by its name or by what is known of the user's data."""
    if user_data is None:
        if "augment" in given:  # refuses what does not fit
            augmented(stream_name(stream), named(stream), given["augment"])
        return named(stream)
    return user_benchmark(user_data, given.get("split"), given.get("augment", "none"))


def choose_memory(method: str, memory: int | None, user_data: UserData | None) -> int:
    """How many samples may be kept; 0 for a method that keeps none."""
    if not entry(method).memory:
        return 0
    if memory is not None and memory < 1:
        raise SnclError(f"`memory` is at least 1 sample, not {memory}")
    return memory or (MEMORY if user_data is None else min(MEMORY, max(1, user_data.rows // 5)))


def choose_epochs(stream: str, benchmark: Benchmark, epochs: int | None) -> int:
    if epochs is not None and epochs < 1:
        raise SnclError(f"`epochs` is at least 1, not {epochs}")
    if epochs not in (None, 1) and benchmark.once:
        raise SnclError(f"{stream} is seen once: `epochs` can only be 1")
    return epochs or benchmark.epochs


def choose_tasks(benchmark: Benchmark, tasks: int | None, given: dict[str, str]) -> int:
    """How many tasks are learned: as many as asked for, or as the split makes. One that is no split fails later."""
    split = given.get("split", "").partition("x")[0]
    return tasks if tasks is not None else int(split) if split.isdecimal() else benchmark.tasks


def choose_threads(threads: int | None, benchmark: Benchmark, place: str) -> int:
    """CPU threads of one run: a small network gains more from several runs at once, and a GPU's host has nothing to
    share out."""
    if threads is None:
        return 1 if benchmark.network == "mlp" or place != CPU else cores()
    if threads < 1:
        raise SnclError(f"`threads` is at least 1, not {threads}")
    return threads


def usual_settings(benchmark: Benchmark, user_data: UserData | None) -> Settings:
    """The settings of training on this stream, whatever the method."""
    width = 100 if benchmark.network == "mlp" else 64
    usual = TRAINING | NEUTRAL | {"batch_size": benchmark.batch_size, "width": width}
    if user_data is not None:
        usual |= USER
        usual |= USER_MLP if user_data.network == "mlp" else {}
        usual |= {"augment": "none"} if user_data.pixels else {}
    elif augment := augmentation(benchmark):
        usual |= {"augment": augment}
    if benchmark.kind == "seq":
        usual |= {"split": f"{benchmark.tasks}x{benchmark.classes_per_task}"}
    return usual


def neutral_settings(method: str, benchmark: Benchmark, user_data: UserData | None = None) -> Settings:
    """The settings that are left out of a run's where they have these values. How images of the user's data are
    augmented never is."""
    augment = augmentation(benchmark) if user_data is None else ""
    return neutral_of(method) | ({"augment": augment} if augment else {})


def check_suits(name: str, made: Method, stream: str, benchmark: Benchmark, user_data: UserData | None) -> None:
    """Refuse a method that must be told more than the stream can tell it."""
    if made.needs_boundaries and benchmark.once:
        raise SnclError(f"{name} must be told where tasks end, and {stream} has no boundaries; use another stream")
    if made.needs_task_at_test and benchmark.kind != "seq":
        which = "a seq- stream" if user_data is None else '`cut="classes"`'
        raise SnclError(f"{name} must be told the task at test time, which only Task-IL does; use {which}")


def check_training(chosen: Settings, made: Method, benchmark: Benchmark) -> None:
    from sncl.training.clipping import check_clip
    from sncl.training.descent import check_descent
    from sncl.training.ema import check_ema
    from sncl.training.schedule import check_drop
    from sncl.training.weighting import check_class_weight

    check_ema(float(chosen["ema"]), made)
    check_clip(float(chosen.get("clip", 0.0)))
    check_descent(float(chosen.get("momentum", 0.0)), float(chosen.get("weight_decay", 0.0)))
    drop, part = (float(chosen.get(key, NEUTRAL[key])) for key in ("lr_drop", "lr_drop_part"))
    check_drop(drop, part, benchmark.once)
    check_class_weight(str(chosen.get("class_weight", "none")), made)
    for key in ("lr", "batch_size", "replay", "width"):
        if not float(chosen[key]) > 0:
            raise SnclError(f"{key} is a positive number, not {chosen[key]}")
