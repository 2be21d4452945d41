"""Files of language models that are damaged, or lie: `python -m tests.fuzz.language_model_files`.

Folders of Hugging Face, GGUF files and saved language models are changed: bytes, fields of JSON and
of headers, tensors, whole files, chat templates. Each is opened, its weights are read, a text is
encoded and a message is rendered, in a process of limited memory and time (`limited.py`). Laws:

- only UserErrors come out;
- a value of another type is refused, or changes nothing;
- a saved model is refused, or has the same tokens.

Some of those that are other models are compiled and asked for tokens.
"""

from __future__ import annotations

import json
import os
import random
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any

import click
import gguf
import numpy
from safetensors.numpy import load_file, save_file

import anydim as ad
from anydim.base import settings
from anydim.serving.language_models.matrices import Blocks
from anydim.serving.language_models.opened import OpenedModel
from anydim.serving.language_models.opening import open_files
from anydim.serving.language_models.sources import open_decoder
from tests.fuzz import limited
from tests.unit.deploy.hostile import DAMAGE, lie
from tests.unit.serving.language_models.test_experts import folder_of, sparse_weights
from tests.unit.serving.language_models.test_packed_weights import CASES, packed
from tests.unit.serving.language_models.tiny_models import (
    TEMPLATE,
    tokenizer,
    weights,
    write_folder,
    write_gguf,
)

SECONDS = 60  # of processor time, with a compile
_COMPILED = 0.06  # the share of other models that are compiled
_TEXT, _MESSAGES = "the quick brown fox 01", [{"role": "user", "content": "a model of words"}]
_NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 63, 65, 2**31 - 1, 2**31, 2**40, 2**63, -(2**63), 10**30, 0.0, 0.5, -0.5, 1e30,
    1e-30, 1e400, float("nan"),
)  # fmt: skip
_OTHERS: tuple[Any, ...] = (
    "", "x", "8", "full_attention", "é\u202e", "x" * 5000, [], {}, [None], [1, "a"], [[1]],
    {"a": {}}, True, False, {"rope_type": "yarn"}, {"rope_type": "llama3", "factor": "8"},
    {"type": "longrope", "long_factor": [1, "x"], "short_factor": 3},
)  # fmt: skip
TEMPLATES = (
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10**10 }}", "{{ 10**10**10 }}", "{% set n = 10**9 %}{{ 'a' * n }}",
    "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
    "{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
    "{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
    "{% endfor %}{{ ns.s }}",
    "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ '%9999999999d' % 1 }}",
    "{{ '{:>9999999999}'.format(1) }}", "{{ 'a'.center(10**10) }}", "{{ 'a'|center(10**10) }}",
    "{{ 'a'.ljust(messages|length * 10**10) }}", "{{ ('a' * 9999).replace('a', 'b' * 999999) }}",
    "{{ messages|tojson(indent=10**9) }}", "{{ [0] * 10**10 }}", "{{ lipsum(10**9) }}",
    "{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ cycler.__init__.__globals__ }}",
    "{% include 'x' %}", "{% extends '/etc/passwd' %}", "{{ raise_exception(1) }}", "{{ 1 / 0 }}",
    "{{ raise_exception }}", "{{ strftime_now('%Y' * 10**8) }}", "{{ strftime_now(1) }}", "{% if",
    "(" * 3000, "{{" + "(" * 500 + "1" + ")" * 500 + "}}", "{% if 1 %}" * 300 + "{% endif %}" * 300,
    "{{ messages[99].role }}", "{{ nothing.more }}", "{{ '\ud800' }}", "{{ '\\ud800' }}", "{{ 5 }}",
    "{{ (range(99999)|map('string')|join)|map('center', 99999)|join }}",
    "{% for x in 'a' * 9999 recursive %}{{ loop('a' * 9999) }}{% endfor %}",
    "{% set x %}{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}{% endset %}{{ x }}",
    "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}", "{{ ('a' * 99999)|urlize }}",
    "{{ ['a' * 999999] * 99999 | join }}", "{{ (['a' * 999999] * 99999)|join }}",
    "{% for i in range(99999) %}{{ ('b' * 999999).index('a', 0) }}{% endfor %}",
)  # fmt: skip
"""Chat templates that loop, allocate, reach out of the sandbox, or are none."""
Change = Callable[[random.Random, Path], bool]
"""Changes the files at a path; whether only an equal model or a refusal may come of it."""


# ---- models ------------------------------------------------------------------------------------


