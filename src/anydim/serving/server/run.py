"""A server from its start to its end: models are loaded, ports are bound, signals stop it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from anydim.base.errors import ModelError, OptionError, UserError
from anydim.base.missing_package import missing_module
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.deploy.container import is_saved
from anydim.deploy.load import load
from anydim.runtime.executable import AbsentProgram
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.threads import AUTO
from anydim.serving import AsyncBatcher, AsyncDecoder
from anydim.serving.batcher import form_of
from anydim.serving.drafts import check_draft
from anydim.serving.process_memory import (
    bound_the_allocator,
    resident_bytes,
    return_free_memory,
    room_within,
)
from anydim.serving.server.app import application
from anydim.serving.server.clients import ACCEPTED, Clients, Limits, raised_descriptors
from anydim.serving.server.connections import BoundedProtocol
from anydim.serving.server.decoders import DraftModel, ServedDecoder, divide, warm_up
from anydim.serving.server.embeddings import Tokenizers
from anydim.serving.server.history import History
from anydim.serving.server.repository import SAVED, Repository, check_name, unknown
from anydim.serving.server.state import State, error_text, start_log

if TYPE_CHECKING:
    from anydim.serving.language_models.opened import OpenedModel

CACHE_MEMORY = 256 << 20  # bytes of the caches and steps of a decoder of an ONNX file
CACHE_SHARE = 0.75  # of the memory for requests, for caches and steps of language models
BODY_SHARE = 8  # a body takes at most this part of the memory for requests
STOP_SECONDS = 30  # for requests to end after a signal
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # of an address that no interface has
_BACKLOG = 2048  # connections that the system keeps until they are accepted
_SWITCH = 5e-4  # seconds until a thread that waits for the interpreter gets it


@dataclass(frozen=True)
class Settings:
    """The arguments of `anydim serve`.

    `memory` is the limit of the process in bytes; `grpc_port` None means no gRPC. `batch` are, by
    model, the dims along which requests of equal shapes share calls. `dims` are those of models
    that are compiled. `decoders` are their files by name, each with `cache_memory` bytes of caches;
    None: language models share what is free, and other decoders have `CACHE_MEMORY`. `context`,
    `quantize`, `precision`, `speculate`, `cache` and `draft`, the path of a draft model, are of
    language models, which are among the `models`.
    """

    models: Sequence[str]
    memory: int
    threads: int | None
    host: str
    port: int
    grpc_port: int | None
    queue: int
    calls: int
    tokenizers: Mapping[str, str]
    batch: Mapping[str, str]
    decoders: Mapping[str, str]
    cache_memory: int | None
    dims: Mapping[str, Any]
    quiet: bool
    context: int | None = None
    quantize: str | None = None
    precision: str | None = None
    speculate: int = 0
    cache: str | None = None
    draft: str | None = None


def serve(settings: Settings) -> None:
    """Serve until a signal. Raises UserError kinds for models that cannot be loaded."""
    sys.setswitchinterval(_SWITCH)
    bound_the_allocator()
    asyncio.run(_Served(settings).run())


class _Served:
    """A server with its parts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._log = start_log(settings.quiet)
        self._batcher = AsyncBatcher(
            {}, memory=settings.memory, calls=settings.calls, queue=settings.queue
        )
        self._language_models, others = divide(settings.models)
        self._repository = Repository(others, self._open, self._add, self._remove)
        self._tokenizers = Tokenizers(settings.tokenizers)
        self._files: dict[str, int] = {}  # bytes of models, by name
        self._tasks: list[asyncio.Task[None]] = []  # beside requests
        self._others = 0  # bytes of the process without models, once it serves
        self._limits = Limits.of(settings.memory, settings.queue, raised_descriptors())

    async def run(self) -> None:
        """Load models, serve, and drain."""
        settings = self._settings
        self._check_options()
        bound = _bind_sockets(settings.host, settings.port)
        self._load_all()
        opened = [self._language_model(*each) for each in self._language_models.items()]
        draft = self._draft(opened)
        opened += [self._decoder(name, path) for name, path in settings.decoders.items()]
        if settings.grpc_port is not None:
            import_module("anydim.serving.server.rpc")  # its memory counts
        return_free_memory()
        room, decoders = self._room(opened, draft)
        gc.collect()
        gc.freeze()  # what is there stays, and is not looked through again
        clients = Clients(self._limits.http, self._limits.bytes)
        state = State(self._batcher, self._repository, room // BODY_SHARE, clients)
        state.decoders.update(decoders)
        history = History(state, settings.memory)
        app = application(state, self._tokenizers, history)
        server = _Server(app, settings, state)
        self._tasks.append(asyncio.create_task(history.run()))
        server.rpc = await self._start_rpc(state)
        try:
            await server.serve(bound)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.stop_rpc()
            left = server.seconds_left()
            await self._batcher.close(left > 0, left)
            for each in decoders.values():
                await each.decoder.close()
            self._log.info("stopped")

    def _check_options(self) -> None:
        """Raise OptionError for options that would be ignored: of models that are not there, or of
        dims where nothing is compiled. Models that are added to a folder may be loaded later."""
        settings, sources = self._settings, self._repository.sources()
        for name in (*settings.decoders, *self._language_models):
            check_name(name)
            if name in sources or (name in settings.decoders and name in self._language_models):
                raise OptionError(f"a model and a decoder are called '{name}'",
                                  "name one of them otherwise: NAME=PATH")  # fmt: skip
        served = {**sources, **settings.decoders, **self._language_models}
        for option, named, known in (
            ("--batch", settings.batch, sources), ("--tokenizer", settings.tokenizers, served),
        ):  # fmt: skip
            for name in named:
                if name not in known:
                    self._raise_or_log(option, unknown(name, known))
        paths = [str(source.versions[source.newest]) for source in sources.values()]
        if settings.dims and not settings.decoders and all(map(_is_saved, paths)):
            problem = "all models are saved, and it is for ONNX files"
            self._raise_or_log("--dim", OptionError(problem, "compile them with these bounds"))

    def _raise_or_log(self, option: str, error: OptionError) -> None:
        """Raise an error of an option, or log it where it may be right later."""
        if not any(Path(word).is_dir() for word in self._settings.models):
            raise OptionError(f"{option}: {error.problem}", error.hint)
        facts = {"option": option, "reason": error.problem}
        self._log.warning("ignored", extra={"facts": facts})

    def _load_all(self) -> None:
        """Load all models. One of a folder that cannot be loaded is logged, and others are served;
        raises its error if there is no other, or if it was named."""
        failure: Exception | None = None
        for name, source in self._repository.sources().items():
            try:
                self._repository.load(name)
            except (UserError, OSError) as error:
                if not source.in_folder:
                    raise
                failure = error
                reason = error_text(error) if isinstance(error, UserError) else str(error)
                facts = {"model": name, "reason": reason}
                self._log.error("not loaded", extra={"facts": facts})
            else:
                self._log.info("loaded", extra={"facts": {"model": name}})
        if failure is not None and not self._repository.loaded:
            raise failure

    async def _start_rpc(self, state: State) -> Any:
        settings = self._settings
        if settings.grpc_port is None:
            return None
        made = import_module("anydim.serving.server.rpc")
        try:
            rpc, port, connections = await made.start(
                state, _address(settings.host, settings.grpc_port), self._limits.rpc
            )
        except RuntimeError as error:
            raise OptionError(f"port {settings.grpc_port} cannot be bound: {error}",
                              "give another --grpc-port, or --no-grpc") from None  # fmt: skip
        self._tasks.append(asyncio.create_task(connections.run()))
        self._log.info("grpc", extra={"facts": {"address": _address(settings.host, port)}})
        return rpc

    def _room(
        self, opened: Sequence[_Opened], draft: DraftModel | None
    ) -> tuple[int, dict[str, ServedDecoder]]:
        """Divide what the process has not taken yet among requests and decoders; raises
        MemoryLimitError if that is nothing."""
        settings = self._settings
        limit, wanted = settings.memory, settings.cache_memory
        fixed = [CACHE_MEMORY if wanted is None else wanted for each in opened
                 if wanted is not None or each.opened is None]  # fmt: skip
        caches = sum(fixed)
        room = room_within(limit - caches, "--memory without caches of decoders:" if caches
                           else "--memory")  # fmt: skip
        others = len(opened) - len(fixed)
        share = int(room * CACHE_SHARE) // others if others else 0
        decoders = {}
        for each in opened:
            memory = fixed[0] if others == 0 or each.opened is None else share
            drafts = 0
            if draft is not None and each.opened is not None:
                drafts = draft.share(each.rows, memory)
            decoder = AsyncDecoder(each.rows, memory=memory - drafts, queue=settings.queue)
            decoders[each.name] = made = ServedDecoder(
                each.name, each.path, decoder, each.opened, settings.speculate,
                draft if drafts else None,
            )  # fmt: skip
            facts = {"decoder": each.name, "caches": memory, "tokens": made.longest()}
            if drafts:
                facts["drafts"] = drafts
            self._log.info("loaded", extra={"facts": facts})
        room -= share * others
        self._batcher.engine.budget.limit = room
        self._others = limit - room - sum(self._files.values())
        self._log.info("memory", extra={"facts": {"limit": limit, "models": resident_bytes(),
                                                  "requests": room}})  # fmt: skip
        return room, decoders

    def _decoder(self, name: str, path: str) -> _Opened:
        """A decoder of an ONNX file, after a step as long as steps are."""
        try:
            cached: Any = import_module("anydim.api.cached_model").cached
        except ModuleNotFoundError as error:
            raise missing_module("a decoder", error) from error
        made = cached(path, dims=dict(self._settings.dims) or None, ragged="auto",
                      threads=self._threads())  # fmt: skip
        return _warm(name, path, made, None)

    def _language_model(self, name: str, path: str) -> _Opened:
        """A language model, after a step as long as steps are."""
        settings = self._settings
        tokenizer = settings.tokenizers.get(name)
        return _warm(name, path, *self._opened_rows(path, settings.context, tokenizer))

    def _opened_rows(
        self, path: str, context: int | None, tokenizer: str | None
    ) -> tuple[Any, OpenedModel]:
        """The compiled rows of a language model, and its parts."""
        try:
            sources: Any = import_module("anydim.serving.language_models.sources")
        except ModuleNotFoundError as error:
            raise missing_module("a language model", error) from error
        settings = self._settings
        opened, rows = sources.open_decoder(
            path, context, settings.quantize, tokenizer, settings.cache, self._threads(),
            settings.precision,
        )  # fmt: skip
        return rows, opened

    def _draft(self, opened: Sequence[_Opened]) -> DraftModel | None:
        """The draft model; raises OptionError for one of other tokens, or without one language
        model that it writes for."""
        path = self._settings.draft
        if path is None:
            return None
        if len(opened) != 1:
            raise OptionError(f"--draft {path}: {count_of(len(opened), 'language model')} "
                              "are served, expected one")  # fmt: skip
        rows, parts = self._opened_rows(path, None, None)
        check_draft(parts.spec.vocabulary, opened[0].opened.spec.vocabulary)
        return DraftModel(_warm("", path, rows, parts).rows, parts)

    def _threads(self) -> int | str:
        return AUTO if self._settings.threads is None else self._settings.threads

    # ---- models ----------------------------------------------------------------------------------

    def _open(self, path: str) -> CallableProgram:
        """A model of a file, if there is memory for it beside those that are served."""
        size = os.path.getsize(path)
        if not self._others:
            return self._read(path)
        self._batcher.engine.hold(size, f"the model of {size} bytes")
        try:
            return self._read(path)
        finally:
            self._batcher.engine.unhold(size)

    def _read(self, path: str) -> CallableProgram:
        """A model of a file; ONNX files are compiled, with ragged dims where they have any."""
        if _is_saved(path):
            threads = self._settings.threads or "auto"
            return load(path, copy=True, verify="checksums", threads=threads)
        try:
            compile: Any = import_module("anydim.api.entry").compile
        except ModuleNotFoundError as error:
            raise missing_module(f"{path}, which is no saved model,", error) from error
        settings = self._settings
        how: dict[str, Any] = {"threads": self._threads()}
        try:
            made: CallableProgram = compile(path, dict(settings.dims) or None, ragged="auto", **how)
        except (ModelError, OptionError) as error:
            made = compile(path, dict(settings.dims) or None, **how)
            self._log.info("rows share no calls", extra={"facts": {
                "file": path, "reason": error.problem,
            }})  # fmt: skip
        return made

    def _add(self, name: str, model: CallableProgram) -> None:
        engine = self._batcher.engine
        _rename(model, name)
        form = form_of(model, self._settings.batch.get(name), name)
        before = engine.add(name, form)
        if before is not None:
            engine.wait_drained(before, STOP_SECONDS)
        self._tokenizers.forget(name)
        self._files[name] = form.constant_bytes
        self._share()

    def _remove(self, name: str) -> None:
        self._batcher.remove(name, STOP_SECONDS)
        self._files.pop(name, None)
        self._share()

    def _share(self) -> None:
        """Give requests what models leave of the limit."""
        if self._others:
            room = self._settings.memory - self._others - sum(self._files.values())
            self._batcher.engine.budget.limit = max(0, room)


@dataclass(frozen=True)
class _Opened:
    """A decoder that is ready, before it has its share of the memory."""

    name: str
    path: Path
    rows: Any
    opened: Any = None


def _warm(name: str, path: str, rows: Any, opened: Any) -> _Opened:
    warm_up(rows)
    rows.model.trim()  # memory of steps is a part of that of the decoder
    return _Opened(name, Path(path), rows, opened)


def _rename(model: CallableProgram, name: str) -> None:
    """Have errors of calls name a model of this server as it is served."""
    program = model.executable
    if not isinstance(program, AbsentProgram):  # all of it is on strings
        program.signature = replace(program.signature, name=name)


def _is_saved(path: str) -> bool:
    return is_saved(path) or path.endswith(SAVED)


def _bind_sockets(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of a host that this machine has, all with one port. None listens
    yet. Raises OptionError for a host without an address, or an address that cannot be bound."""
    made: list[socket.socket] = []
    missing: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        for family, _, _, _, (address, _, *scope) in dict.fromkeys(found):
            chosen = made[0].getsockname()[1] if made else port
            try:
                made.append(_socket(family, (address, chosen, *scope)))
            except OSError as error:
                if error.errno not in _NO_ADDRESS:
                    raise
                missing = error
        if missing is not None and not made:
            raise missing
    except (OSError, UnicodeError) as error:
        for each in made:
            each.close()
        raise _unbound(host, port, error) from None
    return made


def _socket(family: int, address: tuple[Any, ...]) -> socket.socket:
    """A socket that is bound to an address; asyncio sets TCP_NODELAY for this protocol."""
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


def _unbound(host: str, port: int, error: OSError | UnicodeError) -> OptionError:
    """The error for an address that cannot be bound."""
    reason = getattr(error, "strerror", None) or str(error)
    return OptionError(f"{host}, port {port} cannot be bound: {reason}",
                       "give another --host or --port")  # fmt: skip


def _address(host: str, port: int) -> str:
    """A host with its port; addresses of IPv6 stand in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn's server beside one of gRPC: it tells when it is ready, and once a signal came, both
    end within `STOP_SECONDS`."""

    rpc: Any = None  # the server of gRPC
    _end: float | None = None  # of the loop's time, for requests that are there

    def __init__(self, app: Any, settings: Settings, state: State) -> None:
        super().__init__(uvicorn.Config(
            app, host=settings.host, port=settings.port, http=BoundedProtocol, ws="none",
            lifespan="off", log_config=None, access_log=False, server_header=False,
            date_header=False, timeout_keep_alive=75, timeout_graceful_shutdown=STOP_SECONDS,
            backlog=ACCEPTED,
        ))  # fmt: skip
        vars(self.server_state)["clients"] = state.clients
        self._state = state
        state.tasks = self.server_state.tasks

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and log the addresses; raises OptionError if another process listens there."""
        try:
            await super().startup(sockets)
        except OSError as error:
            raise _unbound(self.config.host, self.config.port, error) from None
        for each in sockets or ():
            each.listen(_BACKLOG)  # asyncio accepts `ACCEPTED` of them at once
        for each in getattr(self, "servers", ()):
            for bound in each.sockets:
                host, port = bound.getsockname()[:2]
                facts = {"url": f"http://{_address(host, port)}/"}
                self._state.log.info("ready", extra={"facts": facts})

    async def shutdown(self, sockets: Any = None) -> None:
        """End both servers after the requests that are there."""
        await asyncio.gather(super().shutdown(sockets), self.stop_rpc())

    async def stop_rpc(self) -> None:
        """End the server of gRPC."""
        if self.rpc is not None:
            await self.rpc.stop(self.seconds_left())

    def seconds_left(self) -> float:
        """For requests that are there."""
        return max(0.0, (self._end or 0.0) - asyncio.get_running_loop().time())

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop after the requests that are there; a second signal ends them."""
        loop = asyncio.get_running_loop()
        # what a caller ignores, as nohup does for SIGHUP, stays ignored
        handled = [n for n in _STOPS if signal.getsignal(n) is not signal.SIG_IGN]
        for number in handled:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        self._state.log.info("stopping", extra={"facts": {"signal": number}})
        is_first = self._end is None
        self._end = asyncio.get_running_loop().time() + (STOP_SECONDS if is_first else 0.0)
        self._state.stopping.set()
        self.should_exit = True
        if not is_first:
            self.force_exit = True
            self._forced = asyncio.ensure_future(self.stop_rpc())
