"""One experiment: a method on a stream with a memory and a seed, from its names to its result file.

The only place that knows all names. A run folder holds ``experiment.json`` (what is run), ``checkpoint.safetensors``
(where it is, and in the end the trained network), ``log.jsonl`` and, once finished, ``result.json``; on demand also
``task-01.safetensors`` and so on, the network after each task, and ``tensorboard/``.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import nn

import sncl
from sncl.errors import SnclError
from sncl.evaluation.metrics import average, backward_transfer, forgetting, forward_transfer
from sncl.methods.table import METHODS, Value, entry, make
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.runs.settings import Settings, defaults
from sncl.streams.benchmarks import build, build_user, named, user_benchmark
from sncl.streams.datasets.sources import Progress
from sncl.streams.stream import Stream
from sncl.streams.user.data import UserData, read
from sncl.tensors.random import seeded
from sncl.training.checkpoint import read_json, write_json
from sncl.training.ema import check_ema
from sncl.training.engine import choose_device, choose_engine, choose_precision, exact_kernels, on_threads
from sncl.training.evaluate import Scores, accuracy_variants, open_by_layer
from sncl.training.events import Watch
from sncl.training.learner import Learner
from sncl.training.parallel import cores
from sncl.training.run import CHECKPOINT, CHECKPOINT_SECONDS, run

PROTOCOL = "2020.1"  # docs/faithfulness.md; raised when a change moves numbers
RESULT = "result.json"
EXPERIMENT = "experiment.json"
TRAINING: Settings = {"lr": 0.03, "batch_size": 32, "replay": 32, "ema": 0.0}
USER_MLP: Settings = {"lr": 0.1}  # for data nobody has tuned for; a ResNet keeps that of TRAINING
MEMORY = 200  # samples, unless told otherwise; of one's own data at most a fifth
PATH = "path"  # where a person's own data lay: written down, but another place does not make another run
LAST_BITS = ("device", "precision", "engine", "threads")  # move the last bits of a result, not what it is a result of


@dataclass(frozen=True)
class Experiment:
    """Everything that decides the numbers. ``settings`` are complete: defaults and what was set by hand.

    ``own`` says what the stream is made of where it is none of `sncl list`.
    """

    stream: str
    method: str
    memory: int
    seed: int
    epochs: int
    tasks: int
    validation: float
    device: str
    precision: str
    engine: str
    threads: int
    settings: Settings
    user_data: UserData | None = None

    def identity(self) -> dict[str, Any]:
        facts = asdict(self) | {"protocol": PROTOCOL}
        user_data = facts.pop("user_data")
        return (
            facts
            if user_data is None
            else facts | {"user_data": {key: user_data[key] for key in user_data if key != PATH}}
        )

    def described(self) -> dict[str, Any]:
        """What ``experiment.json`` says: the identity, and where a person's own data lay."""
        return self.identity() | ({} if self.user_data is None else {PATH: self.user_data.path})

    def name(self) -> str:
        """A folder name that no other experiment has."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:8]
        return f"{file_name(self.stream)}-{self.method}-{self.memory}-seed{self.seed}-{digest}"


def file_name(stream: str) -> str:
    """A stream's name as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", stream)


def completed(method: str, settings: Settings) -> Settings:
    """Settings with those that an earlier version did not have: they came with a neutral value, which is what it ran
    with."""
    of_method = METHODS[method].settings if method in METHODS else {}
    return {"ema": TRAINING["ema"]} | of_method | settings


def deciding(identity: dict[str, Any]) -> dict[str, Any]:
    """What decides a result, apart from the seed, of what :meth:`Experiment.identity` says."""
    kept = {key: value for key, value in identity.items() if key not in (*LAST_BITS, PATH, "seed")}
    return kept | {"settings": completed(identity["method"], identity["settings"])}


