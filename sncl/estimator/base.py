"""What both estimators share: learning from arrays, meeting new classes, and predicting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from torch import Tensor

from sncl.errors import BadInput, Diverged
from sncl.estimator.exporting import ExportableEstimator
from sncl.estimator.inputs import ColumnNames, GivenInputs, are_among, distinct, in_parts
from sncl.estimator.spec import LearnerSpec, Network, check_method
from sncl.estimator.weighting import ClassWeight, WeighingEstimator, Weights
from sncl.methods.table import Value
from sncl.tensors.random import generator
from sncl.training.exclusive import exclusive
from sncl.training.finite import check_update
from sncl.training.learner import Learner


class BaseContinualClassifier(ClassifierMixin, WeighingEstimator, ExportableEstimator):  # type: ignore[misc]  # untyped
    """A classifier around a learner. Subclasses say which method it learns with."""

    def __init__(
        self,
        *,
        memory: int,
        replay: int,
        lr: float,
        momentum: float,
        weight_decay: float,
        batch_size: int,
        epochs: int,
        hidden: int | Sequence[int],
        network: Network | None,
        standardize: bool,
        ignore: ColumnNames | None,
        categories: ColumnNames | None,
        numbers: ColumnNames | None,
        ema: float,
        class_weight: ClassWeight,
        random_state: Any,
        device: str,
        verbose: int,
        settings: dict[str, Value] | None,
    ) -> None:
        self.memory = memory
        self.replay = replay
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.epochs = epochs
        self.hidden = hidden
        self.network = network
        self.standardize = standardize
        self.ignore = ignore
        self.categories = categories
        self.numbers = numbers
        self.ema = ema
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.settings = settings

    def _choice(self) -> tuple[str, dict[str, Value]]:
        """The name of the method and those of its settings that differ from the usual ones."""
        raise NotImplementedError

    # --- learning

    @exclusive
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn these samples from scratch, in ``epochs`` passes over all of them in random order.

        ``sample_weight`` says how much the label of each counts; without it, 1.
        """
        X, y = self._validated(X, y, first=True)
        given = self._check_weighing(sample_weight, len(y))
        X = self._start(X, np.unique(y))
        self._learn(X, self._targets(y), given, self.epochs, shuffle=True)
        if self.learner_.method.needs_boundaries:
            self.learner_.boundary(self._spec.samples(X), torch.from_numpy(self._targets(y)))
        return self

    @exclusive
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go on learning: one pass over these samples, in their order.

        New classes may come at any time. ``classes`` names those that will come, if they are known; it may be left out,
        also in the first call, and may name further ones later. ``sample_weight`` is that of :meth:`fit`.
        """
        first = not self.__sklearn_is_fitted__()
        if not first:
            self._check_usable()
        X, y = self._validated(X, y, first)
        given = self._check_weighing(sample_weight, len(y))
        if not first:
            self._check_kind(y)
        named = distinct(y) if classes is None else self._announced(np.unique(np.asarray(classes)), y, first)
        if first:
            X = self._start(X, named)
        else:
            self._check_values(X)
            self._meet(named)
            X = self._encoded(X, self.encoder_, learn=True)
        self._learn(X, self._targets(y), given, 1, shuffle=False)
        return self

    @exclusive
    def boundary(self, X: Any = None, y: Any = None) -> Self:
        """Say that a task has ended, for the methods that must know (``fit`` says so itself).

        Some of them look at all samples of the task once more: ``boundary(X, y)``.
        """
        self._check_usable()
        if X is None:
            self.learner_.boundary()
        else:
            X, y = self._validated(X, y, first=False)
            self._check_kind(y)
            X = self._encoded(X, self.encoder_, learn=False)
            self._meet(np.unique(y))
            self.learner_.boundary(self._spec.samples(X), torch.from_numpy(self._targets(y)))
        return self

    # --- predicting

    @exclusive
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, in the order of ``classes_``. [samples, classes]"""
        probabilities: NDArray[np.float64] = torch.from_numpy(self._logits(X)).double().softmax(1).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            logarithms: NDArray[np.float64] = np.log(self.predict_proba(X))
        return logarithms

    @exclusive
    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each sample."""
        likely = self._logits(X).argmax(1)
        labels: NDArray[Any] = self.classes_.take(likely)
        return labels

    def _logits(self, X: Any) -> NDArray[np.floating]:
        """The logits of each class, in the order of ``classes_``. [samples, classes]"""
        self._check_usable()
        each = [self.learner_.logits(self._samples(part)).cpu() for part in in_parts(X)]
        logits = each[0] if len(each) == 1 else torch.cat(each)
        numbers = logits.numpy() if logits.dtype is torch.float32 else logits.double().numpy()
        ordered: NDArray[np.floating] = numbers.take(self._outputs, axis=1)
        return ordered

    # --- labels

    def _check_kind(self, labels: NDArray[Any]) -> None:
        """Numbers among text would become text themselves."""
        if (labels.dtype.kind in "biuf") != (self.classes_.dtype.kind in "biuf"):
            example, known = labels.tolist()[0], self.classes_.tolist()[:5]
            raise BadInput(f"labels are {labels.dtype} such as {example!r} now, but were {known} so far")

    def _announced(self, named: NDArray[Any], y: NDArray[Any], first: bool) -> NDArray[Any]:
        """The classes that were named; those of ``y`` must be among them, or known already."""
        if not first:
            self._check_kind(named)
        unnamed = np.setdiff1d(y, named if first else np.union1d(named, self.classes_))
        if len(unnamed):
            raise BadInput(f"y has the label {unnamed.tolist()[0]!r}, which is not one of the classes {named.tolist()}")
        return named

    def _targets(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """The output of each label's class."""
        return self._outputs.take(self.classes_.searchsorted(y))

    # --- the learner

    def _start(self, given: GivenInputs, classes: NDArray[Any]) -> NDArray[Any]:
        """Make a learner for inputs like these, which are returned as numbers, and the classes known so far."""
        encoder = self._encoder_for(given)
        X = self._encoded(given, encoder, learn=True)
        unscaled = () if encoder is None or not isinstance(given, dict) else np.flatnonzero(encoder.binary).tolist()
        spec = replace(self._specify(X, len(classes)), unscaled=tuple(unscaled))
        learner, scale = spec.make()
        learner.prepare(spec.samples(X[:2]))
        _reach(learner, len(classes))
        self._spec, self.learner_, self._scale, self.encoder_ = spec, learner, scale, encoder
        self.classes_, self._outputs = classes, np.arange(len(classes))
        self._counts, self._weight_sum = np.zeros(len(classes), dtype=np.int64), 0.0
        self._diverged = ""
        for note in () if encoder is None else encoder.notes:
            self._say(note)
        return X

    def _specify(self, X: NDArray[Any], outputs: int) -> LearnerSpec:
        """The parameters as they are now, checked."""
        for name in ("epochs", "batch_size"):
            if not getattr(self, name) >= 1:
                raise BadInput(f"`{name}` is at least 1, not {getattr(self, name)}")
        method, settings = self._choice()
        check_method(method)
        hidden: Any = (self.hidden,) if isinstance(self.hidden, Integral) else self.hidden
        precise = self.standardize and np.result_type(X, np.float32) != np.float32
        return LearnerSpec(
            method=method,
            settings=dict(settings),
            memory=self.memory,
            replay=self.replay,
            lr=self.lr,
            hidden=tuple(hidden),
            network=self.network,
            standardize=self.standardize,
            ema=self.ema,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            device=self.device,
            shape=X.shape[1:],
            outputs=outputs,
            dtype="float64" if precise else "float32",
        )

    def _meet(self, named: NDArray[Any]) -> None:
        """Be ready for these classes, of which some may be new."""
        if not are_among(named, self.classes_):
            new = np.setdiff1d(named, self.classes_)
            _reach(self.learner_, len(self.classes_) + len(new))
            classes = np.concatenate([self.classes_, new])
            outputs = np.concatenate([self._outputs, len(self.classes_) + np.arange(len(new))])
            order = classes.argsort(kind="stable")
            self.classes_, self._outputs = classes[order], outputs[order]

    def _learn(
        self, X: NDArray[Any], targets: NDArray[np.int64], given: Weights | None, epochs: int, shuffle: bool
    ) -> None:
        weights = self._weights(targets, given)
        try:
            self._make_passes(self._spec.samples(X), torch.from_numpy(targets), weights, epochs, shuffle)
            check_update(self.learner_)
        except Diverged as error:
            self._diverged = str(error)
            raise

    def _make_passes(self, x: Tensor, labels: Tensor, weights: Tensor | None, epochs: int, shuffle: bool) -> None:
        if self._scale is not None:
            with self.learner_.lock():
                self._scale.update(x)
        for epoch in range(epochs):
            if not shuffle and x.shape[0] <= self.batch_size:
                losses = [self.learner_.learn(x, labels, weights)]
            else:
                draw = generator(self._spec.seed, "order", epoch)
                order = torch.randperm(len(x), generator=draw) if shuffle else torch.arange(len(x))
                losses = [
                    self.learner_.learn(x[part], labels[part], None if weights is None else weights[part])
                    for part in _batches(order, self.batch_size)
                ]
            if self.verbose:
                loss = float(torch.stack([sum(each.values(), torch.zeros(())) for each in losses]).mean())
                self._say(f"epoch {epoch + 1} of {epochs}: loss {loss:.4f}")
        if self.verbose and self.learner_.memory is not None:
            self._say(f"{len(self.learner_.memory)} of at most {self.learner_.memory.capacity} samples in memory")

    def _say(self, line: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {line}")


def _reach(learner: Learner, outputs: int) -> None:
    """Have at least so many outputs."""
    if outputs > learner.outputs:
        if not learner.grows:
            raise BadInput(
                f"there are {outputs} classes now, and the network has {learner.outputs} outputs and does not end with "
                "an nn.Linear that could get more; name all `classes` at the first partial_fit"
            )
        learner.grow(outputs)


def _batches(order: Tensor, size: int) -> list[Tensor]:
    """Samples in batches of one size. A single last one joins the batch before: BatchNorm cannot learn it alone."""
    batches = list(order.split(size))
    if size > 1 and len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
