"""Prints trees as text. A printed definition, or group, parses back to an equal one.

    print_definition(d)   the surface language, with the parentheses that precedence requires
    print_group(g)        typed tensors, guards and statements; `parse_group` reads it

In a group's text a bare number or name is a size or an index, a literal has its type as in
`float32(0.5)`, other sizes are in braces, and ambiguous names in double quotes.
"""

from __future__ import annotations

import json
import math
import re

from anydim.lang import tree
from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface import syntax
from anydim.lang.surface.syntax import PRECEDENCE, RESERVED, TYPE_NAMES
from anydim.sizes import Size

COMBINES = {"": "=", "add": "+=", "mul": "*=", "min": "min=", "max": "max="}
TERNARY, UNARY, PRIMARY = 0, 100, 101  # below and above every infix precedence
_GROUP_WORDS = {"literal", "guard", "steps", "write", "over"}
_TAKEN = frozenset([*RESERVED, *TYPE_NAMES, *FUNCTIONS, *_GROUP_WORDS])
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_Printed = tuple[str, int]  # a text and its precedence


def number_text(value: int | float | bool) -> str:
    """Format a number as a literal of the language; negative numbers with their sign."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


def _within(printed: _Printed, precedence: int) -> str:
    """A text, in parentheses when its precedence is below the given one."""
    text, level = printed
    return text if level >= precedence else f"({text})"


def _function_text(function: str, parts: list[_Printed]) -> _Printed:
    """A function in operator form, if it has one."""
    operator = FUNCTIONS[function].operator
    if function == "select":
        condition, then, otherwise = parts
        text = f"{_within(condition, 1)} ? {then[0]} : {otherwise[0]}"
        return text, TERNARY
    if operator and len(parts) == 1:
        inner = _within(parts[0], UNARY)
        return operator + inner, UNARY
    if operator:
        level = PRECEDENCE[operator]
        left, right = _within(parts[0], level), _within(parts[1], level + 1)
        return f"{left} {operator} {right}", level
    return f"{function}({', '.join(text for text, _ in parts)})", PRIMARY


def _read_text(read: str, default: _Printed | None) -> _Printed:
    if default is None:
        return read, PRIMARY
    return f"{read} else {_within(default, UNARY)}", UNARY


# ---- definitions -------------------------------------------------------------------------------


def print_definition(definition: syntax.Definition) -> str:
    """Print a definition, one statement per line."""
    head = f"def {print_head(definition)} {{"
    return "\n".join([head, *_block(definition.statements, "  "), "}"])


def print_head(definition: syntax.Definition) -> str:
    """Print the signature of a definition: `f(float(N) x; float a = 0.5) -> (y)`."""
    parameters = ", ".join(map(_parameter, definition.parameters))
    if definition.attributes:
        attributes = ", ".join(map(_attribute, definition.attributes))
        parameters = f"{parameters}; {attributes}"
    return f"{definition.name}({parameters}) -> ({', '.join(definition.results)})"


def _block(block: tuple[syntax.Item, ...], margin: str) -> list[str]:
    """The indented lines of a block."""
    lines: list[str] = []
    for item in block:
        if isinstance(item, syntax.LoopBlock):
            ends = (item.start, item.stop, item.step)
            span = ":".join(_within(_term(end), 1) for end in ends)
            inner = _block(item.body, margin + "  ")
            lines += [f"{margin}for {item.variable} in {span} {{", *inner, f"{margin}}}"]
        elif isinstance(item, syntax.BranchBlock):
            lines += [f"{margin}if {print_term(item.condition)} {{"]
            lines += _block(item.then, margin + "  ")
            if item.otherwise:
                lines += [f"{margin}}} else {{", *_block(item.otherwise, margin + "  ")]
            lines.append(f"{margin}}}")
        elif isinstance(item, syntax.WhileBlock):
            inner = _block(item.body, margin + "  ")
            lines += [f"{margin}while {print_term(item.condition)} {{", *inner, f"{margin}}}"]
        elif isinstance(item, syntax.MatchBlock):
            names = ", ".join(name.name for name in item.structures)
            lines.append(f"{margin}match {names} {{")
            for case in item.cases:
                patterns = ", ".join(map(print_pattern, case.patterns))
                inner = _block(case.body, margin + "    ")
                lines += [f"{margin}  {patterns} {{", *inner, f"{margin}  }}"]
            lines.append(f"{margin}}}")
        elif isinstance(item, syntax.Invoke):
            row = f"({item.rows})" if item.rows else ""
            left = ", ".join(f"{target}{row}" for target in item.targets)
            lines.append(f"{margin}{left} = {print_term(item.call)}")
        else:
            lines.append(margin + print_assignment(item))
    return lines


def print_term(term: syntax.Term) -> str:
    """Print an expression of the surface language."""
    return _term(term)[0]


def print_pattern(pattern: syntax.Pattern) -> str:
    """Print a pattern: `node(leaf(x), _)`."""
    if not pattern.arguments:
        return pattern.name
    return f"{pattern.name}({', '.join(map(print_pattern, pattern.arguments))})"


def print_type(declared: syntax.StructureType) -> str:
    """Print a declaration of a structure type, one constructor per line."""
    parameters = f"<{', '.join(declared.parameters)}>" if declared.parameters else ""
    constructors = (
        f"  {each.name}({', '.join(map(_parameter, each.fields))})" if each.fields
        else f"  {each.name}"
        for each in declared.constructors
    )  # fmt: skip
    return "\n".join([f"type {declared.name}{parameters} {{", *constructors, "}"])


def _parameter(parameter: syntax.Parameter) -> str:
    return f"{print_type_name(parameter)} {parameter.name}"


def print_type_name(parameter: syntax.Parameter) -> str:
    """Print the type of a parameter: `float(N, 2 * M)`, `List<float(D)>`."""
    rows = dict(parameter.rows)
    sizes = [
        f"{term.name}({rows[term.name]})" if isinstance(term, syntax.Name) and term.name in rows
        else print_term(term)
        for term in parameter.shape
    ]  # fmt: skip
    shape = f"({', '.join(sizes)})" if sizes else ""
    arguments = ", ".join(map(print_type_name, parameter.arguments))
    return f"{parameter.type}{f'<{arguments}>' if arguments else ''}{shape}"


def _attribute(attribute: syntax.Attribute) -> str:
    text = f"{attribute.kind} {attribute.name}"
    if attribute.default is None:
        return text
    default = attribute.default
    return f"{text} = {default if isinstance(default, str) else number_text(default)}"


def print_assignment(statement: syntax.Assignment) -> str:
    """Print an assignment."""
    left = statement.target
    if statement.indices:
        left += f"({_terms(statement.indices)})"
    operator = COMBINES[statement.combine] + ("!" if statement.initial else "")
    text = f"{left} {operator} {print_term(statement.value)}"
    where = ", ".join(map(_clause, statement.where))
    return f"{text} where {where}" if where else text


def _clause(clause: syntax.Range | syntax.Exists) -> str:
    if isinstance(clause, syntax.Exists):
        return f"exists {clause.tensor}({_terms(clause.indices)})"
    low, high = (_within(_term(end), 1) for end in (clause.low, clause.high))
    return f"{clause.index} in {low}:{high}"


def _terms(terms: tuple[syntax.Term, ...]) -> str:
    return ", ".join(map(print_term, terms))


def _term(term: syntax.Term) -> _Printed:
    if isinstance(term, syntax.Number):
        return number_text(term.value), PRIMARY
    if isinstance(term, syntax.Name):
        return term.name, PRIMARY
    if isinstance(term, syntax.Spread):
        return f"...{term.name}", PRIMARY
    if isinstance(term, syntax.Dimension):
        return f"{term.tensor}.{term.axis}", PRIMARY
    if isinstance(term, syntax.Count):
        return f"size(...{term.ellipsis})", PRIMARY
    if isinstance(term, syntax.Convert):
        return f"cast<{term.type}>({print_term(term.argument)})", PRIMARY
    if isinstance(term, syntax.Operation):
        return _function_text(term.function, [_term(argument) for argument in term.arguments])
    default = None if term.default is None else _term(term.default)
    if isinstance(term, syntax.Flat):
        return _read_text(f"{term.tensor}[{print_term(term.offset)}]", default)
    inner = _terms(term.arguments)
    if term.settings:
        given = (f"{s.name} = {print_term(s.value)}" for s in term.settings)
        inner = f"{inner}; {', '.join(given)}"
    return _read_text(f"{term.name}({inner})", default)


# ---- groups ------------------------------------------------------------------------------------


def print_group(group: tree.Group) -> str:
    """Print a group; `parse_group` reads it back to an equal group."""
    lines = ["group {"]
    for word, tensors in (
        ("input", group.inputs), ("output", group.outputs), ("temporary", group.temporaries),
    ):  # fmt: skip
        lines += [f"  {word} {t.type} {name_text(t.name)}" for t in tensors]
    for guard in group.guards:
        relation = f"{{{guard.left}}} {guard.relation} {{{guard.right}}}"
        lines.append(f"  guard {relation} {json.dumps(guard.message)}")
    lines += [f"  {print_statement(statement)}" for statement in group.statements]
    if group.steps:
        lines += ["  steps {", *_steps(group.steps, "    "), "  }"]
    return "\n".join([*lines, "}"])


def print_step(step: tree.OrderedStep) -> str:
    """Print a step, with nested steps on lines of their own."""
    return "\n".join(_steps((step,), ""))


def _steps(steps: tuple[tree.OrderedStep, ...], margin: str) -> list[str]:
    lines: list[str] = []
    for step in steps:
        if isinstance(step, tree.Statement):
            lines.append(margin + print_statement(step))
        elif isinstance(step, tree.Write):
            lines.append(margin + _write(step))
        elif isinstance(step, tree.Loop):
            ends = (_within(_expression(end, set()), 1) for end in (step.start, step.stop))
            span = f"{':'.join(ends)}:{size_text(Size.constant_of(step.step), set())}"
            lines.append(f"{margin}for {name_text(step.variable)} in {span} {{")
            lines += [*_steps(step.body, margin + "  "), f"{margin}}}"]
        else:
            lines.append(f"{margin}if {print_expression(step.condition)} {{")
            lines += _steps(step.then, margin + "  ")
            if step.otherwise:
                lines += [f"{margin}}} else {{", *_steps(step.otherwise, margin + "  ")]
            lines.append(f"{margin}}}")
    return lines


def _write(step: tree.Write) -> str:
    """Print e.g. `write h({t}, b) += x(b, k) where b in 0:n over k in 0:4`."""
    taken = {axis.name for axis in (*step.axes, *step.reduced)}
    indices = ", ".join(print_expression(index, taken) for index in step.indices)
    operator = COMBINES[step.combine] + ("!" if step.fresh else "")
    body = print_expression(step.body, taken)
    text = f"write {name_text(step.target)}({indices}) {operator} {body}"
    for word, axes in (("where", step.axes), ("over", step.reduced)):
        if axes:
            text += f" {word} {_extents(axes)}"
    return text


def _extents(axes: tuple[tree.Axis, ...]) -> str:
    return ", ".join(f"{name_text(a.name)} in 0:{size_text(a.extent, set())}" for a in axes)


def print_statement(statement: tree.Statement) -> str:
    """Print e.g. `y(i, j) +=! a(i, k) * b(k, j) where i in 0:n, j in 0:4, k in 0:{n + 1}`."""
    axes = (*statement.axes, *statement.reduced)
    taken = {axis.name for axis in axes}
    left = ", ".join(name_text(axis.name) for axis in statement.axes)
    operator = COMBINES[statement.combine] + ("!" if statement.combine else "")
    body = print_expression(statement.body, taken)
    text = f"{name_text(statement.target)}({left}) {operator} {body}"
    return f"{text} where {_extents(axes)}" if axes else text


def print_expression(expr: tree.Expr, axes: set[str] | None = None) -> str:
    """Print an expression whose indices are `axes` (they hide sizes of the same name)."""
    return _expression(expr, axes or set())[0]


def name_text(name: str) -> str:
    """A name, in quotes if it is ambiguous."""
    return name if _NAME.fullmatch(name) and name not in _TAKEN else json.dumps(name)


def size_text(size: Size, hidden: set[str]) -> str:
    """A number or a name as it is, any other size in braces."""
    text = str(size)
    bare = text.isdigit() or (name_text(text) == text and text not in hidden)
    return text if bare else f"{{{text}}}"


def _expression(expr: tree.Expr, axes: set[str]) -> _Printed:
    if isinstance(expr, tree.Literal):
        kind = "literal" if expr.dtype is None else expr.dtype.name
        return f"{kind}({number_text(expr.value)})", PRIMARY
    if isinstance(expr, tree.Index):
        return name_text(expr.name), PRIMARY
    if isinstance(expr, tree.SizeTerm):
        return size_text(expr.size, axes), PRIMARY
    if isinstance(expr, tree.Cast):
        return f"cast<{expr.dtype}>({_expression(expr.argument, axes)[0]})", PRIMARY
    if isinstance(expr, tree.Apply):
        return _function_text(expr.function, [_expression(a, axes) for a in expr.arguments])
    inner = ", ".join(_expression(index, axes)[0] for index in expr.indices)
    left, right = "[]" if expr.flat else "()"
    default = None if expr.default is None else _expression(expr.default, axes)
    return _read_text(f"{name_text(expr.tensor)}{left}{inner}{right}", default)
