"""Inputs from files or by chance, outputs to files, and what outputs look like.

Files of numpy have no names for bfloat16, float8 and narrower types. Outputs of these are written
as float32 or int8, which hold every value. Inputs of these may be float32 or integers that the
type holds exactly, or the bare bytes that numpy.save writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy

from anydim.base.dtypes import array_of_numbers, convert_array, from_numpy
from anydim.base.errors import InputError, OptionError
from anydim.base.files import replace_file
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion, table
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.program.inputs import Ranges, draw
from anydim.sizes import Dim, Size

Arrays = dict[str, numpy.ndarray]


@dataclass(frozen=True)
class Read:
    """An array from a file; `name` is empty when neither file nor option says which input it is.

    A number is written on the command line itself, and takes the type of its input: floats are
    rounded to it.
    """

    entry: str
    name: str
    array: numpy.ndarray
    is_number: bool = False


def read(entries: Sequence[str]) -> list[Read]:
    """The arrays of `ids.npz` and `name=file.npy`; InputError for what cannot be read."""
    return [found for entry in entries for found in _read(entry)]


def inputs_by_name(model: CallableProgram, found: Sequence[Read]) -> Arrays:
    """The inputs of the model by name; InputError for one given twice or without a name."""
    arrays: Arrays = {}
    for item in found:
        name = item.name or _only_input(model, item.entry)
        if name in arrays:
            raise InputError(f"--input {item.entry}: input '{name}' is given twice")
        arrays[name] = _narrow_array(model, name, item)
    return arrays


def _narrow_array(model: CallableProgram, name: str, item: Read) -> numpy.ndarray:
    """The array as the input's type, where numpy's files have no name for it."""
    array = item.array
    dtype = next((spec.dtype for spec in model.inputs if spec.name == name), None)
    if dtype is None or (dtype.is_native and not item.is_number):
        return array
    if item.is_number:
        try:
            return array_of_numbers(array, dtype.numpy)
        except TypeError as error:
            raise InputError(f"--input {item.entry}: {error}") from None
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.bytes:
        return array.view(dtype.numpy)
    if array.dtype.kind not in "fiu":
        return array
    narrow = convert_array(array, dtype.numpy)
    same = convert_array(narrow, array.dtype)
    if not ((same == array) | ((array != array) & (same != same))).all():
        raise InputError(
            f"--input {item.entry}: input '{name}' is {dtype}, which does not hold all its values",
            f"round them first, with ml_dtypes: array.astype('{dtype}')",
        )
    return narrow


def _read(entry: str) -> list[Read]:
    name, equals, path = entry.partition("=")
    if not equals or Path(entry).exists():
        name, path = "", entry
    number = _number(path) if name and not Path(path).exists() else None
    if number is not None:
        return [Read(entry, name, numpy.asarray(number), True)]
    try:
        loaded = numpy.load(path, allow_pickle=False)
        if isinstance(loaded, numpy.ndarray):
            return [Read(entry, name, loaded)]
        with loaded:
            arrays = {key: loaded[key] for key in loaded.files}
    except MemoryError as error:
        raise InputError(f"--input {entry}: not enough memory for the arrays in {path}") from error
    except Exception as error:  # of files, zlib and numpy's parser of headers
        reason = getattr(error, "strerror", None) or "not an .npy or .npz file of plain arrays"
        raise InputError(
            f"--input {entry}: {path} cannot be read: {reason}",
            "write it with numpy.save or numpy.savez",
        ) from None
    if not name:
        return [Read(entry, key, array) for key, array in arrays.items()]
    if name not in arrays:
        raise InputError(f"--input {entry}: {path} holds {quote_list(arrays)}, not '{name}'")
    return [Read(entry, name, arrays[name])]


def _number(text: str) -> int | float | bool | None:
    """The number that a text says; None for what is none."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _only_input(model: CallableProgram, entry: str) -> str:
    if len(model.inputs) == 1:
        return model.inputs[0].name
    names = [spec.name for spec in model.inputs]
    raise InputError(
        f"--input {entry}: which input is it? {model.name} takes {quote_list(names)}",
        f"write --input {names[0]}={entry}" if names else "",
    )


def sizes_of(model: CallableProgram, at: Mapping[str, int]) -> dict[str, int]:
    """The sizes with those of dims that have one size only; DimError where they do not fit.

    Those that data decides may be missing.
    """
    fixed = {dim.name: dim.lo for dim in model.dims.dims if dim.lo == dim.hi}
    sizes = {**fixed, **at}
    model.plan(**sizes)
    return {name: sizes[name] for name in model.dims.names if name in sizes}


def no_sizes(model: CallableProgram, otherwise: str = "") -> dict[str, int]:
    """Sizes of a model that takes inputs of one size only; OptionError names what others have."""
    told = {name for spec in model.inputs for size in spec.shape for name in size.symbols}
    refuse_free([dim for dim in model.dims.dims if dim.name in told], otherwise)
    return {}


def refuse_free(dims: Sequence[Dim], otherwise: str = "") -> None:
    """Raise OptionError for dims that have more than one size."""
    free = [dim.name for dim in dims if dim.lo != dim.hi]
    if free:
        sizes = ",".join(f"{name}=SIZE" for name in free)
        raise OptionError(
            f"no size is given for {quote_list(free)}", f"give --at {sizes}{otherwise}"
        )


