"""Promise: the checksum of large constants changes with any damage that files meet."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.deploy.checksum import checksum

ROW = 2048 * 8
LENGTHS = (0, 1, 7, 8, ROW - 1, ROW, ROW + 1, 3 * ROW + 13, 64 * ROW, 65 * ROW + 8)


def noise(length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(0, 256, length, np.uint8)


def of(data: np.ndarray) -> str:
    return checksum(memoryview(data))


@pytest.mark.parametrize("length", LENGTHS)
def test_it_is_that_of_the_bytes_alone(length: int) -> None:
    data = noise(length)
    assert of(data) == checksum(data.tobytes()) == of(np.r_[data, data][:length])


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_of_zeros_differ(length: int) -> None:
    assert of(np.zeros(length, np.uint8)) != of(np.zeros(length + 1, np.uint8))


@pytest.mark.parametrize("length", [each for each in LENGTHS if each])
def test_every_bit_counts(length: int) -> None:
    data, random = noise(length), np.random.default_rng(0)
    known = of(data)
    for at in {0, length - 1, *random.integers(0, length, 8).tolist()}:
        for bit in (1, 16, 128):
            data[at] ^= bit
            assert of(data) != known
            data[at] ^= bit
    assert of(data) == known


@pytest.mark.parametrize("block", [1, 8, 64, 512, 4096, ROW])
def test_blocks_count_where_they_stand(block: int) -> None:
    data, random = noise(67 * ROW + 9), np.random.default_rng(block)
    known = of(data)
    for _ in range(8):
        first, second = random.choice(len(data) // block, 2, replace=False) * block
        other = data.copy()
        other[first : first + block] = data[second : second + block]
        changed = bool((other != data).any())
        assert (of(other) != known) == changed
        other[second : second + block] = data[first : first + block]
        assert (of(other) != known) == changed
        other = data.copy()
        other[first : first + block] = 0
        assert (of(other) != known) == bool((other != data).any())


def test_what_a_plain_sum_misses() -> None:
    words = np.arange(4 * 2048, dtype=np.uint64)
    known = of(words.view(np.uint8))
    for first, second in ((5, 6), (5, 2048 + 5), (5, 2048 + 6), (0, 3 * 2048)):
        other = words.copy()
        other[[first, second]] = words[[second, first]]
        assert of(other.view(np.uint8)) != known  # exchanged
        other = words.copy()
        other[first] += np.uint64(1)
        other[second] -= np.uint64(1)
        assert of(other.view(np.uint8)) != known  # one more, and one less
        other = words.copy()
        other[[first, second]] ^= np.uint64(1 << 63)
        assert of(other.view(np.uint8)) != known  # the highest bit of both
