"""What is closed in evaluation, and how open neurons compensate for it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.networks.gating.attach import attach_gates, gates, set_mask, track_moments, unmasked
from sncl.networks.gating.gate import RatioGate
from sncl.networks.gating.mask import Mask, Moments, select_open
from sncl.networks.mlp import MLP
from sncl.tensors.random import generator


def gate(channels: int, mask: Mask, axis: int = -1) -> RatioGate:
    """A gate in training that learns its moments and is evaluated under the mask."""
    made = RatioGate(channels, axis, generator(0))
    made.track_moments()
    made.mask = mask
    return made


def moments_of(made: RatioGate) -> Moments:
    assert made.moments is not None
    return made.moments


def test_neurons_are_closed_from_the_threshold_on() -> None:
    made = RatioGate(3, generator=generator(0)).eval()
    with torch.no_grad():
        made.log_lambda.copy_(torch.tensor([-5.1, -5.0, 0.0]))
    assert made.is_open().tolist() == [True, True, False]  # the paper's lambda >= 1
    made.mask = Mask(threshold=-5.0)
    assert made.is_open().tolist() == [True, False, False]
    assert made(torch.ones(1, 3)).tolist() == [[pytest.approx(made.mu[0].item()), 0.0, 0.0]]


def test_neurons_at_the_limit_cannot_be_told_apart_and_are_open() -> None:
    made = RatioGate(3, generator=generator(0))
    made.mask = Mask(threshold=-10.0)
    with torch.no_grad():
        made.log_lambda.copy_(torch.tensor([-10.0, -9.99, 0.0]))
    assert made.is_open().tolist() == [True, False, False]


def independent(h: Tensor, given: list[int], asked: int, ridge: float) -> list[float]:
    """The weights of a ridge regression without intercept, by scikit-learn."""
    from sklearn.linear_model import Ridge

    power = float(h.square().mean())
    fitted = Ridge(alpha=ridge * power * len(h), fit_intercept=False).fit(h[:, given].numpy(), h[:, asked].numpy())
    return [float(each) for each in fitted.coef_]


def test_open_neurons_compensate_for_closed_ones_as_a_regression_has_it() -> None:
    made = gate(4, Mask(compensate=0.1))
    h = torch.randn(500, 2, generator=generator(1)) @ torch.randn(2, 4, generator=generator(2))
    h = h + 0.1 * torch.randn(500, 4, generator=generator(3))
    for _ in range(1000):  # until the running mean is that of these rows
        made(h)
    with torch.no_grad():
        made.log_lambda[2] = 1.0
    weights = torch.tensor(independent(h, [0, 1, 3], 2, ridge=0.1))
    out = made.eval()(h)
    expected = made.mu * h
    expected[:, 2] = made.mu[2] * (h[:, [0, 1, 3]] @ weights)
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)
    assert (out[:, 2] - made.mu[2] * h[:, 2]).std() < 0.3 * h[:, 2].std()  # which silence would leave at 1
    with unmasked(made):
        torch.testing.assert_close(made(h), made.mu * h)
    made.mask = Mask()  # another choice of evaluation, of the same trained gate
    assert not made(h)[:, 2].any()


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_moments_are_learned_in_a_compiled_step_too(precision: torch.dtype) -> None:
    written = attach_gates(MLP(6, 3, width=4), torch.randn(2, 6), make=RatioGate).train()
    track_moments(written)
    other = copy.deepcopy(written)
    for net in (written, torch.compile(other, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(0)
        for _ in range(3):
            with torch.autocast("cpu", precision, enabled=precision != torch.float32):
                net(torch.randn(8, 6, generator=generator(1))).square().mean().backward()
    for (_, ours), (_, theirs) in zip(gates(written), gates(other), strict=True):
        assert ours.moments is not None and theirs.moments is not None
        assert float(ours.moments.products.sum()) > 0
        torch.testing.assert_close(ours.moments.products, theirs.moments.products)
        torch.testing.assert_close(ours.log_lambda.grad, theirs.log_lambda.grad)


def test_moments_keep_their_precision_where_the_network_has_less() -> None:
    made = gate(4, Mask(compensate=0.1))
    h = torch.randn(32, 4, generator=generator(1)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        made(h)
    exact, products = h.double().T @ h.double() / 32, moments_of(made).products
    torch.testing.assert_close(products.double() / products[0, 0], exact / exact[0, 0], rtol=1e-5, atol=1e-6)


def test_moments_are_of_the_whole_stream_and_power_is_recent() -> None:
    made = gate(2, Mask(compensate=0.1))
    early, late = torch.randn(2, 300, 8, 2, generator=generator(1)) * torch.tensor([[1.0, 2.0]])
    late[..., 1] = 0
    for h in (*early, *late):
        made(h)
    rows, moments = torch.cat([early, late]).flatten(0, 1), moments_of(made)
    torch.testing.assert_close(moments.products, rows.T @ rows / len(rows), rtol=1e-4, atol=1e-4)
    weights = 0.01 * 0.99 ** torch.arange(299.0, -1, -1)
    recent = (weights * late[..., 0].square().mean(1)).sum() / weights.sum()
    assert moments.power[0].item() == pytest.approx(recent.item(), rel=0.1)
    assert moments.power[1].item() == pytest.approx(0.99**300 * 2 * moments.products[1, 1].item(), rel=0.2)  # silent


def test_a_neuron_that_was_needed_more_than_lately_stays_open() -> None:
    """Both have the same lambda, learned from what they say now; over the stream one said a hundred times more."""
    moments = Moments(2, torch.device("cpu"))
    moments.products.copy_(torch.diag(torch.tensor([1.0, 100.0])))
    moments.power.fill_(1.0)
    doubt, mask = torch.tensor([-2.0, -2.0]), Mask(threshold=-3.0, compensate=0.01)
    assert select_open(moments, doubt, mask).tolist() == [False, True]
    moments.power.copy_(moments.products.diagonal())
    assert select_open(moments, doubt, mask).tolist() == [False, False]


def test_of_two_neurons_that_say_the_same_one_stays() -> None:
    made = gate(4, Mask(threshold=-3.0, compensate=1e-3))
    h = torch.randn(256, 4, generator=generator(1))
    h[:, 1] = h[:, 0]
    for _ in range(500):
        made(h)
    with torch.no_grad():
        made.log_lambda.copy_(torch.tensor([-4.0, -4.1, -4.0, -2.9]))
    # the more doubtful of the two closes, and the one in doubt anyway
    assert made.is_open().tolist() == [False, True, True, False]
    out = made.eval()(h)
    torch.testing.assert_close(out[:, 0], made.mu[0] * h[:, 1], rtol=0.02, atol=0.02)
    with torch.no_grad():
        moments_of(made).products.copy_(torch.eye(4))
    assert made.is_open().tolist() == [True, True, True, False]


def test_compensation_follows_what_changes_in_between() -> None:
    made = gate(3, Mask(compensate=0.1))
    h = torch.randn(64, 1, generator=generator(1)).expand(64, 3)
    made(h)
    made.eval()
    with torch.no_grad():
        made.log_lambda[0] = 1.0
        first = made(h)
        made.log_lambda[0], made.log_lambda[1] = -9.0, 1.0
        second = made(h)
        torch.testing.assert_close(first[:, 1:], (made.mu * h)[:, 1:])
        torch.testing.assert_close(second[:, ::2], (made.mu * h)[:, ::2])
        assert not torch.equal(second[:, 1], made.mu[1] * h[:, 1]) and float(second[:, 1].abs().sum()) > 0
        moments_of(made).products.copy_(torch.eye(3))  # nothing goes together any more
        assert float(made(h)[:, 1].abs().sum()) == 0


def test_maps_and_sequences_are_compensated_for_channel_by_channel() -> None:
    maps = torch.randn(16, 3, 4, 5, generator=generator(1))
    rows = maps.movedim(1, -1).reshape(-1, 3)
    wide, flat = gate(3, Mask(compensate=0.2), axis=1), gate(3, Mask(compensate=0.2))
    wide(maps), flat(rows)
    torch.testing.assert_close(moments_of(wide).products, moments_of(flat).products)
    with torch.no_grad():
        for made in (wide, flat):
            made.log_lambda[1] = 1.0
    out = wide.eval()(maps).movedim(1, -1).reshape(-1, 3)
    torch.testing.assert_close(out, flat.eval()(rows))


def test_masks_that_cannot_be_are_refused() -> None:
    with pytest.raises(SnclError, match=r"from -10 to 0, not 0\.5"):
        Mask(threshold=0.5)
    with pytest.raises(SnclError, match=r"above 0, not -0\.1"):
        Mask(compensate=-0.1)
    net = attach_gates(MLP(6, 3, width=4), torch.randn(2, 6))
    with pytest.raises(SnclError, match="tracked no moments in training"):
        set_mask(net, Mask(compensate=1.0))
