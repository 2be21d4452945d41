"""Language models from files that people have: generation, chat, memory by formula.

    lm = ad.language_model("SmolLM2-135M-Instruct.Q4_1.gguf")
    for text in lm.chat([{"role": "user", "content": "Why is the sky blue?"}]):
        print(text, end="", flush=True)

Sequences of all threads share steps (`serving/decoding.py`), and each has the tokens that it has
alone.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base.amounts import bytes_of, exact_bytes_text
from anydim.base.errors import ArgumentError, InputError, OptionError
from anydim.base.keywords import public
from anydim.base.text import count_of
from anydim.base.user_values import (
    function_of,
    items_of,
    path_of,
    short_repr,
    texts_of,
    whole_within,
)
from anydim.runtime.pages import PAGE
from anydim.runtime.threads import AUTO
from anydim.serving.constraints import AnswerForm
from anydim.serving.decoded import unit
from anydim.serving.decoder import Decoder
from anydim.serving.drafts import (
    MOST_DRAFT,
    Drafts,
    ModelDrafts,
    PromptDrafts,
    check_draft,
)
from anydim.serving.language_models.decoder_spec import DecoderSpec
from anydim.serving.language_models.opened import OpenedModel, token_array
from anydim.serving.language_models.sources import compiler_module, open_decoder
from anydim.serving.pieces import Pieces
from anydim.serving.sampling import Choose, sampled
from anydim.sizes import LARGEST

if TYPE_CHECKING:
    from anydim.api.model import CompileProgress

_EMBEDDED = 64  # texts that wait or run at a time
_STOPS = "give a text or a list of texts, none of them empty"


@public
def language_model(
    path: Any, *, context: int | None = None, quantize: str | None = None,
    memory: int | str = "1 GiB", rows: int = 32, threads: int | str = "auto", tokenizer: Any = None,
    precision: str | None = None, cache: str | None = None,
) -> LanguageModel:  # fmt: skip
    """Open a language model: a folder of Hugging Face, a GGUF file, or what `save` wrote.

    Architectures: Llama (and SmolLM), Mistral, Mixtral, Qwen 2 and 3 (dense and sparse), Gemma 2
    and 3, Phi 3, GPT-2, GPT-NeoX.
    Nothing in the files is executed. Weights of 4 and 8 bits in GGUF files keep their width.

    Args:
        path: A folder with config.json and *.safetensors, a .gguf file, or a saved model.
        context: Most tokens of a sequence. None: what the model declares, at most 8,192.
        quantize: 'q8' or 'q4': float weights of products become codes of 8 or 4 bits, with a scale
            for 32 of them. None: weights stay as they are.
        memory: Most bytes of caches and of a step, a number or a text such as '2 GiB'.
        rows: Most sequences of a step.
        threads: Threads of a step, as in `compile`.
        tokenizer: Path of a tokenizer.json. None: the model's own.
        precision: As in `compile`: "bfloat16", "int8", ... (docs/numerics.md).
        cache: Element type of caches: 'float32', the default, 'float16' or 'bfloat16', which
            take half the memory, or 'int8', a quarter with a scale for each token of a head; keys
            and values are rounded to it.

    Returns:
        The model; `close` it, or use it in `with`.

    Raises:
        ModelError: The file is damaged, not whole, or of an unknown architecture.
        OptionError: An argument is out of its range.
        MissingError: A package is missing that reads the file.
    """
    bytes_of(memory)
    whole_within("rows", rows, 1, LARGEST, "give rows of a step")
    opened, model = open_decoder(path, context, quantize, tokenizer, cache, threads, precision)
    made = LanguageModel(opened, Decoder(model, memory=memory, rows=rows), model)
    made._options = threads, precision
    return made


class TextStream(Iterator[str]):
    """The text of an answer, piece by piece. Closing it, in any thread, ends the sequence.

    Attributes:
        tokens: The tokens so far, the stop token included.
        reason: Why the answer ended: 'stop', 'length', or None while it runs.
    """

    def __init__(
        self, source: Iterator[int], pieces: Pieces, stop: frozenset[int], most: int
    ) -> None:
        self.tokens: list[int] = []
        self.reason: str | None = None
        self._source, self._pieces, self._stop, self._most = source, pieces, stop, most
        self._lock = threading.Lock()

    def __next__(self) -> str:
        with self._lock:
            while self.reason is None:
                text = self._take(next(self._source, None))
                if text:
                    return text
        raise StopIteration

    def _take(self, token: int | None) -> str:
        """The text that a token makes final; ends the answer at its last one."""
        if token is None:
            return self._end("length")
        self.tokens.append(token)
        if token in self._stop:
            return self._end("stop")
        text = self._pieces.add(token)
        if self._pieces.is_stopped:
            self.reason = "stop"
            self.close()
        elif len(self.tokens) >= self._most:
            text += self._end("length")
        return text

    def _end(self, reason: str) -> str:
        """The text held back; 'stop' if a stop text is in it, else the reason."""
        text = self._pieces.end()
        self.reason = self.reason or ("stop" if self._pieces.is_stopped else reason)
        return text

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentError("an answer that runs is neither copied nor pickled", "read its text")

    def read(self) -> str:
        """The rest of the text."""
        return "".join(self)

    def close(self) -> None:
        """End the sequence; its memory is free after the step that runs."""
        self.reason = self.reason or "stop"
        close = getattr(self._source, "close", None)
        if close is not None:
            close()


@public
class LanguageModel:
    """A decoder with its tokenizer. Methods may be called from any threads.

    Attributes:
        name: Name of the file or folder.
        spec: Sizes and parts of the decoder.
        tokenizer: A `tokenizers.Tokenizer`; None where the folder has none.
        decoder: The `anydim.serving.Decoder` that runs steps.
        model: What `ad.cached(..., ragged=)` returned; only the decoder may step it.
    """

    def __init__(self, opened: OpenedModel, decoder: Decoder, model: Any) -> None:
        self.name, self.spec, self.tokenizer = opened.name, opened.spec, opened.tokenizer
        self.decoder, self.model = decoder, model
        self._opened = opened
        self._options: tuple[int | str, str | None] = AUTO, None

    # ---- texts and tokens ------------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with the token that the model begins texts with, if any."""
        return self._opened.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        given = items_of("tokens", tokens, "give a list of integers")
        known = token_array(given, self.spec.vocabulary, "tokens are") if given else given
        return str(self._opened.require_tokenizer().decode(list(known)))

    # ---- generation ------------------------------------------------------------------------------

    def generate(
        self, prompt: str | Sequence[int], max_tokens: int | None = 256, *,
        temperature: float = 0.0, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        logit_bias: Mapping[int, float] | None = None, seed: int | None = None,
        stop: str | Sequence[str] = (), priority: int = 0, deadline: float | None = None,
        speculate: int = 0, draft: LanguageModel | None = None,
        json_schema: Mapping[str, Any] | bool | None = None, regex: str | None = None,
        grammar: str | None = None,
    ) -> TextStream:  # fmt: skip
        """Continue a prompt.

        Args:
            prompt: A text, or its tokens.
            max_tokens: Most tokens of the answer. None: what context and memory have room for.
            temperature: 0 chooses the likeliest token; else, logits are divided by it.
            top_p: Draw from the fewest likeliest tokens whose probabilities sum to this.
            top_k: Draw from this number of likeliest tokens. 0: all.
            min_p: Draw from tokens of at least this share of the likeliest one's probability.
            repetition_penalty: Divides positive logits of tokens that were there before, and
                multiplies negative ones (Keskar et al. 2019, arXiv:1909.05858).
            logit_bias: Addends of logits by token.
            seed: Of the draws, of this sequence alone. None: a new one.
            stop: Texts that end the answer; they are not part of it.
            priority: Sequences of higher priority begin first.
            deadline: Seconds within which the sequence must begin.
            speculate: Most tokens of a draft that a step checks: what followed the last tokens
                where they occurred before. The answer has the same tokens. 0: no drafts.
            draft: A smaller model with the same tokens that writes the drafts instead.
            json_schema: The answer is JSON of this schema; True: any JSON. Forms need the extra
                `guide`, and a model whose answers end with a token.
            regex: The answer matches this regular expression as a whole.
            grammar: The answer is of this grammar, in Lark's notation, whose first rule is `start`.

        Returns:
            An iterator over pieces of text, with `tokens`, `reason` and `read()`.

        Raises:
            InputError: The prompt is malformed, or longer than the context.
            OptionError: An argument is out of its range.
            MemoryLimitError: The sequence can never fit into the memory.
        """
        tokens = self._tokens_of(prompt)
        most = self._room_for(tokens, max_tokens)
        choose = sampled(
            temperature, top_p, seed, top_k=top_k, min_p=min_p, logit_bias=logit_bias,
            repetition_penalty=repetition_penalty, prompt=tokens.tolist(),
            form=self._form(json_schema, regex, grammar), vocabulary=self.spec.vocabulary,
        )  # fmt: skip
        return self._stream(
            tokens, most, choose, _stop_texts(stop), priority, deadline,
            drafts_of(speculate, self.spec, draft),
        )  # fmt: skip

    def chat(
        self, messages: Sequence[Mapping[str, Any]], max_tokens: int | None = 256,
        tools: Sequence[Any] | None = None, **options: Any,
    ) -> TextStream:  # fmt: skip
        """Answer messages, in the form of the model's chat template.

        Args:
            messages: Mappings with 'role' and 'content', the oldest first.
            max_tokens: Most tokens of the answer. None: what context and memory have room for.
            tools: Descriptions of functions, for templates that take them.
            **options: Those of `generate`.

        Raises:
            InputError: Malformed messages, or the template refuses them.
            ModelError: The model has no chat template.
            UserError: As in `generate`.
        """
        return self.generate(self.chat_tokens(messages, tools), max_tokens, **options)

    def chat_tokens(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None
    ) -> list[int]:
        """The tokens of messages in the chat template, up to where the answer begins."""
        return self._opened.chat_tokens(messages, tools)

    def embed(self, texts: Any, dimensions: int | None = None) -> numpy.ndarray:
        """The embeddings of texts: last hidden states, of the last token or, if the model's files
        say so, their mean, as vectors of length 1.

        Args:
            texts: Texts, or lists of tokens.
            dimensions: Elements of each, the first ones. None: all.

        Returns:
            float32 [texts, dimensions].

        Raises:
            InputError: A text is none, or longer than the context.
            OptionError: The model has fewer elements.
            MemoryLimitError: A text can never fit into the memory.
        """
        width = self.spec.width
        if dimensions is not None:
            whole_within("dimensions", dimensions, 1, width, "give elements of an embedding")
        if isinstance(texts, str):
            raise InputError(f"texts is {short_repr(texts)}", "give a list of texts")
        every = items_of("texts", texts, "give a list of texts")
        prompts = [self._opened.text_tokens(text) for text in every]
        vectors = numpy.empty((len(prompts), dimensions or width), numpy.float32)
        waiting: deque[Any] = deque()
        for number in range(-_EMBEDDED, len(prompts)):
            if number + _EMBEDDED < len(prompts):
                prompt = prompts[number + _EMBEDDED]
                waiting.append(self.decoder.embed(prompt, self._opened.pooling))
            if number >= 0:
                vectors[number] = unit(waiting.popleft().result(), dimensions)
        return vectors

    def _stream(
        self, tokens: numpy.ndarray, most: int, choose: Choose, stop: Sequence[str], priority: int,
        deadline: float | None, drafts: Drafts | None,
    ) -> TextStream:  # fmt: skip
        own = self._opened.stop
        source = self.decoder.generate(
            tokens, most, own, choose=choose, priority=priority, deadline=deadline, drafts=drafts
        )
        return TextStream(source, Pieces(self._opened.require_tokenizer(), stop), own, most)

    def _form(self, json_schema: Any, regex: Any, grammar: Any) -> AnswerForm | None:
        given = {"json": json_schema, "regex": regex, "grammar": grammar}
        named = {name: value for name, value in given.items() if value is not None}
        if len(named) > 1:
            raise OptionError(f"{len(named)} forms of an answer are given",
                              "give json_schema, regex or grammar")  # fmt: skip
        forms = [getattr(self._opened.forms, name)(value) for name, value in named.items()]
        return forms[0] if forms else None

    def _tokens_of(self, prompt: Any) -> numpy.ndarray:
        given = self.encode(prompt) if isinstance(prompt, str) else prompt
        return token_array(given, self.spec.vocabulary)

    def _room_for(self, tokens: numpy.ndarray, max_tokens: Any) -> int:
        """Most new tokens: `max_tokens`, within the context; None: what has room."""
        if len(tokens) >= self.spec.context:
            raise InputError(f"the prompt has {len(tokens)} tokens, and sequences at most "
                             f"{self.spec.context}", "shorten it, or raise context=")  # fmt: skip
        if max_tokens is None:
            return max(1, self.largest() - len(tokens))
        most = whole_within("max_tokens", max_tokens, 1, LARGEST, "give how many tokens at most")
        return min(most, self.spec.context - len(tokens))

    # ---- memory ----------------------------------------------------------------------------------

    def memory(self, lengths: Sequence[int]) -> dict[str, int]:
        """Bytes of sequences of these lengths: 'weights', 'caches', and a 'step' of one new token
        for each, by formula.

        Raises:
            OptionError: A length is not within the context.
            InputError: `lengths` is no list.
        """
        given = items_of("lengths", lengths, "give a list of integers")
        context = self.spec.context
        given = [whole_within("a length", length, 1, context, "within the context")
                 for length in given]  # fmt: skip
        before = [length - 1 for length in given]
        return {
            "weights": int(self.model.model.executable.constant_bytes),
            "caches": int(self.model.cache_bytes(given)),
            "step": int(self.model.step_bytes(before, [1] * len(before))),
        }

    def largest(self, rows: int = 1) -> int:
        """Most tokens that each of `rows` sequences of equal length may have, by context and
        memory; 0 if that number never runs together.

        Raises:
            OptionError: `rows` is no number of sequences.
        """
        return min(self.decoder.longest(rows), self.spec.context)

    def explain(self) -> str:
        """What the model is, what its memory is as a formula, and how many sequences fit."""
        spec, own = self.spec, self.memory([1])
        most = self.decoder.most_rows
        each = self.model.cache_bytes([spec.context]) // spec.context
        counts = sorted({1, 4, 16, most} & set(range(most + 1)))
        fits = ", ".join(f"{self.largest(n):,} for {n}" for n in counts)
        return "\n".join((
            f"{self.name}: {spec.name}, {count_of(len(spec.layers), 'layer')} of {spec.width}, "
            f"{spec.vocabulary:,} tokens, context {spec.context:,}",
            f"  weights   {exact_bytes_text(own['weights'])}",
            f"  caches    {each:,} bytes a token, in pages of {PAGE:,}",
            f"  step      {exact_bytes_text(own['step'])} for a sequence of one token",
            f"  tokens    of each sequence within the memory: {fits}",
        ))  # fmt: skip

    def save(
        self, path: str | os.PathLike[str], targets: str | Sequence[str] = "native",
        progress: CompileProgress | None = None,
    ) -> None:  # fmt: skip
        """Write a file that `ad.language_model` opens without a compiler: code, weights, tokenizer,
        chat template. `anydim-runtime` runs it, with `tokenizers`, and `jinja2` for chats.

        Args:
            path: The file.
            targets: Processors, as in `Model.save`.
            progress: Called with `(stage, done, total)`.

        Raises:
            OptionError: A processor is unknown, the path cannot be written, or this is a saved
                model, which has code for its own processors alone.
        """
        names = texts_of("target", targets)
        function_of("progress", progress)
        file, (threads, precision) = path_of("path", path), self._options
        compiler_module("saving").save(
            self._opened, self.model, file, names, progress, threads, precision
        )

    def export(
        self, folder: str | os.PathLike[str], name: str = "", target: str = "native",
        code: str = "c", *, threads: int | str | None = None,
    ) -> None:  # fmt: skip
        """Write a folder for programs without Python: C, or for the target `"wasm32"` a module of
        JavaScript that generates text and chats, with a page.

        Args:
            folder: The folder.
            name: Prefix of all symbols, or of errors in JavaScript. Empty: the model's name.
            target: Processor of the code, as in `Model.export`, or `"wasm32"`.
            code: As in `Model.export`.
            threads: Most threads of a step, as in `Model.export`.

        Raises:
            OptionError: This is a saved model; or as in `Model.export`.
            MissingError: There is no linker for WebAssembly.
        """
        compiler_module("exporting").export(
            self._opened, folder, name, target, code, threads, self._options[1]
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentError("a language model is neither copied nor pickled",
                            "open its file with ad.language_model, or save it")  # fmt: skip

    def close(self) -> None:
        """Refuse new sequences, and wait for the running ones."""
        self.decoder.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        spec = self.spec
        return (f"LanguageModel({self.name}: {spec.name}, {count_of(len(spec.layers), 'layer')} of "
                f"{spec.width}, {spec.vocabulary} tokens, context {spec.context})")  # fmt: skip


def drafts_of(speculate: Any, spec: DecoderSpec, draft: Any = None) -> Drafts | None:
    """The drafts of a sequence; raises OptionError for arguments out of their range.

    `draft` is a model with a `spec` and a compiled `model`, or None.
    """
    whole_within("speculate", speculate, 0, MOST_DRAFT, "give tokens of a draft; 0: no drafts")
    if draft is not None and not hasattr(draft, "spec"):
        raise OptionError(f"draft is {short_repr(draft)}", "give an ad.language_model")
    if draft is not None:
        check_draft(draft.spec.vocabulary, spec.vocabulary)
    if draft is not None and not speculate:
        raise OptionError("a draft model is given, and speculate is 0", "give speculate=4")
    if not speculate:
        return None
    if draft is None:
        return PromptDrafts(speculate)
    return ModelDrafts(speculate, draft.model, draft.spec.context)


def _stop_texts(stop: Any) -> list[str]:
    found = [stop] if isinstance(stop, str) else stop
    try:
        texts = list(found)
    except TypeError:
        raise OptionError(f"stop is {short_repr(stop)}", _STOPS) from None
    if any(not isinstance(text, str) or not text for text in texts):
        raise OptionError(f"stop is {short_repr(stop)}", _STOPS)
    return texts
