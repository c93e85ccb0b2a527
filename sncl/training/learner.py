"""The learner: a network that learns from a stream without forgetting.

>>> learner = Learner(net, "sncl", memory=500)
>>> for x, y in stream:
...     learner.learn(x, y)
>>> learner.predict(x)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.memory.memory import Memory
from sncl.methods.method import Ending, Method
from sncl.methods.table import make
from sncl.networks.taps import Tapped, evaluating
from sncl.streams.augment import Identity, View, still, viewed
from sncl.tensors.fields import Fields, Inputs, inputs, mapped, named, pieces, rows, under, within
from sncl.tensors.random import Randomness
from sncl.tensors.transfer import upload
from sncl.training.average import Average
from sncl.training.checkpoint import read_checkpoint, write_checkpoint
from sncl.training.descent import Descent, Optimizer
from sncl.training.engine import Eager, Graph, Step, choose_engine, choose_precision, observe

FORMAT = 4
EVALUATION_ROWS = 500  # at a time: fits the cache of a core


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


def check_average(average: float, method: Method) -> None:
    if not 0 <= average < 1:
        raise SnclError(f"average is 0 (off) or the part of it that each step keeps, below 1, not {average}")
    if average and not method.averages:
        raise SnclError(f"{type(method).__name__} stores what its network said in training: use average=0")


class _Ready(NamedTuple):
    """What there is once the network is prepared."""

    net: Tapped
    optimizer: Optimizer
    engine: Eager
    average: Average | None


class Learner:
    """A network, a method and a memory that learn batch by batch.

    ``method`` is a method or the name of one with its usual settings. ``memory`` is how many samples may be kept,
    ``replay`` how many of them are replayed beside each batch. ``view`` turns stored inputs into network inputs
    (augmentation, normalisation); without one, inputs are used as they come. ``optimizer`` makes an optimiser from
    parameter groups; plain SGD with step size ``lr`` is the default. Everything random follows from ``seed``.

    ``precision`` is what the network's training passes are computed in, "float32" or "bfloat16"; ``engine`` is "eager"
    or "graph" (compiled and replayed as a CUDA graph, for batches of the size of the first one). "auto" takes bfloat16
    and the graph on a GPU (eager for token ids and dictionaries), float32 and eager elsewhere.

    ``average`` > 0 predicts with the average of the weights over the last steps, of which each step keeps that part
    (0.999: about a thousand steps). Training does not change.
    """

    def __init__(
        self,
        net: nn.Module,
        method: Method | str = "sncl",
        *,
        memory: int = 200,
        replay: int = 32,
        lr: float = 0.03,
        view: View | None = None,
        seed: int = 0,
        device: str | torch.device = "auto",
        optimizer: Callable[[list[dict[str, Any]]], Optimizer] | None = None,
        precision: str = "auto",
        engine: str = "auto",
        average: float = 0.0,
    ) -> None:
        if replay < 1:
            raise SnclError(f"at least 1 sample is replayed beside a batch, not {replay}")
        if not lr > 0:
            raise SnclError(f"the step size lr is a positive number, not {lr}")
        self.device = choose_device(device)
        self.method = (make(method) if isinstance(method, str) else method).to(self.device)
        check_average(average, self.method)
        self.body = net.to(self.device)
        if self.device.type == "cuda" and all(value.dim() < 5 for value in net.parameters()):
            self.body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.precision = choose_precision(precision, self.device, self.method)
        self.engine = choose_engine(
            engine if optimizer is None or engine != "auto" else "eager", self.device, self.method
        )
        self._chooses_engine = engine == "auto"
        self.view = view or Identity()
        self.lr = lr
        self.replay = replay
        self.average = average
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
        self._make_optimizer = optimizer or Descent
        self._ready: _Ready | None = None
        self._example: Fields = {}  # two rows of the first batch
        self._averaged = True  # predictions, where there is an average
        self._usual_rows: int | None = None  # of a batch: those of the first one

    @property
    def net(self) -> Tapped:
        """The network as the method prepared it, with its gates and taps."""
        return self._prepared().net

    def prepare(self, x: Tensor | Mapping[str, Tensor]) -> None:
        """Get ready for inputs like ``x``, as the first call of :meth:`learn` does."""
        if self._ready is None:
            x = self._moved(mapped(lambda part: part[:2], _plain(x)))
            self._example = named(mapped(torch.clone, x))
            seen = still(self.view, x)
            net = self.method.prepare(self.body, seen, self.random["gates"]).to(self.device)
            net.train()
            with evaluating(net), torch.no_grad():
                logits = self.method.predict(net, seen, task=0)
            if logits.dim() != 2 or logits.shape[0] != rows(x):
                shape = list(logits.shape)
                raise SnclError(f"the network returns {shape} for {rows(x)} rows; logits are [rows, classes]")
            self.outputs = logits.shape[1]
            if self._chooses_engine and (not isinstance(x, Tensor) or x.dtype == torch.int64):
                self.engine = "eager"  # language networks ask for values, which a graph cannot answer
            self._optimise(net)

    def learn(self, x: Tensor | Mapping[str, Tensor], y: Tensor) -> Fields:
        """Learn from one batch of inputs and integer labels; returns the losses by name.

        Several inputs are a dictionary, whose tensors become keyword arguments of the network.
        """
        x, y = self._batch(x, y)
        count = y.shape[0]
        _, _, engine, average = self._prepared()
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
        if average is not None:
            average.update(self.steps)
        return outcome.losses

    def boundary(self, x: Tensor | Mapping[str, Tensor] | None = None, y: Tensor | None = None) -> None:
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
        ending = Ending(task, memory, capacity, self._view, partial(still, self.view), self.random["boundary"])
        with self.random.as_global("gates"):
            content = self.method.at_boundary(net, ending)
        if self.memory is not None:
            if content is not None:
                self.memory.replace(content)
            else:
                self.memory.boundary()
        self._expand()
        self._prepared().engine.forget()

    def logits(self, x: Tensor | Mapping[str, Tensor], task: int | None = None) -> Tensor:
        """The network's logits in evaluation: gates at their mean, closed neurons silent. [rows, classes]

        ``task`` is the number of the task the rows belong to, for methods that must be told.
        """
        net = self._prepared().net
        if task is None and self.method.needs_task_at_test:
            raise SnclError(f"{type(self.method).__name__} predicts only when told the task: logits(x, task=0)")
        with self.predicting(), torch.no_grad():
            views = (still(self.view, self._moved(part)) for part in pieces(_plain(x), EVALUATION_ROWS))
            return torch.cat([self.method.predict(net, view, task) for view in views])

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        """Predict with the network as it trains, not with its average."""
        averaged, self._averaged = self._averaged, False
        try:
            yield
        finally:
            self._averaged = averaged

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """The network as it predicts: in evaluation mode, and its average where there is one."""
        net, _, _, average = self._prepared()
        with evaluating(net), average.in_place() if average is not None and self._averaged else nullcontext():
            yield

    def predict(self, x: Tensor | Mapping[str, Tensor], task: int | None = None) -> Tensor:
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
        net, optimizer, _, average = self._prepared()
        moments = {
            f"{number}/{name}": torch.as_tensor(value)
            for number, values in optimizer.state_dict()["state"].items()
            for name, value in values.items()
            if value is not None
        }
        return {
            **under("network", net.body.state_dict()),
            **under("average", average.slow if average is not None else {}),
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
            "average": self.average,
            "example": {
                name: (list(value.shape), str(value.dtype).removeprefix("torch."))
                for name, value in self._example.items()
            },
            "rows": self._usual_rows,
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
        ours = {key: self.description()[key] for key in ("format", "method", "memory", "average")}
        theirs = {key: description.get(key) for key in ours}
        if ours != theirs:
            raise SnclError(f"this checkpoint belongs to another learner: it has {theirs}, this learner {ours}")
        shapes = description["example"]
        shapes = shapes if isinstance(shapes, dict) else {"x": shapes}  # as earlier versions wrote it
        zeros = {name: torch.zeros(shape, dtype=getattr(torch, dtype)) for name, (shape, dtype) in shapes.items()}
        self.prepare(inputs(within("example", state) or zeros))
        while self.tasks < description["tasks"]:
            self._expand()
        net, _, _, average = self._prepared()
        try:
            net.body.load_state_dict(within("network", state))
            if average is not None:
                average.load(within("average", state))
            self.method.load_state_dict(within("method", state))
        except RuntimeError as error:
            what = str(error).replace("\n", " ")
            raise SnclError(f"this checkpoint belongs to another network: {what}") from error

    def _optimise(self, net: Tapped) -> None:
        optimizer = self._make_optimizer(self.method.parameter_groups(net, self.lr))
        step = Step(self.method, net, optimizer, self.memory, self.view, self.precision, observe)
        make_engine = Graph if self.engine == "graph" else Eager
        average = Average(net.body, self.average) if self.average else None
        self._ready = _Ready(net, optimizer, make_engine(step, self.random, self.device), average)

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

    def _batch(self, x: Tensor | Mapping[str, Tensor], y: Tensor) -> tuple[Inputs, Tensor]:
        x = _plain(x)
        for name, value in named(x).items():
            if value.shape[:1] != y.shape or value.shape[0] == 0:
                what = "x" if name == "x" else repr(name.removeprefix("x/"))
                raise SnclError(
                    f"{what} and y need the same number of rows, and y one label a row: got {list(value.shape)}, "
                    f"{list(y.shape)}"
                )
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise SnclError(f"labels are integers 0, 1, 2, ...; got {y.dtype}")
        x, y = mapped(lambda part: upload(part, self.device), x), upload(y.to(torch.int64), self.device)
        self.prepare(x)
        if self.memory is not None:
            _check_shapes(named(x), self._example)
        if self.device.type == "cpu":  # reading values back would stall a GPU at every step
            low, high = (int(value) for value in y.aminmax())
            if low < 0 or high >= self.outputs:
                raise SnclError(f"label {low if low < 0 else high} does not fit a network with {self.outputs} outputs")
        return x, y

    def _uniform(self, purpose: str, rows: int) -> Tensor:
        """The random numbers of a view of so many rows."""
        return self.random.uniform(purpose, rows, self.view.randoms)

    def _view(self, x: Inputs) -> Inputs:
        return viewed(self.view, x, self._uniform("boundary", rows(x)))

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


def _plain(x: Tensor | Mapping[str, Tensor]) -> Inputs:
    """Inputs as a tensor or a plain dictionary: what a tokenizer returns is a mapping of its own kind."""
    if isinstance(x, Tensor):
        return x
    if not x:
        raise SnclError("x is a dictionary without a tensor; it names the inputs of the network")
    return dict(x)


def _check_shapes(x: Fields, example: Fields) -> None:
    """The memory keeps rows of one shape."""
    if x.keys() != example.keys():
        theirs, ours = (", ".join(name.removeprefix("x/") for name in each) for each in (x, example))
        raise SnclError(f"the inputs are {theirs}, but they were {ours} when this learner began")
    for name, value in x.items():
        now, before = list(value.shape[1:]), list(example[name].shape[1:])
        if now != before:
            raise SnclError(
                f"rows of {name.removeprefix('x/')} have the shape {now}, but had {before} when this learner began; "
                "the memory keeps rows of one shape (pad sequences to a fixed length)"
            )
