"""A SentenceTransformer whose transformer runs on anydim, whatever lengths come.

    from anydim.sentence_transformers import accelerate

    model = accelerate(SentenceTransformer("all-MiniLM-L6-v2", device="cpu"))
    model.encode(texts)

The module's model is exported once, by torch.onnx with its batch and its length open, and compiled;
tokenizer, pooling and everything else stay as they are. What is compiled is kept on disk: the next
process neither exports nor compiles. torch takes over where gradients or hidden states are asked
for, on another device, and after the weights have changed, which a warning says.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anydim.base.errors import MissingError, OptionError
from anydim.base.records import dataclass
from anydim.entry import compile
from anydim.kept import kept
from anydim.model import Model
from anydim.program.held import Held

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_IGNORED = {"return_dict"}
_TEXTS = ["a", "a text that has more words than the other one"]


def accelerate(model: Any, threads: int | None = None) -> Any:
    """Let a SentenceTransformer run its transformer on anydim; gives the model back.

    `threads` serve a call; as many as torch uses without it. Raises OptionError for a model that is
    no SentenceTransformer of texts, MissingError where torch's exporter lacks a package, ModelError
    for a transformer that anydim does not take.
    """
    part = _transformer(model)
    encoder = _Encoder.of(part)
    import torch

    run = encoder.compiled(torch.get_num_threads() if threads is None else threads)
    part.model.forward = _Forward(encoder, run)
    return model


def restore(model: Any) -> Any:
    """Let torch run the transformer again; gives the model back."""
    vars(_transformer(model).model).pop("forward", None)
    return model


def _transformer(model: Any) -> Any:
    """The module that holds the transformer."""
    try:
        part = next(iter(model))
        modality = part.modality_config["text"]
        known = modality["method"] == "forward" and hasattr(part.model, "parameters")
    except (AttributeError, KeyError, StopIteration, TypeError):
        known = False
    if not known:
        raise OptionError(
            f"{type(model).__name__} has no transformer of texts that can be exported",
            "give a sentence_transformers.SentenceTransformer with backend='torch'",
        )
    return part


@dataclass(frozen=True)
class _Encoder:
    """A transformer: its torch module, its inputs in order, and the name of its result."""

    part: Any
    module: Any
    inputs: tuple[str, ...]
    output: str

    @staticmethod
    def of(part: Any) -> _Encoder:
        asked = part.modality_config["text"]["method_output_name"]
        if not isinstance(asked, str):
            raise OptionError(f"the transformer's result is {asked!r}, expected one of its outputs")
        given = part.preprocess(list(_TEXTS))
        names = tuple(name for name in _INPUTS if name in given)
        return _Encoder(part, part.model, names, asked)

    def compiled(self, threads: int) -> Held:
        """The transformer as a model of anydim: from the last time, or made now."""
        return kept([*self._facts(), str(threads)], lambda: self._made(threads))

    def _facts(self) -> Iterator[str | memoryview]:
        """Everything that the compiled model depends on."""
        import torch
        import transformers

        yield f"{type(self.module).__qualname__} {torch.__version__} {transformers.__version__}"
        yield json.dumps(self.module.config.to_dict(), sort_keys=True, default=str)
        yield f"{self.inputs} {self.output}"
        for name, tensor in self.module.state_dict().items():
            yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
            yield memoryview(tensor.detach().cpu().contiguous().view(torch.uint8).numpy()).cast("B")

    def _made(self, threads: int) -> Model:
        return compile(self._exported(), threads=threads)

    def _exported(self) -> Any:
        """An onnx.ModelProto of the module, its batch and its length open."""
        import torch

        tensors = self.part.preprocess(list(_TEXTS))
        given = tuple(tensors[name].to(self.module.device) for name in self.inputs)
        names, output, module = self.inputs, self.output, self.module

        class Plain(torch.nn.Module):
            """Tensors in order in, the result out."""

            def __init__(self) -> None:
                super().__init__()
                self.module = module

            def forward(self, *tensors: Any) -> Any:
                return self.module(**dict(zip(names, tensors)), return_dict=True)[output]

        with _as_exported(module), warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # names of dims that are those of other inputs
            try:
                made = torch.onnx.export(
                    Plain().eval(), given, dynamo=True, verbose=False, input_names=list(names),
                    output_names=[output],
                    dynamic_shapes=(tuple({0: "batch", 1: "length"} for _ in names),),
                )  # fmt: skip
            except ModuleNotFoundError as error:
                raise MissingError(
                    f"torch.onnx needs {error.name}, which is not installed",
                    f"pip install {error.name}",
                ) from None
        assert made is not None
        return made.model_proto


@contextmanager
def _as_exported(module: Any) -> Iterator[None]:
    """Attention written out, whose mask is a sum, and no dropout."""
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


class _Forward:
    """What is called in place of the module's `forward`."""

    def __init__(self, encoder: _Encoder, run: Held) -> None:
        from transformers.modeling_outputs import BaseModelOutput
        from transformers.utils import ModelOutput

        self._encoder = encoder
        self._run = run
        self._known = {*encoder.inputs, *_IGNORED}
        self._parameters = list(encoder.module.parameters())
        self._state: Sequence[int] | None = self._versions()
        self._torch: Callable[..., Any] = type(encoder.module).forward
        plain = encoder.output == "last_hidden_state"
        self._output: Callable[..., Any] = BaseModelOutput if plain else ModelOutput

    def __call__(self, *values: Any, **named: Any) -> Any:
        """The transformer's outputs, of which the one that pooling reads comes from anydim."""
        if values or not self._takes(named):
            return self._torch(self._encoder.module, *values, **named)
        tensors = {name: named[name].contiguous() for name in self._encoder.inputs}
        result = self._run(**tensors)[self._encoder.output]
        return self._output(**{self._encoder.output: result})

    def _takes(self, named: dict[str, Any]) -> bool:
        """Whether a call is one that was compiled."""
        import torch

        module = self._encoder.module
        if torch.is_grad_enabled() or module.training:
            return False
        if any(value is not None and name not in self._known for name, value in named.items()):
            return False
        config = module.config
        if config.output_hidden_states or config.output_attentions:
            return False
        if any(named.get(n) is None or named[n].device.type != "cpu" for n in self._encoder.inputs):
            return False
        return self._is_unchanged()

    def _is_unchanged(self) -> bool:
        """Whether the weights are those that were compiled."""
        if self._state is not None and self._versions() != self._state:
            warnings.warn(
                "the weights have changed since anydim.sentence_transformers.accelerate: torch runs"
                " the transformer; call it again", RuntimeWarning, stacklevel=4,
            )  # fmt: skip
            self._state = None
        return self._state is not None

    def _versions(self) -> Sequence[int]:
        """Where each weight lies, and how often it was written."""
        return [
            number for weight in self._parameters
            for number in (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        ]  # fmt: skip
