"""The learner: a network that learns from a stream without forgetting.

>>> net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
>>> learner = Learner(net, "sncl", memory=500, grow=True)
>>> for number in range(5):  # batches that come, with classes nobody knew of
...     losses = learner.learn(torch.rand(32, 20), torch.randint(number + 1, (32,)))
>>> learner.predict(torch.rand(3, 20)).shape
torch.Size([3])
>>> learner.outputs
5
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.networks.taps import Tapped, evaluating
from sncl.streams.transforms import Transform
from sncl.tensors.fields import Fields, named, rows
from sncl.training import arguments, assembly, finite, state
from sncl.training.assembly import Ready
from sncl.training.checkpoint import read_saved, write_checkpoint
from sncl.training.descent import Descending, MakeOptimizer
from sncl.training.ema import check_ema
from sncl.training.engine import choose_device, choose_engine, choose_precision
from sncl.training.exclusive import exclusive
from sncl.training.exporting.exportable import Exportable
from sncl.training.group import choose_group
from sncl.training.inputs import Labels, Samples, accepted_batch, as_inputs
from sncl.training.predicting import Inference, replayed
from sncl.training.replay import Replay
from sncl.training.signature import Signature
from sncl.training.snapshot import Snapshot
from sncl.training.step import StepInput
from sncl.training.using import BatchLearner
from sncl.training.weighting import as_weights, weights_beside


class Learner(BatchLearner, Exportable):
    """A network, a method and a memory that learn batch by batch.

    ``method`` is a method or the name of one with its usual settings. ``memory`` is how many samples may be kept,
    ``replay`` how many of them are replayed beside each batch. ``transform`` turns stored inputs into network inputs
    (augmentation, normalisation); without one, inputs are used as they come. SGD has the step size ``lr``,
    ``momentum`` and ``weight_decay``; ``optimizer`` makes another one. Everything random follows from ``seed``.

    Inputs are tensors or arrays, or a dictionary of them, whose parts become keyword arguments of the network. Without
    a transform, floating-point ones are brought to the precision of the network. With ``grow`` a label for which the
    network has no output yet gets one, see :meth:`grow`; keep labels on the host then, for they are looked at.

    ``precision`` of training passes is "float32" or "bfloat16"; ``engine`` is "eager" or "graph" (a CUDA graph, for the
    first batch's size). "auto": bfloat16, graph on a GPU (eager for token ids, dictionaries), else float32 and eager.

    ``clip`` > 0 bounds the gradient's norm by so many times its running mean, see :mod:`sncl.training.clipping`.
    ``ema`` > 0 predicts with the average of the weights over the last steps, of which each step keeps that part (0.999:
    about a thousand steps). With ``group``, a group of torch.distributed or "auto" for the processes torchrun started,
    all make each step together, see :mod:`sncl.training.group`.

    Any number of threads may predict while one learns: calls run one after the other and give the same bits as in a
    single thread. Calls that belong together, or read the network itself, go into a block of :meth:`exclusively`.
    """

    def __init__(
        self,
        net: nn.Module,
        method: Method | str = "sncl",
        *,
        memory: int = 200,
        replay: int = 32,
        lr: float = 0.03,
        transform: Transform | None = None,
        seed: int = 0,
        device: str | torch.device = "auto",
        optimizer: MakeOptimizer | None = None,
        precision: str = "auto",
        engine: str = "auto",
        ema: float = 0.0,
        clip: float = 0.0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        grow: bool = False,
        group: Any = None,
    ) -> None:
        arguments.check_network(net)
        arguments.check_settings(memory, replay, lr, seed, ema, clip, optimizer, grow)
        self.make_optimizer = arguments.as_optimizer(optimizer, momentum, weight_decay)
        self.method = arguments.as_method(method)
        self.group = choose_group(group, device, self.method)
        self.device = choose_device(device)
        self.method.to(self.device)
        arguments.check_growth(grow, self.method)
        self.transform = arguments.as_transform(transform)
        self.body = assembly.on_device(net, self.device)
        self.lr, self.replay, self.clip, self.grows = lr, replay, clip, grow
        check_ema(ema, self.method)
        self.ema, self._predicts_with_ema = ema, True  # if there is one
        self._choose_execution(precision, engine)
        self.random = assembly.make_random(seed, self.method, self.device)
        self.memory = assembly.make_memory(memory, self.method, self.device)
        self._replay = Replay(self.memory, self.method, replay, self.transform.randoms, self.random)
        self._begin()

    def _choose_execution(self, precision: str, engine: str) -> None:
        self.precision = choose_precision(precision, self.device, self.method)
        self.chooses_engine = engine == "auto"
        others = self.chooses_engine and not isinstance(self.make_optimizer, Descending)
        self.engine = choose_engine("eager" if self.group is not None or others else engine, self.device, self.method)

    def _begin(self) -> None:
        """Nothing is learned yet."""
        self.watch = finite.LossWatch(self.device)  # for losses that are no numbers
        self.steps = self.tasks = 0  # tasks that have ended
        self.outputs = 0  # of the network, known once it has seen an input
        self.grown: list[int] = []  # how many outputs there were after each time they were added
        self.interrupted = False  # in the middle of a batch, by an error
        self.signature = Signature({})
        self.usual_size: int | None = None  # of a batch: that of the first one
        self._ready: Ready | None = None
        self.output_layer = ""  # the name of the layer that yields the logits, if it may grow

    @property
    def ready(self) -> Ready:
        """The prepared network and what trains it."""
        if self._ready is None:
            raise SnclError("this learner has not learned anything yet; call learn(x, y) or load(path) first")
        return self._ready

    @property
    def net(self) -> Tapped:
        """The network as the method prepared it, with its gates and taps."""
        return self.ready.net

    @exclusive
    def learn(self, x: Samples, y: Labels, weight: Labels | None = None) -> Fields:
        """Learn from one batch of inputs and integer labels; returns the losses by name.

        ``weight`` says how much the label of each sample counts, now and when it is replayed; without it, 1.
        An error before anything is learned leaves the learner as it was; behind any other it is ``interrupted``.
        Losses that are no numbers raise ``Diverged`` (on a GPU within 50 steps); such a learner does nothing any more
        until something is loaded into it.
        """
        self.watch.refuse()
        weights = as_weights(weight, y, self.method)
        x, y = accepted_batch(self, x, y)
        self._replay.make_room(y.shape[0])
        self.interrupted = True
        losses = self._learn({**named(x), "y": y} | weights_beside(self.memory, y, weights))
        self.watch.see(losses, self.steps)
        self.interrupted = False
        return losses

    def _learn(self, batch: Fields) -> Fields:
        size = rows(batch)
        if self.usual_size is None:
            self.usual_size = size
        ready, numbers = self.ready, self.random.uniform("view", size, self.transform.randoms)
        for _ in range(self.method.steps):
            usual = size == self.usual_size and self._replay.is_steady(size)
            outcome = ready.engine(StepInput(batch, numbers, self._replay.draws()), usual)
            self._replay.refresh(outcome)
        self._replay.admit(batch, outcome)
        self.steps += 1
        if ready.average is not None:
            ready.average.update(self.steps)
        return outcome.losses

    @exclusive
    def boundary(self, x: Samples | None = None, y: Labels | None = None) -> None:
        """Say that a task has ended. Optional, except for methods that need boundaries.

        ``x`` and ``y`` are all samples of the task, for the methods that look at them once more.
        """
        task: Fields = {}
        if self.method.revisits:
            if x is None or y is None:
                raise SnclError(f"{type(self.method).__name__} looks at a task again when it ends: boundary(x, y)")
            x, y = accepted_batch(self, x, y)
            task = {**named(x), "y": y}
        with self.random.as_global("gates"):
            content = self.method.at_boundary(self.net, assembly.task_end(self, task))
        self._replay.end_task(content)
        self.expand()
        self.ready.engine.forget()

    @exclusive
    def expand(self) -> None:
        """Add what the method needs for one more task; :meth:`boundary` does this by itself."""
        self.tasks += 1
        if self.method.expands:
            self._ready = assembly.expand(self)

    @exclusive
    def grow(self, outputs: int) -> None:
        """Have so many outputs from now on; the learner must be made with ``grow=True``. Fewer change nothing.

        All else stays: the logits of the old outputs and the optimiser's moments are the same bits, and the new
        outputs start at zero for every sample. :meth:`learn` does this by itself for labels it does not know.
        """
        before = self.ready
        if not self.grows:
            raise SnclError("this learner's outputs are fixed; make it with grow=True")
        if outputs > self.outputs:
            self._ready = assembly.grow(self, before, outputs)

    @exclusive
    def logits(self, x: Samples, task: int | None = None) -> Tensor:
        """The network's logits in evaluation: gates at their mean, closed neurons silent. [rows, classes]

        ``task`` is the number of the task the samples belong to, for methods that must be told.
        """
        inference = Inference(self.method, self.net, self.transform, self.signature, self.device)
        self.watch.check()
        with self.averaged():
            logits = replayed(inference, self.ready.predictions, x, task)
        return finite.checked_logits(self, logits)

    @exclusive
    def snapshot(self) -> Snapshot:
        """A copy of what predicts now, whose predictions never wait for this learner; it costs one copy of the network.

        See :class:`sncl.training.snapshot.Snapshot`.
        """
        return Snapshot(self)

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """The network as it predicts: in evaluation mode, and its average where there is one."""
        with self.exclusively(), self.averaged(), evaluating(self.net):
            yield

    def averaged(self) -> AbstractContextManager[None]:
        """Let the network be its average, where it predicts with one."""
        return self.ready.average.in_place() if self.ready.average and self._predicts_with_ema else nullcontext()

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        """Predict with the network as it trains, not with its average."""
        with self.exclusively():
            before, self._predicts_with_ema = self._predicts_with_ema, False
            try:
                yield
            finally:
                self._predicts_with_ema = before

    @exclusive
    def settle(self) -> None:
        """Let the network be what it predicts with, its average, for good: to look at it or to use it elsewhere."""
        if self.ready.average is not None:
            self.ready.average.settle()
            self._predicts_with_ema = False

    @exclusive
    def save(self, path: str | Path) -> None:
        """Write everything that :meth:`load` needs to go on exactly here, as one file, atomically.

        The file that was there stays as ``path.previous``. Weights that are no numbers any more are not written.
        """
        finite.check_weights(self)
        write_checkpoint(Path(path), state.tensors_of(self), self.description(), keep_previous=True)

    @exclusive
    def load(self, path: str | Path) -> None:
        """Go on where a learner that was made in the same way was saved; an error leaves this one as it is."""
        self.restore(*read_saved(Path(path)))

    @exclusive
    def state(self) -> Fields:
        """A copy of every tensor that decides what happens next, by name."""
        return {name: tensor.detach().clone() for name, tensor in state.tensors_of(self).items()}

    @exclusive
    def description(self) -> dict[str, Any]:
        """What :meth:`state` belongs to, as plain data."""
        return state.description_of(self)

    @exclusive
    def restore(self, tensors: Fields, description: dict[str, Any]) -> None:
        """The inverse of :meth:`state` and :meth:`description`; an error leaves the learner as it is."""
        state.restore(self, tensors, description)

    @exclusive
    def restore_network(self, tensors: Fields, description: dict[str, Any]) -> None:
        """Only the network and the method, enough to predict with, also on another device."""
        state.restore_network(self, tensors, description)

    @exclusive
    def prepare(self, x: Samples) -> None:
        """Get ready for inputs like ``x``, as the first call of :meth:`learn` does."""
        if self._ready is None:
            self._ready = assembly.prepare(self, as_inputs(x))
