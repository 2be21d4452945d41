"""Promise: exported programs with branches, loops and sizes by data have the bits of the model's
own calls, in memory of the program and in an arena of the caller."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from tests.unit.compiler.graph.region_graphs import EXAMPLES
from tests.unit.compiler.native.region_cases import CASES, drawn
from tests.unit.deploy.kinds import KINDS, Inputs, floats
from tests.unit.deploy.test_export import CC, build, run

pytestmark = pytest.mark.skipif(
    CC is None or shutil.which("make") is None, reason="there is no C compiler, or no make"
)
GRAPHS = {**{name: make for name, make in EXAMPLES.items() if name != "listed"}, **CASES}
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
CHECKED = {"ASAN_OPTIONS": "detect_leaks=1"}


def while_running() -> ad.Builder:
    """A branch in a loop whose end data decides, around a loop whose trips are a found size."""
    g = ad.Builder("while running")
    n = g.dim("n", 0, 40)
    x, limit, count = (
        g.input("x", ad.float32, (n,)), g.input("limit", ad.float32, ()),
        g.input("count", ad.int64, ()),
    )  # fmt: skip
    trips = g.find(count, "trips", 0, 9)

    def inner(b, t, value):  # type: ignore[no-untyped-def]
        return b.mul(b.add(value, x), np.float32(0.5))

    def body(b, t, value):  # type: ignore[no-untyped-def]
        total = b.reduce_sum(value, axes=(0,))
        b.proceed(b.less(total, limit))
        nested = b.loop(inner, value, trips=trips)
        positive = b.less(np.float32(0), total)
        after = b.branch(positive, lambda c: c.add(nested, x), lambda c: c.sub(nested, x))
        b.stack(b.reduce_sum(after, axes=(0,)))
        return after

    begun = g.less(g.reduce_sum(x, axes=(0,)), limit)
    end, sums = g.loop(body, x, trips=12, condition=begun)
    g.output("end", end)
    g.output("sums", sums)
    return g


def draw_running(random: np.random.Generator, n: int) -> Inputs:
    limit = np.array(random.choice([-100.0, 1.0, 20.0, 1e9]), np.float32)
    count = np.array(random.integers(0, 10))
    return {"x": floats(random, n), "limit": limit, "count": count}


# ---- in C --------------------------------------------------------------------------------------

_IN_TURNS = r"""
#include "@.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define CHECK(what) if (!(what)) { fprintf(stderr, "line %d: " #what "\n", __LINE__); return 3; }

static @ *model;
static const void *inputs[^_INPUTS + 1];
static void *first[^_OUTPUTS + 1], *none[^_OUTPUTS + 1];

static void *block(size_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
  memset(memory, 0xAB, (bytes + 127) / 64 * 64);
  return memory;
}

static int same(void) {
  for (int n = 0; n < ^_OUTPUTS; n++) {
    const void *again = @_output(model, n);
    size_t bytes = @_output_bytes(model, n);
    if (bytes && (!again || memcmp(first[n], again, bytes))) {
      return 0;
    }
  }
  return 1;
}

/* Run in an arena of exactly so many bytes, which is gone afterwards. */
static int in_arena(size_t bytes, int wanted) {
  void *arena = block(bytes);
  int error = @_run_within(model, inputs, none, arena, bytes);
  int right = error ? wanted : same();
  free(arena);
  return error == ^_NO_MEMORY ? !wanted : error ? 0 : right;
}

static int with_outputs(const int64_t *sizes) {
  void *outputs[^_OUTPUTS + 1] = {NULL};
  CHECK(!@_bind(model, sizes))
  for (int n = 0; n < ^_OUTPUTS; n++) {
    int known = 1;
    for (int axis = 0; axis < @_output_rank(n); axis++) {
      known = known && @_output_shape(model, n, axis) >= 0;
    }
    CHECK(!@_output(model, n))
    outputs[n] = known ? malloc(@_output_bytes(model, n) + 1) : NULL;
    if (!known) {
      outputs[n] = &known;
      CHECK(@_run(model, inputs, outputs, NULL) == ^_DATA_DECIDES)
      outputs[n] = NULL;
    }
  }
  CHECK(!@_run(model, inputs, outputs, NULL) && same())
  for (int n = 0; n < ^_OUTPUTS; n++) {
    CHECK(!outputs[n] || @_output(model, n) == outputs[n])
    free(outputs[n]);
  }
  return 0;
}

