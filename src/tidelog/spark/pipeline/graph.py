"""Which flow reads which: names that do not exist and circles are refused, the rest is put in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.spark.pipeline.faults import allowed


def unknown(inputs: Mapping[str, Sequence[str]], unreadable: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(flow, input, what is wrong) for each input that is not a flow one may read; unreadable says why of some."""
    faults = []
    for flow, names in inputs.items():
        others = [name for name in inputs if name != flow and name not in unreadable]
        for name in names:
            if name == flow:
                faults.append((flow, name, "a flow cannot read itself"))
            elif name not in inputs:
                faults.append((flow, name, f"there is no flow {name!r}; {allowed(name, others)}"))
            elif name in unreadable:
                faults.append((flow, name, f"{unreadable[name]}; {allowed(name, others)}"))
    return faults


def order(inputs: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """(flows after those they read, one circle if there is any): a circle's flows are not in the order."""
    done: list[str] = []
    waiting = {flow: [name for name in names if name in inputs and name != flow] for flow, names in inputs.items()}
    while ready := [flow for flow, names in waiting.items() if all(name in done for name in names)]:
        done += ready
        for flow in ready:
            del waiting[flow]
    return done, _circle(waiting)


def reached(flow: str, inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """The flow and all that it reads, by way of others too; each once, circles or not."""
    found = [flow]
    for name in found:
        found += [one for one in dict.fromkeys(inputs.get(name, ())) if one in inputs and one not in found]
    return found


def _circle(waiting: Mapping[str, Sequence[str]]) -> list[str]:
    """Whoever waits, waits for somebody who waits: following that ends in a circle."""
    path: list[str] = []
    flow = next(iter(waiting), None)
    while flow is not None and flow not in path:
        path.append(flow)
        flow = next(name for name in waiting[flow] if name in waiting)
    return [] if flow is None else [*path[path.index(flow) :], flow]
