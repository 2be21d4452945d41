"""Networks of usual kinds, every size free, weights random: what memory plans are measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

from bench.light import light_model
from bench.networks.images import detector, segmenter, unet
from bench.networks.sequences import decoder, encoder, tagger
from examples.minilm.model import model_path

IMAGES = ("b", 3, "h", "w")
NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "MiniLM": lambda: onnx.load(model_path()),
    "MiniLM, torch": encoder,
    "resnet50": lambda: light_model("resnet50", IMAGES),
    "densenet121": lambda: light_model("densenet121", IMAGES),
    "inception_v2": lambda: light_model("inception_v2", IMAGES),
    "detector": detector,
    "U-Net": unet,
    "segmenter": segmenter,
    "LSTM": tagger,
    "decoder step": decoder,
}
