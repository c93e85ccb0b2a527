"""Saving, loading, pickling and copying an estimator, none of which changes what it does next."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sncl.errors import Diverged, SnclError
from sncl.estimator.spec import LearnerSpec, Network
from sncl.streams.standardisation import RunningScale
from sncl.tables.encoder import TableEncoder
from sncl.tensors.fields import Fields, under, within
from sncl.training.checkpoint import pack, read_saved, unpack, write_checkpoint
from sncl.training.exclusive import LOCK, Exclusive, exclusive
from sncl.training.finite import check_weights
from sncl.training.learner import Learner

SINCE = {"momentum": 0.0, "weight_decay": 0.0}  # parameters that older pickles do not have


class StatefulEstimator(Exclusive, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator around a learner, whose state is tensors and plain data.

    The learner is made again from ``_spec``. Outputs of the network are numbered as classes arrive; ``classes_`` is
    sorted, and ``_outputs`` says which output belongs to each. Calls from several threads are made one after the other.
    """

    classes_: NDArray[Any]
    learner_: Learner
    network: Network | None
    n_features_in_: int
    random_state: Any
    _spec: LearnerSpec
    _outputs: NDArray[np.int64]
    _counts: NDArray[np.int64]  # samples of each class so far, by its output
    _weight_sum: float  # of the weights they were given
    _scale: RunningScale | None
    encoder_: TableEncoder | None = None  # also of one that was saved before there were encoders
    _diverged: str = ""  # why the learner is of no use any more

    @exclusive
    def save(self, path: str | Path) -> None:
        """Write the estimator to one file of tensors and JSON, from which :meth:`load` goes on exactly here.

        Nothing is pickled. A ``network`` of your own is code and is not in the file. The file that was there stays as
        ``path.previous``.
        """
        self._check_usable()
        check_weights(self.learner_)
        write_checkpoint(Path(path), *self._state(), keep_previous=True)

    @exclusive
    def state(self) -> tuple[Fields, dict[str, Any]]:
        """A copy of what :meth:`save` writes: tensors, and plain data that says what they belong to."""
        self._check_usable()
        check_weights(self.learner_)
        tensors, description = self._state()
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}, description

    @exclusive
    def snapshot(self) -> Self:
        """A copy that only predicts, as this estimator does now, and never waits while this one learns."""
        self._check_usable()
        learner = self.learner_.snapshot()
        kept = (learner, self.network, self._spec)  # which nothing changes
        twin = type(self).__new__(type(self))
        known = {id(each): each for each in kept}
        twin.__dict__.update(deepcopy(self._unlocked() | {"learner_": learner, "_scale": None}, known))
        return twin

    @classmethod
    def load(cls, path: str | Path, *, network: Network | None = None, device: str | None = None) -> Self:
        """The estimator that was saved there.

        ``network`` is the one of your own that it had, if any; ``device`` moves it elsewhere.
        """
        tensors, description = read_saved(Path(path))
        kind = description.get("estimator")
        if kind != cls.__name__:
            raise SnclError(f"{path} holds {'a ' + kind if kind else 'no estimator'}, not a {cls.__name__}")
        if description["own_network"] != (network is not None):
            had = "had a network of its own: give it" if network is None else "had none: leave it out"
            raise SnclError(f"the estimator in {path} {had}, load(path, network=...)")
        parameters, spec = description["parameters"], LearnerSpec.from_plain(description["spec"], network)
        if isinstance(parameters["hidden"], list):
            parameters["hidden"] = tuple(parameters["hidden"])
        if isinstance(parameters.get("class_weight"), list):
            parameters["class_weight"] = dict(parameters["class_weight"])
        if device is not None:
            parameters["device"], spec = device, replace(spec, device=device)
        model = cls(**parameters | {"network": network})
        model._spec = spec
        model.n_features_in_ = description["features"]
        if description["names"] is not None:
            model.feature_names_in_ = np.asarray(description["names"], dtype=object)
        model._restore(tensors, description)
        return model

    def _check_usable(self) -> None:
        """Refuse what was never fitted, or is fitted no more: its weights are no numbers."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)
        if self._diverged:
            raise Diverged(f"{self._diverged}; fit this estimator again, or load one that was saved before")

    def _state(self) -> tuple[Fields, dict[str, Any]]:
        """Everything that decides what happens next, as tensors and plain data."""
        tensors = self.learner_.state()
        if self._scale is not None:
            tensors |= under("scale", self._scale.state())
        parameters = self.get_params(deep=False) | {"network": None}
        if isinstance(parameters["class_weight"], Mapping):  # JSON has no labels that are numbers
            parameters["class_weight"] = list(parameters["class_weight"].items())
        if not isinstance(self.random_state, Integral):
            parameters["random_state"] = None  # a generator is code; what it decided is in the state
        if not isinstance(parameters.get("method", ""), str):  # so is a method of your own
            parameters |= {"method": self._spec.method, "settings": self._spec.settings}
        names = getattr(self, "feature_names_in_", None)
        description = {
            "estimator": type(self).__name__,
            "parameters": parameters,
            "spec": self._spec.plain(),
            "own_network": self._spec.network is not None,
            "classes": self.classes_.tolist(),
            "labels": self.classes_.dtype.str if self.classes_.dtype.kind != "O" else "O",
            "outputs": self._outputs.tolist(),
            "counts": self._counts.tolist(),
            "weight_sum": self._weight_sum,
            "features": self.n_features_in_,
            "names": None if names is None else names.tolist(),
            "encoder": None if self.encoder_ is None else self.encoder_.to_json(),
            "device": self.learner_.device.type,
            "learner": self.learner_.description(),
        }
        return tensors, _plain(description)

    def _restore(self, tensors: Fields, description: dict[str, Any]) -> None:
        """The inverse of :meth:`_state`, for an estimator whose parameters and ``_spec`` are there."""
        self.classes_ = np.asarray(description["classes"], dtype=description["labels"])
        self._outputs = np.asarray(description["outputs"], dtype=np.int64)
        self._counts = np.asarray(description.get("counts", []), dtype=np.int64)  # older files count from here on
        self._weight_sum = float(description.get("weight_sum", 0.0))
        encoder = description.get("encoder")
        self.encoder_ = None if encoder is None else TableEncoder.from_json(encoder)
        self.learner_, self._scale = self._spec.make()
        if self._scale is not None:
            self._scale.load(within("scale", tensors))
        if description["device"] != self.learner_.device.type:  # whose generators know another kind of state
            tensors = tensors | under("random", {"gates": self.learner_.random["gates"].get_state()})
        self.learner_.restore(tensors, description["learner"])

    def __getstate__(self) -> dict[str, Any]:
        with self.exclusively():
            state = {name: value for name, value in super().__getstate__().items() if name != LOCK}
            if "learner_" in state:
                for name in ("learner_", "_scale", "classes_", "_outputs", "_counts", "_weight_sum", "encoder_"):
                    state.pop(name, None)
                state["_packed"] = pack(*self._state())
            return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        packed = state.pop("_packed", None)
        super().__setstate__(SINCE | state)
        if packed is not None:
            self._restore(*unpack(packed))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")


def _plain(value: Any) -> Any:
    """As JSON has it: numbers of NumPy and tuples, from a grid search say, become plain ones."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, torch.device) else value
