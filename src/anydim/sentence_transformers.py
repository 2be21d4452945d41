"""Run a SentenceTransformer, or a model of transformers, on anydim, at any length.

    from anydim.sentence_transformers import accelerate

    model = accelerate(SentenceTransformer("all-MiniLM-L6-v2", device="cpu"))
    model.encode(texts)

The module's model is exported once by torch.onnx, with dynamic batch and length, and compiled for
ragged batches: the tokens of all texts without padding. A model that is refused there, and masks
that are more than padding behind texts, run padded. Tokenizer, pooling and everything else stay as
they are. The compiled model is stored on disk under the hash of the weights: the next process
neither exports nor compiles, and copies of a model, in this process or in others, share the file.
torch runs the transformer if gradients or hidden states are needed, on other devices, and while the
weights differ from those compiled, with a warning.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import field
from typing import Any

import numpy

from anydim.api.entry import compile
from anydim.api.model import Model
from anydim.api.program_cache import load_or_compile_at, path_of_parts
from anydim.base.cache_folder import is_there
from anydim.base.errors import MissingError, ModelError, OptionError, UserError
from anydim.base.records import dataclass
from anydim.deploy.checksum import checksum
from anydim.runtime.lists import RaggedPort
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.ragged import Ragged

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_IGNORED = {"return_dict"}
_INSIDE = {"hidden_states", "attentions"}  # results that only torch computes, on request
_BATCH, _LENGTH = "batch", "length"
_TEXTS = ["a", "a text that has more words than the other one"]
_TOKENS = (2, 7)  # rows and columns of an example


def accelerate(model: Any, threads: int | None = None) -> Any:
    """Let a SentenceTransformer run its transformer on anydim; returns the model.

    `model` may also be a model of transformers, such as AutoModel makes. `threads` is the number of
    threads of a call; the default is torch's. Raises OptionError for a model without a transformer
    of texts, MissingError if torch's exporter lacks a package, ModelError for a transformer that
    anydim does not support.
    """
    encoder = _encoder(model)
    import torch

    encoder.module.forward = _Forward(
        encoder, torch.get_num_threads() if threads is None else threads
    )
    return model


def restore(model: Any) -> Any:
    """Let torch run the transformer again; returns the model."""
    module = model if _is_plain(model) else _transformer(model).model
    vars(module).pop("forward", None)
    return model


# ---- export ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Encoder:
    """A transformer: its torch module, its inputs in order, the names and the type of its results.

    `part` is its module of sentence-transformers, if any. `optional` inputs may be missing in a
    call, and get default values.
    """

    module: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: Any
    part: Any = None
    optional: frozenset[str] = field(default_factory=frozenset)

    def cache_paths(self, threads: int) -> tuple[str | None, str | None]:
        """The cache files of the compiled transformer, for padded and for ragged calls, by the
        content of its weights."""
        facts = [*self._facts(), str(threads)]
        return path_of_parts(facts), path_of_parts([*facts, "ragged"])

    def _facts(self) -> Iterator[str | memoryview]:
        """All dependencies of the compiled model."""
        import torch
        import transformers

        yield f"{type(self.module).__qualname__} {torch.__version__} {transformers.__version__}"
        yield json.dumps(self.module.config.to_dict(), sort_keys=True, default=str)
        yield f"{self.inputs} {self.outputs}"
        for about, data in _contents(self.module):
            yield about
            yield data

    def made(self, threads: int) -> Model:
        """Compile the transformer for padded batches."""
        return compile(self.exported(), threads=threads)

    def first(
        self, threads: int, paths: tuple[str | None, str | None]
    ) -> tuple[CallableProgram, bool]:
        """Load or compile the transformer; return whether it takes ragged batches.

        It does unless its graph is refused; the reason is a warning where it is compiled.
        """
        padded, ragged = paths
        for path in (ragged, padded):  # a refused graph only has the second one
            if path is not None and is_there(path):
                made = load_or_compile_at(path, lambda: self.made(threads))
                return made, any(isinstance(each, RaggedPort) for each in made.lists.values())
        exported = self.exported()

        def without_padding() -> Model:
            model = compile(exported, threads=threads, ragged={_LENGTH: _BATCH})
            ports = [each for each in model.lists.values() if isinstance(each, RaggedPort)]
            if len(ports) < len(model.lists) or any(port.flat for port in ports):
                raise ModelError("a result has the length on several axes, or on another than 1")
            return model

        try:
            return load_or_compile_at(ragged, without_padding), True
        except ModelError as error:
            reason = f"{error.problem}: batches are padded"
            warnings.warn(f"{type(self.module).__name__}: {reason}", RuntimeWarning, stacklevel=4)
            return load_or_compile_at(padded, lambda: compile(exported, threads=threads)), False

    def exported(self) -> Any:
        """Export the module as an onnx.ModelProto with dynamic batch and length."""
        import torch

        tensors = _examples(self.module, self.inputs, self.part)
        given = tuple(tensors[name].to(self.module.device) for name in self.inputs)
        names, outputs, module = self.inputs, self.outputs, self.module

        class Plain(torch.nn.Module):
            """The module with positional tensors as inputs and its results as outputs."""

            def __init__(self) -> None:
                super().__init__()
                self.module = module

            def forward(self, *tensors: Any) -> Any:
                found = self.module(**dict(zip(names, tensors)), return_dict=True)
                results = tuple(found[name] for name in outputs)
                return results if len(results) > 1 else results[0]

        with _as_exported(module), warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # dim names shared between inputs
            try:
                made = torch.onnx.export(
                    Plain().eval(), given, dynamo=True, verbose=False, input_names=list(names),
                    output_names=list(outputs),
                    dynamic_shapes=(tuple({0: _BATCH, 1: _LENGTH} for _ in names),),
                )  # fmt: skip
            except ModuleNotFoundError as error:
                raise MissingError(
                    f"torch.onnx needs {error.name}, which is not installed",
                    f"pip install {error.name}",
                ) from None
        assert made is not None
        return made.model_proto


def _encoder(model: Any) -> _Encoder:
    return _plain(model) if _is_plain(model) else _inside(_transformer(model))


def _is_plain(model: Any) -> bool:
    """Whether it is a model of transformers."""
    kind = getattr(sys.modules.get("transformers"), "PreTrainedModel", None)
    return kind is not None and isinstance(model, kind)


def _plain(module: Any) -> _Encoder:
    """An encoder from a model of transformers from tokens to tensors."""
    import torch

    known = inspect.signature(type(module).forward).parameters
    inputs = tuple(name for name in _INPUTS if name in known)
    try:
        with _as_exported(module), torch.inference_mode():
            found = module(**_examples(module, inputs, None), return_dict=True)
        results = {name: value for name, value in found.items() if name not in _INSIDE}
    except Exception as error:  # modules raise arbitrary errors
        reason = str(error).split("\n")[0]
        raise _no_transformer(module, f"cannot be called with tokens only: {reason}") from None
    others = [name for name, value in results.items() if not torch.is_tensor(value)]
    if "input_ids" not in inputs or others:
        what = f"returns {others[0]}, which is not a tensor" if others else "takes no tokens"
        raise _no_transformer(module, what)
    optional = frozenset(inputs) - {"input_ids"}
    return _Encoder(module, inputs, tuple(results), type(found), None, optional)


def _transformer(model: Any) -> Any:
    """The module of sentence-transformers that contains the transformer."""
    try:
        part = next(iter(model))
        modality = part.modality_config["text"]
        known = modality["method"] == "forward" and hasattr(part.model, "parameters")
    except (AttributeError, KeyError, StopIteration, TypeError):
        known = False
    if not known:
        raise _no_transformer(model, "has no transformer of texts that can be exported")
    return part


def _inside(part: Any) -> _Encoder:
    """The encoder of a module of sentence-transformers, with the output that pooling reads."""
    output = part.modality_config["text"]["method_output_name"]
    if not isinstance(output, str):
        raise OptionError(f"the transformer's result is {output!r}, expected one of its outputs")
    from transformers.modeling_outputs import BaseModelOutput
    from transformers.utils import ModelOutput

    given = part.preprocess(list(_TEXTS))
    names = tuple(name for name in _INPUTS if name in given)
    kind = BaseModelOutput if output == "last_hidden_state" else ModelOutput
    return _Encoder(part.model, names, (output,), kind, part)


def _no_transformer(model: Any, problem: str) -> OptionError:
    return OptionError(
        f"{type(model).__name__} {problem}",
        "give a sentence_transformers.SentenceTransformer with backend='torch', or an encoder of"
        " transformers, such as AutoModel makes",
    )


def _examples(module: Any, names: Sequence[str], part: Any) -> Mapping[str, Any]:
    """Example tensors of two texts with different lengths."""
    if part is not None:
        tensors: Mapping[str, Any] = part.preprocess(list(_TEXTS))
        return tensors
    import torch

    rows, columns = _TOKENS
    made = {
        "input_ids": torch.arange(rows * columns).reshape(rows, columns) % module.config.vocab_size,
        "attention_mask": torch.ones(rows, columns, dtype=torch.int64),
        "token_type_ids": torch.zeros(rows, columns, dtype=torch.int64),
    }
    made["attention_mask"][0, columns // 2 :] = 0
    return {name: made[name].to(module.device) for name in names}


@contextmanager
def _as_exported(module: Any) -> Iterator[None]:
    """Use eager attention, which adds its mask, and no dropout, during an export."""
    config, training = module.config, module.training
    attention = config._attn_implementation
    accelerated = vars(module).pop("forward", None)
    config._attn_implementation = "eager"
    module.eval()
    try:
        yield
    finally:
        config._attn_implementation = attention
        module.train(training)
        if accelerated is not None:
            module.forward = accelerated


# ---- weights ---------------------------------------------------------------------------------


def _contents(module: Any) -> Iterator[tuple[str, memoryview]]:
    """For each weight its name, type and shape, and its bytes."""
    import torch

    for name, tensor in module.state_dict().items():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = memoryview(flat.view(torch.uint8).numpy()).cast("B")
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}", data


class _Weights:
    """Detects whether the weights of a module are the compiled ones.

    Addresses and version counters of tensors are compared in microseconds; if they changed, the
    content decides. A copy, or one in another process, only has the hash of the content.
    """

    _seen: list[int] | None  # the state at the last comparison of contents

    def __init__(self, module: Any) -> None:
        self._module = module
        self._known = self._content()
        self._forget()
        self._find()

    def _forget(self) -> None:
        self._same, self._seen = True, None
        self._tables: list[dict[str, Any]] = []  # torch's tables of parameters and buffers
        self._children: list[dict[str, Any]] = []  # torch's tables of submodules
        self._alive: list[Any] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"_module": self._module, "_known": self._known}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def are_known(self) -> bool:
        """Whether the weights are the compiled ones; warns if they are not."""
        if self._state() != self._seen:
            self._find()
            self._same = self._content() == self._known
            if not self._same:
                warnings.warn(
                    "the weights have changed since anydim.sentence_transformers.accelerate: torch"
                    " runs the transformer; call it again", RuntimeWarning, stacklevel=5,
                )  # fmt: skip
        return self._same

    def _content(self) -> str:
        state = hashlib.sha256()
        for about, data in _contents(self._module):
            state.update(f"{about} {checksum(data)}\n".encode())
        return state.hexdigest()

    def _find(self) -> None:
        """Record torch's tables of the current modules, and their state."""
        modules = list(self._module.modules())
        self._tables = [table for each in modules for table in (each._parameters, each._buffers)]
        self._children = [each._modules for each in modules]
        self._seen = self._state()
        # keeps objects alive, so that no other object gets their ids
        self._alive = [modules, *(list(table.values()) for table in self._tables)]

    def _state(self) -> list[int]:
        """Identities of modules and tensors, and addresses and versions of tensors."""
        found = [id(module) for table in self._children for module in table.values()]
        for table in self._tables:
            for each in table.values():
                if each is not None:
                    version = 0 if each.is_inference() else each._version
                    found += (id(each), each.data_ptr(), version)
        return found


