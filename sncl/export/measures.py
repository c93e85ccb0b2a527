"""Whether an exported model predicts what the run's network does, and what it costs beside it."""

from __future__ import annotations

import platform
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import sncl
from sncl.errors import SnclError
from sncl.evaluation.accuracy import READOUTS, Readout, correct
from sncl.evaluation.metrics import average
from sncl.export.formats import Format, Run
from sncl.export.models import Models, Predictor
from sncl.networks.pruning.prune import ChannelScale, Pruned
from sncl.runs.loading import Trained
from sncl.runs.summary import READOUT_TITLES

AT_ONCE = 500  # rows in one pass over the test data
TIE = 1e-4  # of the largest logit of a row: classes nearer to each other than this may change places
BATCHES = (1, 128)  # rows for which time is measured
LEAST_SECONDS, LEAST_CALLS = 0.3, 5  # of one measurement


class Checked(NamedTuple):
    """What the test data say: rows, the largest difference of logits, accuracy in percent before and after."""

    rows: int
    difference: float
    before: dict[Readout, float]
    after: dict[Readout, float]


def compare(run: Trained, exported: Run) -> Checked:
    """Run the exported model on all test data beside the network of the run; other predictions are an error."""
    readouts = READOUTS[run.stream.scenario]
    scores: dict[str, dict[Readout, list[float]]] = {
        when: {each: [] for each in readouts} for when in ("before", "after")
    }
    rows, wrong, difference = 0, 0, 0.0
    for task in range(run.stream.test_tasks):
        x, y = run.stream.test(task)
        wanted, found = run.learner.logits(x), torch.cat([exported(part) for part in x.split(AT_ONCE)])
        best = wanted.amax(1)
        short = best - wanted.gather(1, found.argmax(1, keepdim=True))[:, 0]  # of what it predicts behind the best
        wrong += int((short > TIE * best.abs().clamp(min=1)).sum())
        difference = max(difference, float((found - wanted).abs().max()))
        rows += len(y)
        for when, logits in (("before", wanted), ("after", found)):
            for readout in readouts:
                right = int(correct(logits, y, run.stream.groups[task], readout))
                scores[when][readout].append(100 * right / len(y))
    if wrong:
        raise SnclError(
            f"the exported model predicts another class than the network of {run.folder} for {wrong} of {rows} rows "
            f"(logits differ by up to {difference:.1e}); nothing was written"
        )
    before, after = (
        {readout: average([list(row)]) for readout, row in scores[when].items()} for when in ("before", "after")
    )
    return Checked(rows, difference, before, after)


def parameters(net: nn.Module) -> int:
    """Learned numbers, what is left of gates included."""
    scales = (module for module in net.modules() if isinstance(module, ChannelScale))
    factors = sum(value.numel() for scale in scales for value in scale.buffers())
    return factors + sum(parameter.numel() for parameter in net.parameters())


def operations(model: Predictor, image: Tensor) -> int:
    """Floating-point operations of matrix products and convolutions for one image."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(image)
    return int(counter.get_total_flops())


def milliseconds(run: Run, images: Tensor) -> float:
    """The median time of one call."""
    times: list[float] = []
    with torch.inference_mode():
        for _ in range(2):
            run(images)
        while len(times) < LEAST_CALLS or sum(times) < LEAST_SECONDS:
            start = perf_counter()
            run(images)
            times.append(perf_counter() - start)
    return 1000 * median(times)


def latencies(run: Run, images: Tensor) -> dict[str, float]:
    return {str(rows): round(milliseconds(run, images[:rows]), 4) for rows in BATCHES}


def account(
    run: Trained, models: Models, form: Format, content: bytes, exported: Run, checked: Checked
) -> dict[str, Any]:
    """Everything measured, as plain data."""
    shown = run.stream.test(0)[0]
    images = shown.repeat(-(-max(BATCHES) // len(shown)), 1, 1, 1)[: max(BATCHES)]

    def measured(model: Predictor) -> dict[str, Any]:
        state = {name: value.contiguous().clone() for name, value in model.state_dict().items()}
        return {
            "parameters": parameters(model),
            "bytes": len(save(state)),
            "flops": operations(model, images[:1]),
            "milliseconds": latencies(model, images),
        }

    layers = {name: layer._asdict() for name, layer in models.pruned.layers.items()}
    return {
        "run": str(run.folder),
        "stream": run.experiment.stream,
        "method": run.experiment.method,
        "seed": run.experiment.seed,
        "format": form.title,
        "input": {"name": "images", "type": "uint8", "shape": ["rows", *run.stream.shape]},
        "output": {"name": "logits", "type": "float32", "shape": ["rows", run.stream.classes]},
        "layers": layers,
        "summary": summary(models.pruned),
        "trained": measured(models.trained) | {"accuracy": checked.before},
        "pruned": measured(models.small),
        "exported": {
            "parameters": parameters(models.small),
            "bytes": len(content),
            "milliseconds": latencies(exported, images),
            "accuracy": checked.after,
        },
        "scored_on": run.result.scored_on,
        "test_rows": checked.rows,
        "largest_logit_difference": checked.difference,
        "machine": {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()},
        "versions": {"sncl": sncl.__version__, "torch": torch.__version__},
    }


def summary(found: Pruned) -> str:
    """What became of the neurons, in one sentence."""
    layers = list(found.layers.values())
    if not layers:
        return "the network has no gates, so nothing was removed"
    neurons, opened, left = (sum(layer[place] for layer in layers) for place in range(3))
    if found.note is not None:
        return f"{opened} of {neurons} gated neurons are open; {found.note}"
    if opened == neurons:
        return f"all {neurons} gated neurons are open, so no neuron was removed; the gates themselves are gone"
    if left == neurons:
        return (
            f"{opened} of {neurons} gated neurons are open, but none of the closed ones could be removed: each shares "
            "its channel with an open one, or is the last of its layer"
        )
    return f"{opened} of {neurons} gated neurons are open; {neurons - left} were removed, {left} are left"


def shown(found: dict[str, Any], file: str) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of a table of an account."""
    columns = [found[name] for name in ("trained", "pruned", "exported")]

    def line(title: str, form: str, key: str, within: str | None = None) -> list[str]:
        values = [column.get(key) if within is None else column.get(key, {}).get(within) for column in columns]
        return [title, *("–" if value is None else format(value, form) for value in values)]

    return ["", "trained", "pruned", file], [
        line("parameters", ",", "parameters"),
        line("bytes", ",", "bytes"),
        line("floating-point operations, 1 image", ",", "flops"),
        *(line(f"ms, {rows} image{'s' * (rows > 1)}", ".3f", "milliseconds", str(rows)) for rows in BATCHES),
        *(line(f"{READOUT_TITLES[name]}, %", ".2f", "accuracy", name) for name in found["trained"]["accuracy"]),
    ]