@cache
def bases(folder: Path) -> dict[str, Path]:
    """Good models by name."""
    size = tokenizer().get_vocab_size()
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}  # fmt: skip
    made = {
        "llama": write_folder(folder / "llama", rope_scaling=rope),
        "mistral": write_folder(folder / "mistral", model_type="mistral", sliding_window=7,
                                layer_types=["sliding_attention", "full_attention"],
                                rope_parameters={"rope_type": "yarn", "rope_theta": 1e4,
                                                 "factor": 4.0}),
        "experts": folder_of(folder / "experts", "qwen2_moe", sparse_weights("qwen2_moe")),
        "gptq": write_folder(folder / "gptq", _packed(size),
                             quantization_config=CASES["gptq, in another order"]),
        "gguf": write_gguf(folder / "f32.gguf", more=_more),
        "gguf q4": write_gguf(folder / "q4.gguf", "Q4_1"),
    }  # fmt: skip
    more = {"eos_token_id": [0, 3]}
    (made["llama"] / "generation_config.json").write_text(json.dumps(more), "utf-8")
    (made["llama"] / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    with ad.language_model(made["llama"], threads=1) as lm:
        lm.save(folder / "saved.anydim")
    return made | {"saved": folder / "saved.anydim"}


def _packed(size: int) -> dict[str, numpy.ndarray]:
    tensors = weights(size)
    for name in sorted(name for name in tensors if "proj" in name):
        outputs, inputs = tensors.pop(name).shape
        case = CASES["gptq, in another order"]
        tensors |= packed(name.removesuffix(".weight"), inputs, outputs, case, 1)[0]
    return tensors


def _more(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(2.0)
    writer.add_rope_scaling_orig_ctx_len(64)
    writer.add_rope_dimension_count(16)
    writer.add_bos_token_id(2)
    writer.add_add_bos_token(True)


# ---- changes of JSON ---------------------------------------------------------------------------


def _other_value(chance: random.Random, path: Path) -> bool:
    """A value of JSON is another."""
    found = json.loads(path.read_bytes())
    inner: Any = found
    for _ in range(9):
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if not keys:
            break
        key = chance.choice(keys)
        if isinstance(inner[key], (dict, list)) and inner[key] and chance.random() < 0.7:
            inner = inner[key]
            continue
        if chance.random() < 0.1:
            del inner[key]
            path.write_text(json.dumps(found), "utf-8")
            return False
        old, inner[key] = inner[key], chance.choice(_NUMBERS + _OTHERS)
        path.write_text(json.dumps(found), "utf-8")
        return path.name == "config.json" and _is_other_kind(old, inner[key])
    return False


def _is_other_kind(old: Any, new: Any) -> bool:
    kinds = [
        bool if isinstance(each, bool) else float if isinstance(each, (int, float)) else type(each)
        for each in (old, new)
    ]
    return kinds[0] is not kinds[1]


def _new_field(chance: random.Random, path: Path) -> bool:
    """A field that files may have is there, of any value."""
    found = json.loads(path.read_bytes())
    if isinstance(found, dict):
        found[chance.choice(_FIELDS)] = chance.choice(_NUMBERS + _OTHERS)
        path.write_text(json.dumps(found), "utf-8")
    return False


_FIELDS = (
    "head_dim", "sliding_window", "use_sliding_window", "layer_types", "rope_scaling",
    "rope_parameters", "partial_rotary_factor", "max_window_layers", "text_config",
    "quantization_config", "original_max_position_embeddings", "decoder_sparse_step",
    "mlp_only_layers", "norm_topk_prob", "num_experts", "eos_token_id", "chat_template",
    "eos_token", "attn_logit_softcapping", "final_logit_softcapping", "truncation", "padding",
)  # fmt: skip


def _no_json(chance: random.Random, path: Path) -> bool:
    """A text that is no JSON, or hard to read."""
    text = path.read_text("utf-8")
    deep = chance.choice(("[", '{"a":')) * chance.choice((900, 200_000))
    path.write_bytes(chance.choice((
        deep.encode(), b"", b"null", b"[]", b"1", b'"x"', b"\xff\xfe" + text.encode("utf-16"),
        b"\xef\xbb\xbf" + text.encode(), text.encode()[: len(text) // 2], b"1" * 10_000,
        text.replace(":", ": " + deep, 1).encode(), text.replace("1", "NaN", 1).encode(),
        text.replace('"', '"\\ud800', 1).encode(), text.encode() + b"x",
        (text.rstrip()[:-1] + ', "model_type": "gpt2"}').encode(),
    )))  # fmt: skip
    return False


def _template(chance: random.Random, path: Path) -> bool:
    """A chat template that is no usual one."""
    text = chance.choice(TEMPLATES)
    (path.parent / "chat_template.jinja").write_text(text, "utf-8", "surrogatepass")
    return False


# ---- changes of files --------------------------------------------------------------------------


def _damage(chance: random.Random, path: Path) -> bool:
    data = path.read_bytes()
    path.write_bytes(chance.choice(DAMAGE)(chance, bytearray(data), [data]) if data else b"x")
    return False


def _no_file(chance: random.Random, path: Path) -> bool:
    """A file is missing, or something else."""
    kind, elsewhere = chance.randrange(7), path.parent.parent / f"elsewhere{path.suffix}"
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    if kind == 1:
        path.mkdir()
    elif kind == 2:
        os.mkfifo(path)
    elif kind == 3:
        path.symlink_to("/dev/zero")
    elif kind == 4:
        path.symlink_to(path.name)
    elif kind == 5:
        path.touch()
    elif kind == 6:
        path.symlink_to(elsewhere)
    return False


def _tensors(chance: random.Random, path: Path) -> bool:
    """A tensor of safetensors has another type, shape or name, or another file has it, too."""
    tensors = load_file(path)
    name = chance.choice(sorted(tensors))
    array, must_match = tensors[name], False
    match chance.randrange(8):
        case 0:
            tensors[name] = array.astype(chance.choice(("i4", "f2", "f8", "u1", "?", "i8")))
        case 1:
            tensors[name] = numpy.ascontiguousarray(array.T)
        case 2:
            tensors[name] = array.reshape(-1)
        case 3:
            tensors[name + chance.choice(("x", ".x", "."))] = tensors.pop(name)
        case 4:
            tensors[chance.choice(_NAMES)] = array
        case 5:
            del tensors[name]
        case 6:
            tensors[name] = array[:0]
        case _:
            save_file(
                {name: array * 0}, path.parent / chance.choice(("a.safetensors", "z.safetensors"))
            )
            must_match = True
    save_file(tensors, path)
    return must_match


_NAMES = ("x", "lm_head.weight", "model.layers.0.self_attn.q_proj.bias", "model.norm.bias",
          "lm_head.bias", "model.layers.7.mlp.up_proj.weight", "rope_freqs.weight")  # fmt: skip


def _header(chance: random.Random, path: Path) -> bool:
    """The header of safetensors says something else."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = path.with_suffix(".json")
    head.write_bytes(data[8 : 8 + size])
    chance.choice((_other_value, _other_value, _no_json))(chance, head)
    text = head.read_bytes()
    count = chance.choice((len(text), len(text), 0, 2**63, 2**31, len(text) - 1))
    path.write_bytes(count.to_bytes(8, "little") + text + data[8 + size :])
    head.unlink()
    return False


# ---- changes of GGUF ---------------------------------------------------------------------------

Field = tuple[str, int, Any]


def _read_gguf(data: bytes) -> tuple[list[Field], list[list[Any]], bytes]:
    """Fields, heads of tensors, and the data, by the text of the format."""
    at = 24

    def number(form: str) -> Any:
        nonlocal at
        (found,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        return found

    def text() -> bytes:
        nonlocal at
        size = number("<Q")
        at += size
        return data[at - size : at]

    def value(kind: int) -> Any:
        if kind == 8:
            return text()
        if kind == 9:
            inner, count = number("<I"), number("<Q")
            return inner, [value(inner) for _ in range(count)]
        return number(_FORMS[kind])

    tensors, count = struct.unpack_from("<QQ", data, 8)
    fields: list[Field] = []
    for _ in range(count):
        name, kind = text().decode(), number("<I")
        fields.append((name, kind, value(kind)))
    heads = [[text(), [number("<Q") for _ in range(number("<I"))], number("<I"), number("<Q")]
             for _ in range(tensors)]  # fmt: skip
    return fields, heads, data[-(-at // 32) * 32 :]


_FORMS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
          11: "<q", 12: "<d"}  # fmt: skip


def _gguf_bytes(fields: list[Field], heads: list[list[Any]], data: bytes) -> bytes:
    def text(found: bytes) -> bytes:
        return struct.pack("<Q", len(found)) + found

    def value(kind: int, found: Any) -> bytes:
        if kind == 8:
            return text(found)
        if kind == 9:
            inner, items = found
            return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
        return struct.pack(_FORMS[kind], found)

    made = b"GGUF" + struct.pack("<IQQ", 3, len(heads), len(fields))
    for name, kind, found in fields:
        made += text(name.encode()) + struct.pack("<I", kind) + value(kind, found)
    for name, sizes, kind, offset in heads:
        made += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)
    return made.ljust(-(-len(made) // 32) * 32, b"\0") + data


def _gguf_field(chance: random.Random, path: Path) -> bool:
    """A field of GGUF has another value, or another type, or is missing, or exists twice."""
    fields, heads, data = _read_gguf(path.read_bytes())
    at = chance.randrange(len(fields))
    name, kind, old = fields[at]
    other = chance.choice(_VALUES)
    twice = chance.random() < 0.1
    if twice:
        fields.append((name, *other))
    elif chance.random() < 0.1:
        del fields[at]
    elif kind == 9 and chance.random() < 0.6:
        inner, items = old
        items = [chance.choice(items) for _ in range(chance.choice((0, 1, len(items) - 1)))]
        fields[at] = name, 9, (inner, items)
    elif kind in (4, 5, 10, 11) and chance.random() < 0.6:
        fields[at] = name, 11, chance.choice([each for each in _NUMBERS if type(each) is int
                                              and abs(each) < 2**63])  # fmt: skip
    else:
        fields[at] = name, *other
    path.write_bytes(_gguf_bytes(fields, heads, data))
    is_text = 8 in (kind, other[0]) and kind != other[0]
    is_other = (name, *other) in fields and is_text and not name.startswith("general.")
    return twice or is_other


_VALUES: tuple[tuple[int, Any], ...] = (
    (8, b""), (8, b"llama"), (8, b"\xff"), (8, b"8"), (7, True), (6, float("nan")), (12, 1e300),
    (6, 0.0), (5, -1), (10, 2**64 - 1), (9, (8, [])), (9, (8, [b"a", b"b"])), (9, (4, [1, 2])),
    (9, (6, [0.5])), (0, 0), (11, 3),
)  # fmt: skip


def _gguf_tensor(chance: random.Random, path: Path) -> bool:
    """The head of a tensor of GGUF says something else, or exists twice."""
    fields, heads, data = _read_gguf(path.read_bytes())
    head = chance.choice(heads)
    match chance.randrange(6):
        case 0:
            head[0] = chance.choice((b"", b"x", b"\xff", chance.choice(heads)[0], b"output.weight"))
        case 1:
            head[1] = chance.choice(([], head[1][::-1], [*head[1], 1], [2**63], [0], [0, 2**63],
                                     [2**32, 2**32], [1] * 5, [2**40, 0, 2**40]))  # fmt: skip
        case 2:
            head[2] = chance.choice((0, 1, 2, 3, 8, 12, 24, 28, 30, 99, 2**32 - 1))
        case 3:
            head[3] = chance.choice((0, 1, 32, 2**63, head[3] + 32, chance.choice(heads)[3]))
        case 4:
            heads.append(list(head))
        case _:
            heads.remove(head)
    path.write_bytes(_gguf_bytes(fields, heads, data))
    return False


def _cut(chance: random.Random, path: Path) -> bool:
    """A file ends at a border of its sections, or beside it."""
    data = path.read_bytes()
    head = len(data) - len(_read_gguf(data)[2])
    at = chance.choice((0, 4, 8, 16, 24, head, head - 32, len(data) - 1, chance.randrange(head)))
    path.write_bytes(data[: max(at + chance.choice((-1, 0, 1)), 0)])
    return False


# ---- judgement ---------------------------------------------------------------------------------

_FOLDER: tuple[tuple[str, tuple[Change, ...]], ...] = (
    ("config.json", (_other_value, _other_value, _other_value, _new_field, _no_json)),
    ("generation_config.json", (_other_value, _new_field, _no_json)),
    ("tokenizer_config.json", (_other_value, _new_field, _no_json, _template)),
    ("tokenizer.json", (_other_value, _new_field, _no_json, _damage)),
    ("model.safetensors", (_tensors, _tensors, _header, _header, _damage)),
)
_GGUF: tuple[Change, ...] = (_gguf_field, _gguf_field, _gguf_tensor, _cut, _damage)


def changed(chance: random.Random, source: Path, target: Path) -> bool:
    """Copy a model and change it; whether only an equal one or a refusal may come of it."""
    if source.is_dir():
        copytree(source, target)
        name, changes = chance.choice([row for row in _FOLDER if (target / row[0]).exists()])
        change = _no_file if chance.random() < 0.1 else chance.choice(changes)
        return change(chance, target / name)
    target.write_bytes(source.read_bytes())
    if source.suffix == ".gguf":
        return chance.choice(_GGUF)(chance, target)
    if chance.random() < 0.5:
        lie(chance, source, target)
    else:
        _damage(chance, target)
    return True


def parts_of(opened: OpenedModel) -> dict[str, Any]:
    """All that decides the answers of a model. Raises the errors of reading it."""
    parts: dict[str, Any] = {
        "spec": opened.spec.text, "stop": opened.stop, "begin": opened.begin, "end": opened.end,
        "pooling": opened.pooling,
    }  # fmt: skip
    with suppress(ad.UserError):  # at use
        parts["tokens"] = opened.encode(_TEXT)
    with suppress(ad.UserError):
        parts["chat"] = opened.chat_tokens(_MESSAGES)
    if opened.weights is not None:
        parts |= {name: _bytes_of(opened.weights(name)) for name in _weight_names(opened)}
    return parts


def _weight_names(opened: OpenedModel) -> Iterator[str]:
    yield from (f"{name}.weight" for name in (*opened.spec.weight_names(), "head"))
    yield from (f"{name}.bias" for name in (*opened.spec.weight_names(), "head"))


def _bytes_of(matrix: Any) -> bytes | None:
    if not isinstance(matrix, Blocks):
        return None if matrix is None else numpy.asarray(matrix, numpy.float32).tobytes()
    fields = (matrix.codes, matrix.scales, matrix.minima, matrix.order)
    return b"".join(numpy.ascontiguousarray(each).tobytes() for each in fields if each is not None)


def opened_of(path: Path, tokenizer: Path | None = None) -> OpenedModel:
    """The parts of a model, which is not compiled."""
    if path.suffix == ".anydim":
        return open_decoder(path, None, None, tokenizer, None, 1, None)[0]
    return open_files(path, None, None, tokenizer, "float32")


def differs(found: Mapping[str, Any], good: Mapping[str, Any]) -> list[str]:
    """Parts that are others; missing tokens or messages are refused at their use."""
    return [name for name in good if name in found and found[name] != good[name]]


def outcome(chance: random.Random, path: Path, good: Mapping[str, Any], must_match: bool) -> str:
    """'refused', 'equal', 'another' or 'ran'; what else may happen is raised."""
    try:
        opened = opened_of(path)
        found = parts_of(opened)
        if path.suffix == ".anydim":
            with ad.language_model(path, threads=1) as lm:
                tokens = numpy.array([3, 1, 4, 1, 5])
                found["answer"] = lm.generate(tokens, 5, stop=()).read(), lm.memory([1, 9])
                found["model"] = lm.explain()
    except ad.UserError as error:
        str(error)
        return "refused"
    if not differs(found, good):
        return "equal"
    assert not must_match, f"another model by {differs(found, good)[:3]}"
    if chance.random() >= _COMPILED:
        return "another"
    try:
        with ad.language_model(path, threads=1, memory="64 MiB") as lm:
            lm.generate([1, 2], 3).read(), lm.embed([[1]])
    except ad.UserError as error:
        str(error)
        return "call refused"
    return "ran"


def judge_in(folder: Path) -> limited.Judge:
    """A judge of seeds, with good models in a folder."""
    good = {}
    for name, path in bases(folder).items():
        good[name] = parts_of(opened_of(path))
    with ad.language_model(bases(folder)["saved"], threads=1) as lm:
        answer = lm.generate(numpy.array([3, 1, 4, 1, 5]), 5).read()
        good["saved"] |= {"answer": (answer, lm.memory([1, 9])), "model": lm.explain()}

    def judge(seed: int) -> str:
        chance = random.Random(seed)
        name = chance.choice(list(bases(folder)))
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / bases(folder)[name].name
            must_match = changed(chance, bases(folder)[name], path)
            with numpy.errstate(all="ignore"):
                return outcome(chance, path, good[name], must_match)

    return judge


@click.command()
@click.option("--count", default=1000, show_default=True, help="How many files.")
@click.option("--seed", default=0, show_default=True, help="The seed of the first one.")
def main(count: int, seed: int) -> None:
    """Open damaged language models, and count what came of it."""
    with tempfile.TemporaryDirectory() as folder, settings.override(compile_threads=1):
        judge = judge_in(Path(folder))
        limited.report(limited.run(judge, range(seed, seed + count), SECONDS), "files")


if __name__ == "__main__":
    main()
