"""Promise: an exported program is the compiled model, in C, with errors as numbers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from tests.unit.deploy.kinds import KINDS, Inputs, floats

CC = shutil.which("cc")
STRICT = "WARNINGS=-Wall -Wextra -Werror"
pytestmark = pytest.mark.skipif(
    CC is None or shutil.which("make") is None, reason="there is no C compiler, or no make"
)


def several() -> ad.Builder:
    """Two inputs that share a dim, one whose axis tells a dim by a multiple; two outputs."""
    g = ad.Builder("two sides")
    n, m = g.dim("n", 1, 40), g.dim("m")
    x, y = g.input("x", ad.float32, (n, m)), g.input("y'", ad.float32, (m, 2 * n))
    g.output("product", g.matmul(x, y))
    g.output("sum", g.reduce_sum(g.exp(x), axes=(1,)))
    return g


def build(folder: Path, *more: str) -> Path:
    done = subprocess.run(
        ["make", "-s", "-C", folder, STRICT, "CFLAGS=-O1", *more], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder / "example"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("exported")
    ad.compile(KINDS["encoder"].build()).export(made / "encoder")
    ad.compile(KINDS["encoder"].build()).export(made / "objects", "encoder", code="llvm")
    ad.compile(several()).export(made / "several")
    for each in made.iterdir():
        build(each)
    return made


def run(folder: Path, inputs: Inputs) -> subprocess.CompletedProcess[bytes]:
    (weights,) = folder.glob("*.weights")
    sizes = [str(size) for array in inputs.values() for size in array.shape]
    data = b"".join(array.tobytes() for array in inputs.values())
    return subprocess.run(
        [folder / "example", weights, *sizes], input=data, capture_output=True, check=False, env={}
    )  # fmt: skip


def assert_same(model: ad.Model, folder: Path, inputs: Inputs) -> None:
    """Shapes as the example prints them, and close numbers: another compiler made the code."""
    done = run(folder, inputs)
    assert done.returncode == 0, done.stderr
    expected = model(**inputs)
    lines = [
        " ".join([f"output {n}:", *map(str, array.shape)])
        for n, array in enumerate(expected.values())
    ]
    assert done.stderr.decode().splitlines() == lines
    got = np.frombuffer(done.stdout, np.float32)
    wanted = np.concatenate([array.reshape(-1) for array in expected.values()])
    np.testing.assert_allclose(got, wanted, 1e-6, 1e-6)


@pytest.mark.parametrize("name", ["encoder", "objects"])
def test_it_is_the_compiled_model(name: str, folder: Path) -> None:
    model, kind = ad.compile(KINDS["encoder"].build()), KINDS["encoder"]
    for size in (0, 1, 7, 31, 100):
        inputs = kind.draw(np.random.default_rng(size), size)
        assert_same(model, folder / name, inputs)


def test_several_inputs_and_outputs(folder: Path) -> None:
    model, random = ad.compile(several()), np.random.default_rng(1)
    for n, m in ((1, 0), (1, 1), (7, 13), (40, 17)):
        assert_same(
            model, folder / "several", {"x": floats(random, n, m), "y'": floats(random, m, 2 * n)}
        )


WRONG: list[tuple[str, Inputs, str]] = [
    ("encoder", {"ids": np.zeros(101, np.int64)}, "bind: input 'ids': dim 'n' is above its bound"),
    ("encoder", {"ids": np.array([3, 31])}, r"run: gather: an index is outside -\(31\)\.\.30 of"),
    ("several", {"x": np.zeros((0, 3)), "y'": np.zeros((3, 0))}, "dim 'n' is below its bound 1"),
    ("several", {"x": np.zeros((2, 3)), "y'": np.zeros((3, 5))}, r"'y'': axis 1 is not 2\*n"),
    ("several", {"x": np.zeros((2, 3)), "y'": np.zeros((2, 4))}, r"'y'': axis 0 is not m"),
]


@pytest.mark.parametrize("name, inputs, text", WRONG)
def test_errors_have_numbers_and_texts(name: str, inputs: Inputs, text: str, folder: Path) -> None:
    done = run(folder / name, inputs)
    assert (done.returncode, done.stdout) == (1, b"")
    message = done.stderr.decode()
    assert re.search(text, message), message
    number = re.search(r"\(error (\d+)\)", message)
    assert number is not None and int(number[1]) >= 16


def test_a_negative_size_is_an_error(folder: Path) -> None:
    weights = folder / "encoder" / "encoder.weights"
    command = [folder / "encoder" / "example", weights, "-1"]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"bind: a size is below 0 (error 4)\n")


def test_weights_of_another_program_are_refused(folder: Path, tmp_path: Path) -> None:
    example, good = folder / "encoder" / "example", folder / "encoder" / "encoder.weights"
    data = bytearray(good.read_bytes())
    data[-8] ^= 1
    spoiled = {
        "gone": None, "short": data[:-64], "empty": b"", "flipped": data,
        "other": (folder / "several" / "two_sides.weights").read_bytes(),
    }  # fmt: skip
    for name, content in spoiled.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        done = subprocess.run([example, path, "0"], input=b"", capture_output=True, check=False)
        assert done.returncode == 1
        number = 2 if content is None else 3
        assert f"(error {number})" in done.stderr.decode()


_CALLER = r"""
#include "two_sides.h"
#include "encoder.h"
#include <stdio.h>
#include <stdlib.h>
#define CHECK(what) if (!(what)) { printf("line %d: " #what "\n", __LINE__); return 1; }

