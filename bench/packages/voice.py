"""silero-vad finds where somebody speaks: its ONNX path, two sampling rates, a buzz that pauses."""

from __future__ import annotations

import numpy
import torch
from silero_vad import get_speech_timestamps, load_silero_vad

from bench.packages.measured import measured


def buzz(seconds: float, rate: int) -> torch.Tensor:
    """Harmonics of a wavering pitch, on and off, with a little noise."""
    count = int(seconds * rate)
    t = numpy.arange(count) / rate
    phase = 2 * numpy.pi * numpy.cumsum(120 + 20 * numpy.sin(2 * numpy.pi * 0.7 * t)) / rate
    voice = sum(
        numpy.sin(k * phase) / k * (1 + numpy.sin(2 * numpy.pi * 3 * t + k)) for k in range(1, 30)
    )
    noise = numpy.random.default_rng(0).standard_normal(count)
    on = numpy.sin(2 * numpy.pi * 0.5 * t) > 0
    return torch.from_numpy((0.1 * voice * on + 0.003 * noise).astype(numpy.float32))


def listen(model: object) -> list[object]:
    """(begins and ends, probability of each chunk) at both rates."""
    found: list[object] = []
    for rate in (16000, 8000):
        sound = buzz(6, rate)
        marks = get_speech_timestamps(sound, model, sampling_rate=rate)
        found.append((marks, model.audio_forward(sound[None], rate).tolist()))  # type: ignore[attr-defined]
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    measured(lambda: load_silero_vad(onnx=True), listen)
