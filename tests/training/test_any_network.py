"""Networks that other people wrote, in a learner: gates and features are found, and going on is exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from blobs import CLASSES
from resuming import goes_on_exactly
from torch import Tensor, nn

from sncl.networks.gating.attach import gates
from sncl.training.learner import Learner

Batch = Tensor | dict[str, Tensor]
IMAGES = {"num_labels": CLASSES, "image_size": 32}
ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
WORDS = {"num_labels": CLASSES, "vocab_size": 40, "max_position_embeddings": 20, "pad_token_id": 1}

# family -> class of its configuration and network, configuration, where gates stand
VISION: dict[str, tuple[str, dict[str, Any], str]] = {
    "vit": ("ViT", {**IMAGES, **ENCODER, "patch_size": 8}, "vit.layers.0.mlp.activation_fn"),
    "deit": ("DeiT", {**IMAGES, **ENCODER, "patch_size": 8}, "deit.layers.1.mlp.activation_fn"),
    "beit": ("Beit", {**IMAGES, **ENCODER, "patch_size": 8}, "beit.layers.0.mlp.activation_fn"),
    "swin": (
        "Swin",
        {**IMAGES, "patch_size": 2, "embed_dim": 8, "depths": [2, 1], "num_heads": [2, 2], "window_size": 4},
        "swin.encoder.layers.0.blocks.1.mlp.activation_fn",
    ),
    "convnext": (
        "ConvNext",
        {"num_labels": CLASSES, "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
        "convnext.encoder.stages.1.layers.0.act",
    ),
    "resnet": (
        "ResNet",
        {"num_labels": CLASSES, "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        "resnet.encoder.stages.1.layers.0.activation",
    ),
    "regnet": (
        "RegNet",
        {"num_labels": CLASSES, "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 4},
        "regnet.encoder.stages.0.layers.0.layer.1.activation",
    ),
    "mobilenet": (
        "MobileNetV2",
        {**IMAGES, "depth_multiplier": 0.25, "min_depth": 4},
        "mobilenet_v2.layer.3.conv_3x3.activation",
    ),
    "efficientnet": (
        "EfficientNet",
        {**IMAGES, "width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320},
        "efficientnet.encoder.blocks.1.depthwise_conv.depthwise_act",
    ),
}
LANGUAGE: dict[str, tuple[str, dict[str, Any], str]] = {
    "bert": ("Bert", {**WORDS, **ENCODER}, "bert.encoder.layer.1.intermediate.intermediate_act_fn"),
    "roberta": ("Roberta", {**WORDS, **ENCODER}, "classifier.dense"),
    "electra": ("Electra", {**WORDS, **ENCODER, "embedding_size": 8}, "classifier.activation"),
    "albert": (  # one layer, which runs twice
        "Albert",
        {**WORDS, **ENCODER, "embedding_size": 8},
        "albert.encoder.albert_layer_groups.0.albert_layers.0.activation",
    ),
    "distilbert": ("DistilBert", {**WORDS, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}, "pre_classifier"),
    "gpt2": (  # its linear maps are no nn.Linear
        "GPT2",
        {**WORDS, "n_positions": 20, "n_embd": 16, "n_layer": 2, "n_head": 2, "eos_token_id": 2, "bos_token_id": 2},
        "transformer.h.1.mlp.act",
    ),
    "llama": ("Llama", {**WORDS, **ENCODER}, "model.layers.0.mlp.act_fn"),
    "t5": (
        "T5",
        {**WORDS, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "eos_token_id": 2}
        | {"decoder_start_token_id": 1},
        "transformer.encoder.block.0.layer.1.DenseReluDense.act",
    ),
}
TIMM = {
    "resnet18": "layer4.1.act2",
    "mobilenetv3_small_050": "blocks.1.0.bn2.act",
    "efficientnet_b0": "blocks.1.0.bn2.act",
    "vit_tiny_patch16_224": "blocks.0.mlp.act",
    "swin_tiny_patch4_window7_224": "layers.0.blocks.0.mlp.act",
    "convnext_atto": "stages.0.blocks.0.mlp.act",
    "mixer_s32_224": "blocks.0.mlp_tokens.act",
}


def check(make: Callable[[], nn.Module], batches: list[tuple[Batch, Tensor]], expected: str, folder: Path) -> Learner:
    """A stream is learned with gates and feature replay, and goes on exactly after a save and a load."""
    made: list[Learner] = []

    def learner(seed: int) -> Learner:
        torch.manual_seed(seed)  # another seed has other weights; all must come from the file
        made.append(Learner(make(), "sncl", memory=6, replay=3, lr=0.01, seed=seed, device="cpu"))
        return made[-1]

    def go(subject: Learner, start: int, stop: int) -> None:
        for x, y in batches[start:stop]:
            assert all(loss.isfinite() for loss in subject.learn(x, y).values())

    assert goes_on_exactly(learner, go, stop=2, end=4, folder=folder)
    first = made[0]
    assert expected in [name for name, _ in gates(first.net.body)]
    assert first.memory is not None and any(name.startswith("features/") for name in first.memory.fields)
    return first


def labels() -> list[Tensor]:
    return [torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), torch.tensor([2, 3, 3]), torch.tensor([3, 2, 2])]


def family(architecture: str, settings: dict[str, Any], kind: str) -> Callable[[], nn.Module]:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{architecture}Config")(**settings)
    return lambda: getattr(transformers, f"{architecture}For{kind}Classification")(config)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", VISION)
def test_image_networks_of_transformers(name: str, tmp_path: Path) -> None:
    architecture, settings, expected = VISION[name]
    batches: list[tuple[Batch, Tensor]] = [(torch.rand(3, 3, 32, 32), y) for y in labels()]
    learner = check(family(architecture, settings, "Image"), batches, expected, tmp_path)
    assert learner.memory is not None and learner.memory.fields["x"].shape == (6, 3, 32, 32)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_networks_of_transformers(name: str, tmp_path: Path) -> None:
    architecture, settings, expected = LANGUAGE[name]
    batches: list[tuple[Batch, Tensor]] = []
    for y in labels():
        ids, mask = torch.randint(3, 40, (3, 8)), torch.ones(3, 8, dtype=torch.int64)
        ids[:, -1] = 2  # the end of the text, which T5 looks for
        ids[0, :3], mask[0, :3] = 1, 0  # padded
        batches.append(({"input_ids": ids, "attention_mask": mask}, y))
    learner = check(family(architecture, settings, "Sequence"), batches, expected, tmp_path)
    assert learner.memory is not None
    stored = {key: value.shape for key, value in learner.memory.fields.items() if key.startswith(("x", "features"))}
    assert stored.pop("x/input_ids") == stored.pop("x/attention_mask") == (6, 8)
    assert all(len(shape) == 2 for shape in stored.values())  # features, pooled over positions


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_networks_of_timm(name: str, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    side = 224 if name.endswith("224") else 64
    batches: list[tuple[Batch, Tensor]] = [(torch.rand(3, 3, side, side), y) for y in labels()]
    check(lambda: timm.create_model(name, num_classes=CLASSES), batches, TIMM[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit_b_32", "swin_t", "convnext_tiny", "googlenet"])
def test_networks_of_torchvision(name: str, tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision")
    batches: list[tuple[Batch, Tensor]] = [(torch.rand(3, 3, 64, 64), y) for y in labels()]
    options = {"googlenet": {"init_weights": False}, "vit_b_32": {"image_size": 64}}.get(name, {})
    make = getattr(torchvision.models, name)
    expected = {
        "resnet18": "layer1.0.bn1",
        "mobilenet_v3_small": "features.1.block.0.2",
        "vit_b_32": "encoder.layers.encoder_layer_0.mlp.1",
        "swin_t": "features.1.0.mlp.1",
        "convnext_tiny": "features.1.0.block.4",
        "googlenet": "inception3a.branch1.bn",
    }[name]
    check(lambda: make(num_classes=CLASSES, **options), batches, expected, tmp_path)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_dictionaries_on_a_gpu() -> None:
    architecture, settings, _ = LANGUAGE["bert"]
    learner = Learner(family(architecture, settings, "Sequence")(), "sncl", memory=6, replay=3, lr=0.01)
    for y in labels():
        losses = learner.learn({"input_ids": torch.randint(3, 40, (3, 8))}, y)
        assert all(loss.isfinite() for loss in losses.values())
    assert learner.engine == "eager" and learner.device.type == "cuda"