def decision(identity: dict[str, Any]) -> str:
    """:func:`deciding` as text: the same for runs that differ in nothing but the seed."""
    return json.dumps(deciding(identity), sort_keys=True)


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
) -> Experiment:
    """Fill in the defaults and check every name and value, before anything is loaded or written.

    ``user_data`` is what :func:`sncl.streams.user.data.read` found out about the user's data, which are then the
    stream.
    """
    given = settings or {}
    benchmark = (
        named(stream)
        if user_data is None
        else user_benchmark(user_data, given.get("split"), given.get("augment", "none"))
    )
    stream = stream if user_data is None else user_data.name
    found = entry(method)
    if memory is not None and memory < 1 and found.memory:
        raise SnclError(f"--memory is at least 1 sample, not {memory}")
    if epochs is not None and epochs < 1:
        raise SnclError(f"--epochs is at least 1, not {epochs}")
    if epochs not in (None, 1) and benchmark.once:
        raise SnclError(f"{stream} is seen once: --epochs can only be 1")
    most = MEMORY if user_data is None else min(MEMORY, max(1, user_data.rows // 5))
    memory = (memory or most) if found.memory else 0
    usual = TRAINING | {"batch_size": benchmark.batch_size, "width": 100 if benchmark.network == "mlp" else 64}
    if user_data is not None:
        usual |= USER_MLP if user_data.network == "mlp" else {}
        usual |= {"augment": "none"} if user_data.pixels else {}
    if benchmark.kind == "seq":
        usual |= {"split": f"{benchmark.tasks}x{benchmark.classes_per_task}"}
    known = usual | found.settings | defaults(stream, method, memory)
    if "parts" in known:  # tasks that share the memory
        known["parts"] = tasks or benchmark.tasks
    chosen = known | {key: parse(key, text, known) for key, text in given.items()}
    made = make(method, {key: chosen[key] for key in found.settings})  # refuses values the method cannot take
    if made.needs_boundaries and benchmark.once:
        raise SnclError(f"{method} must be told where tasks end, and {stream} has no boundaries; use another stream")
    if made.needs_task_at_test and benchmark.kind != "seq":
        which = "a seq- stream" if user_data is None else "--cut classes"
        raise SnclError(f"{method} must be told the task at test time, which only Task-IL does; use {which}")
    check_ema(float(chosen["ema"]), made)
    for key in ("lr", "batch_size", "replay", "width"):
        if not float(chosen[key]) > 0:
            raise SnclError(f"{key} is a positive number, not {chosen[key]}")
    place = choose_device(device)
    if place.type not in ("cpu", "cuda"):
        raise SnclError(f"runs are made on cpu or cuda, not on {device!r}")
    if threads is None:  # a small network gains more from several runs at once; a GPU's host has nothing to share out
        threads = 1 if benchmark.network == "mlp" or place.type == "cuda" else cores()
    if threads < 1:
        raise SnclError(f"--threads is at least 1, not {threads}")
    asked = str(chosen.get("split", benchmark.tasks)).partition("x")[0]  # a split that is none fails with the stream
    return Experiment(
        stream=stream,
        method=method,
        memory=memory,
        seed=seed,
        epochs=epochs or benchmark.epochs,
        tasks=tasks if tasks is not None else int(asked) if asked.isdecimal() else benchmark.tasks,
        validation=validation,
        device=str(place),
        precision=str(choose_precision(precision, place, made)).removeprefix("torch."),
        engine=choose_engine(engine, place, made),
        threads=threads,
        settings=chosen,
        user_data=user_data,
    )


def parse(key: str, text: str, known: Settings, option: str = "--set") -> Value:
    """A value given as text, as the type the setting has."""
    if key not in known:
        raise SnclError(f"there is no setting {key!r} here; {option} takes {', '.join(sorted(known))}")
    kind = type(known[key])
    try:
        value = kind(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("not finite")
        return value
    except ValueError as error:
        raise SnclError(f"{option} {key}= takes a value like {known[key]!r}, not {text!r}") from error


def make_network(experiment: Experiment, stream: Stream) -> nn.Module:
    """The benchmark's network, its weights drawn from the seed alone."""
    width = int(experiment.settings["width"])
    network = named(experiment.stream).network if experiment.user_data is None else experiment.user_data.network
    with seeded(experiment.seed, "network"):
        if network == "mlp":
            return MLP(math.prod(stream.shape), stream.classes, width)
        return ResNet18(stream.classes, stream.shape[0], width)


def make_stream(experiment: Experiment, data: Path | None, progress: Progress | None = None) -> Stream:
    """The stream of an experiment; ``data`` is the folder of the data sets of `sncl list`."""
    split = None if "split" not in experiment.settings else str(experiment.settings["split"])
    batch_size, place = int(experiment.settings["batch_size"]), experiment.device
    seed, tasks, validation = experiment.seed, experiment.tasks, experiment.validation
    if experiment.user_data is None:
        stream = build(
            experiment.stream,
            data,
            seed=seed,
            batch_size=batch_size,
            tasks=tasks,
            split=split,
            validation=validation,
            device=place,
            progress=progress,
        )
    else:
        found = read(experiment.user_data.asked(), progress)
        if found.user_data.fingerprint != experiment.user_data.fingerprint:
            raise SnclError(f"the data in {experiment.user_data.path} are no longer those that this run is about")
        augment = str(experiment.settings.get("augment", "none"))
        stream = build_user(found, seed, batch_size, tasks, split, validation, place, augment)
    return stream.joint() if entry(experiment.method).joint else stream


def make_learner(experiment: Experiment, stream: Stream) -> Learner:
    settings = completed(experiment.method, experiment.settings)
    return Learner(
        make_network(experiment, stream),
        make(experiment.method, {key: settings[key] for key in entry(experiment.method).settings}),
        memory=max(experiment.memory, 1),
        replay=int(settings["replay"]),
        lr=float(settings["lr"]),
        transform=stream.transform,
        seed=experiment.seed,
        device=experiment.device,
        precision=experiment.precision,
        engine=experiment.engine,
        ema=float(settings["ema"]),
    )


def perform(
    experiment: Experiment,
    folder: Path,
    data: Path | None = None,
    watch: Watch | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    keep_tasks: bool = False,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Run the experiment in ``folder``, or finish it, or return the result that lies there.

    ``keep_tasks`` also leaves the network after each task there, for the analyses; ``tensorboard`` a log for
    TensorBoard.
    """
    finished = stored_result(experiment, folder)
    if finished is not None:
        return finished
    stream = make_stream(experiment, data, progress)
    check_memory(experiment, stream)
    learner = make_learner(experiment, stream)
    learner.prepare(stream.batch(0, torch.arange(2))[0])  # refuses layers that are not there, before a file is written
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock", timeout=0), exact_kernels(), on_threads(experiment.threads):
            for left in folder.glob(".*.part"):  # what a process that was killed did not finish writing
                left.unlink()
            identity = experiment.identity()
            write_json(folder / EXPERIMENT, experiment.described())
            options = (watch, checkpoint_seconds, keep_tasks, tensorboard)
            scores = run(learner, stream, experiment.epochs, folder, identity, *options)
            result = summarise(experiment, stream, learner, scores)
            write_json(folder / RESULT, result)
            return result
    except Timeout as error:
        raise SnclError(f"another process is running in {folder}; wait for it or choose another --out") from error
    except OSError as error:
        raise SnclError(f"cannot write to {folder}: {error.strerror or error}") from error


def stored_result(experiment: Experiment, folder: Path) -> dict[str, Any] | None:
    """The result in ``folder`` if this experiment is finished there; an error if another one lies there."""
    if not (folder / EXPERIMENT).exists():
        for name in (CHECKPOINT, RESULT):
            if (folder / name).exists():
                raise SnclError(f"{folder} holds a {name} but no {EXPERIMENT} to say of what; choose another --out")
        return None
    stored, ours = read_json(folder / EXPERIMENT), json.loads(json.dumps(experiment.identity()))
    if not isinstance(stored, dict) or {key: value for key, value in stored.items() if key != PATH} != ours:
        refuse_changed_data(folder, stored, ours)
        raise SnclError(f"{folder} holds another experiment; choose another --out or the settings it was made with")
    if not (folder / RESULT).exists():
        return None
    result = read_json(folder / RESULT)
    about = {"stream": experiment.stream, "method": experiment.method, "seed": experiment.seed}
    if not isinstance(result, dict) or about != {key: result.get(key) for key in about}:
        raise SnclError(f"{folder / RESULT} is damaged; move it away to have it written again")
    return result


def refuse_changed_data(folder: Path, stored: Any, ours: dict[str, Any]) -> None:
    """Say so, where a run differs from the one in the folder in the content of a person's own data alone."""
    user_data, theirs = ours.get("user_data"), stored.get("user_data") if isinstance(stored, dict) else None
    if (
        not isinstance(user_data, dict)
        or not isinstance(theirs, dict)
        or user_data["fingerprint"] == theirs.get("fingerprint")
    ):
        return
    if (ours["stream"], user_data["cut"]) == (stored.get("stream"), theirs.get("cut")):
        raise SnclError(
            f"{folder} was made with other data: what {ours['stream']} names has changed since; bring back the data, "
            "or choose another --out"
        )


def check_memory(experiment: Experiment, stream: Stream) -> None:
    rows = sum(len(phase.rows) for phase in stream.phases)
    if experiment.memory > rows:
        raise SnclError(f"--memory {experiment.memory} is more than the {rows} samples {experiment.stream} has")


def summarise(experiment: Experiment, stream: Stream, learner: Learner, scores: Scores) -> dict[str, Any]:
    """What ``result.json`` says."""
    measures = {
        readout: {
            "accuracy": average(matrix),
            "accuracy_matrix": matrix,
            "untrained": scores.untrained.get(readout),
            "forgetting": forgetting(matrix) if stream.boundaries else None,
            "bwt": backward_transfer(matrix) if stream.boundaries else None,
            "fwt": forward_transfer(matrix, scores.untrained[readout]) if stream.boundaries else None,
        }
        for readout, matrix in scores.matrices.items()
    }
    main = next(iter(measures.values()))
    return {
        "stream": experiment.stream,
        "method": experiment.method,
        "memory": experiment.memory,
        "seed": experiment.seed,
        "accuracy": {readout: measure["accuracy"] for readout, measure in measures.items()},
        "accuracy_matrix": main["accuracy_matrix"],
        "forgetting": main["forgetting"],
        "bwt": main["bwt"],
        "fwt": main["fwt"],
        "measures": measures,
        "steps": learner.steps,
        "seconds": round(scores.seconds, 3),
        "memory_bytes_per_sample": learner.memory.bytes_per_row() if learner.memory is not None else 0,
        "parameters": sum(parameter.numel() for parameter in learner.net.parameters()),
        "active_fraction": scores.open_by_task[-1] if scores.open_by_task else None,
        "open_by_task": scores.open_by_task or None,
        "open_by_layer": open_by_layer(learner),
        "accuracy_variants": accuracy_variants(learner, stream),
        **({"class_names": list(stream.names)} if stream.names else {}),
        **({"task_names": list(stream.task_names)} if stream.task_names else {}),
        "scored_on": "validation" if experiment.validation else "test",
        "manifest": {
            "protocol": PROTOCOL,
            "data": stream.source_fingerprint,
            "versions": {
                "sncl": sncl.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            "device": torch.cuda.get_device_name() if experiment.device.startswith("cuda") else platform.machine(),
            "threads": experiment.threads,
            "precision": experiment.precision,
            "engine": experiment.engine,
            "epochs": experiment.epochs,
            "tasks": experiment.tasks,
            "validation": experiment.validation,
            "settings": experiment.settings,
        },
    }