static int arenas(const int64_t *sizes) {
  size_t enough = @_arena_bytes(model), used;
  void *small = block(64);
  CHECK(@_run_within(model, inputs, none, small, SIZE_MAX) == ^_DATA_DECIDES)
  free(small);
  if (enough != SIZE_MAX) {
    CHECK(in_arena(enough, 1))
  } else {
    void *arena = block(64);
    CHECK(@_run(model, inputs, none, arena) == ^_DATA_DECIDES)
    free(arena);
    CHECK(in_arena(1 << 22, 1))
  }
  used = @_peak_bytes(model);
  CHECK(used <= enough)
  CHECK(in_arena(used, 1))
  for (size_t less = used; less; less /= 2) {
    CHECK(in_arena((less - 1) / 64 * 64, 0) || @_output(model, 0))
  }
  CHECK(!@_bind(model, sizes))
  CHECK(enough == SIZE_MAX || in_arena(enough + 4096, 1))
  fprintf(stderr, "arena %zu used %zu\n", enough, used);
  return 0;
}

int main(int count, char **arguments) {
  int64_t sizes[^_SIZES + 1] = {0};
  CHECK(count == 2 + ^_SIZES && !@_open(arguments[1], &model) && !@_verify(model))
  for (int n = 0; n < ^_SIZES; n++) {
    sizes[n] = strtoll(arguments[2 + n], NULL, 10);
  }
  CHECK(@_run(model, inputs, none, NULL) == ^_NOT_BOUND)
  int error = @_bind(model, sizes);
  if (error) {
    fprintf(stderr, "bind: %s (error %d)\n", @_error_text(error), error);
    CHECK(@_run(model, inputs, none, NULL) == ^_NOT_BOUND)
    @_close(model);
    return 1;
  }
  for (int n = 0; n < ^_INPUTS; n++) {
    size_t bytes = @_input_bytes(model, n);
    inputs[n] = block(bytes);
    CHECK(fread((void *)inputs[n], 1, bytes, stdin) == bytes)
  }
  error = @_run(model, inputs, none, NULL);
  if (error) {
    fprintf(stderr, "run: %s (error %d)\n", @_error_text(error), error);
    void *arena = block(1 << 22);
    CHECK(@_run_within(model, inputs, none, arena, 1 << 22) == error)
    free(arena);
    CHECK(@_run(model, inputs, none, NULL) == error && !@_output(model, 0))
  }
  for (int n = 0; !error && n < ^_OUTPUTS; n++) {
    size_t bytes = @_output_bytes(model, n);
    first[n] = malloc(bytes + 1);
    if (bytes) {
      memcpy(first[n], @_output(model, n), bytes);
      fwrite(first[n], 1, bytes, stdout);
    }
  }
  if (!error) {
    CHECK(!arenas(sizes))
    CHECK(!@_run(model, inputs, none, NULL) && same())
    CHECK(!with_outputs(sizes))
    CHECK(!@_set_threads(model, ^_THREADS))
    for (int turn = 0; turn < 3; turn++) {
      CHECK(!@_run(model, inputs, none, NULL) && same())
    }
    CHECK(!arenas(sizes))
  }
  @_close(model);
  for (int n = 0; n < ^_INPUTS; n++) {
    free((void *)inputs[n]);
  }
  for (int n = 0; n < ^_OUTPUTS; n++) {
    free(first[n]);
  }
  return error ? 1 : 0;
}
"""


def in_turns(
    model: ad.Model, folder: Path, flags: str = "-O1", threads: int = 1, code: str = "c"
) -> Path:
    """Export and build a program that runs in memory of every kind; exit code 3 is a fault."""
    model.export(folder, "made", code=code, threads=threads)
    text = _IN_TURNS.replace("@", "made").replace("^", "MADE")
    (folder / "turns.c").write_text(text, "utf-8")
    build(folder, f"CFLAGS={flags}", f"LDFLAGS={flags}")
    command = [
        str(CC),
        "-std=c11",
        "-Wall",
        *flags.split(),
        "turns.c",
        "libmade.a",
        "-lm",
        "-pthread",
    ]
    subprocess.run([*command, "-o", "turns"], cwd=folder, check=True)
    return folder / "turns"


def outcome(program: Path, inputs: Inputs) -> subprocess.CompletedProcess[bytes]:
    """Run a program of `in_turns`."""
    data = b"".join(array.tobytes() for array in inputs.values())
    sizes = [str(size) for array in inputs.values() for size in array.shape]
    command = [program, program.parent / "made.weights", *sizes]
    return subprocess.run(command, input=data, capture_output=True, check=False, env=CHECKED)


def assert_same_bits(
    model: Callable[..., dict[str, np.ndarray]], program: Path, inputs: Inputs
) -> None:
    """Compare with a model; an error of the model is one of the program."""
    done = outcome(program, inputs)
    try:
        wanted = b"".join(np.ascontiguousarray(made).tobytes() for made in model(**inputs).values())
    except ad.InputError:
        assert done.returncode == 1 and done.stdout == b"", done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert done.stdout == wanted


def assert_same_at_sizes(
    model: ad.Model, program: Path, draw: Callable[[np.random.Generator, int], Inputs],
    sizes: tuple[int, ...], times: int = 1,
) -> None:  # fmt: skip
    random = np.random.default_rng(7)
    for size in sizes:
        for _ in range(times):
            assert_same_bits(model, program, draw(random, size))


# ---- tests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, code", [("looped", "c"), ("detector", "llvm")])
def test_the_bits_of_the_models_own_calls(name: str, code: str, tmp_path: Path) -> None:
    model = ad.compile(KINDS[name].build())
    program = in_turns(model, tmp_path / name, code=code)
    assert_same_at_sizes(model, program, KINDS[name].draw, (0, 1, 7, 16, 17, 50))
    done = run(tmp_path / name, KINDS[name].draw(np.random.default_rng(1), 13))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads, code", [(1, "llvm"), (4, "c")])
def test_loops_that_data_ends_around_branches_and_loops(
    threads: int, code: str, tmp_path: Path
) -> None:
    model = ad.compile(while_running())
    program = in_turns(model, tmp_path / "made", threads=threads, code=code)
    assert_same_at_sizes(model, program, draw_running, (0, 1, 2, 7, 13, 40), times=4)


WRONG: list[tuple[int, int, str]] = [
    (41, 0, "bind: input 'x': dim 'n' is above its bound 40; expected shape [n]"),
    (3, 10, "run: while running: find: dim 'trips' is outside its bounds 0..9, as data defines it"),
    (3, -1, "run: while running: find: dim 'trips' is outside its bounds 0..9, as data defines it"),
]


def test_sizes_out_of_bounds_are_errors(tmp_path: Path) -> None:
    program = in_turns(ad.compile(while_running()), tmp_path / "made", code="llvm")
    for n, count, text in WRONG:
        drawn_at = draw_running(np.random.default_rng(n), n)
        done = outcome(program, {**drawn_at, "count": np.array(count)})
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.decode().startswith(f"{text} (error "), done.stderr


_IN_PLACE = r"""
#include "made.h"
#include <string.h>