def upper_bounds(model: CallableProgram) -> dict[str, int]:
    """The upper bounds of the dims; raises OptionError where there are none."""
    bounds = {dim.name: dim.hi for dim in model.dims.dims}
    free = [name for name, bound in bounds.items() if bound is None]
    if free:
        raise OptionError(
            f"no size is given for {quote_list(free)} without upper bound",
            "give --at NAME=SIZE,..., or bounds: --dim NAME=LOW..HIGH",
        )
    return {name: bound for name, bound in bounds.items() if bound is not None}


def sizes_in(model: CallableProgram, found: Mapping[str, numpy.ndarray]) -> dict[str, int]:
    """The sizes that inputs have, of the dims that are the size of an axis."""
    sizes: dict[str, int] = {}
    for spec in model.inputs:
        if spec.name in found:
            for size, actual in zip(spec.shape, found[spec.name].shape):
                if size in map(Size.symbol, size.symbols):
                    sizes[str(size)] = actual
    return sizes


def draw_inputs(
    model: CallableProgram, at: Mapping[str, int], seed: int, integers: Ranges
) -> Arrays:
    """Random inputs at sizes of the box; the same for the same seed. OptionError for strings."""
    if model.on_strings:
        raise OptionError(
            f"{model.name} takes {quote_list(model.input_names())} on strings, which cannot be "
            "drawn",
            "run it on inputs from files: anydim run --input in.npz",
        )
    check_integers(model, integers)
    ranges = {**model.index_ranges, **integers}
    sizes, chance = sizes_of(model, at), numpy.random.default_rng(seed)
    return {
        spec.name: draw(spec, sizes, chance, ranges.get(spec.name, (0, 1))) for spec in model.inputs
    }


def check_integers(model: CallableProgram, integers: Ranges) -> None:
    """Raise OptionError for a range that no integer input of the model can take."""
    names = [s.name for s in model.inputs if s.dtype.is_integer or s.dtype.kind == "bool"]
    for name in integers:
        if name not in names:
            raise OptionError(
                f"--integers {name}: {model.name} has no integer input '{name}'",
                suggestion(name, names) or f"its integer inputs are {quote_list(names)}",
            )


def check_output(path: str) -> None:
    """Raise OptionError for a path at which outputs cannot be written."""
    if Path(path).is_dir():
        raise OptionError(f"--output {path} is a folder", "give a file: results.npz")
    if not path.endswith(".npz"):
        raise OptionError(f"--output {path}: the file name must end in .npz", f"write {path}.npz")
    if not Path(path).parent.is_dir():
        raise OptionError(
            f"--output {path}: folder {Path(path).parent} does not exist", "create it first"
        )


def save(arrays: Mapping[str, numpy.ndarray], path: str) -> None:
    """Write all arrays to an .npz file; raises OptionError when that cannot be done."""
    other = [name for name, each in arrays.items() if not isinstance(each, numpy.ndarray)]
    if other:
        raise OptionError(f"--output {path}: {quote_list(other)} is no array, but a list or maps")
    try:
        with replace_file(path) as new, open(new, "wb") as file:
            named = {name: _numpy_typed(array) for name, array in arrays.items()}
            numpy.savez(file, **named)  # type: ignore[arg-type]
    except OSError as error:
        raise OptionError(f"--output {path}: cannot be written: {error.strerror}") from None


def _numpy_typed(array: numpy.ndarray) -> numpy.ndarray:
    """The array in a type that numpy's files have a name for: texts of one width."""
    if array.dtype == object:
        return array.astype(str)
    if array.dtype.kind == "c" or (dtype := from_numpy(array.dtype)).is_native:
        return array
    return convert_array(array, numpy.dtype(numpy.float32 if dtype.is_float else numpy.int8))


def summary(arrays: Mapping[str, numpy.ndarray]) -> str:
    """A table: name, dtype, shape, least, mean and largest value, and how many are NaN.

    Of complex numbers, the values are the absolute ones.
    """
    rows = [_row(name, array) for name, array in arrays.items()]
    return table(("output", "dtype", "shape", "least", "mean", "largest", "nan"), rows, left=3)


def _row(name: str, result: Any) -> tuple[str, ...]:
    """The row of a result; strings and maps have no figures."""
    if not isinstance(result, numpy.ndarray):
        return name, type(result).__name__, str([len(result)]), "-", "-", "-", "-"
    if result.dtype.kind in "OUT":
        return name, "string", str(list(result.shape)), "-", "-", "-", "-"
    return name, str(result.dtype), str(list(result.shape)), *_figures(result)


def _figures(array: numpy.ndarray) -> tuple[str, ...]:
    real = numpy.abs(array) if array.dtype.kind == "c" else array
    wide = convert_array(real, numpy.dtype(numpy.float64))
    nan = int(numpy.count_nonzero(numpy.isnan(wide)))
    known = wide[~numpy.isnan(wide)]
    if not known.size:
        return "-", "-", "-", str(nan)
    return *(f"{value:.4g}" for value in (known.min(), known.mean(), known.max())), str(nan)
