"""G0, G1c: transactions that stand in a circle. Edges: ww, the next value of a key is another transaction's; wr, a
transaction polled what another one sent. A circle of wr alone cannot be at read_committed; with ww Kafka allows it."""

from __future__ import annotations

from collections.abc import Iterable

from tests.chaos.checker.facts import Facts
from tests.chaos.checker.report import Report
from tests.chaos.history import Op, Poll, Send

Graph = dict[int, list[int]]


def check(facts: Facts, report: Report) -> None:
    nodes = [
        op
        for op in facts.history.ops
        if op.transactional and facts.happened(op) and any(isinstance(action, Send) for action in op.actions)
    ]
    number = {id(op): index for index, op in enumerate(nodes)}
    reads = _reads(facts, nodes, number)
    writes = _writes(facts, number)
    for circle in _circles(reads):
        ops = [nodes[index] for index in circle[:4]]
        report.error("G1c", f"{len(circle)} transactions read each other in a circle", *ops)
    for _ in _circles(writes):
        report.notice("G0")
    both = {index: [*reads.get(index, ()), *writes.get(index, ())] for index in reads.keys() | writes.keys()}
    for _ in _circles(both):
        report.notice("G1c-ww")


def _reads(facts: Facts, nodes: list[Op], number: dict[int, int]) -> Graph:
    graph: Graph = {}
    for reader, op in enumerate(nodes):
        if op.uncommitted:
            continue
        for action in op.actions:
            if isinstance(action, Poll):
                source = number.get(id(facts.keys[action.key].writer.get(action.value)))
                if source is not None and source != reader:
                    graph.setdefault(source, []).append(reader)
    return graph


def _writes(facts: Facts, number: dict[int, int]) -> Graph:
    graph: Graph = {}
    for key in facts.keys.values():
        last: int | None = None
        for offset in key.existing():
            current = number.get(id(key.writer.get(key.value_at[offset])))
            if current is None:
                continue
            if last is not None and last != current:
                graph.setdefault(last, []).append(current)
            last = current
    return graph


def _circles(graph: Graph) -> Iterable[list[int]]:
    """The strongly connected components of more than one node: Tarjan's way, without recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in list(graph):
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(graph.get(root, ())))]
        while work:
            node, rest = work[-1]
            for following in rest:
                if following not in order:
                    order[following] = low[following] = len(order)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(graph.get(following, ()))))
                    break
                if following in on_stack:
                    low[node] = min(low[node], order[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    start = stack.index(node) if len(stack) < 64 else _last_index(stack, node)
                    circle = stack[start:]
                    del stack[start:]
                    on_stack.difference_update(circle)
                    if len(circle) > 1:
                        yield circle


def _last_index(stack: list[int], node: int) -> int:
    index = len(stack) - 1
    while stack[index] != node:
        index -= 1
    return index
