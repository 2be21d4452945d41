"""Language models as MODEL of a command: opening, memory and contents, and what has no meaning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from anydim.base.amounts import bytes_text, exact_bytes_text
from anydim.base.errors import OptionError
from anydim.base.missing_package import missing_module
from anydim.base.text import count_of, table
from anydim.cli.options import Request
from anydim.cli.report.console import Console
from anydim.serving.language_models.paths import GGUF, is_language_model

_COMMANDS = "`anydim chat`, serve, bench --tokens, compile, export, explain, inspect and memory"
_ROWS = (1, 4, 16, 32)


def language_model_options(command: Any) -> Any:
    """Options of how a language model is opened."""
    for option in reversed((
        click.option("--threads", type=click.IntRange(1), metavar="N",
                     help="Threads of a step. Default: the cores."),
        click.option("--memory", default="1GiB", show_default=True, metavar="BYTES",
                     help="Most bytes of caches and of a step, beside the weights."),
        click.option("--context", type=click.IntRange(1), metavar="TOKENS",
                     help="Most tokens of the conversation. Default: what the model declares, at "
                     "most 8192."),
        click.option("--quantize", type=click.Choice(["q8", "q4"]),
                     help="Float weights become codes of 8 or 4 bits."),
        click.option("--precision", metavar="TEXT",
                     help="How products may round: bfloat16 or int8. Default: "
                     "float32."),
    )):  # fmt: skip
        command = option(command)
    return command


def open_language_model(
    console: Console, path: str, threads: int | str, memory: str = "1GiB",
    context: int | None = None, quantize: str | None = None, precision: str | None = None,
) -> Any:  # fmt: skip
    """The language model of a path; raises UserError kinds."""
    with console.task(f"opening {Path(path).name}"):
        return language_module("language_model").language_model(
            path, context=context, quantize=quantize, memory=memory, threads=threads,
            precision=precision,
        )  # fmt: skip


def language_module(name: str) -> Any:
    """A module of language models; MissingError for a package that it needs."""
    try:
        return import_module(f"anydim.serving.language_models.{name}")
    except ModuleNotFoundError as error:
        raise missing_module("a language model", error) from error


def open_requested(console: Console, request: Request) -> Any:
    """The language model of a command; raises OptionError for options that it has no use for."""
    refuse_options(request, "--precision")
    return open_language_model(console, request.model, request.threads, precision=request.precision)


def refuse_language_model(request: Request) -> None:
    """Raises OptionError for a language model, which the command cannot use."""
    if is_language_model(request.model):
        raise OptionError(f"{Path(request.model).name} is a language model, which this command "
                          "does not take", f"use {_COMMANDS}")  # fmt: skip


def refuse_options(request: Request, *known: str, **others: Any) -> None:
    """Raises OptionError for an option that has no meaning for language models.

    `known` are those that the command itself honours, `others` those of the command alone.
    """
    choices = (
        *request.choices, *((f"--{name}", given) for name, given in others.items()),
        ("--strategy", request.strategy), ("--device", request.devices),
        ("--memory-limit", request.memory_limit), ("--level", request.level),
    )  # fmt: skip
    for option, given in choices:
        if given and option not in known:
            name = Path(request.model).name
            raise OptionError(f"{option} has no meaning for a language model, and {name} is one",
                              "leave it out")  # fmt: skip


def memory_report(
    lm: Any, at: Sequence[Mapping[str, int]], limits: Sequence[tuple[str, int]]
) -> tuple[str, str]:
    """Tables: bytes of sequences, and tokens of each within limits.

    Args:
        lm: A `LanguageModel`.
        at: How many sequences, `rows`, of how many `tokens`. Some without any.
        limits: Most bytes of caches and of a step, by their texts.
    """
    context = lm.spec.context
    lengths = sorted({min(256, context), min(1024, context), context})
    points = [_point(sizes, context) for sizes in at] or [
        (rows, tokens) for rows in (1, 16) for tokens in lengths
    ]
    peaks = [_peak(lm, *point) for point in points]
    decoder = import_module("anydim.serving.decoder").Decoder
    fitting = []
    for text, limit in limits:
        room = decoder(lm.model, memory=limit, rows=max(_ROWS))
        fitting.append((text, *(f"{min(room.longest(rows), context) or '-'}" for rows in _ROWS)))
    header = ("tokens of each within", *(count_of(rows, "sequence") for rows in _ROWS))
    return table(("sequences", "tokens", "caches", "step", "both", ""), peaks), table(
        header, fitting
    )


def _point(sizes: Mapping[str, int], context: int) -> tuple[int, int]:
    for name in sizes:
        if name not in ("rows", "tokens"):
            raise OptionError(f"--at {name}: a language model has rows and tokens",
                              "such as --at rows=4,tokens=512")  # fmt: skip
    rows, tokens = sizes.get("rows", 1), sizes.get("tokens", context)
    for name, value, most in (("rows", rows, 1 << 20), ("tokens", tokens, context)):
        if not 1 <= value <= most:
            raise OptionError(f"--at {name}={value}: {name} are 1 to {most}")
    return rows, tokens


def _peak(lm: Any, rows: int, tokens: int) -> tuple[str, ...]:
    known = lm.memory([tokens] * rows)
    both = known["caches"] + known["step"]
    return (str(rows), str(tokens), str(known["caches"]), str(known["step"]), str(both),
            bytes_text(both))  # fmt: skip


def describe_language_model(path: str) -> str:
    """What the files of a language model hold; no weights are read."""
    opened = language_module("sources").open_model(path, None, None)
    spec, layers = opened.spec, opened.spec.layers
    windows = sorted({layer.window for layer in layers if layer.window is not None})
    facts = {
        "layers": f"{len(layers)} of {spec.width}, {spec.heads} heads of {spec.depth}, "
        f"{spec.kept} of keys and values",
        "windows": ", ".join(f"{window:,} tokens" for window in windows),
        "experts": "" if spec.experts is None
        else f"{spec.experts.count}, {spec.experts.used} for each token",
        "tokens": f"{spec.vocabulary:,}, " + _tokenizer(opened),
        "context": f"{spec.context:,} by default",
        "weights": _weights(Path(path)),
        "chat": "no chat template" if opened.template is None else "a chat template"
        + (", which takes tools" if opened.template.takes_tools else ""),
    }  # fmt: skip
    lines = [f"{path}: a language model, {spec.name}"]
    lines += [f"  {name:<9} {value}" for name, value in facts.items() if value]
    return "\n".join(lines)


def _tokenizer(opened: Any) -> str:
    if opened.tokenizer is None:
        return "no tokenizer"
    return f"{type(opened.tokenizer.model).__name__} tokenizer"


def _weights(path: Path) -> str:
    """Bytes of the files; tensors by their formats for a GGUF file."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    total = exact_bytes_text(sum(file.stat().st_size for file in files))
    if path.suffix != GGUF:
        return f"{total} in {count_of(len(files), 'file')}"
    tensors = language_module("gguf_file").read_gguf(path).tensors.values()
    counts = Counter(tensor.format for tensor in tensors)
    return f"{total}; tensors: " + ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
