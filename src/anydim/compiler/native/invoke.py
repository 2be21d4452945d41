"""A call from Python as native code, the same for every program.

    anydim_invoke(self, arguments, count) -> a new reference to
        a dict with the results, None: declined, nothing done, False: the call failed
    anydim_invoke_regions, of region programs: the same, or
        True: the results are in the memory of the call, for Python to fetch

It is a builtin function of Python (METH_FASTCALL) of two arguments: the inputs by name, and the
destination arrays by name or None. `self` is an array of slots, the table of `runtime/invoke.py`.
It accepts arguments like those of the frame's last call: arrays of the exact types, with the shapes
that the frame is bound to. Other arguments, and exceptions of the types ERRORS, are left to Python,
which checks them and reports errors. The function raises other exceptions: those of signal handlers
in Python code that it calls.

Tensors of another library are imported by its DLPack exchange API (a table of C functions), and
results are then tensors of that library: https://dmlc.github.io/dlpack/latest/c_api.html

Inputs are referenced while the kernels run without Python's lock: other threads may change the
dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import Like, greatest
from anydim.compiler.native.body import Body, as_int64, parameter
from anydim.runtime import invoke as words

_Put = Callable[[ir.Value, ir.Value], None]  # of a row and its result, which is released

INVOKE, INVOKE_REGIONS = "anydim_invoke", "anydim_invoke_regions"

_TABLE_NAME = "table"
_TABLE, _ROW, _OBJECT, _COUNT, _KIND = map(
    parameter, (_TABLE_NAME, "row", "object", "count", "kind")
)
_ARRAYS, _TENSORS = 1, 2  # kinds of inputs
_HALF = 0xFFFFFFFF  # mask of a C int
_CPU = 1  # DLPack's kDLCPU
# slots of Python's and numpy's objects
_TYPE, _DATA, _AXES, _DIMENSIONS, _ELEMENT, _FLAGS = 1, 2, 3, 4, 7, 8
# slots of a DLTensor, and of the one in a DLManagedTensorVersioned
_DL_DATA, _DL_DEVICE, _DL_KIND, _DL_SHAPE, _DL_STRIDES, _DL_OFFSET, _DL_WORDS = range(7)
_MANAGED, _MANAGED_WORDS, _VERSION = 4, 10, 1  # version 1.0
_LINE = 64  # bytes of a cache line


def invoke_code() -> ir.Library:
    """Return the module."""
    return ir.Library("invoke", lambda: tuple(_functions()), "of every program", True)


def _functions() -> Iterator[ir.Function]:
    yield _same_sizes()
    yield _is_array()
    yield _says_false()
    yield _is_tensor()
    yield _let_go()
    yield _hold_inputs()
    yield _clear_exception()
    yield _new_tensor()
    yield _new_result()
    yield _result()
    yield _results()
    yield _copied_results()
    yield _invoke()
    yield _invoke_regions()


def _quick(body: Body, name: str, parameters: tuple[str, ...], **more: bool) -> ir.Function:
    """Return the emitted code as a function that is compiled faster, since it has no long loops."""
    return body.function(name, parameters, quick=True, **more)


def _row(first: ir.Value, number: ir.Value) -> ir.Value:
    return first + number * (8 * words.ROW)


def _python(body: Body, function: int) -> ir.Value:
    """Return the address of a Python function."""
    return body.load(_TABLE, function)


def _is_nonzero(body: Body, status: ir.Value) -> ir.Value:
    """Whether a C function that returns an int returned nonzero."""
    return body.let(status & _HALF).differs(0)


# ---- inputs ------------------------------------------------------------------------------------


def _same_sizes() -> ir.Function:
    """Return 1 if sizes equal the row's shape."""
    body, sizes = Body(), parameter("sizes")
    shape = body.load(_ROW, words.SHAPE)
    rank = body.load(_ROW, words.RANK)
    with (
        body.range(0, rank) as axis,
        body.when(body.load(sizes, axis).differs(body.load(shape, axis))),
    ):
        body.give(0)
    body.give(1)
    return _quick(body, "same_sizes", ("row", "sizes"))


def _is_array() -> ir.Function:
    """Return 1 if an object is an array with the row's type and these flags; stores its address."""
    body, flags = Body(), parameter("flags")
    with body.when(body.load(_OBJECT, _TYPE).differs(body.load(_TABLE, words.ARRAY))):
        body.give(0)  # before other loads: other objects are shorter
    for view, wanted in (
        (body.load(_OBJECT, _ELEMENT), body.load(_ROW, words.ELEMENT)),
        (body.load(_OBJECT, _AXES) & _HALF, body.load(_ROW, words.RANK)),
        (body.load(_OBJECT, _FLAGS) & flags, flags),
    ):
        with body.when(view.differs(wanted)):
            body.give(0)
    same = body.ask("same_sizes", _ROW, body.load(_OBJECT, _DIMENSIONS))
    with body.when(same.equals(0)):
        body.give(0)
    body.store(body.load(_ROW, words.POINTER), 0, body.load(_OBJECT, _DATA))
    body.give(1)
    return _quick(body, "is_array", ("table", "row", "object", "flags"))


