"""What an estimator is given, as numbers: checked as scikit-learn does, and encoded by what the stream has taught.

Arrays of numbers without a missing value stay as they are. Everything else that is a table goes through a
:class:`~sncl.tables.TableEncoder`, the one that the command line uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags, check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, validate_data
from torch import Tensor

from sncl.errors import BadInput, SnclError
from sncl.estimator.spec import Network
from sncl.estimator.state import StatefulEstimator
from sncl.tables.columns import Columns
from sncl.tables.encoder import TableEncoder
from sncl.tables.frames import columns_of, is_frame, is_sparse, with_zeros

ColumnNames = Sequence[str | int]
NUMBERS_AT_ONCE = 2**24  # of a sparse matrix, with its zeros
REAL = (np.dtype(np.float32), np.dtype(np.float64))
FEW_LABELS = 20  # of more, scikit-learn warns where most are different
GivenInputs = NDArray[Any] | Columns  # an array of numbers, or the columns of a table


class TabularEstimator(StatefulEstimator):
    """An estimator that takes tables as they are."""

    network: Network | None
    ignore: ColumnNames | None
    categories: ColumnNames | None
    numbers: ColumnNames | None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = self.network is not None
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    def _validated(self, X: Any, y: Any, first: bool) -> tuple[GivenInputs, NDArray[Any]]:
        """Inputs and labels as arrays, the inputs of a table as columns; nothing is learned yet."""
        if not first and self._is_valid(X) and _are_valid_labels(y, len(X)):
            return X, y
        X, y = to_host(X), to_host(y)
        given: GivenInputs
        if is_table(X):
            given = columns = self._columns(X, first)
            rows = len(next(iter(columns.values()), ()))
            _, y = check_X_y(np.zeros((rows, 1)), y, estimator=self)
        else:
            X, y = validate_data(self, X, y, reset=first, **self._accepted())
            given = self._finite(X)
        check_classification_targets(y)
        return given, y

    def _validated_inputs(self, X: Any) -> GivenInputs:
        """The same for samples without labels."""
        if self._is_valid(X):
            given: GivenInputs = X
            return given
        X = to_host(X)
        if is_table(X):
            return self._columns(X, first=False)
        return self._finite(validate_data(self, X, reset=False, **self._accepted()))

    def _is_valid(self, X: Any) -> bool:
        """Whether scikit-learn would return these inputs as they are: a short look at rows that are right."""
        return (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype in REAL
            and len(X) > 0
            and X.shape[1] == self.n_features_in_
            and "feature_names_in_" not in self.__dict__
            and (math.isfinite(np.vdot(X, X)) or bool(np.isfinite(X).all()))  # squares are quicker, and may overflow
        )

    def _accepted(self) -> dict[str, Any]:
        """What inputs may look like: a network of your own may take images."""
        own = self.network is not None
        return {"allow_nd": own, "dtype": "numeric", "accept_sparse": "csr", "ensure_all_finite": "allow-nan"}

    def _finite(self, X: Any) -> NDArray[Any]:
        """Numbers, all of them; of images none may be missing."""
        try:
            array: NDArray[Any] = with_zeros(X) if is_sparse(X) else X
        except SnclError as error:
            raise as_bad_input(error) from error
        if array.ndim != 2:
            assert_all_finite(array, input_name="X", estimator_name=type(self).__name__)
        return array

    def _columns(self, X: Any, first: bool) -> Columns:
        """A table by its columns, with names and their number checked as for any estimator."""
        try:
            if _are_records(X):
                return self._records(columns_of(X), first)
            X = X if is_frame(X) or _is_exchangeable(X) else np.asarray(X, dtype=object)
            validate_data(self, X, reset=first, skip_check_array=True)
            columns = columns_of(X)
            if not (first or self.encoder_ is None or hasattr(self, "feature_names_in_")):  # known by their places
                columns = dict(zip(self.encoder_.columns, columns.values(), strict=True))
        except SnclError as error:
            raise as_bad_input(error) from error
        if not len(next(iter(columns.values()), ())):
            raise BadInput("Found array with 0 sample(s) while a minimum of 1 is required: the table has no rows")
        return columns

    def _records(self, columns: Columns, first: bool) -> Columns:
        """Columns of dictionaries, which name their values."""
        if first:
            self.n_features_in_ = len(columns)
            self.feature_names_in_ = np.asarray(list(columns), dtype=object)
        return columns

    # --- encoding

    def _encoder_for(self, given: GivenInputs) -> TableEncoder | None:
        """A new encoder for inputs like these; none for images."""
        if isinstance(given, np.ndarray) and given.ndim != 2:
            return None
        named = hasattr(self, "feature_names_in_")
        names = list(map(str, self.feature_names_in_)) if named else None
        columns = as_columns(given, names)
        roles = (self._chosen(getattr(self, role), list(columns)) for role in ("ignore", "categories", "numbers"))
        ignore, categories, numbers = roles
        try:
            return TableEncoder.made_for(columns, ignore=ignore, categories=categories, numbers=numbers, named=named)
        except SnclError as error:
            raise as_bad_input(error) from error

    def _chosen(self, wanted: ColumnNames | None, names: list[str]) -> list[str]:
        """Columns by name, or by their place from 0 on."""
        if isinstance(wanted, str):
            raise BadInput(f"columns are named in a list, as in [{wanted!r}]")
        found = []
        for each in wanted or ():
            if isinstance(each, str):
                found.append(each)
            elif -len(names) <= each < len(names):
                found.append(names[each])
            else:
                raise BadInput(f"there is no column {each}: the table has {len(names)}")
        return found

    def _check_values(self, given: GivenInputs) -> None:
        """Refuse a table that does not fit what was learned, before anything changes."""
        if self.encoder_ is not None and not isinstance(given, np.ndarray):
            try:
                self.encoder_.check(given)
            except SnclError as error:
                raise as_bad_input(error) from error

    def _encoded(self, given: GivenInputs, encoder: TableEncoder | None, learn: bool) -> NDArray[Any]:
        """Inputs as numbers; with ``learn`` the encoder learns from them first."""
        if encoder is None:
            assert isinstance(given, np.ndarray)
            if given.ndim == 2:  # saved before there were encoders
                assert_all_finite(given, input_name="X", estimator_name=type(self).__name__)
            return given
        if isinstance(given, np.ndarray) and encoder.whole and not _has_nan(given):
            if learn:
                encoder.update_numbers(given.astype(np.float64))
            return given
        columns = as_columns(given, list(encoder.columns))
        try:
            if learn:
                encoder.update(columns)
            return encoder.encode(columns)
        except SnclError as error:
            raise as_bad_input(error) from error


def _are_valid_labels(y: Any, rows: int) -> bool:
    """The same for labels: whole numbers or text, too few for scikit-learn to doubt that they are classes."""
    return type(y) is np.ndarray and y.shape == (rows,) and y.dtype.kind in "iuU" and rows <= FEW_LABELS


def distinct(labels: NDArray[Any]) -> NDArray[Any]:
    """Each label once, sorted; often there is but one."""
    return labels if len(labels) == 1 else np.unique(labels)


def are_among(labels: NDArray[Any], classes: NDArray[Any]) -> bool:
    """Whether all labels are among the sorted ``classes``."""
    places = classes.searchsorted(labels)
    if len(labels) == 1:  # a row by itself is told sooner without arrays
        place = places.item()
        return place < len(classes) and bool(classes.item(place) == labels.item())
    return bool((classes.take(places, mode="clip") == labels).all())


def in_parts(X: Any) -> list[Any]:
    """A sparse matrix cut so that no part is large with all its zeros; anything else in one part."""
    if not is_sparse(X) or X.ndim != 2:
        return [X]
    rows = max(1, NUMBERS_AT_ONCE // max(1, X.shape[1]))
    found = X.tocsr()
    return [found[start : start + rows] for start in range(0, X.shape[0], rows)] or [X]


def is_table(X: Any) -> bool:
    """Whether these are rows of more than numbers, by their columns."""
    if isinstance(X, np.ndarray):
        return X.ndim == 2 and X.dtype.kind in "OUSM" and not _numeric(X)
    if is_frame(X):
        return any(not isinstance(kind, np.dtype) or kind.kind not in "biuf" for kind in X.dtypes)
    if _is_exchangeable(X):
        return True
    if is_sparse(X) or not isinstance(X, Sequence) or isinstance(X, str) or not X:
        return False
    if _are_records(X):
        return True
    try:
        array = np.asarray(X, dtype=object)
    except ValueError:
        return False
    return array.ndim == 2 and not _numeric(array)


def _numeric(array: NDArray[Any]) -> bool:
    """Whether an array of objects holds nothing but numbers."""
    try:
        array.astype(np.complex128 if array.dtype.kind == "O" else np.float64)
    except (TypeError, ValueError):
        return False
    return array.dtype.kind == "O" and not any(isinstance(value, str) for value in array.ravel()[:1000].tolist())


def _is_exchangeable(X: Any) -> bool:
    return hasattr(X, "__dataframe__")


def _are_records(X: Any) -> bool:
    return isinstance(X, Sequence) and not isinstance(X, str) and len(X) > 0 and isinstance(X[0], Mapping)


def as_columns(given: GivenInputs, names: Sequence[str] | None) -> Columns:
    """Columns by name; all columns of an array are numbers."""
    return columns_of(given.astype(np.float64), names) if isinstance(given, np.ndarray) else given


def _has_nan(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and math.isnan(np.vdot(array, array))


def as_bad_input(error: SnclError) -> Exception:
    """The error as scikit-learn expects it."""
    return error if isinstance(error, ValueError | TypeError) else BadInput(str(error))


def to_host(value: Any) -> Any:
    """A tensor as an array; anything else as it is."""
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value
