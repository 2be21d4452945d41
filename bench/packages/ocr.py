"""rapidocr-onnxruntime reads text that OpenCV draws: boxes, texts and scores of four images."""

from __future__ import annotations

import cv2
import numpy
from rapidocr_onnxruntime import RapidOCR

from bench.packages.measured import measured

PAGES = (
    (("Hello anydim 2026", "dynamic shapes", "total 42.50 EUR"), 640, 320, 1.0),
    (("one line",), 300, 100, 1.0),
    (("The quick brown fox", "jumps over", "the lazy dog", "and 1234567890"), 900, 500, 1.4),
    ((), 200, 200, 1.0),
)


def drawn(lines: tuple[str, ...], width: int, height: int, size: float) -> numpy.ndarray:
    image = numpy.full((height, width, 3), 255, numpy.uint8)
    for number, line in enumerate(lines):
        place, font = (20, 50 + 60 * number), cv2.FONT_HERSHEY_SIMPLEX
        cv2.putText(image, line, place, font, size, (0, 0, 0), 2, cv2.LINE_AA)
    return image


def read(engine: RapidOCR) -> list[object]:
    """(box [4, 2], text, score) of each line of each page."""
    found = [engine(drawn(*page))[0] or [] for page in PAGES]
    return [
        [(numpy.asarray(box).tolist(), text, float(score)) for box, text, score in page]
        for page in found
    ]


if __name__ == "__main__":
    measured(RapidOCR, read)
