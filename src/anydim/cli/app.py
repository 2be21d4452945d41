"""The command `anydim`: its help, and how every failure of a command ends.

    0    done
    1    `check` found a difference, or no request of `load` had a result
    2    something the user can mend: the command line, the model, an input
    70   a bug of anydim; a file for the report is written
    130  interrupted

A command's module is imported when the command runs: those that run saved models need no
compiler.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TextIO

import click

import anydim
from anydim.base.errors import OptionError, UserError
from anydim.base.missing_package import missing_module
from anydim.base.reports import internal, report
from anydim.base.text import suggestion
from anydim.cli.report.console import Console

USER_ERROR, BUG, INTERRUPTED = 2, 70, 130
# By name, in the order of the help: the module that has the command, and what it does.
COMMANDS = {
    "compile": (
        "anydim.cli.saving",
        "Compile a model and save it for this processor or for others.",
    ),
    "run": ("anydim.cli.commands", "Run a model on inputs from files, or on random ones."),
    "plan": (
        "anydim.cli.commands",
        "Show what a call at given sizes will do: memory, kernels, work.",
    ),
    "memory": (
        "anydim.cli.memory",
        "Show memory as a formula, its bound, and the largest sizes that fit.",
    ),
    "explain": (
        "anydim.cli.commands",
        "Summarize how a model was compiled: fusion, kernels, warnings.",
    ),
    "profile": ("anydim.cli.profiling", "Time each kernel launch of a call."),
    "trace": ("anydim.cli.tracing", "Record a timeline of launches, copies and waits."),
    "sizes": ("anydim.cli.sizes", "Show the sizes that model.record wrote: counts and time."),
    "tune": (
        "anydim.cli.tuning",
        "Search for faster code at recorded sizes; later processes use it.",
    ),
    "precision": (
        "anydim.cli.precision",
        "Measure errors and times of a model in each precision.",
    ),
    "calibrate": (
        "anydim.cli.calibrating",
        "Measure limits between versions of kernels on this machine.",
    ),
    "inspect": (
        "anydim.cli.inspecting",
        "Show what a saved model or an ONNX file holds; compiles nothing.",
    ),
    "devices": ("anydim.cli.devices", "List the devices and engines of this machine."),
    "cache": ("anydim.cli.caching", "Show, check or prune the cache on disk."),
    "export": ("anydim.cli.exporting", "Write a model as C for programs without Python."),
    "bench": ("anydim.cli.bench", "Time a model against other engines."),
    "check": ("anydim.cli.developing", "Compare results with a reference at many sizes."),
    "show": ("anydim.cli.developing", "Print the program after a stage of the compiler."),
    "chat": ("anydim.cli.chatting", "Chat with a language model in the terminal."),
    "serve": ("anydim.cli.serving", "Serve models over REST and gRPC."),
    "load": ("anydim.cli.serving", "Send requests to a server at a rate, and print latencies."),
}
# `anydim profile merge` is a command of its own
_MODULES = {**{name: module for name, (module, _) in COMMANDS.items()}, "merge": "anydim.cli.sizes"}


def _is_recording(word: str) -> bool:
    """Whether `anydim profile` is request about files of model.record rather than a model."""
    return word == "merge" or word.endswith(".jsonl")


class Application(click.Group):
    """A group of commands that ends with a text and an exit code, never with a traceback."""

    def list_commands(self, context: click.Context) -> list[str]:
        """The commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """A command by its name; None where there is none."""
        if name not in _MODULES:
            return None
        try:
            command: click.Command = getattr(import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:
            raise missing_module(f"anydim {name}", error) from error
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, none of which is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in COMMANDS.items()])

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names; one that is close to it is suggested."""
        if args[0] == "profile" and any(map(_is_recording, args[1:])):
            merge = args[1] == "merge"
            args = ["merge", *args[2:]] if merge else ["sizes", *args[1:]]
        near = suggestion(args[0], COMMANDS) if args[0] not in _MODULES else ""
        if near:
            hint = f"{near} see {context.command_path} --help"
            raise OptionError(f"no such command '{args[0]}'", hint)
        return super().resolve_command(context, args)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the command line and exit; without arguments it prints the help."""
        options["standalone_mode"] = False
        words = list(sys.argv[1:] if args is None else args)
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warn
                code = super().main(words or ["--help"], *rest, **options)
        except UserError as error:
            code = _fail(error.problem, error.hint)
        except click.ClickException as error:
            code = _fail(_sentence(error.format_message()), _usage_hint(error))
        except click.Abort:
            code = _fail("interrupted", code=INTERRUPTED)
        except ModuleNotFoundError as error:
            found = missing_module(f"anydim {' '.join(words[:1])}", error)
            if isinstance(found, UserError):
                code = _fail(found.problem, found.hint)
            else:
                code = _bug(error, words)
        except Exception as error:
            interrupted = isinstance(error.__cause__, KeyboardInterrupt)  # Python 3.11 wraps some
            code = _fail("interrupted", code=INTERRUPTED) if interrupted else _bug(error, words)
        sys.exit(code if isinstance(code, int) else 0)


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: TextIO | None = None, line: str | None = None,
) -> None:  # fmt: skip
    click.echo(f"warning: {message}", err=True)


