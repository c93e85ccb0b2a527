"""scikit-learn estimators: classifiers that go on learning with ``partial_fit`` and keep what they learned before.

>>> from sklearn.datasets import load_digits
>>> from sncl import SNCLClassifier
>>> X, y = load_digits(return_X_y=True)
>>> model = SNCLClassifier(memory=200, random_state=0)
>>> for digit in range(10):  # one class after the other; nobody said how many there will be
...     model = model.partial_fit(X[y == digit], y[y == digit])
>>> bool(model.score(X, y) > 0.7)
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from sncl.errors import BadInput, Diverged, SnclError
from sncl.methods.table import METHODS, Value, entry, make
from sncl.networks.mlp import dense
from sncl.networks.output import find_output
from sncl.streams.standardisation import RunningScale
from sncl.tensors.fields import Fields, under, within
from sncl.tensors.random import generator, seeded
from sncl.training.checkpoint import pack, read_checkpoint, unpack, write_checkpoint
from sncl.training.engine import choose_device
from sncl.training.learner import Learner

Network = nn.Module | Callable[[Any, int], nn.Module]


class _Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What both estimators share. Parameters are attributes set by their constructors, as scikit-learn wants it.

    What decides the learner is noted in ``_made`` when it is made, so that it is made again in the same way when it is
    unpickled, whatever became of the parameters. Outputs of the network are numbered as classes arrive; ``classes_`` is
    sorted, and ``_outputs`` says which output belongs to each.
    """

    classes_: NDArray[Any]
    learner_: Learner
    n_features_in_: int
    memory: int
    replay: int
    lr: float
    batch_size: int
    epochs: int
    hidden: int | Sequence[int]
    network: Network | None
    standardize: bool
    ema: float
    random_state: Any
    device: str
    verbose: int
    settings: dict[str, Value] | None
    _made: dict[str, Any]
    _outputs: NDArray[np.int64]
    _scale: RunningScale | None

    def _choice(self) -> tuple[str, dict[str, Value]]:
        """The name of the method and those of its settings that differ from the usual ones."""
        raise NotImplementedError

    # --- learning

    def fit(self, X: Any, y: Any) -> Self:
        """Learn these rows from scratch, in ``epochs`` passes over all of them in random order."""
        X, y = self._validated(X, y, first=True)
        self._start(X, np.unique(y))
        self._learn(X, y, self.epochs, shuffle=True)
        if self.learner_.method.needs_boundaries:
            self.boundary(X, y)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Go on learning: one pass over these rows, in their order.

        New classes may come at any time. ``classes`` names those that will come, if they are known; it may be left out,
        also in the first call, and may name further ones later.
        """
        first = not self.__sklearn_is_fitted__()
        X, y = self._validated(X, y, first)
        named = np.unique(y)
        if classes is not None:
            named = np.unique(np.asarray(classes))
            if not first:
                self._refuse_another_kind(named)
            unnamed = np.setdiff1d(y, named if first else np.union1d(named, self.classes_))
            if len(unnamed):
                raise BadInput(
                    f"y has the label {unnamed.tolist()[0]!r}, which is not one of the classes {named.tolist()}"
                )
        if first:
            self._start(X, named)
        else:
            self._meet(named)
        self._learn(X, y, 1, shuffle=False)
        return self

    def boundary(self, X: Any = None, y: Any = None) -> Self:
        """Say that a task has ended, for the methods that must know (``fit`` says so itself).

        Some of them look at all rows of the task once more: ``boundary(X, y)``.
        """
        check_is_fitted(self)
        if X is None:
            self.learner_.boundary()
        else:
            X, y = self._validated(X, y, first=False)
            self._meet(np.unique(y))
            self.learner_.boundary(_rows(X, self._made), self._targets(y))
        return self

    # --- answering

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, in the order of ``classes_``. [rows, classes]"""
        check_is_fitted(self)
        X = validate_data(self, _host(X), reset=False, **self._form())
        logits = self.learner_.logits(_rows(X, self._made)).cpu().double()
        answers: NDArray[np.float64] = logits[:, self._outputs].softmax(1).numpy()
        return answers

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            answers: NDArray[np.float64] = np.log(self.predict_proba(X))
        return answers

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        likely = self.predict_proba(X).argmax(1)
        answers: NDArray[Any] = self.classes_[likely]
        return answers

    # --- keeping

    def save(self, path: str | Path) -> None:
        """Write the estimator to one file of tensors and JSON, from which :meth:`load` goes on exactly here.

        Nothing is pickled. An own ``network`` is code and is not in the file.
        """
        check_is_fitted(self)
        tensors, description = self._state()
        write_checkpoint(Path(path), tensors, description)

    @classmethod
    def load(cls, path: str | Path, *, network: Network | None = None, device: str | None = None) -> Self:
        """The estimator that was saved there; with the own ``network`` it had, if any, and perhaps elsewhere."""
        tensors, description = read_checkpoint(Path(path))
        kind = description.get("estimator")
        if kind != cls.__name__:
            raise SnclError(f"{path} holds {'a ' + kind if kind else 'no estimator'}, not a {cls.__name__}")
        parameters, made = description["parameters"], description["made"]
        if isinstance(parameters["hidden"], list):
            parameters["hidden"] = tuple(parameters["hidden"])
        if description["own_network"] != (network is not None):
            had = "had a network of its own: give it" if network is None else "had none: leave it out"
            raise SnclError(f"the estimator in {path} {had}, load(path, network=...)")
        if device is not None:
            made["device"] = parameters["device"] = device
        model = cls(**parameters | {"network": network})
        model._made = made | {"network": network}
        model.n_features_in_ = description["features"]
        if description["names"] is not None:
            model.feature_names_in_ = np.asarray(description["names"], dtype=object)
        model._restore(tensors, description)
        return model

    def _state(self) -> tuple[Fields, dict[str, Any]]:
        """Everything that decides what happens next, as tensors and plain data."""
        tensors = self.learner_.state()
        if self._scale is not None:
            tensors |= under("scale", self._scale.state())
        parameters = self.get_params(deep=False) | {"network": None}
        if not isinstance(self.random_state, Integral):
            parameters["random_state"] = None  # a generator is code; what it decided is in the state
        names = getattr(self, "feature_names_in_", None)
        description = {
            "estimator": type(self).__name__,
            "parameters": parameters,
            "made": {name: value for name, value in self._made.items() if name != "network"},
            "own_network": self._made["network"] is not None,
            "classes": self.classes_.tolist(),
            "labels": self.classes_.dtype.str if self.classes_.dtype.kind != "O" else "O",
            "outputs": self._outputs.tolist(),
            "features": self.n_features_in_,
            "names": None if names is None else names.tolist(),
            "device": self.learner_.device.type,
            "learner": self.learner_.description(),
        }
        return tensors, _plain(description)

    def _restore(self, tensors: Fields, description: dict[str, Any]) -> None:
        """The inverse of :meth:`_state`, for an estimator whose parameters and ``_made`` are there."""
        self.classes_ = np.asarray(description["classes"], dtype=description["labels"])
        self._outputs = np.asarray(description["outputs"], dtype=np.int64)
        self.learner_, self._scale = _make(self._made)
        if self._scale is not None:
            self._scale.load(within("scale", tensors))
        if description["device"] != self.learner_.device.type:  # whose generators know another kind of state
            tensors = tensors | under("random", {"gates": self.learner_.random["gates"].get_state()})
        self.learner_.restore(tensors, description["learner"])

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "learner_" in state:
            for name in ("learner_", "_scale", "classes_", "_outputs"):
                del state[name]
            state["_packed"] = pack(*self._state())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        packed = state.pop("_packed", None)
        super().__setstate__(state)
        if packed is not None:
            self._restore(*unpack(packed))

    # --- how it is done

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = self.network is not None
        return tags

    def _form(self) -> dict[str, Any]:
        """What inputs may look like: a network of one's own may take images."""
        return {"allow_nd": self.network is not None, "dtype": "numeric"}

    def _validated(self, X: Any, y: Any, first: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        X, y = validate_data(self, _host(X), _host(y), reset=first, **self._form())
        check_classification_targets(y)
        if not first:
            self._refuse_another_kind(y)
        return X, y

    def _refuse_another_kind(self, labels: NDArray[Any]) -> None:
        """Numbers among text would become text themselves."""
        if (labels.dtype.kind in "biuf") != (self.classes_.dtype.kind in "biuf"):
            example, known = labels.tolist()[0], self.classes_.tolist()[:5]
            raise BadInput(f"labels are {labels.dtype} such as {example!r} now, but were {known} so far")

    def _start(self, X: NDArray[Any], classes: NDArray[Any]) -> None:
        """Make a learner for inputs like these and the classes known so far."""
        for name in ("epochs", "batch_size"):
            if not getattr(self, name) >= 1:
                raise BadInput(f"{name} is at least 1, not {getattr(self, name)}")
        method, settings = self._choice()
        if reason := _unusable(method):
            known = ", ".join(name for name in METHODS if not _unusable(name))
            raise BadInput(f"{method} {reason}, so it is no method for an estimator; those are {known}")
        hidden: Any = self.hidden
        made = {
            "method": method,
            "settings": dict(settings),
            "memory": self.memory,
            "replay": self.replay,
            "lr": self.lr,
            "hidden": (hidden,) if isinstance(hidden, Integral) else tuple(hidden),
            "network": self.network,
            "standardize": self.standardize,
            "ema": self.ema,
            "seed": int(check_random_state(self.random_state).randint(2**31 - 1)),
            "device": self.device,
            "shape": X.shape[1:],
            "outputs": len(classes),
            "rows": "float64" if self.standardize and np.result_type(X, np.float32) != np.float32 else "float32",
        }
        learner, scale = _make(made)
        learner.prepare(_rows(X[:2], made))
        _reach(learner, len(classes))
        self._made, self.learner_, self._scale = made, learner, scale
        self.classes_, self._outputs = classes, np.arange(len(classes))

    def _meet(self, named: NDArray[Any]) -> None:
        """Be ready for these classes, of which some may be new."""
        new = np.setdiff1d(named, self.classes_)
        if len(new):
            _reach(self.learner_, len(self.classes_) + len(new))
            classes = np.concatenate([self.classes_, new])
            outputs = np.concatenate([self._outputs, len(self.classes_) + np.arange(len(new))])
            order = classes.argsort(kind="stable")
            self.classes_, self._outputs = classes[order], outputs[order]

    def _learn(self, X: NDArray[Any], y: NDArray[Any], epochs: int, shuffle: bool) -> None:
        x, labels = _rows(X, self._made), self._targets(y)
        if self._scale is not None:
            self._scale.update(x)
        order = torch.arange(len(x))
        for epoch in range(epochs):
            if shuffle:
                order = torch.randperm(len(x), generator=generator(self._made["seed"], "order", epoch))
            losses = [self.learner_.learn(x[part], labels[part]) for part in _batches(order, self.batch_size)]
            loss = float(torch.stack([sum(each.values(), torch.zeros(())) for each in losses]).mean())
            if not np.isfinite(loss):
                raise Diverged(f"the loss became {loss}; use a smaller lr than {self.lr}")
            if self.verbose:
                print(f"[{type(self).__name__}] pass {epoch + 1} of {epochs}: loss {loss:.4f}")
        memory = self.learner_.memory
        if self.verbose and memory is not None:
            print(f"[{type(self).__name__}] remembers {len(memory)} rows; there is room for {memory.capacity}")

    def _targets(self, y: NDArray[Any]) -> Tensor:
        """The output of each label's class."""
        return torch.from_numpy(self._outputs[np.searchsorted(self.classes_, y)])


class ContinualClassifier(_Classifier):
    """A classifier that learns with any of the methods by name, and goes on learning without forgetting.

    Parameters
    ----------
    method : str, default="derpp"
        A name from ``sncl list``; all but ``joint`` and ``pnn``. Methods that must know where tasks end
        (``oewc``, ``si``, ``lwf``, ``gem``, ``agem``, ``icarl``, ``hal``) are told by :meth:`boundary`.
    memory : int, default=500
        How many rows may be kept.
    replay : int, default=32
        How many of them are replayed beside each batch.
    lr : float, default=0.1
        The step size of gradient descent.
    batch_size : int, default=32
        Rows of one step; ``partial_fit`` with fewer rows makes one step.
    epochs : int, default=20
        Passes of ``fit``. ``partial_fit`` makes one.
    hidden : int or sequence of int, default=(100, 100)
        Widths of the hidden layers of the usual network.
    network : nn.Module or callable, default=None
        Another network: a module, of which a copy is trained, or a function (n_features, n_classes) -> module. It may
        take arrays of more than two dimensions, such as images; the function is then given the shape of one of them.
    standardize : bool, default=True
        Bring features to mean 0 and deviation 1 by what was seen so far. Images have one mean for each channel, the
        second axis. Remembered rows are stored as they came.
    ema : float, default=0.0
        Predict with a moving average of the weights, of which each step keeps this part (0.999: about a thousand
        steps). It forgets less on streams that change slowly; 0 predicts with the weights as they are.
    random_state : int, RandomState or None, default=None
        Decides initial weights, order, replay and admission.
    device : str, default="cpu"
        ``"cuda"`` pays for large networks; ``"auto"`` is the GPU where there is one.
    verbose : int, default=0
        1 prints a line for every pass.
    settings : dict, default=None
        Settings of the method that differ from the usual ones, such as ``{"labels": 1.0}``.

    Attributes
    ----------
    classes_ : ndarray
        The labels met or named so far, sorted.
    learner_ : sncl.Learner
        What learns.
    n_features_in_, feature_names_in_
        Of the first rows, as usual.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sncl import ContinualClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=False)
    >>> model = ContinualClassifier("er", random_state=0).fit(X[:100], y[:100])
    >>> model = model.partial_fit(X[100:], y[100:])  # a class that was not there before
    >>> model.classes_
    array([0, 1, 2])
    """

    def __init__(
        self,
        method: str = "derpp",
        *,
        memory: int = 500,
        replay: int = 32,
        lr: float = 0.1,
        batch_size: int = 32,
        epochs: int = 20,
        hidden: int | Sequence[int] = (100, 100),
        network: Network | None = None,
        standardize: bool = True,
        ema: float = 0.0,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
        settings: dict[str, Value] | None = None,
    ) -> None:
        self.method = method
        self.memory = memory
        self.replay = replay
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.hidden = hidden
        self.network = network
        self.standardize = standardize
        self.ema = ema
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.settings = settings

    def _choice(self) -> tuple[str, dict[str, Value]]:
        return self.method, self.settings or {}


class SNCLClassifier(_Classifier):
    """A classifier that learns with SNCL: sparse gates, replay of the whole experience, a memory balanced by loss.

    Parameters that are not listed here are those of :class:`ContinualClassifier`, as are the attributes.

    Parameters
    ----------
    alpha, beta, gamma : float, default=0.5
        Weights of the labels, logits and features of replayed rows.
    eta : float, default=1e-4
        The pull of the prior that closes neurons; 0 means no gates.
    release : float, default=0.2
        How fast that pull fades as rows come in: eta / (1 + release * rows / 1000).
    admission : {"loss-aware", "reservoir"}, default="loss-aware"
        Which rows the memory keeps.
    settings : dict, default=None
        Further settings of SNCL, see :class:`sncl.methods.sncl.SNCL`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sncl import SNCLClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> bool(SNCLClassifier(random_state=0).fit(X, y).score(X, y) > 0.95)  # features of very different scales
    True
    """

    def __init__(
        self,
        *,
        alpha: float = 0.5,
        beta: float = 0.5,
        gamma: float = 0.5,
        eta: float = 1e-4,
        release: float = 0.2,
        admission: str = "loss-aware",
        memory: int = 500,
        replay: int = 32,
        lr: float = 0.1,
        batch_size: int = 32,
        epochs: int = 20,
        hidden: int | Sequence[int] = (100, 100),
        network: Network | None = None,
        standardize: bool = True,
        ema: float = 0.0,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
        settings: dict[str, Value] | None = None,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.eta = eta
        self.release = release
        self.admission = admission
        self.memory = memory
        self.replay = replay
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.hidden = hidden
        self.network = network
        self.standardize = standardize
        self.ema = ema
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.settings = settings

    def _choice(self) -> tuple[str, dict[str, Value]]:
        named = ("alpha", "beta", "gamma", "eta", "release", "admission")
        return "sncl", {name: getattr(self, name) for name in named} | (self.settings or {})


def _unusable(method: str) -> str:
    """Why a method cannot learn and answer as an estimator does; nothing if it can."""
    if entry(method).joint:
        return "is a way to show a stream"
    return "predicts only when told the task" if make(method).needs_task_at_test else ""


def _make(made: dict[str, Any]) -> tuple[Learner, RunningScale | None]:
    """A learner that has learned nothing yet, and the scale its inputs go through."""
    shape, given = made["shape"], made["network"]
    with seeded(made["seed"], "network"):
        if given is None:
            net: Any = dense(shape[0], made["outputs"], made["hidden"])
        elif isinstance(given, nn.Module):
            net = deepcopy(given)
        else:
            net = given(shape[0] if len(shape) == 1 else tuple(shape), made["outputs"])
    if not isinstance(net, nn.Module):
        raise BadInput(f"network is an nn.Module or makes one from (n_features, n_classes), not {type(net).__name__}")
    first = next(net.parameters(), torch.zeros(0))
    example = torch.zeros((2, *shape), dtype=first.dtype, device=first.device)
    scale = None
    if made["standardize"]:
        scale = RunningScale(shape[0], first.dtype, choose_device(made["device"]))
    learner = Learner(
        net,
        make(made["method"], made["settings"]),
        memory=made["memory"],
        replay=made["replay"],
        lr=made["lr"],
        transform=scale,
        seed=made["seed"],
        device=made["device"],
        ema=made["ema"],
        grow=_can_grow(net, example),
    )
    return learner, scale


def _can_grow(net: nn.Module, example: Tensor) -> bool:
    try:
        find_output(net, example)
    except (SnclError, RuntimeError, ValueError, TypeError, IndexError):  # what else is wrong, the learner will say
        return False
    return True


def _reach(learner: Learner, outputs: int) -> None:
    """Have at least so many outputs."""
    if outputs > learner.outputs:
        if not learner.grows:
            raise BadInput(
                f"there are {outputs} classes now, and the network has {learner.outputs} outputs and does not end with "
                "an nn.Linear that could get more; name all classes at the first partial_fit"
            )
        learner.grow(outputs)


def _rows(X: NDArray[Any], made: dict[str, Any]) -> Tensor:
    """Inputs as the learner takes them, in memory of their own."""
    return torch.from_numpy(np.array(X, dtype=made["rows"], order="C"))


def _host(value: Any) -> Any:
    """A tensor as an array; anything else as it is."""
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _batches(order: Tensor, size: int) -> list[Tensor]:
    """Rows in batches of one size. A single last row goes with those before it: BatchNorm cannot learn one alone."""
    batches = list(order.split(size))
    if size > 1 and len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def _plain(value: Any) -> Any:
    """As JSON has it: numbers of NumPy and tuples, from a grid search say, become plain ones."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, torch.device) else value
