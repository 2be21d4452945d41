"""Writes a saved program with other constants of the same types and shapes.

Code and records are those of the file, but for the digests of constants, the name of the source in
texts, and the stamp by which code and records match. All that is copied is verified first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from anydim.base.digest import sha256
from anydim.base.dtypes import from_numpy
from anydim.deploy.archive import Member, write, writing
from anydim.deploy.container import Container
from anydim.deploy.records import parse_json
from anydim.deploy.saved import constant_member, member, stamp
from anydim.runtime.image import page_bytes, with_stamp

RECORD = "derivations.json"  # the member of how constants are derived
SOURCE = "source"  # in the manifest: the name of the source in texts


def write_exchanged(
    container: Container, path: str, arrays: Mapping[str, numpy.ndarray], names: tuple[str, str],
    facts: Mapping[str, Any], others: Sequence[Member] = (),
) -> None:  # fmt: skip
    """Write the program of a file for one processor with these constants, by name.

    `names` are the name of its source in texts, and the new one; `facts` are further entries of the
    manifest, `others` further members. Raises OptionError if the file cannot be written,
    ArtefactError for a damaged program, or if a constant does not match its record.
    """
    (level,) = container.about["levels"]
    parts = {what: member(level["name"], what) for what in ("start.json", "story.json", "code")}
    saved, story, code = (container.verify_member(each, again=True) for each in parts.values())
    whole = parse_json(rename_source(bytes(saved), *names))
    constants: dict[str, Member] = {}
    for row in whole["record"]["arrays"]:
        made = _member(container, row, arrays.get(row["name"]))
        row["digest"] = made.digest
        constants[made.digest] = made
    records = json.dumps(whole, separators=(",", ":"), ensure_ascii=True).encode()
    told = rename_source(bytes(story), *names)
    image = with_stamp(bytes(code), stamp(records, told))
    members = (
        Member(parts["start.json"], records),
        Member(parts["story.json"], told),
        Member(parts["code"], image, page_bytes(level["architecture"])),
    )
    about = {name: container.about[name] for name in ("name", "levels")}
    about["name"] = names[1] if about["name"] == names[0] else about["name"]
    with writing(path):
        write(path, {**about, **facts}, [*others, *members, *constants.values()])


def _member(container: Container, row: dict[str, Any], array: numpy.ndarray | None) -> Member:
    """The member of a constant, whose digest `row` has: of the file, or a new array."""
    if array is None:
        name = constant_member(row["digest"])
        return Member(name, container.verify_member(name, again=True), digest=row["digest"])
    if (from_numpy(array.dtype).name, [*array.shape]) != (row["dtype"], row["shape"]):
        raise container.fail(f"constant '{row['name']}' does not match the records")
    data = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8).data
    digest = sha256(data).hexdigest()
    return Member(constant_member(digest), data, digest=digest)


def rename_source(text: bytes, old: str, new: str) -> bytes:
    """A JSON text in which strings refer to a source by another name: as a whole, or before ': '.

    >>> rename_source(b'["a.onnx", "a.onnx: /MatMul"]', "a.onnx", "b.onnx")
    b'["b.onnx", "b.onnx: /MatMul"]'
    """
    if old == new:
        return text
    given, wanted = (json.dumps(name)[1:-1].encode() for name in (old, new))
    pattern = rb"(?<![\w./\\-])" + re.escape(given) + rb'(?=: |")'
    return re.sub(pattern, lambda _: wanted, text)