def _says_false() -> ir.Function:
    """Return 1 if a tensor neither records gradients nor is negated, where its type has these.

    Returns 0 if the query raised an exception.
    """
    body = Body()
    found = body.ask(_python(body, words.ATTRIBUTE), _OBJECT, body.load(_TABLE, words.RECORDING))
    with body.when(found.equals(0)):
        body.give(0)
    body.call(_python(body, words.DROP), found)
    with body.when(found.differs(body.load(_TABLE, words.FALSE))):
        body.give(0)
    negated = body.load(_TABLE, words.NEGATED)
    with body.when(negated.equals(0)):
        body.give(1)
    given = body.array(1)
    body.store(given, 0, _OBJECT)
    answer = body.ask(_python(body, words.METHOD), negated, given, 1, 0)
    with body.when(answer.equals(0)):
        body.give(0)
    body.call(_python(body, words.DROP), answer)
    body.give(as_int64(answer.equals(body.load(_TABLE, words.FALSE))))
    return _quick(body, "says_false", ("table", "object"))


def _is_tensor() -> ir.Function:
    """The same for a contiguous CPU tensor of the library in the table.

    A tensor that records gradients, or is lazily negated, is left to Python. Returns 0 if the
    library raised an exception.
    """
    body = Body()
    with body.when(body.load(_OBJECT, _TYPE).differs(body.load(_TABLE, words.TENSOR))):
        body.give(0)
    with body.when(body.ask("says_false", _TABLE, _OBJECT).equals(0)):
        body.give(0)
    view = body.array(_DL_WORDS)
    status = body.ask(_python(body, words.VIEW), _OBJECT, view)
    with body.when(_is_nonzero(body, status)):
        body.give(0)
    with body.when((body.load(view, _DL_DEVICE) & _HALF).differs(_CPU)):
        body.give(0)
    with body.when(body.load(view, _DL_KIND).differs(body.load(_ROW, words.KIND))):
        body.give(0)
    shape, strides = body.load(view, _DL_SHAPE), body.load(view, _DL_STRIDES)
    same = body.ask("same_sizes", _ROW, shape)
    with body.when(same.equals(0) | strides.equals(0)):
        body.give(0)
    rank, step, apart = body.load(_ROW, words.RANK), body.variable(1), body.variable(0)
    with body.range(0, rank) as number:
        axis = body.let(rank - 1 - number)
        size = body.load(shape, axis)
        with body.when(size.differs(1) & body.load(strides, axis).differs(step())):
            apart.set(1)
        step.set(step() * size)
    with body.when(apart().differs(0) & step().differs(0)):  # not of empty tensors
        body.give(0)
    data = body.let(body.load(view, _DL_DATA) + body.load(view, _DL_OFFSET))
    with body.when((data & (body.load(_ROW, words.ALIGNMENT) - 1)).differs(0)):
        body.give(0)
    body.store(body.load(_ROW, words.POINTER), 0, data)
    body.give(1)
    return _quick(body, "is_tensor", ("table", "row", "object"))


def _let_go() -> ir.Function:
    """Release the first inputs."""
    body = Body()
    rows = body.let(_TABLE + 8 * words.ROWS)
    with body.range(0, _COUNT) as number:
        body.call(_python(body, words.DROP), body.load(_row(rows, number), words.HELD))
    return _quick(body, "let_go", ("table", "count"), result=False)


def _hold_inputs() -> ir.Function:
    """Reference the inputs: ARRAYS, or TENSORS if some of them are; 0 if one does not match."""
    body = Body()
    given, into = parameter("given"), parameter("into")
    rows, fits = body.let(_TABLE + 8 * words.ROWS), body.variable(0)
    kind = body.variable(_ARRAYS)
    with body.range(0, body.load(_TABLE, words.INPUTS)) as number:
        row = body.let(_row(rows, number))
        object = body.ask(_python(body, words.FIND), given, body.load(row, words.NAME))
        with body.when(object.equals(0)):
            body.call("let_go", _TABLE, number)
            body.give(0)
        body.call(_python(body, words.HOLD), object)
        body.store(row, words.HELD, object)
        fits.set(body.ask("is_array", _TABLE, row, object, words.READY))
        with body.when(fits().equals(0) & into.equals(body.load(_TABLE, words.NONE))):
            fits.set(body.ask("is_tensor", _TABLE, row, object))
            kind.set(_TENSORS)
        with body.when(fits().equals(0)):
            body.call("let_go", _TABLE, number + 1)
            body.give(0)
    body.give(kind())
    return _quick(body, "hold_inputs", ("table", "given", "into"))


