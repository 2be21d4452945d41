"""`anydim chat`: a conversation with a language model in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib import import_module
from time import perf_counter
from typing import Any

import click

from anydim.base.errors import InputError, UserError
from anydim.base.text import count_of
from anydim.cli.language import language_model_options, open_language_model
from anydim.cli.ranges import FiniteRange
from anydim.cli.report.console import Console
from anydim.runtime.threads import AUTO
from anydim.serving.drafts import MOST_DRAFT, draft_length

_PROMPT, _MORE = "> ", "... "
_HELP = """\
/reset   forget the conversation; the system message stays
/help    show this
/quit    leave; so does Ctrl-D
Ctrl-C   stop the answer
A line that ends with \\ continues in the next one. // at the start of a message is one /."""


@click.command
@click.argument("model", metavar="MODEL")
@click.option("--system", metavar="TEXT", help="A system message, such as how to answer.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N",
              help="Most tokens of an answer. Default: what fits.")  # fmt: skip
@click.option("--temperature", type=FiniteRange(0), default=0.0, show_default=True,
              metavar="T", help="0 chooses the likeliest token; 0.7 varies answers.")  # fmt: skip
@click.option("--top-p", type=FiniteRange(0, 1, min_open=True), default=1.0, metavar="P",
              help="Draw from the fewest tokens whose probabilities sum to this.")  # fmt: skip
@click.option("--top-k", type=click.IntRange(0), default=0, metavar="K",
              help="Draw from this number of likeliest tokens.")  # fmt: skip
@click.option("--repetition-penalty", type=FiniteRange(0, min_open=True), default=1.0,
              metavar="X", help="Above 1, earlier tokens are less likely.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), metavar="N",
              help="Of the draws: the same answers again. Default: a new one.")  # fmt: skip
@language_model_options
@click.option("--speculate", type=click.IntRange(0, MOST_DRAFT), metavar="N",
              help="Most tokens of a draft that a step checks. Answers are the same. Default: 0, "
              "and 4 with --draft.")  # fmt: skip
@click.option(
    "--draft",
    metavar="MODEL",
    help="A smaller language model with the same tokens that writes the drafts.",
)
@click.option("--stats", is_flag=True, help="Print tokens and seconds below each answer.")
@click.option("--quiet", is_flag=True, help="Print the answers only.")
def chat(
    model: str, system: str | None, max_tokens: int | None, temperature: float, top_p: float,
    top_k: int, repetition_penalty: float, seed: int | None, threads: int | None, memory: str,
    context: int | None, quantize: str | None, precision: str | None, speculate: int | None,
    draft: str | None, stats: bool, quiet: bool,
) -> None:  # fmt: skip
    """Chat with a language model: a GGUF file, or a folder of Hugging Face.

    Answers appear as they are generated, and the model sees the whole conversation. When it no
    longer fits into the context, its oldest messages are left out. From a pipe, each line is a
    message, and answers go to the standard output.

    \b
    In the conversation:
      /reset   forget the conversation; the system message stays
      /help    list the commands
      /quit    leave; so does Ctrl-D
      Ctrl-C   stop the answer

    \b
    Examples:
      anydim chat SmolLM2-135M-Instruct.Q4_1.gguf
      anydim chat ./Qwen2.5-0.5B-Instruct --system "Answer in one sentence." \\
        --temperature 0.7 --seed 1
      echo "What is the capital of France?" | anydim chat model.gguf --quiet
    """
    console = Console(quiet)
    length = draft_length(speculate, draft is not None)
    lm = open_language_model(console, model, threads or AUTO, memory, context, quantize, precision)
    options = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "seed": seed,
               "repetition_penalty": repetition_penalty, "speculate": length}  # fmt: skip
    with lm, ExitStack() as stack:
        if draft is not None:
            options["draft"] = stack.enter_context(
                open_language_model(console, draft, threads or AUTO, memory, None, quantize)
            )
        talk = _Conversation(console, lm, system, max_tokens, options, stats)
        talk.check()
        if sys.stdin.isatty():
            console.note("/help lists commands, Ctrl-C stops an answer, Ctrl-D leaves")
        for message in _messages(console):
            if message.startswith("/") and not message.startswith("//"):
                if not talk.command(message):
                    return
            else:
                talk.answer(message[1:] if message.startswith("//") else message)


class _Conversation:
    """The messages so far, and how answers are generated."""

    def __init__(
        self, console: Console, lm: Any, system: str | None, max_tokens: int | None,
        options: dict[str, Any], stats: bool,
    ) -> None:  # fmt: skip
        self._console, self._lm, self._stats = console, lm, stats
        self._options = {**options, "max_tokens": max_tokens}
        self._first = [] if system is None else [{"role": "system", "content": system}]
        self._messages: list[dict[str, str]] = []

    def check(self) -> None:
        """Raise UserError kinds for a model that cannot chat, or a system message that is wrong."""
        self._lm.chat_tokens([*self._first, {"role": "user", "content": "hi"}])

    def command(self, line: str) -> bool:
        """Run a command; return whether the conversation goes on."""
        word = line.split()[0]
        if word in ("/quit", "/exit", "/bye"):
            return False
        if word == "/reset":
            self._messages.clear()
            self._console.note("the conversation is empty")
        elif word == "/help":
            self._console.note(_HELP)
        else:
            self._console.error(f"no such command {word}", _HELP)
        return True

    def answer(self, text: str) -> None:
        """Print the answer to a message. An error is printed, and the message is not kept."""
        self._messages.append({"role": "user", "content": text})
        start, parts = perf_counter(), list[str]()
        try:
            stream = self._begin()
        except UserError as error:
            self._messages.pop()
            self._console.error(error.problem, error.hint)
            return
        ending = ""
        try:
            for part in stream:
                parts.append(part)
                click.echo(part, nl=False)
        except KeyboardInterrupt:
            ending = " (stopped)"
        except UserError as error:
            self._console.error(error.problem, error.hint)
        finally:
            stream.close()
        click.echo()
        if ending:
            self._console.note(ending.strip())
        self._messages.append({"role": "assistant", "content": "".join(parts)})
        if self._stats:
            seconds, count = perf_counter() - start, len(stream.tokens)
            self._console.note(
                f"{count_of(count, 'token')} in {seconds:.1f} s, {count / seconds:.1f} a second"
            )

    def _begin(self) -> Any:
        """Begin the answer, without the oldest messages if all are too long."""
        dropped = 0
        while True:
            try:
                stream = self._lm.chat([*self._first, *self._messages], **self._options)
            except InputError:
                if len(self._messages) < 3:
                    raise
                del self._messages[:2]
                dropped += 2
                continue
            if dropped:
                self._console.note(f"the oldest {dropped} messages no longer fit and are left out")
            return stream


def _messages(console: Console) -> Iterator[str]:
    """The messages of the standard input; without blank ones."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        with suppress(ImportError):  # lines can be edited, and earlier ones come back
            import_module("readline")
    with suppress(AttributeError):  # of a replaced stream
        sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
    held = list[str]()
    while True:
        try:
            line = input((_MORE if held else _PROMPT) if is_terminal else "")
        except EOFError:
            if is_terminal:
                click.echo()
            if held:
                yield "\n".join(held)
            return
        except KeyboardInterrupt:
            if not is_terminal:
                raise
            held.clear()
            click.echo()
            console.note("Ctrl-D or /quit leaves")
            continue
        if line.endswith("\\"):
            held.append(line[:-1])
            continue
        message = "\n".join([*held, line]).strip()
        held.clear()
        if message:
            yield message