int main(void) {
  _Alignas(64) static char arena[1 << 22];
  float x[2 * 3] = {0}, y[3 * 4] = {0}, product[2 * 4], sum[2];
  const int64_t sizes[TWO_SIDES_SIZES] = {2, 3, 3, 4}, wrong[] = {2, 3, 3, 5}, one[] = {1};
  const void *inputs[] = {x, y}, *lacking[] = {x, NULL}, *odd[] = {(char *)x + 1, y};
  void *outputs[] = {product, sum};
  int64_t id = 5;
  float row[33];
  two_sides *model, *again;
  encoder *other;
  CHECK(two_sides_open("two_sides.weights", &model) == TWO_SIDES_OK)
  CHECK(two_sides_run(model, inputs, outputs, NULL) == TWO_SIDES_NOT_BOUND)
  CHECK(two_sides_bind(model, sizes) == TWO_SIDES_OK)
  CHECK(two_sides_output_shape(model, TWO_SIDES_OUTPUT_PRODUCT, 1) == 4)
  CHECK(two_sides_output_shape(model, TWO_SIDES_OUTPUT_SUM, 1) == -1)
  CHECK(two_sides_output_shape(model, 2, 0) == -1 && two_sides_output_rank(2) == -1)
  CHECK(two_sides_output_bytes(model, 0) == sizeof product)
  CHECK(two_sides_input_bytes(model, TWO_SIDES_INPUT_Y) == sizeof y)
  CHECK(two_sides_arena_bytes(model) <= sizeof arena)
  CHECK(two_sides_run(model, lacking, outputs, arena) == TWO_SIDES_NULL_POINTER)
  CHECK(two_sides_run(model, odd, outputs, arena) == TWO_SIDES_MISALIGNED)
  CHECK(two_sides_run(model, inputs, outputs, arena + 8) == TWO_SIDES_MISALIGNED)
  CHECK(two_sides_run(model, inputs, outputs, arena) == TWO_SIDES_OK)
  CHECK(product[7] == 0.0f && sum[0] == 3.0f && sum[1] == 3.0f)
  CHECK(two_sides_bind(model, wrong) >= TWO_SIDES_FIRST_CHECK)
  CHECK(two_sides_run(model, inputs, outputs, arena) == TWO_SIDES_NOT_BOUND)
  CHECK(two_sides_error_text(-1) && two_sides_error_text(15) && two_sides_error_text(1000))
  CHECK(two_sides_open_memory(arena, 64, &again) == TWO_SIDES_WRONG_WEIGHTS && !again)
  CHECK(encoder_open("../encoder/encoder.weights", &other) == ENCODER_OK)
  CHECK(encoder_bind(other, one) == ENCODER_OK)
  CHECK(encoder_run(other, (const void *[]){&id}, (void *[]){row}, NULL) == ENCODER_OK)
  encoder_close(other);
  two_sides_close(model);
  two_sides_close(NULL);
  return 0;
}
"""


def test_two_programs_in_one(folder: Path) -> None:
    home = folder / "several"
    (home / "caller.c").write_text(_CALLER, "utf-8")
    command = (
        "cc -std=c11 -Wall -Wextra -Werror -I../encoder caller.c libtwo_sides.a "
        "../encoder/libencoder.a -lm -o caller"
    )
    subprocess.run(command.split(), cwd=home, check=True)
    done = subprocess.run(["./caller"], cwd=home, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


_IN_TURNS = r"""
#include "positions.h"
#include <stdio.h>
#include <string.h>
#define CHECK(what) if (!(what)) { printf("line %d: " #what "\n", __LINE__); return 1; }

