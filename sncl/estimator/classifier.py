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

from collections.abc import Sequence
from typing import Any

from sncl.errors import BadInput
from sncl.estimator.base import BaseContinualClassifier
from sncl.estimator.inputs import ColumnNames
from sncl.estimator.spec import Network
from sncl.estimator.weighting import ClassWeight
from sncl.methods.constructor import OwnMethod
from sncl.methods.own import name_method
from sncl.methods.table import Value, entry

OF_GATES: dict[str, float] = {"sparsity": 0.3, "start": 1.0, "fill": 1.0, "eta": 1e-4, "anneal": 0.2}  # usual values


class ContinualClassifier(BaseContinualClassifier):
    """A classifier that learns with any of the methods by name, and goes on learning without forgetting.

    Parameters
    ----------
    method : str, method or class of methods, default="derpp"
        A name from ``sncl list`` or a method of your own; all but ``joint`` and ``pnn``. Methods that must know where
        tasks end (``oewc``, ``si``, ``lwf``, ``gem``, ``agem``, ``icarl``, ``hal``) are told by :meth:`boundary`.
    memory : int, default=500
        How many samples the memory holds.
    replay : int, default=32
        How many of them are replayed with each batch.
    lr : float, default=0.1
        The learning rate.
    momentum, weight_decay : float, default=0.0
        Of gradient descent, as in ``torch.optim.SGD``. Momentum of 0.9 wants a learning rate about a tenth as high.
    batch_size : int, default=32
        Samples of one step; ``partial_fit`` with fewer makes one step.
    epochs : int, default=20
        Passes of ``fit``. ``partial_fit`` makes one.
    hidden : int or sequence of int, default=(100, 100)
        Widths of the hidden layers of the usual network.
    network : nn.Module or callable, default=None
        Another network: a module, of which a copy is trained, or a function (n_features, n_classes) -> module. It may
        take arrays of more than two dimensions, such as images; the function is then given the shape of one of them.
    standardize : bool, default=True
        Standardise features to mean 0 and standard deviation 1 by what was seen so far. Images have one mean for each
        channel, the second axis. Samples in the memory are stored as they came.
    ignore, categories, numbers : sequence of str or int, default=None
        Columns of a table, by name or place, that are left out, or whose values are categories or numbers. Other
        columns are understood by what they hold: numbers, texts (categories), truth values, dates; ids are left out.
    ema : float, default=0.0
        Predict with an exponential moving average of the weights with this decay (0.999: about a thousand steps). It
        forgets less on streams that change slowly; 0 predicts with the weights as they are.
    class_weight : "balanced", dict or None, default=None
        How much the labels of each class count; a class that a dictionary does not name counts 1. "balanced" is
        n_samples / (n_classes * samples of the class): of all samples in ``fit``, of those seen so far in
        ``partial_fit``. It is multiplied with ``sample_weight``.
    random_state : int, RandomState or None, default=None
        Decides initial weights, order, replay and admission.
    device : str, default="cpu"
        ``"cuda"`` pays for large networks; ``"auto"`` is the GPU where there is one.
    verbose : int, default=0
        1 prints a line for every epoch.
    settings : dict, default=None
        Settings of the method that differ from the usual ones, such as ``{"labels": 1.0}``.

    Attributes
    ----------
    classes_ : ndarray
        The labels met or named so far, sorted.
    learner_ : sncl.Learner
        What learns.
    encoder_ : sncl.tables.TableEncoder or None
        How the columns of a table become numbers; None where samples are images.
    n_features_in_, feature_names_in_
        Of the first samples, as usual.

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
        method: OwnMethod = "derpp",
        *,
        memory: int = 500,
        replay: int = 32,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        batch_size: int = 32,
        epochs: int = 20,
        hidden: int | Sequence[int] = (100, 100),
        network: Network | None = None,
        standardize: bool = True,
        ignore: ColumnNames | None = None,
        categories: ColumnNames | None = None,
        numbers: ColumnNames | None = None,
        ema: float = 0.0,
        class_weight: ClassWeight = None,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
        settings: dict[str, Value] | None = None,
    ) -> None:
        self.method = method
        super().__init__(
            memory=memory,
            replay=replay,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            batch_size=batch_size,
            epochs=epochs,
            hidden=hidden,
            network=network,
            standardize=standardize,
            ignore=ignore,
            categories=categories,
            numbers=numbers,
            ema=ema,
            class_weight=class_weight,
            random_state=random_state,
            device=device,
            verbose=verbose,
            settings=settings,
        )

    def _choice(self) -> tuple[str, dict[str, Value]]:
        name, made_with = name_method(self.method)
        return name, made_with | (self.settings or {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        name_method(state["method"])  # one of your own may be new to this process
        super().__setstate__(state)


class SNCLClassifier(BaseContinualClassifier):
    """A classifier that learns with SNCL: sparse gates, replay of the whole experience, a memory balanced by loss.

    Parameters that are not listed here are those of :class:`ContinualClassifier`, as are the attributes.

    Parameters
    ----------
    alpha, beta, gamma : float, default=0.5
        Weights of the labels, logits and features of replayed samples.
    sparsity : float, default=0.3
        The fraction of all neurons that stays closed; of ``gates="grow"``.
    gates : {"grow", "kl", "off"}, default="grow"
        How neurons are gated: kept in reserve and opened as samples come in, by the paper's divergence, or not at all.
        A parameter that belongs to other gates is refused, unless it has its default.
    start : float, default=1.0
        The fraction of the others that is open at first; of ``gates="grow"``.
    fill : float, default=1.0
        After so many thousand samples all of them are open; of ``gates="grow"``.
    eta : float, default=1e-4
        The price of an open neuron; of ``gates="kl"``.
    anneal : float, default=0.2
        How fast that price falls as samples come in: eta / (1 + anneal * samples / 1000); of ``gates="kl"``.
    admission : {"loss-aware", "reservoir"}, default="loss-aware"
        Which samples the memory keeps.
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
        sparsity: float = OF_GATES["sparsity"],
        gates: str = "grow",
        start: float = OF_GATES["start"],
        fill: float = OF_GATES["fill"],
        eta: float = OF_GATES["eta"],
        anneal: float = OF_GATES["anneal"],
        admission: str = "loss-aware",
        memory: int = 500,
        replay: int = 32,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        batch_size: int = 32,
        epochs: int = 20,
        hidden: int | Sequence[int] = (100, 100),
        network: Network | None = None,
        standardize: bool = True,
        ignore: ColumnNames | None = None,
        categories: ColumnNames | None = None,
        numbers: ColumnNames | None = None,
        ema: float = 0.0,
        class_weight: ClassWeight = None,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
        settings: dict[str, Value] | None = None,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.sparsity = sparsity
        self.gates = gates
        self.start = start
        self.fill = fill
        self.eta = eta
        self.anneal = anneal
        self.admission = admission
        super().__init__(
            memory=memory,
            replay=replay,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            batch_size=batch_size,
            epochs=epochs,
            hidden=hidden,
            network=network,
            standardize=standardize,
            ignore=ignore,
            categories=categories,
            numbers=numbers,
            ema=ema,
            class_weight=class_weight,
            random_state=random_state,
            device=device,
            verbose=verbose,
            settings=settings,
        )

    def _choice(self) -> tuple[str, dict[str, Value]]:
        known = entry("sncl").settings_with({"gates": self.gates})
        for name, usual in OF_GATES.items():
            if name not in known and getattr(self, name) != usual:
                owner = entry("sncl").choice_of(name)
                raise BadInput(f"{name} belongs to {owner}, and here it is gates={self.gates}; give `gates` too")
        return "sncl", {name: getattr(self, name) for name in known if hasattr(self, name)} | (self.settings or {})
