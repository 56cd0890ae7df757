"""How a flow is, at a glance."""

from __future__ import annotations

from typing import Final

from tidelog.spark.pipeline.report.facts import Facts, FlowFacts, Grade

_GRADES: Final[dict[str, Grade]] = {
    "running": "good",
    "stopping": "good",
    "stopped": "good",
    "done": "good",
    "given up": "bad",
}
_ENDS: Final = frozenset({"stopped", "done", "given up"})


def grade_of(facts: Facts, one: FlowFacts) -> tuple[Grade, str]:
    if one.state is None:
        return "warn", "not run yet"
    if facts.died and one.state.phase not in _ENDS:
        return "bad", f"{one.state.phase}, then it died"
    return _GRADES.get(one.state.phase, "warn"), one.state.phase
