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

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.memory.memory import Memory
from sncl.methods.method import Growth, Method, TaskEnd
from sncl.methods.table import make
from sncl.networks.gating.attach import set_mask, track_moments
from sncl.networks.gating.mask import Mask
from sncl.networks.output import find_output, widen
from sncl.networks.taps import Tapped, call, evaluating
from sncl.streams.transforms import Identity, Transform, eval_input, training_input
from sncl.tensors.fields import Fields, Inputs, inputs, mapped, named, pieces, rows, under, within
from sncl.tensors.random import Randomness
from sncl.tensors.transfer import upload
from sncl.training.checkpoint import read_checkpoint, write_checkpoint
from sncl.training.descent import Descent, Optimizer, carry_moments
from sncl.training.ema import EMA
from sncl.training.engine import Eager, Graph, Step, choose_engine, choose_precision, observe
from sncl.training.inputs import NUMBER_THEM, Rows, as_inputs, as_labels, called, refuse_gaps, short

FORMAT = 5
EVALUATION_ROWS = 500  # at a time: fits the cache of a core
MOST_NEW_OUTPUTS = 1000  # at a time: a label that asks for more is no number of a class


def choose_device(name: str | torch.device) -> torch.device:
    """The device of that name; "auto" is the GPU where there is one."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SnclError(f"there is no device {name!r}; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SnclError("no CUDA device was found here; use --device cpu")
    return device


def check_ema(ema: float, method: Method) -> None:
    if not 0 <= ema < 1:
        raise SnclError(f"ema is 0 (off) or the part of the average that each step keeps, below 1, not {ema}")
    if ema and not method.supports_ema:
        raise SnclError(f"{type(method).__name__} stores what its network said in training: use ema=0")


class _Ready(NamedTuple):
    """What there is once the network is prepared."""

    net: Tapped
    optimizer: Optimizer
    engine: Eager
    ema: EMA | None


class Learner:
    """A network, a method and a memory that learn batch by batch.

    ``method`` is a method or the name of one with its usual settings. ``memory`` is how many samples may be kept,
    ``replay`` how many of them are replayed beside each batch. ``transform`` turns stored inputs into network inputs
    (augmentation, normalisation); without one, inputs are used as they come. ``optimizer`` makes an optimiser from
    parameter groups; plain SGD with step size ``lr`` is the default. Everything random follows from ``seed``.

    Inputs are tensors or arrays, or a dictionary of them, whose parts become keyword arguments of the network. Without
    a transform, floating-point ones are brought to the precision of the network. With ``grow`` a label for which the
    network has no output yet gets one, see :meth:`grow`; keep labels on the host then, for they are looked at.

    ``precision`` is what the network's training passes are computed in, "float32" or "bfloat16"; ``engine`` is "eager"
    or "graph" (compiled and replayed as a CUDA graph, for batches of the size of the first one). "auto" takes bfloat16
    and the graph on a GPU (eager for token ids and dictionaries), float32 and eager elsewhere.

    ``ema`` > 0 predicts with the average of the weights over the last steps, of which each step keeps that part
    (0.999: about a thousand steps). ``mask`` says which neurons that gates have closed are silent in evaluation, see
    :class:`sncl.networks.gating.mask.Mask`; :attr:`mask` may be set to another at any time. Neither changes training.
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
        optimizer: Callable[[list[dict[str, Any]]], Optimizer] | None = None,
        precision: str = "auto",
        engine: str = "auto",
        ema: float = 0.0,
        mask: Mask | None = None,
        grow: bool = False,
    ) -> None:
        if replay < 1:
            raise SnclError(f"at least 1 sample is replayed beside a batch, not {replay}")
        if not lr > 0:
            raise SnclError(f"the step size lr is a positive number, not {lr}")
        if next(net.parameters(), None) is None:
            raise SnclError(f"the network {type(net).__name__} has no parameters, so there is nothing to train")
        self.device = choose_device(device)
        self.method = (make(method) if isinstance(method, str) else method).to(self.device)
        check_ema(ema, self.method)
        self.body = net.to(self.device)
        if self.device.type == "cuda" and all(value.dim() < 5 for value in net.parameters()):
            self.body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.precision = choose_precision(precision, self.device, self.method)
        self.engine = choose_engine(
            engine if optimizer is None or engine != "auto" else "eager", self.device, self.method
        )
        self._chooses_engine = engine == "auto"
        if grow and not self.method.grows:
            raise SnclError(
                f"{type(self.method).__name__} cannot get outputs for new classes; give the network outputs for all "
                "classes, and leave grow=True out"
            )
        self.grows = grow
        self.grown: list[int] = []  # how many outputs there were after each time they were added
        self.transform = transform or Identity()
        self.lr = lr
        self.replay = replay
        self.ema = ema
        self.steps = 0
        self.tasks = 0  # that have ended
        self.outputs = 0  # of the network, known once it has seen an input
        draws = range(self.method.draws)
        self.random = Randomness(
            seed,
            host=(
                "view",
                "admission",
                "boundary",
                *(f"{use} {draw}" for draw in draws for use in ("replay", "replay view")),
            ),
            device=("gates",),  # and what else the network draws by itself, as dropout does
            on=self.device,
        )
        self.memory = None
        if self.method.draws:
            self.memory = Memory(memory, self.method.admission, self.device, self.method.stored_as)
        self._mask = mask or Mask()
        self._make_optimizer = optimizer or Descent
        self._ready: _Ready | None = None
        self._example: Fields = {}  # two rows of the first batch
        self._predicts_with_ema = True  # predictions, where there is an average
        self._usual_rows: int | None = None  # of a batch: those of the first one
        self._output = ""  # the name of the layer that yields the logits, if it may grow

    @property
    def net(self) -> Tapped:
        """The network as the method prepared it, with its gates and taps."""
        return self._prepared().net

    @property
    def mask(self) -> Mask:
        """Which neurons are closed in evaluation; one trained network can be scored under many masks."""
        return self._mask

    @mask.setter
    def mask(self, mask: Mask) -> None:
        if self._ready is not None:
            set_mask(self._ready.net, mask)
        self._mask = mask

    def prepare(self, x: Rows) -> None:
        """Get ready for inputs like ``x``, as the first call of :meth:`learn` does."""
        if self._ready is None:
            x = mapped(self._first_rows, as_inputs(x))
            seen = eval_input(self.transform, x)
            self._try_out(x, seen)
            if self.grows:
                self._output = find_output(self.body, seen)
            if self._chooses_engine and (not isinstance(x, Tensor) or x.dtype == torch.int64):
                self.engine = "eager"  # language networks ask for values, which a graph cannot answer
            self._example = named(x)
            net = self.method.prepare(self.body, seen, self.random["gates"]).to(self.device)
            if self._mask.compensate:
                track_moments(net)
            set_mask(net, self._mask)
            net.train()
            with evaluating(net), torch.no_grad():
                self.outputs = self.method.predict(net, seen, task=0).shape[1]
            self._optimise(net)

    def grow(self, outputs: int) -> None:
        """Have so many outputs from now on; the learner must be made with ``grow=True``. Fewer change nothing.

        All else stays: the logits of the old outputs and the optimiser's moments are the same bits, and the new
        outputs start at zero for every row. :meth:`learn` does this by itself for labels it does not know.
        """
        net, optimizer, _, _ = self._prepared()
        if not self.grows:
            raise SnclError("this learner's outputs are fixed; make it with grow=True")
        if outputs > self.outputs:
            added = outputs - self.outputs
            groups = self.method.parameter_groups(net, self.lr)
            stored = {} if self.memory is None else self.memory.fields
            growth = Growth(outputs, lambda body: widen(body, self._output, added), stored)
            changed = self.method.grow(net, growth)
            if self.memory is not None:
                self.memory.reshape(changed)
            self.outputs = outputs
            self.grown.append(outputs)
            self._optimise(net)
            carry_moments(optimizer, groups, self._prepared().optimizer, self.method.parameter_groups(net, self.lr))

    def learn(self, x: Rows, y: Rows) -> Fields:
        """Learn from one batch of inputs and integer labels; returns the losses by name."""
        x, y = self._batch(x, y)
        count = y.shape[0]
        _, _, engine, ema = self._prepared()
        batch = {**named(x), "y": y, "view": self._uniform("view", count)}
        if self._usual_rows is None:
            self._usual_rows = count
        for _ in range(self.method.steps):
            usual = count == self._usual_rows and self._settled(count)
            outcome = engine(batch | self._replayed(), usual)
        if self.memory is not None:
            incoming = {**named(x), "y": y, **outcome.remember}
            self.memory.admit(incoming, self.random.uniform("admission", count, 3))
        self.steps += 1
        if ema is not None:
            ema.update(self.steps)
        return outcome.losses

    def boundary(self, x: Rows | None = None, y: Rows | None = None) -> None:
        """Say that a task has ended. Optional, except for methods that need boundaries.

        ``x`` and ``y`` are all rows of the task, for the methods that look at them once more.
        """
        task: Fields = {}
        if self.method.revisits:
            if x is None or y is None:
                raise SnclError(f"{type(self.method).__name__} looks at a task again when it ends: boundary(x, y)")
            x, y = self._batch(x, y)
            task = {**named(x), "y": y}
        net = self._prepared().net
        memory, capacity = ({}, 0) if self.memory is None else (self.memory.content(), self.memory.capacity)
        end = TaskEnd(task, memory, capacity, self._view, partial(eval_input, self.transform), self.random["boundary"])
        with self.random.as_global("gates"):
            content = self.method.at_boundary(net, end)
        if self.memory is not None:
            if content is not None:
                self.memory.replace(content)
            else:
                self.memory.boundary()
        self._expand()
        self._prepared().engine.forget()

    def logits(self, x: Rows, task: int | None = None) -> Tensor:
        """The network's logits in evaluation: gates at their mean, closed neurons silent. [rows, classes]

        ``task`` is the number of the task the rows belong to, for methods that must be told.
        """
        net = self._prepared().net
        if task is None and self.method.needs_task_at_test:
            raise SnclError(f"{type(self.method).__name__} predicts only when told the task: logits(x, task=0)")
        x = self._checked(as_inputs(x))
        with self.predicting(), torch.no_grad():
            views = (eval_input(self.transform, self._moved(part)) for part in pieces(x, EVALUATION_ROWS))
            return torch.cat([self.method.predict(net, transform, task) for transform in views])

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        """Predict with the network as it trains, not with its average."""
        averaged, self._predicts_with_ema = self._predicts_with_ema, False
        try:
            yield
        finally:
            self._predicts_with_ema = averaged

    def settle(self) -> None:
        """Let the network be what it predicts with, its average, for good: to look at it or to use it elsewhere."""
        ema = self._prepared().ema
        if ema is not None:
            ema.settle()
            self._predicts_with_ema = False

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """The network as it predicts: in evaluation mode, and its average where there is one."""
        net, _, _, ema = self._prepared()
        with evaluating(net), ema.in_place() if ema is not None and self._predicts_with_ema else nullcontext():
            yield

    def predict(self, x: Rows, task: int | None = None) -> Tensor:
        """The most likely class of each row. [rows]"""
        return self.logits(x, task).argmax(1)

    def save(self, path: str | Path) -> None:
        """Write everything that :meth:`load` needs to go on exactly here, as one file, atomically."""
        write_checkpoint(Path(path), self.state(), self.description())

    def load(self, path: str | Path) -> None:
        """Go on where a learner that was made in the same way was saved."""
        self.restore(*read_checkpoint(Path(path)))

    def state(self) -> Fields:
        """Every tensor that decides what happens next, by name."""
        net, optimizer, _, ema = self._prepared()
        moments = {
            f"{number}/{name}": torch.as_tensor(value)
            for number, values in optimizer.state_dict()["state"].items()
            for name, value in values.items()
            if value is not None
        }
        return {
            **under("network", net.body.state_dict()),
            **under("ema", ema.slow if ema is not None else {}),
            **under("method", self.method.state_dict()),
            **under("optimizer", moments),
            **under("memory", self.memory.state() if self.memory is not None else {}),
            **under("random", self.random.state()),
            **under("example", self._example),
        }

    def description(self) -> dict[str, Any]:
        """What :meth:`state` belongs to, as plain data."""
        return {
            "format": FORMAT,
            "steps": self.steps,
            "tasks": self.tasks,
            "method": type(self.method).__name__,
            "memory": self.memory.capacity if self.memory is not None else 0,
            "ema": self.ema,
            "example": {name: [list(value.shape), short(value.dtype)] for name, value in self._example.items()},
            "rows": self._usual_rows,
            "grown": self.grown,
        }

    def restore(self, state: Fields, description: dict[str, Any]) -> None:
        """The inverse of :meth:`state` and :meth:`description`."""
        self.restore_network(state, description)
        _, optimizer, engine, _ = self._prepared()
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in within("optimizer", state).items():
            number, _, name = key.partition("/")
            moments.setdefault(int(number), {})[name] = value
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
        if self.memory is not None:
            self.memory.load(within("memory", state))
        self.random.load(within("random", state))
        self.steps = description["steps"]
        self._usual_rows = description["rows"]
        engine.forget()

    def restore_network(self, state: Fields, description: dict[str, Any]) -> None:
        """Only the network and the method, enough to predict with, also on another device."""
        ours = {key: self.description()[key] for key in ("format", "method", "memory", "ema")}
        theirs = {key: description.get(key) for key in ours}
        if ours != theirs:
            raise SnclError(f"this checkpoint belongs to another learner: it has {theirs}, this learner {ours}")
        shapes = description["example"]
        shapes = shapes if isinstance(shapes, dict) else {"x": shapes}  # as earlier versions wrote it
        zeros = {name: torch.zeros(shape, dtype=getattr(torch, dtype)) for name, (shape, dtype) in shapes.items()}
        self.prepare(inputs(within("example", state) or zeros))
        while self.tasks < description["tasks"]:
            self._expand()
        grown = description.get("grown", [])
        if self.grown != grown[: len(self.grown)]:
            raise SnclError(
                f"this checkpoint belongs to another learner: its outputs grew to {grown}, here {self.grown}"
            )
        for outputs in grown[len(self.grown) :]:
            self.grow(outputs)
        net, _, _, ema = self._prepared()
        try:
            net.body.load_state_dict(within("network", state))
            if ema is not None:
                ema.load(within("ema", state))
            self.method.load_state_dict(within("method", state))
        except RuntimeError as error:
            what = str(error).replace("\n", " ")
            raise SnclError(f"this checkpoint belongs to another network: {what}") from error

    def _optimise(self, net: Tapped) -> None:
        optimizer = self._make_optimizer(self.method.parameter_groups(net, self.lr))
        step = Step(self.method, net, optimizer, self.memory, self.transform, self.precision, observe)
        make_engine = Graph if self.engine == "graph" else Eager
        ema = EMA(net.body, self.ema) if self.ema else None
        if ema is not None and self._ready is not None and self._ready.ema is not None:
            ema.take_over(self._ready.ema)
        self._ready = _Ready(net, optimizer, make_engine(step, self.random, self.device), ema)

    def _expand(self) -> None:
        self.tasks += 1
        if self.method.expands:
            net = self._prepared().net
            with self.random.as_global("gates"):
                self.method.expand(net)
            net.to(self.device)
            self.method.to(self.device)
            self._optimise(net)

    def _prepared(self) -> _Ready:
        if self._ready is None:
            raise SnclError("this learner has not learned anything yet; call learn(x, y) or load(path) first")
        return self._ready

    def _moved(self, x: Inputs) -> Inputs:
        return mapped(lambda part: part.to(self.device), x)

    def _first_rows(self, x: Tensor) -> Tensor:
        """Two rows of their own, on the device; without a transform in the precision of the network."""
        x = x[:2].to(self.device, copy=True)
        if x.is_floating_point() and isinstance(self.transform, Identity):
            x = x.to(next(self.body.parameters()).dtype)
        return x

    def _batch(self, x: Rows, y: Rows) -> tuple[Inputs, Tensor]:
        x, y = as_inputs(x), as_labels(y)
        for name, value in named(x).items():
            if value.shape[:1] != y.shape:
                raise SnclError(
                    f"{called(name)} and y need the same number of rows, and y one label a row: got "
                    f"{list(value.shape)}, {list(y.shape)}"
                )
        self.prepare(x)
        x = self._checked(x)
        if y.device.type == "cpu" or self.grows:  # reading values back would stall a GPU at every step
            self._meet(*(int(value) for value in y.aminmax()))
        return mapped(lambda part: upload(part, self.device), x), upload(y, self.device)

    def _meet(self, low: int, high: int) -> None:
        """Be ready for labels from ``low`` to ``high``, or say why not."""
        if low < 0 or high >= self.outputs + (MOST_NEW_OUTPUTS if self.grows else 0):
            remedy = NUMBER_THEM if self.grows or low < 0 else f"{NUMBER_THEM}; new classes need grow=True"
            raise SnclError(
                f"label {low if low < 0 else high} does not fit a network with {self.outputs} outputs: {remedy}"
            )
        if high >= self.outputs:
            self.grow(high + 1)

    def _checked(self, x: Inputs) -> Inputs:
        """Inputs like those of the first batch, real numbers in its precision, or an error in words."""
        if isinstance(x, Tensor) and "x" in self._example:
            return self._checked_one("x", x)
        given = named(x)
        if given.keys() != self._example.keys():
            now, first = (", ".join(map(called, names)) for names in (given, self._example))
            raise SnclError(f"the inputs are {now}, but in the first batch they were {first}")
        return inputs({name: self._checked_one(name, value) for name, value in given.items()})

    def _checked_one(self, name: str, x: Tensor) -> Tensor:
        shape, dtype = self._example[name].shape, self._example[name].dtype
        if x.dtype != dtype and x.is_floating_point() and dtype.is_floating_point:
            x = x.to(dtype)
        if x.shape[1:] != shape[1:] or x.dtype != dtype:
            one = ", ".join(["rows", *map(str, shape[1:])])
            what = "inputs have" if name == "x" else f"{called(name)} has"
            hint = "; pad sequences to one length" if dtype == torch.int64 and x.dim() == len(shape) > 1 else ""
            raise SnclError(
                f"{what} the shape [{one}] and the type {short(dtype)}, as in the first batch; got "
                f"{list(x.shape)} and {short(x.dtype)}{hint}"
            )
        if self.device.type == "cpu":
            refuse_gaps(x)
        return x

    def _try_out(self, x: Inputs, seen: Inputs) -> None:
        """Run the network once on the first rows, as the transform shows them: what does not fit is said in words."""
        with evaluating(self.body), torch.no_grad():
            try:
                logits = call(self.body, seen)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                what = str(error).strip().partition("\n")[0]
                given = ", ".join(
                    f"{'' if name == 'x' else called(name) + ' of '}the shape {list(value.shape[1:])} and the type "
                    f"{short(value.dtype)}"
                    for name, value in named(x).items()
                )
                raise SnclError(
                    f"the network {type(self.body).__name__} cannot take inputs of {given} a row: {what}"
                ) from error
        if logits.dim() != 2 or logits.shape[0] != rows(seen):
            raise SnclError(
                f"the network returns logits [rows, classes], one row for each input; it returned {list(logits.shape)}"
            )

    def _uniform(self, purpose: str, rows: int) -> Tensor:
        """The random numbers of a transform of so many rows."""
        return self.random.uniform(purpose, rows, self.transform.randoms)

    def _view(self, x: Inputs) -> Inputs:
        return training_input(self.transform, x, self._uniform("boundary", rows(x)))

    def _replayed(self) -> Fields:
        """Which slots are replayed in this step and the numbers of their views; nothing while the memory is empty."""
        numbers: Fields = {}
        if self.memory is not None and self.memory.drawable:
            for draw in range(self.method.draws):
                wanted = self.method.replayed_rows(draw, self.replay)
                slots = self.memory.draw(wanted, self.random.uniform(f"replay {draw}", self.memory.capacity))
                numbers |= {
                    f"slot {draw}": slots,
                    f"replay view {draw}": self._uniform(f"replay view {draw}", len(slots)),
                }
        return numbers

    def _settled(self, rows: int) -> bool:
        """Whether the next batches will replay as many rows as this one, as far as the memory can tell."""
        if self.memory is None:
            return True
        most = max(self.method.replayed_rows(draw, self.replay) for draw in range(self.method.draws))
        return self.memory.drawable >= most or self.memory.drawable_after(rows) == self.memory.drawable