def _clear_exception() -> ir.Function:
    """Return 1 with no exception set; 0 if one is set that a first call would not report."""
    body = Body()
    with body.when(body.ask(_python(body, words.OCCURRED)).equals(0)):
        body.give(1)
    known = body.ask(_python(body, words.MATCHES), body.load(_TABLE, words.ERRORS))
    with body.when((known & _HALF).equals(0)):
        body.give(0)
    body.call(_python(body, words.FORGET))
    body.give(1)
    return _quick(body, "declined", ("table",))


# ---- results -----------------------------------------------------------------------------------


def _new_tensor() -> ir.Function:
    """Return a new tensor of the other library with the row's shape, otherwise 0.

    Its memory is a malloc block that begins with its manager, so that the library frees both by
    `free`.
    """
    body = Body()
    rank, shape = body.load(_ROW, words.RANK), body.load(_ROW, words.SHAPE)
    bytes = body.variable(body.load(_ROW, words.BYTES))
    with body.range(0, rank) as axis:
        bytes.set(bytes() * body.load(shape, axis))
    head = body.let(8 * _MANAGED_WORDS + 16 * rank)
    block = body.ask(body.load(_TABLE, words.ALLOCATE), head + _LINE + bytes())
    with body.when(block.equals(0)):
        body.give(0)
    sizes = body.let(block + 8 * _MANAGED_WORDS)
    strides, step = body.let(sizes + 8 * rank), body.variable(1)
    with body.range(0, rank) as number:
        axis = body.let(rank - 1 - number)
        size = body.load(shape, axis)
        body.store(sizes, axis, size)
        body.store(strides, axis, step())
        step.set(step() * greatest(size, 1))
    data = body.let((block + head + _LINE) & -_LINE)
    tensor: dict[int, Like] = {
        _DL_DATA: data, _DL_DEVICE: _CPU, _DL_KIND: body.load(_ROW, words.KIND),
        _DL_SHAPE: sizes, _DL_STRIDES: strides, _DL_OFFSET: 0,
    }  # fmt: skip
    managing = (_VERSION, 0, body.load(_TABLE, words.FREE), 0)  # then context, deleter, flags
    content: dict[int, Like] = dict(enumerate(managing))
    content |= {_MANAGED + word: value for word, value in tensor.items()}
    for word, value in content.items():
        body.store(block, word, value)
    made = body.array(1)
    status = body.ask(_python(body, words.WRAP), block, made)
    with body.when(_is_nonzero(body, status)):
        body.give(0)
    body.store(body.load(_ROW, words.POINTER), 0, data)
    body.give(body.load(made, 0))
    return _quick(body, "new_tensor", ("table", "row"))


def _new_result() -> ir.Function:
    """Return a new array or tensor for a row, whose address is stored; 0 on failure."""
    body = Body()
    with body.when(_KIND.equals(_TENSORS)):
        body.give(body.ask("new_tensor", _TABLE, _ROW))
    maker, arguments = body.load(_ROW, words.MAKER), body.load(_ROW, words.ARGUMENTS)
    made = body.ask(_python(body, words.MAKE), maker, arguments, 0)
    with body.when(made.equals(0)):
        body.give(0)
    body.store(body.load(_ROW, words.POINTER), 0, body.load(made, _DATA))
    body.give(made)
    return _quick(body, "new_result", ("table", "row", "kind"))


def _result() -> ir.Function:
    """Return a new reference to the given destination of a row, otherwise to a new result.

    Returns 0 if the destination does not match or allocation failed.
    """
    body, into = Body(), parameter("into")
    with body.when(into.equals(body.load(_TABLE, words.NONE))):
        body.give(body.ask("new_result", _TABLE, _ROW, _KIND))
    held = body.ask(_python(body, words.FIND), into, body.load(_ROW, words.NAME))
    with body.when(held.equals(0)):
        body.give(body.ask("new_result", _TABLE, _ROW, _KIND))
    fits = body.ask("is_array", _TABLE, _ROW, held, words.WRITEABLE)
    with body.when(fits.equals(0)):
        body.give(0)
    body.call(_python(body, words.HOLD), held)
    body.give(held)
    return _quick(body, "result", ("table", "row", "into", "kind"))


def _results() -> ir.Function:
    """Return a new dict with all results; 0 if one does not match or cannot be allocated."""

    def each(body: Body, row: ir.Value, put: _Put) -> None:
        made = body.ask("result", _TABLE, row, parameter("into"), _KIND)
        with body.when(made.differs(0)):
            put(row, made)

    return _dict_of_results("results", ("table", "into", "kind"), each)


