"""Gradients of single samples, all samples at once (``torch.func``), and gradients as one flat vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sncl.methods.terms import label_losses
from sncl.networks.taps import Tapped, arguments, evaluating, logits_of
from sncl.tensors.fields import Fields, Inputs, mapped, pieces


def per_sample_gradients(net: Tapped, x: Inputs, y: Tensor) -> Fields:
    """The gradient of every sample's cross-entropy: name of a trained parameter -> [rows, *shape].

    In evaluation mode, where a sample's loss is its own. The result is as large as ``rows`` networks: chunk the
    samples.
    """
    parameters = {name: value.detach() for name, value in net.body.named_parameters() if value.requires_grad}
    fixed = {name: value.detach() for name, value in net.body.named_parameters() if not value.requires_grad}
    buffers = {name: value.detach() for name, value in net.body.named_buffers()} | fixed

    def loss(parameters: Fields, row: Inputs, label: Tensor) -> Tensor:
        logits = logits_of(functional_call(net.body, (parameters, buffers), *arguments(mapped(_as_batch, row))))
        return label_losses(logits, label.unsqueeze(0)).sum()

    with evaluating(net):
        try:
            gradients: Fields = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
        except RuntimeError:  # a network that looks at values, as those of language do, takes its samples one by one
            single = pieces(x, 1)
            each = [grad(loss)(parameters, mapped(_first, row), y[number]) for number, row in enumerate(single)]
            gradients = {name: torch.stack([row[name] for row in each]) for name in parameters}
    return gradients


def _first(batch: Tensor) -> Tensor:
    return batch[0]


def _as_batch(row: Tensor) -> Tensor:
    return row.unsqueeze(0)


def flat(gradients: Fields) -> Tensor:
    """[rows, parameters] of per-sample gradients."""
    return torch.cat([value.flatten(1) for value in gradients.values()], dim=1)


def trained(net: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained; every vector here is in their order."""
    return [value for value in net.parameters() if value.requires_grad]


def weight_vector(net: nn.Module) -> Tensor:
    """The trained parameters as one vector, which can be differentiated. [parameters]"""
    return torch.cat([value.flatten() for value in trained(net)])


def carried(vector: Tensor, before: list[nn.Parameter], net: nn.Module, new: float | None = None) -> Tensor:
    """A vector in the order of the parameters ``before``, in that of a network which got more since. [parameters]

    At new parameters it has the value ``new``, or theirs.
    """
    parts = dict(zip(before, vector.split([value.numel() for value in before]), strict=True))
    for value in trained(net):
        if value not in parts:
            parts[value] = value.detach().flatten() if new is None else vector.new_full((value.numel(),), new)
    return torch.cat([parts[value] for value in trained(net)])


def gradient_of(net: Tapped, loss: Tensor) -> Tensor:
    """The gradient of a loss as one vector; zero where it does not reach. [parameters]"""
    wanted = trained(net)
    found = torch.cat([part.flatten() for part in torch.autograd.grad(loss, wanted, materialize_grads=True)])
    net.average([found])
    return found


def gradient_vector(net: Tapped) -> Tensor:
    """The gradients that lie in the parameters, as one vector; zero where there is none. [parameters]"""
    gradients = [torch.zeros_like(value) if value.grad is None else value.grad for value in trained(net)]
    return torch.cat([gradient.flatten() for gradient in gradients])


def set_gradient_vector(net: Tapped, vector: Tensor) -> None:
    """Put a vector back as the parameters' gradients."""
    parameters = trained(net)
    for parameter, part in zip(parameters, vector.split([value.numel() for value in parameters]), strict=True):
        parameter.grad = part.view_as(parameter).clone()