int main(void) {
  float pool[4] = {1, 2, 3, 4}, y[4];
  const int64_t rows[4] = {1, 2, 0, 1}, sizes[] = {4, 2, 2};
  const void *inputs[] = {pool, rows};
  void *apart[] = {y}, *inside[] = {pool}, *none[] = {NULL};
  made *model;
  if (made_open("made.weights", &model) || made_bind(model, sizes)) {
    return 1;
  }
  for (int turn = 0; turn < 2; turn++) { /* inputs are written over only as outputs */
    if (made_run(model, inputs, apart, NULL) || made_run(model, inputs, none, NULL)) {
      return 2;
    }
  }
  if (pool[0] != 1 || pool[3] != 4 || memcmp(made_output(model, 0), y, sizeof y)) {
    return 3;
  }
  if (made_run(model, inputs, inside, NULL) || memcmp(pool, y, sizeof y) ||
      made_output(model, 0) != pool) {
    return 4;
  }
  made_close(model);
  return 0;
}
"""


def test_an_input_that_is_updated_is_written_over_only_as_an_output(tmp_path: Path) -> None:
    model = ad.compile(EXAMPLES["updated"]().graph)
    assert model.executable.interface.updates
    in_turns(model, tmp_path, SANITIZERS, code="llvm")
    (tmp_path / "place.c").write_text(_IN_PLACE, "utf-8")
    command = [str(CC), "-Wall", *SANITIZERS.split(), "place.c", "libmade.a", "-lm", "-o", "place"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./place"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


_THREADS = r"""
#include "made.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static float x[40];
static int failed;