def _fail(problem: str, hint: str = "", code: int = USER_ERROR) -> int:
    Console().error(problem, hint)
    return code


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text[:1].lower() + text[1:]


def _usage_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    kind = getattr(getattr(error, "param", None), "type", None)
    given = error.message.split("'")[1:2]  # "'fues' is not one of 'fuse', 'views'"
    near = suggestion(given[0], kind.choices) if isinstance(kind, click.Choice) and given else ""
    return f"{near} see {context.command_path} --help".strip()


def _bug(error: Exception, arguments: list[str]) -> int:
    details = report(error, f"anydim {shlex.join(arguments)}")
    problem = f"a bug of anydim: {internal(error).problem}".split("\n")[0]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="anydim-report-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(details)
    except OSError:
        return _fail(problem, f"please report it with these details:\n{details}", BUG)
    return _fail(problem, f"please report it with the details in {file.name}", BUG)


@click.group(
    cls=Application,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)
@click.version_option(anydim.__version__, prog_name="anydim", message="%(prog)s %(version)s")
def main() -> None:
    """Compile a tensor program once, run it at any size.

    Most commands compile MODEL for the sizes that --dim allows, then do one thing with it. MODEL is
    an ONNX file, a program that torch.export.save wrote (.pt2), or a definition in a text file of
    the comprehension language: kernels.tc:norm. The cache folder of the user keeps compiled code.
    `anydim compile` saves a compiled model to a file: run, plan, memory, explain, profile, trace,
    bench, serve and inspect accept it as MODEL and then need no compiler.

    \b
    Examples:
      anydim run encoder.onnx --dim batch=0..64 --dim seq=1..512 --input ids.npz
      anydim plan encoder.onnx --dim seq=1..512 --at batch=8,seq=77
      anydim memory encoder.onnx --dim batch=0..64 --dim seq=1..512
      anydim check encoder.onnx --dim batch=0..8 --dim seq=1..64 --samples 50
      anydim bench encoder.onnx --at batch=1,seq=22 --against onnxruntime
      anydim compile encoder.onnx -o encoder.anydim --dim batch=0..64 --dim seq=1..512
      anydim run encoder.anydim --input ids.npz
      anydim export encoder.onnx -o encoder/ --dim batch=0..64 --dim seq=1..512

    \b
    A definition, with kernels.tc holding
      def norm(T(...b,C) x; float eps = 1e-5) -> (y) {
        square(...b) +=! x(...b,c) * x(...b,c)
        y(...b,c) = x(...b,c) * rsqrt(square(...b) / T(C) + eps)
      }
    works with the same commands. Each size variable (C) and each axis of an ellipsis
    (b.1, b.2, ... from the right) is a dim:
      anydim run kernels.tc:norm --input x=x.npy --output out.npz
      anydim run kernels.tc:norm --at b.1=4,C=100 --attribute eps=1e-3
      anydim check kernels.tc:norm --type T=float64 --attribute b=2 --dim C=0..40
      anydim explain kernels.tc:norm
    """
