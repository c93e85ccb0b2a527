"""The paper's networks, gates on any network, and taps."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.networks.gating.compensation import unforetold
from sncl.networks.gating.gate import (
    Gate,
    attach_gates,
    divergence,
    gates,
    natural_step,
    open_neurons,
    reserve_step,
    unmasked,
)
from sncl.networks.layers import find_sites
from sncl.networks.mlp import MLP
from sncl.networks.resnet import ResNet18
from sncl.networks.taps import Tapped
from sncl.tensors.random import generator


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def test_the_papers_networks_have_the_papers_sizes() -> None:
    assert parameters(MLP(784, 10)) == 89_610
    assert parameters(ResNet18(10)) == 11_173_962
    assert parameters(ResNet18(200)) == 11_271_432
    assert ResNet18(10)(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert ResNet18(200, width=8)(torch.rand(2, 3, 64, 64)).shape == (2, 200)


def test_mlp_starts_xavier_uniform_with_zero_biases() -> None:
    torch.manual_seed(0)
    net = MLP(784, 10)
    bound = math.sqrt(6 / (784 + 100))
    weight = net.layer1[0].weight
    assert weight.abs().max() <= bound and weight.abs().max() > 0.99 * bound
    assert not net.layer1[0].bias.any() and not net.head.bias.any()


# --- gates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameterisation", ["sigma", "lambda"])
@pytest.mark.parametrize("log_lambda", [-8.0, -1.0, 0.0, 3.0])
def test_divergence_is_the_exact_kl_to_the_best_prior(parameterisation: str, log_lambda: float) -> None:
    """Against torch's own KL of two Gaussians, with the prior's variance minimised numerically."""
    gate = Gate(3, parameterisation=parameterisation)  # type: ignore[arg-type]
    mu = torch.tensor([0.7, -1.2, 2.0])
    spread = torch.full((3,), log_lambda)
    with torch.no_grad():
        gate.mu.copy_(mu)
        gate.log_spread.copy_(spread if parameterisation == "lambda" else spread + 2 * mu.abs().log())
    posterior = torch.distributions.Normal(mu, mu.abs() * math.exp(log_lambda / 2))
    scales = torch.logspace(-3, 3, 20001)[:, None]
    best = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, scales)).min(0).values.sum()
    assert divergence([gate]).item() == pytest.approx(best.item(), rel=1e-4)


@pytest.mark.parametrize("parameterisation", ["sigma", "lambda"])
def test_samples_have_the_posteriors_mean_and_variance(parameterisation: str) -> None:
    gate = Gate(2, parameterisation=parameterisation, generator=generator(0))  # type: ignore[arg-type]
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([2.0, -0.5]))
        gate.log_spread.copy_(torch.tensor([math.log(0.09), math.log(0.25)]))
    drawn = gate(torch.ones(200_000, 2))
    variance = torch.tensor([0.09, 0.25]) if parameterisation == "sigma" else torch.tensor([0.09 * 4, 0.25 * 0.25])
    assert torch.allclose(drawn.mean(0), gate.mu, atol=0.01)
    assert torch.allclose(drawn.var(0), variance, rtol=0.02)


def test_noise_per_sample_differs_between_rows_and_per_channel_does_not() -> None:
    by_sample, by_channel = Gate(4, generator=generator(0)), Gate(4, noise="channel", generator=generator(0))
    assert by_sample(torch.ones(3, 4)).unique(dim=0).shape[0] == 3
    assert by_channel(torch.ones(3, 4)).unique(dim=0).shape[0] == 1


def test_a_closed_neuron_is_silent_in_evaluation_only_and_can_come_back() -> None:
    gate = Gate(2, generator=generator(0))
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([1.0, 0.001]))
    assert gate.is_open().tolist() == [True, False]
    assert gate.eval()(torch.ones(1, 2)).tolist() == [[1.0, 0.0]]
    drawn = gate.train()(torch.ones(5, 2))
    assert (drawn[:, 1] != 0).all()
    drawn[:, 1].sum().backward()
    assert gate.mu.grad is not None and gate.mu.grad[1] != 0  # data still reach it


def test_a_natural_step_by_hand() -> None:
    first, second = (Gate(2, parameterisation="lambda", start=start, generator=generator(0)) for start in (-1.0, 0.95))
    first.log_spread.grad = torch.tensor([0.2, -0.05])
    second.log_spread.grad = torch.tensor([900.0, -900.0])
    natural_step([first, second], eta=torch.tensor(0.01), step=0.5)
    pull = 0.5 / (1 + math.exp(-1.0))  # 1/2 sigmoid(-log lambda)
    moved = [0.01 * 0.2 / 0.01 - pull, 0.01 * -0.05 / 0.01 - pull]  # a hundredth of the gradient is in the mean so far
    assert first.log_spread.tolist() == pytest.approx([-1 - 0.5 * moved[0], -1 - 0.5 * moved[1]])
    assert second.log_spread.tolist() == pytest.approx([0.45, 1.0])  # a step is clipped, and so is where it ends
    assert first.slope.tolist() == pytest.approx([0.002, -0.0005])


def test_natural_steps_end_where_noise_and_divergence_balance() -> None:
    """lambda (1 + lambda) = eta / rho, from either side, for a loss of known curvature."""
    torch.manual_seed(0)
    relevance, eta = torch.tensor([4e-3, 4e-2, 4e-1, 4.0]), 0.02
    for start in (-6.0, 1.0):
        gate = Gate(4, parameterisation="lambda", start=start, generator=generator(0))
        with torch.no_grad():
            gate.mu.fill_(2.0)
        found = []
        for number in range(4000):
            tau = gate(torch.ones(256, 4))
            (relevance / 4 * (tau - 2).square() / 2).sum(1).mean().backward()  # mu^2 times curvature is the relevance
            natural_step([gate], torch.tensor(eta), step=0.02)
            gate.log_spread.grad = None
            if number >= 2000:
                found.append(gate.log_lambda().detach().exp())
        balance = torch.sqrt(0.25 + eta / relevance) - 0.5
        reached = torch.stack(found).mean(0)
        torch.testing.assert_close(reached, balance, rtol=0.1, atol=0)
        assert gate.is_open().tolist() == [False, True, True, True]  # open where rho > eta / 2


def test_with_commitment_noise_stays_where_it_is_in_doubt() -> None:
    """lambda = eta / rho - 1: closed below eta / 2 as ever, and no noise above eta."""
    torch.manual_seed(0)
    eta, relevance = 0.02, torch.tensor([0.008, 0.0125, 0.016, 0.04, 0.4])
    gate = Gate(5, parameterisation="lambda", start=0.3, generator=generator(0))
    with torch.no_grad():
        gate.mu.fill_(1.0)
    found = []
    for number in range(4000):
        (relevance * (gate(torch.ones(256, 5)) - 1).square() / 2).sum(1).mean().backward()
        natural_step([gate], torch.tensor(eta), step=0.02, commitment=1.0)
        gate.log_spread.grad = None
        if number >= 3000:
            found.append(gate.log_lambda().detach().exp())
    reached = torch.stack(found).mean(0)
    torch.testing.assert_close(reached[1:3], eta / relevance[1:3] - 1, rtol=0.15, atol=0)
    assert reached[3] < 0.05 and reached[4] < 0.02
    assert gate.is_open().tolist() == [False, True, True, True, True]


def test_neurons_that_are_worth_little_are_closed() -> None:
    gate = Gate(3, parameterisation="lambda", generator=generator(0))
    eta, lambdas = 1e-3, torch.tensor([1e-3, 1e-2, 1e-1])
    with torch.no_grad():
        gate.log_spread.copy_(lambdas.log())
    costs = (eta / (2 * lambdas * (1 + lambdas))).tolist()  # about 0.5, 0.05 and 0.0045
    for worth, closed in ((0.0, 0), (0.9 * costs[2], 0), (1.1 * costs[2], 1), (1.1 * costs[1], 2), (1.1 * costs[0], 3)):
        gate.cut.zero_()
        natural_step([gate], torch.tensor(eta), step=0.0, worth=worth)
        assert int((~gate.is_open()).sum()) == closed


def test_a_worth_that_noise_can_no_longer_tell_closes_nothing() -> None:
    gate = Gate(3, parameterisation="lambda", generator=generator(0))
    with torch.no_grad():
        gate.log_spread.copy_(torch.tensor([-30.0, -10.0, -9.9]))
    natural_step([gate], torch.tensor(1e-9), step=0.0, worth=1.0)
    assert gate.is_open().tolist() == [True, True, False]


def test_neurons_are_closed_from_the_cut_on() -> None:
    gate = Gate(3, parameterisation="lambda", cut=-5.0, generator=generator(0))
    with torch.no_grad():
        gate.log_spread.copy_(torch.tensor([-5.1, -5.0, 0.0]))
    assert gate.is_open().tolist() == [True, False, False]
    out = gate.eval()(torch.ones(1, 3))
    assert out.tolist() == [[pytest.approx(gate.mu[0].item()), 0.0, 0.0]]


def test_a_reserve_step_by_hand() -> None:
    first, second = (Gate(2, parameterisation="lambda", start=start, generator=generator(0)) for start in (-1.0, 0.9))
    with torch.no_grad():
        first.mu.fill_(2.0)
        second.mu.fill_(1.0)
    first.log_spread.grad = torch.tensor([0.5, 0.1])
    second.log_spread.grad = torch.tensor([0.4, 40.0])
    reserve_step([first, second], reserve=0.5, step=0.3, rows=10)
    relevance = [0.001 * 10 * each**2 for each in (1.0, 0.2, 0.4, 40.0)]  # (mu times gradient)^2, a thousandth so far
    assert torch.cat([first.slope, second.slope]).tolist() == pytest.approx(relevance)
    standing = [30 * relevance[0], 30 * relevance[1], relevance[2], relevance[3]]  # the first two are open
    eta = standing[1] + standing[0]  # between the two that close and the two that do not
    balance = [math.log(math.sqrt(0.25 + eta / each) - 0.5) for each in standing]
    assert -0.7 < balance[0] < 0 < balance[1] and balance[2] > 1 and balance[3] < 0
    assert first.log_spread.tolist() == pytest.approx([-1 + 0.3, -1 + 0.3])
    assert second.log_spread.tolist() == pytest.approx([1.0, 0.9 - 0.3])  # to the limit, or as far as a step
    reserve_step([first, second], reserve=0.5, step=0.3, rows=10)
    assert first.log_spread.tolist() == pytest.approx([balance[0], -1 + 0.6])  # to the balance


@pytest.mark.parametrize(("better", "closed"), ((20.0, [True, False]), (40.0, [False, True])))
def test_a_neuron_comes_back_from_the_reserve_if_it_is_much_more_relevant(better: float, closed: list[bool]) -> None:
    gate = Gate(2, parameterisation="lambda", generator=generator(0))
    with torch.no_grad():
        gate.mu.fill_(1.0)
        gate.log_spread.copy_(torch.tensor([0.5, -0.5]))
    gate.log_spread.grad = torch.tensor([better, 1.0]).sqrt()
    for _ in range(200):
        reserve_step([gate], reserve=0.5, step=0.02, rows=10)
    assert (~gate.is_open()).tolist() == closed


def independent(h: torch.Tensor, given: list[int], asked: int, ridge: float) -> list[float]:
    """The weights of a ridge regression without intercept, by scikit-learn."""
    from sklearn.linear_model import Ridge

    power = float(h.square().mean())
    fitted = Ridge(alpha=ridge * power * len(h), fit_intercept=False).fit(h[:, given].numpy(), h[:, asked].numpy())
    return [float(each) for each in fitted.coef_]


def test_open_neurons_answer_for_closed_ones_as_a_regression_has_it() -> None:
    gate = Gate(4, parameterisation="lambda", handover=0.1, generator=generator(0)).train()
    h = torch.randn(500, 2, generator=generator(1)) @ torch.randn(2, 4, generator=generator(2))
    h = h + 0.1 * torch.randn(500, 4, generator=generator(3))
    for _ in range(1000):  # until the running mean is that of these rows
        gate(h)
    with torch.no_grad():
        gate.log_spread[2] = 1.0
    weights = torch.tensor(independent(h, [0, 1, 3], 2, ridge=0.1))
    out = gate.eval()(h)
    expected = gate.mu * h
    expected[:, 2] = gate.mu[2] * (h[:, [0, 1, 3]] @ weights)
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)
    assert (out[:, 2] - gate.mu[2] * h[:, 2]).std() < 0.3 * h[:, 2].std()  # which silence would leave at 1
    with unmasked(gate):
        torch.testing.assert_close(gate(h), gate.mu * h)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_moments_are_learned_in_a_compiled_step_too(precision: torch.dtype) -> None:
    written = attach_gates(MLP(6, 3, width=4), torch.randn(2, 6), parameterisation="lambda", handover=0.1).train()
    other = copy.deepcopy(written)
    for net in (written, torch.compile(other, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(0)
        for _ in range(3):
            with torch.autocast("cpu", precision, enabled=precision != torch.float32):
                net(torch.randn(8, 6, generator=generator(1))).square().mean().backward()
    for (_, ours), (_, theirs) in zip(gates(written), gates(other), strict=True):
        assert float(ours.moments.sum()) > 0
        torch.testing.assert_close(ours.moments, theirs.moments)
        torch.testing.assert_close(ours.log_spread.grad, theirs.log_spread.grad)


def test_moments_keep_their_precision_where_the_network_has_less() -> None:
    gate = Gate(4, parameterisation="lambda", handover=0.1, generator=generator(0)).train()
    h = torch.randn(32, 4, generator=generator(1)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        gate(h)
    exact = h.double().T @ h.double() / 32
    torch.testing.assert_close(gate.moments.double() / gate.moments[0, 0], exact / exact[0, 0], rtol=1e-5, atol=1e-6)


def test_moments_are_of_the_whole_stream_and_power_is_recent() -> None:
    gate = Gate(2, parameterisation="lambda", handover=0.1, generator=generator(0)).train()
    early, late = torch.randn(2, 300, 8, 2, generator=generator(1)) * torch.tensor([[1.0, 2.0]])
    late[..., 1] = 0
    for h in (*early, *late):
        gate(h)
    rows = torch.cat([early, late]).flatten(0, 1)
    torch.testing.assert_close(gate.moments, rows.T @ rows / len(rows), rtol=1e-4, atol=1e-4)
    weights = 0.01 * 0.99 ** torch.arange(299.0, -1, -1)
    recent = (weights * late[..., 0].square().mean(1)).sum() / weights.sum()
    assert gate.power[0].item() == pytest.approx(recent.item(), rel=0.1)
    assert gate.power[1].item() == pytest.approx(0.99**300 * 2 * gate.moments[1, 1].item(), rel=0.2)  # silent since


def test_a_neuron_that_was_needed_more_than_lately_stays_open() -> None:
    """Both have the same lambda, learned from what they say now; over the stream one said a hundred times more."""
    moments, power = torch.diag(torch.tensor([1.0, 100.0])), torch.tensor([1.0, 1.0])
    doubt = torch.tensor([-2.0, -2.0])
    assert unforetold(moments, power, doubt, torch.tensor(-3.0), ridge=0.01).tolist() == [False, True]
    assert unforetold(moments, moments.diagonal(), doubt, torch.tensor(-3.0), ridge=0.01).tolist() == [False, False]


def test_of_two_neurons_that_say_the_same_one_stays() -> None:
    gate = Gate(4, parameterisation="lambda", handover=1e-3, cut=-3.0, generator=generator(0)).train()
    h = torch.randn(256, 4, generator=generator(1))
    h[:, 1] = h[:, 0]
    for _ in range(500):
        gate(h)
    with torch.no_grad():
        gate.log_spread.copy_(torch.tensor([-4.0, -4.1, -4.0, -2.9]))
    assert gate.is_open().tolist() == [
        False,
        True,
        True,
        False,
    ]  # the more doubtful of the two, and one in doubt anyway
    out = gate.eval()(h)
    torch.testing.assert_close(out[:, 0], gate.mu[0] * h[:, 1], rtol=0.02, atol=0.02)
    with torch.no_grad():
        gate.moments.copy_(torch.eye(4))
    assert gate.is_open().tolist() == [True, True, True, False]


def test_the_answer_follows_what_changes_in_between() -> None:
    gate = Gate(3, parameterisation="lambda", handover=0.1, generator=generator(0)).train()
    h = torch.randn(64, 1, generator=generator(1)).expand(64, 3)
    gate(h)
    gate.eval()
    with torch.no_grad():
        gate.log_spread[0] = 1.0
        first = gate(h)
        gate.log_spread[0], gate.log_spread[1] = -9.0, 1.0
        second = gate(h)
        torch.testing.assert_close(first[:, 1:], (gate.mu * h)[:, 1:])
        torch.testing.assert_close(second[:, ::2], (gate.mu * h)[:, ::2])
        assert not torch.equal(second[:, 1], gate.mu[1] * h[:, 1]) and float(second[:, 1].abs().sum()) > 0
        gate.moments.copy_(torch.eye(3))  # nothing goes together any more
        assert float(gate(h)[:, 1].abs().sum()) == 0


def test_maps_and_sequences_hand_over_channel_by_channel() -> None:
    maps = torch.randn(16, 3, 4, 5, generator=generator(1))
    rows = maps.movedim(1, -1).reshape(-1, 3)
    wide = Gate(3, axis=1, parameterisation="lambda", handover=0.2, generator=generator(0)).train()
    flat = Gate(3, parameterisation="lambda", handover=0.2, generator=generator(0)).train()
    wide(maps), flat(rows)
    torch.testing.assert_close(wide.moments, flat.moments)
    with torch.no_grad():
        for gate in (wide, flat):
            gate.log_spread[1] = 1.0
    out = wide.eval()(maps).movedim(1, -1).reshape(-1, 3)
    torch.testing.assert_close(out, flat.eval()(rows))


@pytest.mark.parametrize(("neurons", "reserve", "closed"), [(11, 0.3, 4), (30, 0.1, 3), (10, 0.3, 3)])
def test_a_reserve_is_at_least_that_part(neurons: int, reserve: float, closed: int) -> None:
    gate = Gate(neurons, parameterisation="lambda", noise="none", generator=generator(0))
    for _ in range(100):
        gate.log_spread.grad = torch.arange(1.0, neurons + 1)
        reserve_step([gate], reserve=reserve, step=0.3, rows=32)
    assert int((~gate.is_open()).sum()) == closed


def test_neurons_in_reserve_are_silent_in_training_and_heard_by_their_gradient() -> None:
    gate = Gate(3, parameterisation="lambda", noise="none", generator=generator(0))
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([1.0, 2.0, 3.0]))
        gate.log_spread.copy_(torch.tensor([-5.0, 0.5, -5.0]))
    out = gate.train()(torch.ones(4, 3))
    assert torch.equal(out, torch.tensor([[1.0, 0.0, 3.0]]).expand(4, 3)) and torch.equal(
        out, gate.eval()(torch.ones(4, 3))
    )
    (out * torch.tensor([0.1, 0.2, 0.3])).sum().backward()
    assert gate.log_spread.grad is not None and gate.log_spread.grad.tolist() == pytest.approx([0.4, 0.8, 1.2])
    assert gate.mu.grad is not None and gate.mu.grad.tolist() == pytest.approx([0.4, 0.0, 1.2])


def test_a_reserve_holds_the_least_relevant_neurons_and_gives_them_back() -> None:
    torch.manual_seed(0)
    gate = Gate(10, parameterisation="lambda", noise="none", generator=generator(0))
    for needed in (torch.arange(10) >= 3, torch.arange(10) < 7):
        for _ in range(4000):
            (gate(torch.ones(32, 10)) * torch.randn(32, 10) * (0.1 + needed)).sum(1).mean().backward()
            reserve_step([gate], reserve=0.3, step=0.02, rows=32)
            gate.log_spread.grad = None
        assert gate.is_open().tolist() == needed.tolist()


def test_closed_neurons_speak_at_their_mean_where_the_mask_is_off() -> None:
    net = attach_gates(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 2)).eval()
    gate = next(gate for _, gate in gates(net))
    x = torch.randn(4, 2)
    open_says = net(x)
    with torch.no_grad():
        gate.log_spread[1] = 9.0
    masked = net(x)
    with unmasked(net):
        assert torch.equal(net(x), open_says)
    assert torch.equal(net(x), masked) and not torch.equal(masked, open_says)


@pytest.mark.parametrize(("shape", "axis"), [((5, 3), -1), ((5, 3, 4, 4), 1), ((5, 7, 3), -1)])
def test_gates_scale_channels_wherever_they_lie(shape: tuple[int, ...], axis: int) -> None:
    gate = Gate(3, axis).eval()
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert gate(torch.ones(shape)).movedim(axis, -1)[0].reshape(-1, 3)[0].tolist() == [1.0, 2.0, 3.0]


class Functional(nn.Module):
    """conv -> BatchNorm -> F.relu, twice, with a residual sum: no activation is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.hidden, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)) + x)
        return self.head(F.relu(self.hidden(x.mean((2, 3)))))