static void *serve(void *given) { /* each with a model and an arena of its own */
  int64_t count = 1 + (given != NULL), sizes[] = {0};
  float limit = 1e9f, first[40];
  const void *inputs[] = {x, &limit, &count};
  void *outputs[MADE_OUTPUTS] = {NULL};
  made *model;
  if (made_open("made.weights", &model)) {
    failed = 1;
    return NULL;
  }
  for (int turn = 0; turn < 3000; turn++) {
    sizes[0] = turn % 7 ? 40 : 7;
    int error = made_bind(model, sizes);
    size_t bytes = (made_arena_bytes(model) + 63) / 64 * 64;
    void *arena = turn % 3 ? aligned_alloc(64, bytes) : NULL;
    error = error ? error : made_run(model, inputs, outputs, arena);
    if (turn == 1) {
      memcpy(first, made_output(model, 0), sizeof first);
    }
    int differs = turn && turn % 7 && memcmp(first, made_output(model, 0), sizeof first);
    failed |= error || differs;
    free(arena);
  }
  made_close(model);
  return NULL;
}

int main(void) {
  pthread_t other;
  for (int n = 0; n < 40; n++) {
    x[n] = (float)n / 40 - 0.3f;
  }
  pthread_create(&other, NULL, serve, x);
  serve(NULL);
  pthread_join(other, NULL);
  return failed;
}
"""


def test_models_run_in_several_threads_at_once(tmp_path: Path) -> None:
    in_turns(ad.compile(while_running()), tmp_path, code="llvm")
    (tmp_path / "threads.c").write_text(_THREADS, "utf-8")
    command = [
        str(CC),
        "-O1",
        "-Wall",
        "threads.c",
        "libmade.a",
        "-lm",
        "-pthread",
        "-o",
        "threads",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./threads"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_of_regions(name: str, tmp_path: Path) -> None:
    example = GRAPHS[name]()
    model = ad.compile(example.graph)
    program = in_turns(model, tmp_path / "made", threads=2)
    for inputs, _ in drawn(example, 12):
        assert_same_bits(model, program, inputs)


@pytest.mark.slow
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    model = ad.compile(while_running())
    program = in_turns(model, tmp_path / "made", f"-O1 -g {SANITIZERS}", threads=4)
    assert_same_at_sizes(model, program, draw_running, (0, 1, 2, 7, 40), times=3)
    looped = ad.compile(KINDS["looped"].build())
    program = in_turns(looped, tmp_path / "looped", f"-O1 -g {SANITIZERS}")
    assert_same_at_sizes(looped, program, KINDS["looped"].draw, (0, 1, 17, 60))
