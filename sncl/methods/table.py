"""Every method by its name: what it takes, what it needs and where it comes from. One line adds one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sncl.errors import SnclError
from sncl.methods.agem import AGEM, AGEMR
from sncl.methods.der import DER
from sncl.methods.er import ER
from sncl.methods.er_ace import ERACE
from sncl.methods.ewc import OEWC
from sncl.methods.gem import GEM
from sncl.methods.gss import GSS
from sncl.methods.hal import HAL
from sncl.methods.icarl import ICaRL
from sncl.methods.lwf import LwF
from sncl.methods.mer import MER
from sncl.methods.method import Method
from sncl.methods.pnn import PNN
from sncl.methods.sgd import SGD
from sncl.methods.si import SI
from sncl.methods.sncl import SNCL

Value = float | int | str


@dataclass(frozen=True)
class Entry:
    """``make`` builds the method from its settings, whose names and usual values are ``settings``."""

    title: str
    make: Callable[..., Method]
    reference: str
    settings: dict[str, Value] = field(default_factory=dict)
    memory: bool = True
    joint: bool = False  # trained on the whole stream at once


METHODS: dict[str, Entry] = {
    "sgd": Entry("SGD", SGD, "plain training, the lower bound", memory=False),
    "joint": Entry("JOINT", SGD, "all tasks at once, the upper bound", memory=False, joint=True),
    "oewc": Entry("oEWC", OEWC, "Schwarz et al., ICML 2018", {"strength": 1.0, "decay": 1.0}, memory=False),
    "si": Entry("SI", SI, "Zenke et al., ICML 2017", {"strength": 1.0, "damping": 1.0}, memory=False),
    "lwf": Entry(
        "LwF",
        LwF,
        "Li and Hoiem, ECCV 2016",
        {"alpha": 1.0, "temperature": 2.0, "decay": 0.0},
        memory=False,
    ),
    "pnn": Entry("PNN", PNN, "Rusu et al., 2016", memory=False),
    "er": Entry("ER", ER, "Riemer et al., ICLR 2019"),
    "mer": Entry("MER", MER, "Riemer et al., ICLR 2019", {"beta": 1.0, "gamma": 1.0, "inner": 1}),
    "gem": Entry("GEM", GEM, "Lopez-Paz and Ranzato, NeurIPS 2017", {"margin": 0.5, "parts": 5}),
    "agem": Entry("A-GEM", AGEM, "Chaudhry et al., ICLR 2019", {"parts": 5}),
    "agem-r": Entry("A-GEM-R", AGEMR, "Buzzega et al., NeurIPS 2020"),
    "icarl": Entry("iCaRL", ICaRL, "Rebuffi et al., CVPR 2017", {"decay": 1e-5, "exemplars_per_batch": 1}),
    "hal": Entry(
        "HAL",
        HAL,
        "Chaudhry et al., AAAI 2021",
        {"strength": 0.1, "decay": 0.5, "feature_weight": 0.1, "anchor_steps": 100, "finetune_rows": 128},
    ),
    "gss": Entry("GSS", GSS, "Aljundi et al., NeurIPS 2019", {"compared": 10}),
    "der": Entry("DER", DER, "Buzzega et al., NeurIPS 2020", {"logits": 0.5}),
    "derpp": Entry("DER++", DER, "Buzzega et al., NeurIPS 2020", {"logits": 0.5, "labels": 0.5}),
    "er-ace": Entry("ER-ACE", ERACE, "Caccia et al., ICLR 2022"),
    "sncl": Entry(
        "SNCL",
        SNCL,
        "Gong et al., CVPR 2022",
        {
            "alpha": 0.5,
            "beta": 0.5,
            "gamma": 0.5,
            "eta": 1e-4,
            "admission": "loss-aware",
            "release": 0.0,
            "gate_lr": 1.0,
            "parameterisation": "sigma",
            "noise": "sample",
            "start": -9.0,
            "natural": 0.0,
            "cut": 0.0,
            "worth": 0.0,
            "commitment": 0.0,
            "reserve": 0.0,
            "handover": 0.0,
            "layers": "auto",
            "features": "auto",
            "maps": "pooled",
            "stored": "float16",
        },
    ),
}


def entry(name: str) -> Entry:
    """The method of that name, or an error that lists the names there are."""
    if name not in METHODS:
        raise SnclError(f"there is no method {name!r}; the known ones are {', '.join(METHODS)}")
    return METHODS[name]


def make(name: str, settings: dict[str, Value] | None = None) -> Method:
    """A method from its name and the settings that differ from the usual ones."""
    found = entry(name)
    given = settings or {}
    unknown = [key for key in given if key not in found.settings]
    if unknown:
        allowed = ", ".join(found.settings) or "no settings"
        raise SnclError(f"{name} has no setting {unknown[0]!r}; it takes {allowed}")
    return found.make(**(found.settings | given))