class ActivationFirst(nn.Module):
    """conv -> ReLU -> BatchNorm: a gate behind the ReLU would be divided out again."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.BatchNorm2d(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class SharedActivation(nn.Module):
    """The usual library ResNet block: one ReLU module serves the whole block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.stem, self.stem_relu = nn.Conv2d(3, 3, 1), nn.ReLU()
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(self.stem_relu(self.stem(x)))))
        return self.head(self.relu(self.bn2(self.conv2(x)) + x).mean((2, 3)))


def names(net: nn.Module, example: Tensor) -> list[str]:
    return [site.name for site in find_sites(net, example)]


def test_sites_are_found_behind_nonlinearities_and_on_residual_sums() -> None:
    images = torch.rand(2, 3, 16, 16)
    assert names(MLP(12, 3), torch.rand(2, 12)) == ["layer1.1", "layer2.1"]
    blocks = [f"layer{s}.{b}.relu{r}" for s in range(1, 5) for b in range(2) for r in (1, 2)]
    assert names(ResNet18(4, width=8), images) == ["stem.2", *blocks]
    assert [site.channels for site in find_sites(ResNet18(4, width=8), images)][:3] == [8, 8, 8]


def test_sites_are_never_in_front_of_batchnorm_and_never_the_logits() -> None:
    images = torch.rand(2, 3, 16, 16)
    assert names(Functional(), images) == ["bn1", "bn2", "hidden"]
    assert names(ActivationFirst(), images) == ["body.2"]
    assert names(SharedActivation(), images) == ["bn1", "bn2", "stem_relu"]
    in_place = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(inplace=True), nn.Linear(5, 2))
    assert names(in_place, torch.rand(3, 4)) == ["2"]
    with pytest.raises(SnclError, match="name the layers"):
        find_sites(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.rand(3, 4))