static float x[512 * 16], first[512 * 16], again[512 * 16];
_Alignas(64) static char one[1 << 20], other[1 << 20];

/* In arenas of the caller and its own, with what was in them before and without. */
int main(void) {
  positions *model;
  CHECK(positions_open("positions.weights", &model) == POSITIONS_OK)
  const void *inputs[] = {x};
  void *outputs[] = {first}, *others[] = {again};
  void *arenas[] = {other, NULL, one, one, NULL, other, one, NULL};
  for (int64_t n = 512; n >= 0; n = n ? n / 7 : -1) {
    const int64_t sizes[] = {n, 16};
    CHECK(positions_bind(model, sizes) == POSITIONS_OK)
    CHECK(positions_run(model, inputs, outputs, one) == POSITIONS_OK)
    CHECK(n < 2 || (first[16] > 0.8f && first[16] < 0.9f))
    for (int k = 0; k < 8; k++) {
      memset(one, k, sizeof one);
      CHECK(positions_run(model, inputs, others, arenas[k]) == POSITIONS_OK)
      CHECK(memcmp(first, again, (size_t)n * 64) == 0)
    }
  }
  positions_close(model);
  return 0;
}
"""


def test_what_depends_on_sizes_alone_is_right_in_any_arena(tmp_path: Path) -> None:
    g = ad.Builder("positions")
    n = g.dim("n", 0, 512)
    x = g.input("x", ad.float32, (n, 16))
    rates = g.constant(np.float32(1.0) / np.arange(1, 17, dtype=np.float32))
    table = g.sin(g.cast(g.range(count=n), to="float32")[:, None] * rates)
    g.output("y", g.exp(x) * table)
    model = ad.compile(g)
    assert model.program.straight is not None and model.program.straight.setups
    model.export(tmp_path / "made")
    subprocess.run(["make", "-s"], cwd=tmp_path / "made", check=True)
    for size in (0, 1, 7, 300, 512):
        x = np.random.default_rng(size).standard_normal((size, 16)).astype(np.float32)
        assert_same(model, tmp_path / "made", {"x": x})
    (tmp_path / "made" / "turns.c").write_text(_IN_TURNS, "utf-8")
    command = [CC, "-std=c11", "-Wall", "turns.c", "libpositions.a", "-lm", "-o", "turns"]
    subprocess.run(command, cwd=tmp_path / "made", check=True)
    done = subprocess.run(["./turns"], cwd=tmp_path / "made", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


_THREADS = """
#include "scorer.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int tasks(void) { /* threads of this process; 0 where the system does not tell */
  DIR *all = opendir("/proc/self/task");
  int found = 0;
  while (all && readdir(all)) {
    found++;
  }
  if (all) {
    closedir(all);
  }
  return found ? found - 2 : 0;
}

static int come_to(int wanted) { /* a thread that was joined is listed for a moment */
  struct timespec moment = {0, 1000000};
  for (int tries = 0; tasks() && tasks() != wanted && tries < 5000; tries++) {
    nanosleep(&moment, NULL);
  }
  return !tasks() || tasks() == wanted;
}