# ---- calls -----------------------------------------------------------------------------------


class _Forward:
    """A replacement for the module's `forward`, which can be copied and pickled."""

    def __init__(self, encoder: _Encoder, threads: int) -> None:
        self._encoder, self._threads = encoder, threads
        self._run: CallableProgram | None
        self._paths = encoder.cache_paths(threads)
        self._run, self._is_ragged = encoder.first(threads, self._paths)
        self._padded = None if self._is_ragged else self._run
        self._path = self._paths[self._is_ragged]
        self._weights = _Weights(encoder.module)
        self._names = list(inspect.signature(type(encoder.module).forward).parameters)[1:]
        self._refused = False

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Run the transformer: on anydim if the call allows it, else on torch."""
        encoder = self._encoder
        tensors = self._tensors(self._by_name(values, named))
        if tensors is None:
            return type(encoder.module).forward(encoder.module, *values, **named)
        results = self._results(tensors)
        return encoder.kind(**{name: results[name] for name in encoder.outputs})

    def _results(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the compiled model: without padding if each row ends with it."""
        import torch

        run, mask = self._run, _prefixes(tensors)
        assert run is not None
        if not self._is_ragged:
            return run(**tensors)
        if mask is None:
            if self._padded is None:
                encoder, threads = self._encoder, self._threads
                self._padded = load_or_compile_at(self._paths[0], lambda: encoder.made(threads))
            return self._padded(**tensors)
        ends = numpy.concatenate([[0], numpy.cumsum(mask.sum(axis=1))])
        names = set(run.input_names())
        given = {
            name: Ragged(tensor.numpy()[mask], ends)
            for name, tensor in tensors.items() if name in names
        }  # fmt: skip
        found = {}
        for name, result in run(**given).items():
            array = result
            if isinstance(result, Ragged):
                array = numpy.zeros((*mask.shape, *result.values.shape[1:]), result.values.dtype)
                array[mask] = result.values
            found[name] = torch.from_numpy(array)
        return found

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of the module's own `forward`, which trainers inspect."""
        module = self._encoder.module
        return inspect.signature(type(module).forward.__get__(module))

    def _by_name(self, values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self._names, values)), **named} if values else dict(named)

    def _tensors(self, named: dict[str, Any]) -> dict[str, Any] | None:
        """The inputs of a call for anydim; None for a call that torch has to run."""
        import torch

        encoder = self._encoder
        config = encoder.module.config
        needs_torch = config.output_hidden_states or config.output_attentions
        if torch.is_grad_enabled() or encoder.module.training or needs_torch:
            return None
        if named.get("return_dict", getattr(config, "return_dict", True)) is False:
            return None
        known = {*encoder.inputs, *_IGNORED}
        if any(value is not None and name not in known for name, value in named.items()):
            return None
        tokens = named.get("input_ids")
        if tokens is None or tokens.device.type != "cpu" or tokens.dim() != 2:
            return None
        filled = {
            name: named[name] if named.get(name) is not None else _filled(name, tokens)
            for name in encoder.inputs if named.get(name) is not None or name in encoder.optional
        }  # fmt: skip
        if len(filled) < len(encoder.inputs):
            return None
        if any(each.device.type != "cpu" or each.dim() != 2 for each in filled.values()):
            return None
        if not (self._weights.are_known() and self._is_there()):
            return None
        return {name: each.to(torch.int64).contiguous() for name, each in filled.items()}

    def _is_there(self) -> bool:
        """Whether there is a compiled model; copies from another process load or compile it."""
        if self._run is None and not self._refused:
            try:
                self._run, self._is_ragged = self._encoder.first(self._threads, self._paths)
                self._padded = None if self._is_ragged else self._run
            except UserError as error:
                self._refused = True
                warnings.warn(
                    f"torch runs the transformer: {error}", RuntimeWarning, stacklevel=5
                )  # fmt: skip
        return self._run is not None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the compiled model, which is loaded or compiled again."""
        return {**self.__dict__, "_run": None, "_padded": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Forward:
        """Copy for a copy of the module; both share the compiled model."""
        made = object.__new__(_Forward)
        memo[id(self)] = made
        made.__dict__.update(self.__dict__)
        made._encoder = deepcopy(self._encoder, memo)
        made._weights = deepcopy(self._weights, memo)
        return made


def _prefixes(tensors: Mapping[str, Any]) -> numpy.ndarray | None:
    """Where the tokens of rows are, bool [rows, columns]; None unless padding follows each row."""
    mask = tensors.get("attention_mask")
    if mask is None:
        return numpy.ones(tuple(tensors["input_ids"].shape), bool)
    held = mask.numpy()
    made: numpy.ndarray = held != 0
    ones = (held == 1) == made
    if not ones.all() or (made[:, 1:] > made[:, :-1]).any() or not made[:, :1].all():
        return None
    return made if held.shape[1] else None


def _filled(name: str, tokens: Any) -> Any:
    """The default of a missing input: all tokens are attended to, and belong to one text."""
    import torch

    return torch.ones_like(tokens) if name == "attention_mask" else torch.zeros_like(tokens)