@pytest.mark.parametrize(
    "make", [lambda: MLP(48, 3), lambda: ResNet18(3, width=4), Functional, ActivationFirst, SharedActivation]
)
def test_gates_attach_to_any_network_and_copies_have_their_own(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    x = torch.rand(4, 3, 4, 4) if isinstance(make(), MLP) else torch.rand(4, 3, 16, 16)
    net = make()
    plain = net.eval()(x)
    attach_gates(net, x, generator=generator(0))
    for _, gate in gates(net):
        with torch.no_grad():
            gate.mu.fill_(1.0)
    assert torch.allclose(net.eval()(x), plain, atol=1e-6)  # an open gate of mean 1 changes nothing
    twin = copy.deepcopy(net)
    with torch.no_grad():
        for _, gate in gates(twin):
            gate.mu.zero_()
    assert torch.allclose(net.eval()(x), plain, atol=1e-6)
    assert not torch.allclose(twin.eval()(x), plain, atol=1e-3)
    divergence([gate for _, gate in gates(net)]).backward()
    assert all(gate.log_spread.grad is not None for _, gate in gates(net))


def test_gates_on_named_layers_and_clear_errors() -> None:
    net = attach_gates(MLP(12, 3), torch.rand(2, 12), layers=("layer1",))
    assert [name for name, _ in gates(net)] == ["layer1"] and open_neurons(net)["layer1"].all()
    with pytest.raises(SnclError, match="once"):
        attach_gates(net, torch.rand(2, 12))
    with pytest.raises(SnclError, match=r"no layer 'nope'; it has: layer1, layer1.0"):
        attach_gates(MLP(12, 3), torch.rand(2, 12), layers=("nope",))


# --- taps ------------------------------------------------------------------------------------------------------------


def test_taps_read_what_the_next_layer_gets_gates_included() -> None:
    net = MLP(12, 3)
    tapped = Tapped(attach_gates(net, torch.rand(2, 12)), ("layer2.1", "layer1"))
    with torch.no_grad():
        next(gate for name, gate in gates(net) if name == "layer2.1").mu.fill_(2.0)
    x = torch.rand(5, 12)
    logits, features = tapped.eval()(x)
    assert torch.allclose(net.head(features["layer2.1"]), logits)
    assert torch.allclose(features["layer2.1"], 2 * F.relu(net.layer2[0](features["layer1"])))


def test_joined_passes_equal_single_ones_and_batchnorm_keeps_them_apart() -> None:
    parts = [torch.rand(size, 12) for size in (3, 5, 2)]
    tapped = Tapped(MLP(12, 3), ("layer1",))
    for together, x in zip(tapped.passes(*parts), parts, strict=True):
        alone = tapped(x)
        assert torch.allclose(together.logits, alone.logits, atol=1e-6)
        assert torch.allclose(together.features["layer1"], alone.features["layer1"], atol=1e-6)
    normed = Tapped(nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4)))
    for together, x in zip(normed.passes(*parts), parts, strict=True):
        assert torch.equal(together.logits, normed(x).logits)


def test_the_tapped_network_itself_works_as_before() -> None:
    net = MLP(12, 3)
    tapped = Tapped(net, ("layer1",))
    x = torch.rand(5, 12)
    assert torch.equal(net(x), net(x)) and torch.equal(net(x), tapped(x).logits)


def test_a_layer_that_runs_twice_cannot_be_tapped() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x))

    with pytest.raises(SnclError, match="more than once"):
        Tapped(Twice(), ("layer",))(torch.rand(2, 4))
