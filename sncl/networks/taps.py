"""Read any layer of any network by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.networks.norm import PassNorm, allow_single_values
from sncl.tensors.fields import Fields, Inputs, end_to_end, rows

if TYPE_CHECKING:
    from sncl.networks.sharing import SharedPasses

INPUT = ":input"  # "head:input" is what the layer "head" reads


class Activations(NamedTuple):
    """What one forward pass returns: the logits [rows, classes] and the outputs of the tapped layers by name."""

    logits: Tensor
    features: Fields


class _Record:
    """What the taps of one network have read in the current forward pass; None outside of one."""

    features: Fields | None = None


class ReadingHook:
    """Base class of hooks that only read; without them a network computes the same."""


class _Tap(ReadingHook):
    """A forward hook that keeps a layer's output (an object, not a closure, so that copies of a network work)."""

    def __init__(self, name: str, record: _Record) -> None:
        self.name = name
        self.record = record

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        features = self.record.features
        if features is None:
            return
        output = first(output)
        if self.name in features:
            raise SnclError(
                f"layer {self.name!r} runs more than once in a forward pass, so it has no single feature to replay; "
                "name other layers in `features`"
            )
        if not isinstance(output, Tensor):
            raise SnclError(f"layer {self.name!r} returns {type(output).__name__}, not a tensor; name another layer")
        features[self.name] = output


class _InputTap(_Tap):
    """The same for what a layer reads, as a hook in front of it."""

    def __call__(self, module: nn.Module, inputs: Any, output: Any = None) -> None:
        super().__call__(module, inputs, inputs)


def first(output: Any) -> Any:
    """The first element of a tuple, as recurrent layers and blocks of libraries return one; all else as it is."""
    return output[0] if isinstance(output, tuple) and output else output


def layer(net: nn.Module, name: str) -> nn.Module:
    """The submodule of that name, or an error that lists the names there are."""
    found: nn.Module | None = dict(net.named_modules()).get(name.removesuffix(INPUT))
    if found is None or not name:
        known = ", ".join(each for each, _ in net.named_modules() if each)
        raise SnclError(f"the network has no layer {name!r}; it has: {known}")
    return found


def without_taps(net: nn.Module) -> nn.Module:
    """The network (changed in place) without any hook that only reads."""
    for module in net.modules():
        remove_hooks(module, lambda hook: isinstance(hook, ReadingHook))
    return net


def remove_hooks(module: nn.Module, unwanted: Callable[[Any], bool]) -> None:
    """Remove those of a module's forward hooks and forward pre-hooks."""
    tables: list[dict[int, Any]] = [module._forward_hooks, module._forward_pre_hooks]
    for hooks in tables:
        for key in [key for key, hook in hooks.items() if unwanted(hook)]:
            del hooks[key]


def arguments(x: Inputs) -> tuple[tuple[Tensor, ...], Fields]:
    """How a network is called with such inputs: one tensor is its first argument, several are keyword arguments."""
    return ((x,), {}) if isinstance(x, Tensor) else ((), x)


def forward(net: nn.Module, x: Inputs) -> Any:
    """What a network returns for such inputs."""
    positional, named = arguments(x)
    return net(*positional, **named)


def call(net: nn.Module, x: Inputs) -> Tensor:
    """The logits of any network, whatever else it returns."""
    return logits_of(forward(net, x))


def logits_of(output: Any) -> Tensor:
    """The logits in what a network returned.

    They are the output itself, its ``logits`` (of a mapping, such as the ``ModelOutput`` of Hugging Face) or the first
    element of a tuple.
    """
    found = output
    if isinstance(output, Mapping):
        found = output.get("logits")
    elif isinstance(output, (tuple, list)) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        parts = f" with {', '.join(map(str, output)) or 'nothing'}" if isinstance(output, Mapping) else ""
        raise SnclError(
            f"the network returns {type(output).__name__}{parts}, where logits were not found; it must return logits "
            "[rows, classes], a tuple that starts with them or a dictionary with 'logits'"
        )
    return found


class Tapped(nn.Module):
    """A network that returns :class:`Activations` instead of bare logits.

    ``body`` is the network itself; called directly it works as before. A name that ends in ``:input`` taps what that
    layer reads. ``sharing`` says how several processes share its training passes, where they do.
    """

    sharing: SharedPasses | None = None

    def __init__(self, body: nn.Module, layers: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.body = body
        self.record = _Record()
        norms = [module for module in body.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        self.norms = [norm for norm in norms if isinstance(norm, PassNorm)]
        self.others = [norm for norm in norms if not isinstance(norm, PassNorm)]
        self.joins = not self.others
        self.handles = [
            layer(body, name).register_forward_pre_hook(_InputTap(name, self.record))
            if name.endswith(INPUT)
            else layer(body, name).register_forward_hook(_Tap(name, self.record))
            for name in layers
        ]

    def forward(self, x: Inputs) -> Activations:
        if self.sharing is not None and self.sharing.takes(x):
            return self.sharing(self._pass, [x])[0]
        return self._pass(x)

    def _pass(self, x: Inputs) -> Activations:
        features: Fields = {}
        self.record.features = features
        try:
            if self.others and self.training and rows(x) == 1:
                with allow_single_values(self.others):
                    logits = call(self.body, x)
            else:
                logits = call(self.body, x)
        finally:
            self.record.features = None
        return Activations(logits, features)

    def passes(self, *inputs: Inputs) -> list[Activations]:
        """One forward pass for each input, run as a single one where a sample's result does not depend on the others.

        BatchNorm in training makes it depend on them. :class:`PassNorm` keeps the passes apart; a network with another
        BatchNorm runs every input by itself.
        """
        if not self.joins or len(inputs) == 1:
            return [self(x) for x in inputs]
        if self.sharing is not None and self.sharing.takes(*inputs):
            return self.sharing(self._pass, inputs)
        for norm in self.norms:
            norm.sizes = tuple(rows(x) for x in inputs)
        try:
            logits, features = self._pass(end_to_end(inputs))
        finally:
            for norm in self.norms:
                norm.sizes = ()
        parts, start = [], 0
        for x in inputs:  # slices, not a split: what is not differentiated costs nothing on the way back
            own = slice(start, start := start + rows(x))
            parts.append(Activations(logits[own], {name: feature[own] for name, feature in features.items()}))
        return parts

    def shared(self) -> AbstractContextManager[None]:
        """Let the processes share the passes of a block, where there are several."""
        return nullcontext() if self.sharing is None else self.sharing.taking_part()

    def average(self, gradients: list[Tensor]) -> None:
        """Make gradients those of all samples, in place, where each process has made them of its own."""
        if self.sharing is not None:
            self.sharing.group.average(gradients)

    def remove(self) -> None:
        """Remove the taps."""
        for handle in self.handles:
            handle.remove()


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Evaluation mode within the block: BatchNorm uses running statistics, gates their mean, dropout does nothing."""
    training = net.training
    net.eval()
    try:
        yield
    finally:
        net.train(training)
