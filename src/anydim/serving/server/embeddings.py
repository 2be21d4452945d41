"""POST /v1/embeddings: texts or tokens in, embeddings out, as embedding clients have them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy

from anydim.base.errors import InputError, MissingError, OptionError, UserError
from anydim.base.missing_package import install
from anydim.base.user_values import check_text
from anydim.serving.decoded import unit
from anydim.serving.requests import Request
from anydim.serving.server.answers import (
    JSON,
    Answer,
    Parts,
    answer,
    elements,
    json_answer,
    json_of,
)
from anydim.serving.server.asgi import Gone, Receive, Scope, Send, watch_disconnect
from anydim.serving.server.decoders import ServedDecoder
from anydim.serving.server.json_bodies import parse_object, short_json
from anydim.serving.server.repository import Loaded
from anydim.serving.server.rest import LONG_TEXT, MOST_TEXT, Body, run_aside, wait_for_results
from anydim.serving.server.state import State, error_text, status_of

MOST_TEXTS = 2048  # of a request
_SUBMITTED = 16  # requests that are submitted before other work has its turn
_OPEN = 256  # texts of a request that wait or run at a time: more would fill the queue
_FLOATS = ("float", "base64")


class Tokenizers:
    """The tokenizers of models: a file each, read when it is first used. Raises OptionError for a
    file that is missing."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)
        self._known: dict[str, Any] = {}
        for name, file in files.items():
            if not Path(file).is_file():
                raise OptionError(f"--tokenizer {name}: there is no file {file}")

    def of(self, loaded: Loaded | ServedDecoder) -> Any:
        """The tokenizer of a model: the one that was named, or a file beside the model.

        Raises InputError for a model without one, OptionError for a file that is none, MissingError
        without the package.
        """
        opened = getattr(loaded, "opened", None)
        if opened is not None:
            return opened.require_tokenizer()
        path = self._path(loaded)
        if path is None:
            raise InputError(
                f"model '{loaded.name}' has no tokenizer",
                f"start the server with --tokenizer {loaded.name}=tokenizer.json, or send tokens",
            )
        found = self._known.get(loaded.name)
        if found is None:
            try:
                found = import_module("tokenizers").Tokenizer.from_file(str(path))
            except ModuleNotFoundError as error:
                raise MissingError("texts need the package tokenizers", install("serve")) from error
            except Exception as error:  # the package raises nothing more special
                raise OptionError(f"{path} is no tokenizer: {error}") from None
            found.no_padding()
            found.no_truncation()
            self._known[loaded.name] = found
        return found

    def encode(self, served: ServedDecoder, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of prompts; raises InputError for a text that is none."""
        if served.opened is not None:
            return [served.opened.encode(text) for text in texts]
        for text in texts:
            check_text(text)
        return [each.ids for each in self.of(served).encode_batch(list(texts))]

    def forget(self, name: str) -> None:
        """Drop the cached tokenizer of a model that was loaded again."""
        self._known.pop(name, None)

    def has(self, loaded: Loaded | ServedDecoder) -> bool:
        """Whether a model has a tokenizer."""
        opened = getattr(loaded, "opened", None)
        return self._path(loaded) is not None if opened is None else opened.tokenizer is not None

    def _path(self, loaded: Loaded | ServedDecoder) -> Path | None:
        if loaded.name in self._files:
            return Path(self._files[loaded.name])
        folder, stem = loaded.path.parent, loaded.path.stem
        paths = (folder / f"{stem}.tokenizer.json", folder / "tokenizer.json")
        return next((path for path in paths if path.is_file()), None)


class Embeddings:
    """The embeddings endpoint. Each text is a request of the batcher, so texts of all clients share
    calls without padding."""

    def __init__(self, state: State, tokenizers: Tokenizers) -> None:
        self._state, self._tokenizers = state, tokenizers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        body, requests, state = None, list[Request](), self._state
        try:
            body = Body(state, scope, most=MOST_TEXT)
            text = await body.read(receive)
            is_long = len(text) > LONG_TEXT
            given = await self._answer(parse_object(text), is_long, requests, scope, receive)
            await answer(send, given, scope)
        except Gone:
            pass
        except Exception as error:
            if not isinstance(error, UserError):
                state.log.error("fault", exc_info=error, extra={"facts": {"path": scope["path"]}})
            await answer(send, answer_of_error(error), scope)
        finally:
            if body is not None:
                body.free()
            for request in requests:
                state.batcher.release(request)

    async def _answer(
        self, head: Mapping[str, Any], is_long: bool, requests: list[Request], scope: Scope,
        receive: Receive,
    ) -> Answer:  # fmt: skip
        form = head.get("encoding_format", "float")
        if not isinstance(form, str) or form not in _FLOATS:
            raise InputError(f"encoding_format is {short_json(form)}", "float or base64")
        loaded = self._model(head.get("model"))
        if isinstance(loaded, ServedDecoder):
            return await self._answer_of_decoder(loaded, head, form, scope, receive)
        rows = await run_aside(is_long, partial(self._tokens, loaded, head.get("input")))
        result, is_pooled, width = embedding_of(loaded)
        dimensions = _dimensions(head, loaded.name, width)
        outcome, found = self._state.batcher.outcome, []
        for number, row in enumerate(rows, 1):
            submit = partial(self._submit, loaded, row, result)
            requests.append(await self._state.make_room(submit))
            if number == _OPEN:
                found.append(await wait_for_results(self._state, requests[0], scope, receive))
            elif number > _OPEN:
                found.append(await outcome(requests[len(found)]))
            elif number % _SUBMITTED == 0:
                await asyncio.sleep(0)
        if requests and not found:
            found.append(await wait_for_results(self._state, requests[0], scope, receive))
        found += await asyncio.gather(*map(outcome, requests[len(found) :]))
        vectors = [each[result] if is_pooled else each[result].mean(axis=0) for each in found]
        if dimensions not in (None, width):
            vectors = [unit(each, dimensions) for each in vectors]
        count = sum(map(len, rows))
        parts = partial(_document, loaded.name, count, vectors, form)
        return 200, Parts(None, parts), [JSON]

    async def _answer_of_decoder(
        self, served: ServedDecoder, head: Mapping[str, Any], form: str, scope: Scope,
        receive: Receive,
    ) -> Answer:  # fmt: skip
        """Embeddings of a language model. Texts of all clients share steps."""
        opened = served.opened
        assert opened is not None  # `_model` refuses others
        dimensions = _dimensions(head, served.name, opened.spec.width)
        texts = _texts(head.get("input"))
        rows = await run_aside(True, lambda: [opened.text_tokens(text) for text in texts])
        vectors, is_gone = list[numpy.ndarray](), asyncio.Event()
        forget = watch_disconnect(scope, receive, is_gone.set)
        gone: asyncio.Future[Any] = asyncio.ensure_future(is_gone.wait())
        try:
            for begin in range(0, len(rows), _SUBMITTED):
                found = [served.decoder.embed(row, opened.pooling)
                         for row in rows[begin : begin + _SUBMITTED]]  # fmt: skip
                done: asyncio.Future[list[numpy.ndarray]] = asyncio.gather(
                    *map(asyncio.wrap_future, found)
                )
                try:
                    await asyncio.wait([done, gone], return_when=asyncio.FIRST_COMPLETED)
                    if not done.done():
                        raise Gone
                    vectors += [unit(each, dimensions) for each in done.result()]
                finally:
                    for each in found:
                        each.cancel()
        finally:
            forget()
            gone.cancel()
        parts = partial(_document, served.name, sum(map(len, rows)), vectors, form)
        return 200, Parts(None, parts), [JSON]

    def _model(self, name: Any) -> Loaded | ServedDecoder:
        models = {key: each for key, each in self._state.decoders.items() if each.opened}
        known: Mapping[str, Loaded | ServedDecoder] = self._state.repository.loaded or models
        if name is None and not known:
            raise InputError("the server has no model that gives embeddings",
                             "serve an encoder or a language model")  # fmt: skip
        if name is None and len(known) == 1:
            return next(iter(known.values()))
        if not isinstance(name, str):
            raise InputError(f"'model' is {short_json(name)}, expected a name")
        if name in self._state.decoders:
            if name not in models:
                raise InputError(f"'{name}' is a decoder, and gives no embeddings",
                                 "serve an encoder beside it, and name that")  # fmt: skip
            return models[name]
        return self._state.repository.find(name)

    def _tokens(self, loaded: Loaded, given: Any) -> list[list[int]]:
        """The tokens of each text: given as texts, or as tokens."""
        many = _texts(given)
        if not isinstance(many[0], str):
            return many
        for text in many:
            check_text(text)
        return [each.ids for each in self._tokenizers.of(loaded).encode_batch(many)]

    def _submit(self, loaded: Loaded, row: Sequence[int], result: str) -> Request:
        inputs: dict[str, Any] = {}
        for name in loaded.model.input_names():
            values = row if name in ("input_ids", "tokens", "ids") else [0] * len(row)
            if len(loaded.model.input_names()) == 1:
                values = row
            try:
                inputs[name] = numpy.array(values, dtype_of_input(loaded, name))
            except OverflowError:
                raise InputError("a token is no number of a token") from None
        return self._state.batcher.submit(inputs, loaded.name, outputs=(result,), keep=1)


def dtype_of_input(loaded: Loaded, name: str) -> numpy.dtype:
    """The dtype of an input of rows; raises OptionError for a model that takes no tokens."""
    port: Any = loaded.model.lists.get(name)
    if port is None:
        raise OptionError(f"model '{loaded.name}' has no ragged rows of tokens",
                          "compile it with ragged=\"auto\"")  # fmt: skip
    specs = {spec.name: spec for spec in loaded.model.inputs}
    return specs[port.values].dtype.numpy


def embedding_of(loaded: Loaded) -> tuple[str, bool, int | None]:
    """The result that is the embedding, whether it is one vector for each row, and its width, None
    if it differs.

    That is the first result [rows, width]; without one, the mean of the first result
    [rows, tokens, width]. Raises OptionError for a model with neither.
    """
    lists = loaded.model.lists
    for spec in loaded.model.outputs:
        if spec.key not in lists and spec.rank == 2:
            return spec.key, True, spec.shape[1].constant
    for spec in loaded.model.outputs:
        port: Any = lists.get(spec.key)
        if port is not None and len(port.shape) == 2:
            return spec.key, False, port.shape[1].constant
    raise OptionError(f"model '{loaded.name}' has no result that is an embedding")


def _texts(given: Any) -> list[Any]:
    """The texts of a request, or lists of tokens; raises InputError for others."""
    many = given if isinstance(given, list) and not is_tokens(given) else [given]
    if not many or len(many) > MOST_TEXTS:
        raise InputError(f"'input' has {len(many)} texts, expected 1 to {MOST_TEXTS}")
    if all(isinstance(each, str) for each in many) or all(is_tokens(each) for each in many):
        return many
    raise InputError("'input' is no text, list of texts, list of tokens, or list of these")


def _dimensions(head: Mapping[str, Any], name: str, width: int | None) -> int | None:
    """The elements of each embedding that a request wants, at most those that it has."""
    found = head.get("dimensions")
    if found is not None and (type(found) is not int or not 0 < found <= (width or 0)):
        raise InputError(f"'dimensions' is {short_json(found)}, and embeddings of '{name}' have "
                         f"{width}", "give at most that many, or leave it out")  # fmt: skip
    return found


def is_tokens(given: Any) -> bool:
    """Whether a value is a list of tokens."""
    return isinstance(given, list) and bool(given) and all(type(each) is int for each in given)


def _document(
    model: str, tokens: int, vectors: Sequence[numpy.ndarray], form: str
) -> Iterator[bytes]:
    """The JSON of an answer, in pieces."""
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    yield json_of({"object": "list", "model": model, "usage": usage})[:-1] + b',"data":['
    for number, vector in enumerate(vectors):
        floats = vector.astype("<f4", copy=False)
        yield b'%s{"object":"embedding","index":%d,"embedding":' % (b"," if number else b"", number)
        if form == "base64":
            yield b'"' + base64.b64encode(floats.tobytes()) + b'"}'
        else:
            yield b"[" + b"".join(elements(floats)) + b"]}"
    yield b"]}"


def failure(error: BaseException) -> dict[str, Any]:
    """An error, as clients of `/v1` have it."""
    return error_document(error_text(error), status_of(error))


def error_document(text: str, status: int) -> dict[str, Any]:
    """The text of an error, as clients of `/v1` have it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": text, "type": kind, "code": status, "param": None}}


def answer_of_error(error: BaseException) -> Answer:
    """Return the response for an error."""
    return json_answer(failure(error), status_of(error))
