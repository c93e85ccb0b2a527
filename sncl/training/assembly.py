"""How a learner is put together: from its arguments to a network that is ready to train."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from sncl.memory.memory import Memory
from sncl.methods.method import Growth, Method, TaskEnd
from sncl.networks.output import find_output, widen
from sncl.networks.sharing import SharedPasses
from sncl.networks.taps import Tapped, evaluating
from sncl.streams.transforms import eval_input, training_input
from sncl.tensors.fields import Fields, Inputs, mapped, named, rows
from sncl.tensors.random import Randomness
from sncl.training.clipping import Clip
from sncl.training.descent import Optimizer, carry_moments
from sncl.training.ema import EMA
from sncl.training.engine import Eager
from sncl.training.group import check_draws_nothing
from sncl.training.inputs import refuse_gaps
from sncl.training.recorded import Recorded, make_engine
from sncl.training.signature import Signature, first_samples, try_network
from sncl.training.step import Step

if TYPE_CHECKING:
    from sncl.training.learner import Learner


class Ready(NamedTuple):
    """What there is once the network is prepared; ``average`` is that of its weights, ``clip`` bounds gradients.

    ``predictions`` are those that may be replayed.
    """

    net: Tapped
    optimizer: Optimizer
    engine: Eager
    predictions: Recorded
    average: EMA | None
    clip: Clip | None


def prepare(learner: Learner, x: Inputs) -> Ready:
    """Try the network on the first samples and let the method prepare it; the learner then knows its inputs."""
    if learner.device.type == "cpu":
        mapped(refuse_gaps, x)
    first = first_samples(x, learner.transform, learner.body, learner.device)
    seen = eval_input(learner.transform, first)
    try_network(learner.body, first, seen)
    if learner.group is not None:
        check_draws_nothing(learner.body, seen)
        learner.group.begin_alike(learner.body)
    if learner.grows:
        learner.output_layer = find_output(learner.body, seen)
    if learner.chooses_engine and (not isinstance(first, Tensor) or first.dtype == torch.int64):
        learner.engine = "eager"  # language networks ask for values, which a graph cannot answer
    learner.signature = Signature(named(first))
    learner.method.bind(learner.lr)
    net = learner.method.prepare(learner.body, seen, learner.random["gates"]).to(learner.device)
    net.train()
    with evaluating(net), torch.no_grad():
        learner.outputs = learner.method.predict(net, seen, task=0).shape[1]
    return assemble(learner, net)


def assemble(learner: Learner, net: Tapped, before: Ready | None = None) -> Ready:
    """The optimiser, engine and average of a network that is new, or was ready before it got more parameters."""
    if learner.group is not None:
        net.sharing = SharedPasses(net.body, learner.group, learner.method.condensed)
    optimizer = learner.make_optimizer(learner.method.parameter_groups(net, learner.lr))
    clip = before.clip if before is not None else Clip(learner.clip, learner.device) if learner.clip else None
    step = Step(learner.method, net, optimizer, learner.memory, learner.transform, learner.precision, clip)
    engine = make_engine(learner.engine, step, learner.random, learner.device)
    average = EMA(net.body, learner.ema) if learner.ema else None
    if average is not None and before is not None and before.average is not None:
        average.take_over(before.average)
    predictions = Recorded((learner.method, net, learner.transform))
    return Ready(net, optimizer, engine, predictions, average, clip)


def task_end(learner: Learner, task: Fields) -> TaskEnd:
    """What a method may look at when a task ends, of which ``task`` are the samples."""

    def transformed(x: Inputs) -> Inputs:
        numbers = learner.random.uniform("boundary", rows(x), learner.transform.randoms)
        return training_input(learner.transform, x, numbers)

    memory, capacity = ({}, 0) if learner.memory is None else (learner.memory.content(), learner.memory.capacity)
    test_transform = partial(eval_input, learner.transform)
    return TaskEnd(task, memory, capacity, transformed, test_transform, learner.random["boundary"])


def expand(learner: Learner) -> Ready:
    """Let the method add what it needs for one more task."""
    net, before = learner.net, learner.ready
    groups = learner.method.parameter_groups(net, learner.lr)
    with learner.random.as_global("gates"):
        learner.method.expand(net)
    net.to(learner.device)
    learner.method.to(learner.device)
    return _going_on(learner, before, groups)


def grow(learner: Learner, before: Ready, outputs: int) -> Ready:
    """Let the network have so many outputs; all else goes on from where it was ready ``before``."""
    net, added = before.net, outputs - learner.outputs
    groups = learner.method.parameter_groups(net, learner.lr)
    stored = {} if learner.memory is None else learner.memory.fields
    growth = Growth(outputs, lambda body: widen(body, learner.output_layer, added), stored)
    changed = learner.method.grow(net, growth)
    if learner.memory is not None:
        learner.memory.reshape(changed)
    learner.outputs = outputs
    learner.grown.append(outputs)
    return _going_on(learner, before, groups)


def _going_on(learner: Learner, before: Ready, groups: list[dict[str, Any]]) -> Ready:
    """What goes on from where it was ready ``before`` with the parameters in ``groups``, and has others now."""
    ready = assemble(learner, before.net, before)
    carry_moments(before.optimizer, groups, ready.optimizer, learner.method.parameter_groups(before.net, learner.lr))
    return ready


def on_device(net: nn.Module, device: torch.device) -> nn.Module:
    """The network there, in the memory format that is fast there."""
    net = net.to(device)
    if device.type == "cuda" and all(value.dim() < 5 for value in net.parameters()):
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def make_random(seed: int, method: Method, device: torch.device) -> Randomness:
    """One for each purpose; "gates" is also for what else the network draws by itself, as dropout does."""
    replay = [f"{purpose} {draw}" for draw in range(method.draws) for purpose in ("replay", "replay view")]
    return Randomness(seed, host=("view", "admission", "boundary", *replay), device=("gates",), on=device)


def make_memory(capacity: int, method: Method, device: torch.device) -> Memory | None:
    """The memory of a method; None where it replays nothing."""
    return Memory(capacity, method.admission, device, method.stored_as) if method.draws else None