int main(void) {
  static const int counts[] = {1, 4, 2, 0, 100, 3, -1};
  static const int64_t rows[] = {4096, 1, 500, 0, 4096};
  static float x[4096 * 64], first[4096 * 64], y[4096 * 64];
  const void *inputs[] = {x};
  void *outputs[] = {first}, *others[] = {y};
  scorer *model = NULL, *other = NULL;
  for (int n = 0; n < 4096 * 64; n++) {
    x[n] = (float)(n * 7919 % 1000) / 500 - 1;
  }
  if (SCORER_THREADS != 4 || scorer_open("scorer.weights", &model) ||
      scorer_open("scorer.weights", &other)) {
    return 1;
  }
  for (int each = 0; each < 7; each++) {
    int wanted = counts[each] > 4 ? 4 : counts[each] < 1 ? 1 : counts[each];
    if (scorer_set_threads(model, counts[each]) || !come_to(wanted)) {
      printf("%d threads of %d\\n", tasks(), wanted);
      return 2;
    }
    for (int run = 0; run < 15; run++) {
      int64_t sizes[] = {rows[run % 5], 64};
      size_t bytes = (size_t)sizes[0] * 64 * sizeof(float);
      if (scorer_bind(model, sizes) || scorer_bind(other, sizes) ||
          scorer_run(other, inputs, outputs, NULL) || scorer_run(model, inputs, others, NULL)) {
        return 3;
      }
      if (memcmp(first, y, bytes)) {
        printf("run %d on %d threads differs\\n", run, wanted);
        return 4;
      }
    }
  }
  scorer_set_threads(model, 4);
  scorer_close(model);
  scorer_close(other);
  return !come_to(1);
}
"""


@pytest.mark.parametrize("code", ("c", "llvm"))
def test_results_are_the_same_on_any_number_of_threads(code: str, tmp_path: Path) -> None:
    g, random = ad.Builder("scorer"), np.random.default_rng(0)
    x = g.input("x", ad.float32, (g.dim("n", 0, 4096), 64))
    wide, back = (g.constant(random.standard_normal(s, np.float32)) for s in ((64, 256), (256, 64)))
    g.output("y", g.softmax(g.matmul(g.tanh(g.matmul(x, wide)), back), axis=-1))
    model = ad.compile(g, threads=1)
    model.export(tmp_path / "made", code=code, threads=4)
    build(tmp_path / "made")
    for n in (0, 1, 777, 4096):
        assert_same(model, tmp_path / "made", {"x": floats(random, n, 64)})
    (tmp_path / "made" / "threads.c").write_text(_THREADS, "utf-8")
    command = [CC, "-std=c11", "-Wall", "-D_POSIX_C_SOURCE=200809L", "threads.c", "libscorer.a",
               "-lm", "-pthread", "-o", "threads"]  # fmt: skip
    subprocess.run(command, cwd=tmp_path / "made", check=True)
    done = subprocess.run(["./threads"], cwd=tmp_path / "made", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    model = ad.compile(KINDS["encoder"].build())
    for name in ("int", "2d", "a b", "f32x4", "x" * 80):
        with pytest.raises(ad.OptionError, match="cannot begin the names"):
            model.export(tmp_path / "out", name)
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(ad.OptionError, match="cannot be written"):
        model.export(tmp_path / "file")
    g = ad.Builder("free")
    g.output("y", g.cast(g.range(count=g.dim("n", 0, 9)), to="float32"))
    with pytest.raises(ad.OptionError, match="a dim that no input determines"):
        ad.compile(g).export(tmp_path / "free")
    assert not (tmp_path / "out").exists()


def test_no_file_of_others_is_written_over_or_removed(tmp_path: Path) -> None:
    model = ad.compile(KINDS["encoder"].build())
    (tmp_path / "code").mkdir()
    mine = ("Makefile", "mine.o", "code/mine.c")
    for name in mine:
        (tmp_path / name).write_text("mine", "utf-8")
    with pytest.raises(ad.OptionError, match="already holds 'Makefile'"):
        model.export(tmp_path, "first")
    (tmp_path / "Makefile").unlink()
    model.export(tmp_path, "first")
    model.export(tmp_path, "first")
    assert "$(wildcard code/first_*.c)" in (tmp_path / "Makefile").read_text("utf-8")
    assert all((tmp_path / name).read_text("utf-8") == "mine" for name in mine[1:])


def test_the_same_model_gives_the_same_files(tmp_path: Path, folder: Path) -> None:
    ad.compile(KINDS["encoder"].build()).export(tmp_path / "again", "encoder")
    for path in (tmp_path / "again").rglob("*"):
        if path.is_file():
            held = folder / "encoder" / path.relative_to(tmp_path / "again")
            assert path.read_bytes() == held.read_bytes()
