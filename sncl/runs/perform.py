"""Performing an experiment in its folder: run it, finish it, or return the result that lies there."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from filelock import FileLock, Timeout

import sncl
from sncl.errors import Busy, SnclError
from sncl.evaluation.accuracy import Readout
from sncl.evaluation.by_class import ByClass
from sncl.evaluation.collapse import collapses
from sncl.evaluation.metrics import average, backward_transfer, forgetting, forward_transfer
from sncl.runs.beside import beside_others
from sncl.runs.build import check_memory, make_learner, make_stream
from sncl.runs.data import refuse_changed_data, stamp_of
from sncl.runs.experiment import EXPERIMENT, PREPROCESSING, PROTOCOL, Experiment
from sncl.runs.finished import finished_result, stored_result
from sncl.runs.result import RESULT, Manifest, Measures, Result, write_result
from sncl.runs.settings import NEUTRAL
from sncl.streams.cache import Progress
from sncl.streams.preprocessing import Preprocessing
from sncl.streams.stream import Stream
from sncl.tensors.group import Group
from sncl.training.checkpoint import make_folder, read_checkpoint, remove_parts, sealed, write_json
from sncl.training.engine import exact_kernels, on_threads
from sncl.training.evaluate import Scores, accuracy_variants, open_by_layer, task_tests
from sncl.training.events import Watch
from sncl.training.folder import CHECKPOINT, CHECKPOINT_SECONDS, same_experiment
from sncl.training.learner import Learner
from sncl.training.run import run
from sncl.training.schedule import StepSizes


def perform(
    experiment: Experiment,
    folder: Path,
    data: Path | None = None,
    watch: Watch | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    keep_tasks: bool = False,
    tensorboard: bool = False,
    group: str | None = None,
) -> Result:
    """Run the experiment in ``folder``, or finish it, or return the result that lies there.

    ``keep_tasks`` also leaves the network after each task there, for the analyses; ``tensorboard`` a log for
    TensorBoard. ``group`` "auto" shares the run among the processes that were started; the first one writes.
    """
    finished = finished_result(experiment, folder, data)
    if finished is not None:
        return finished
    stamp = stamp_of(experiment, data)
    stream = make_stream(experiment, data, progress)
    if experiment.user_data is None:
        experiment = replace(experiment, data=stream.source_fingerprint)
        stamp = stamp if stamp == stamp_of(experiment, data) else None  # files that changed meanwhile are read again
    check_memory(experiment, stream)
    learner = make_learner(experiment, stream, group)
    learner.prepare(stream.batch(0, torch.arange(2))[0])  # refuses layers that are not there, before a file is written
    balance = experiment.settings.get("class_weight") == "balanced"
    options = (watch, checkpoint_seconds, keep_tasks, tensorboard, balance, step_sizes_of(experiment))

    def go() -> Result:
        with beside_others(experiment, stream, learner):
            scores = run(learner, stream, experiment.epochs, folder, experiment.identity(), *options)
        return summarise(experiment, stream, learner, scores)

    try:
        with exact_kernels(), on_threads(experiment.threads):
            if learner.group is not None and learner.group.rank > 0:
                return beside(learner.group, go, experiment, folder)
            make_folder(folder)
            with FileLock(folder / ".lock", timeout=0):
                finished = stored_result(experiment, folder)  # again: another process may have been here meanwhile
                if finished is None:
                    begin(experiment, folder, stamp, stream.preprocessing)
                if learner.group is not None:
                    learner.group.most(finished is not None)
                if finished is not None:
                    return finished
                result = go()
                write_result(folder / RESULT, result)
                return result
    except Timeout as error:
        raise Busy(f"another process is running in {folder}; wait for it or choose another `out`") from error
    except OSError as error:
        raise SnclError(f"cannot write to {folder}: {error.strerror or error}") from error


def step_sizes_of(experiment: Experiment) -> StepSizes | None:
    """How the step size drops late in each task; None where it stays as it is."""
    factor, part = (float(experiment.settings.get(key, NEUTRAL[key])) for key in ("lr_drop", "lr_drop_part"))
    return StepSizes(factor, part) if factor < 1 else None


def beside(group: Group, go: Callable[[], Result], experiment: Experiment, folder: Path) -> Result:
    """Share a run whose files another process writes, once it says that there is something left to do."""
    finished = stored_result(experiment, folder) if group.most(0) else None
    return go() if finished is None else finished


def begin(
    experiment: Experiment, folder: Path, stamp: str | None = None, preprocessing: Preprocessing | None = None
) -> None:
    """Make the folder that of this experiment. A checkpoint of another one is refused before anything is written."""
    if (folder / CHECKPOINT).exists():
        _, description = read_checkpoint(folder / CHECKPOINT)
        stored, ours = description.get("experiment"), experiment.identity()
        if not same_experiment(stored, ours):
            refuse_changed_data(folder, stored if isinstance(stored, dict) else {}, ours)
            raise SnclError(f"{folder} holds a checkpoint of another experiment; choose another `out`")
    written = (EXPERIMENT, PREPROCESSING, RESULT, CHECKPOINT)
    remove_parts(folder, *(re.escape(name) for name in written), r"task-\d+\.safetensors")
    if preprocessing is not None:
        write_json(folder / PREPROCESSING, sealed(preprocessing.to_json()))
    write_json(folder / EXPERIMENT, sealed(experiment.described(stamp)))


def summarise(experiment: Experiment, stream: Stream, learner: Learner, scores: Scores) -> Result:
    """What came of a run."""
    return Result(
        stream=experiment.stream,
        method=experiment.method,
        memory=experiment.memory,
        seed=experiment.seed,
        measures={readout: measured(stream, scores, readout) for readout in scores.matrices},
        steps=learner.steps,
        seconds=round(scores.seconds, 3),
        memory_bytes_per_sample=learner.memory.bytes_per_row() if learner.memory is not None else 0,
        parameters=sum(parameter.numel() for parameter in learner.net.parameters()),
        active_fraction=scores.open_by_task[-1] if scores.open_by_task else None,
        open_by_task=scores.open_by_task or None,
        open_by_layer=open_by_layer(learner),
        accuracy_variants={
            way: {str(readout): value for readout, value in found.items()}
            for way, found in accuracy_variants(learner, stream).items()
        },
        scored_on="validation" if experiment.validation else "test",
        manifest=made(experiment, stream),
        class_names=list(stream.names) or None,
        task_names=list(stream.task_names) or None,
        collapsed=collapses(scores.best_recalls, task_tests(stream)),
        by_class=None if scores.confusion is None else ByClass.counted(scores.confusion, stream.classes),
    )


def measured(stream: Stream, scores: Scores, readout: Readout) -> Measures:
    """What follows from the accuracy matrix of one read-out."""
    matrix = scores.matrices[readout]
    return Measures(
        accuracy=average(matrix),
        accuracy_matrix=matrix,
        untrained=scores.untrained.get(readout),
        forgetting=forgetting(matrix) if stream.boundaries else None,
        bwt=backward_transfer(matrix) if stream.boundaries else None,
        fwt=forward_transfer(matrix, scores.untrained[readout]) if stream.boundaries else None,
    )


def made(experiment: Experiment, stream: Stream) -> Manifest:
    """How a run was made, here and now."""
    return Manifest(
        protocol=PROTOCOL,
        data=stream.source_fingerprint,
        versions={"sncl": sncl.__version__, "torch": str(torch.__version__), "python": platform.python_version()},
        device=torch.cuda.get_device_name() if experiment.device.startswith("cuda") else platform.machine(),
        threads=experiment.threads,
        precision=experiment.precision,
        engine=experiment.engine,
        epochs=experiment.epochs,
        tasks=experiment.tasks,
        validation=experiment.validation,
        settings=experiment.settings,
    )
