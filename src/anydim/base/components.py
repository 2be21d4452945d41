"""Strongly connected components of a graph of names (Kosaraju's algorithm, without recursion)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def components(uses: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components in the order of `uses`, dependences first."""
    users: dict[str, list[str]] = {name: [] for name in uses}
    for name, used in uses.items():
        for other in used:
            users[other].append(name)
    order = {name: number for number, name in enumerate(uses)}
    found: set[str] = set()
    for name in reversed(list(_postorder(users, users, set()))):
        if name not in found:
            component = list(_postorder([name], uses, found))
            yield sorted(component, key=order.__getitem__)


def _postorder(
    roots: Iterable[str], edges: Mapping[str, Iterable[str]], seen: set[str]
) -> Iterator[str]:
    """Yield the names reachable from `roots` in postorder."""
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(edges[root]))]
        while path:
            name, rest = path[-1]
            new = next((other for other in rest if other not in seen), None)
            if new is None:
                path.pop()
                yield name
            else:
                seen.add(new)
                path.append((new, iter(edges[new])))