def _copied_results() -> ir.Function:
    """Return a new dict with copies of all results, if they have the last sizes; otherwise 0."""

    def each(body: Body, row: ir.Value, put: _Put) -> None:
        size, slot = body.load(row, words.COPIED), body.load(row, words.POINTER)
        source = body.load(slot)
        same = body.ask("same_sizes", row, body.load(row, words.FOUND))
        with body.when((size >= 0) & same.differs(0)):
            made = body.ask("new_result", _TABLE, row, _KIND)
            with body.when(made.differs(0)):
                body.call(_python(body, words.COPY), body.load(slot), source, size)
                body.store(slot, 0, source)  # as the run has stored it, for Python to fetch
                put(row, made)

    return _dict_of_results("copied_results", ("table", "kind"), each)


def _dict_of_results(
    name: str, parameters: tuple[str, ...], each: Callable[[Body, ir.Value, _Put], None]
) -> ir.Function:
    """Return a new dict with the values that `each` stores for results' rows; 0 on failure."""
    body = Body()
    filled = body.ask(_python(body, words.NEW))
    with body.when(filled.equals(0)):
        body.give(0)
    first = body.let(_row(_TABLE + 8 * words.ROWS, body.load(_TABLE, words.INPUTS)))
    bad = body.variable(0)

    def put(row: ir.Value, made: ir.Value) -> None:
        key = body.load(row, words.NAME)
        bad.set(body.ask(_python(body, words.SET), filled, key, made) & _HALF)
        body.call(_python(body, words.DROP), made)

    with body.range(0, body.load(_TABLE, words.OUTPUTS)) as number:
        row = body.let(_row(first, number))
        bad.set(1)
        each(body, row, put)
        with body.when(bad().differs(0)):
            body.call(_python(body, words.DROP), filled)
            body.give(0)
    body.give(filled)
    return _quick(body, name, parameters)


# ---- the call ----------------------------------------------------------------------------------


def _decline(body: Body, object: int) -> None:
    """Return a reference to None or True; no value if an exception has to be raised."""
    with body.when(body.ask("declined", _TABLE).equals(0)):
        body.give(0)
    _give(body, object)


def _give(body: Body, object: int) -> None:
    """Return a reference to None, False or True."""
    found = body.load(_TABLE, object)
    body.call(_python(body, words.HOLD), found)
    body.give(found)


def _begin(body: Body) -> tuple[ir.Value, ir.Value]:
    """Reference the inputs; returns their kind, and the destinations. Declines on a mismatch."""
    arguments = parameter("arguments")
    body.let(body.load(parameter("self"), _DATA), _TABLE_NAME)
    given, into = body.load(arguments, 0), body.load(arguments, 1)
    dict = body.load(_TABLE, words.DICT)
    with body.when(body.load(given, _TYPE).differs(dict)):
        _give(body, words.NONE)
    count = body.ask(_python(body, words.SIZE), given)
    with body.when(count.differs(body.load(_TABLE, words.INPUTS))):
        _give(body, words.NONE)
    none = body.load(_TABLE, words.NONE)
    with body.when(into.differs(none) & body.load(into, _TYPE).differs(dict)):
        _give(body, words.NONE)
    kind = body.ask("hold_inputs", _TABLE, given, into)
    with body.when(kind.equals(0)):
        _decline(body, words.NONE)
    return kind, into


def _run(body: Body) -> ir.Value:
    """Run without Python's lock and release the inputs; whether it failed is stored."""
    state = body.ask(_python(body, words.UNLOCK))
    failed = body.ask(body.load(_TABLE, words.RUN), body.load(_TABLE, words.BLOCK))
    body.call(_python(body, words.LOCK), state)
    body.call("let_go", _TABLE, body.load(_TABLE, words.INPUTS))
    body.store(_TABLE, words.FAILED, failed)
    return failed.differs(0)


def _invoke() -> ir.Function:
    body = Body()
    kind, into = _begin(body)
    filled = body.ask("results", _TABLE, into, kind)
    with body.when(filled.equals(0)):
        body.call("let_go", _TABLE, body.load(_TABLE, words.INPUTS))
        _decline(body, words.NONE)
    with body.when(_run(body)):
        body.call(_python(body, words.DROP), filled)
        _give(body, words.FALSE)
    body.give(filled)
    return _quick(body, INVOKE, ("self", "arguments", "count"), public=True)


def _invoke_regions() -> ir.Function:
    body = Body()
    kind, _ = _begin(body)
    with body.when(_run(body)):
        _give(body, words.FALSE)
    filled = body.ask("copied_results", _TABLE, kind)
    with body.when(filled.equals(0)):
        _decline(body, words.TRUE)
    body.call(body.load(_TABLE, words.CLEAR), body.load(_TABLE, words.BLOCK))
    body.give(filled)
    return _quick(body, INVOKE_REGIONS, ("self", "arguments", "count"), public=True)
