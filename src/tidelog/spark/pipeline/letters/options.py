"""The section `dead_letters` of an ingest flow: its keys, and what does not fit the rest of the flow or other flows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.protocol.topic_names import complaint_about_name
from tidelog.spark.pipeline.faults import allowed
from tidelog.spark.pipeline.section import Section

if TYPE_CHECKING:
    from tidelog.spark.pipeline.kinds.ingest import Ingest

DECODE: Final = "decode"
"""The reason of a letter whose payload cannot be read."""
FOREIGN: Final = "foreign"
"""The reason of a record in the retry topic that nobody knows."""
_RULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_ATTEMPTS_MAX: Final = 100

Rules = tuple[tuple[str, str], ...]  # (name, condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    topic: str
    retry_topic: str
    """There is one without `retry` too: it is the way back for letters that are redriven."""
    rules: Rules = ()
    retry_rules: Rules = ()
    delays_ms: tuple[int, ...] = ()
    lookups: tuple[str, ...] = ()
    """Flows whose tables the retry rules may ask."""

    @property
    def topics(self) -> tuple[str, str]:
        return (self.topic, self.retry_topic)


def read_dead_letters(section: Section) -> DeadLetters | None:
    given = section.has("dead_letters")
    inner = section.section("dead_letters")
    if not given:
        return None
    inner.need("topic", "orders.dead")
    topic = _topic(inner) or "dead"
    rules = _rules(inner)
    retry = inner.section("retry")
    found = DeadLetters(
        topic=topic,
        retry_topic=_topic(retry) or f"{topic}.retry",
        rules=rules,
        retry_rules=_rules(retry),
        delays_ms=retry.durations_ms("delays"),
        lookups=retry.texts("lookups"),
    )
    if inner.has("retry"):
        _check_retry(retry, found)
    if found.retry_topic == topic:
        retry.fault(("topic",), "must be another topic than that of the dead letters")
    retry.done()
    inner.done()
    return found


def _topic(section: Section) -> str | None:
    topic = section.text("topic")
    if topic is not None and complaint_about_name(topic) is not None:
        section.fault(("topic",), "is no name of a topic; it takes letters, digits, '.', '_' and '-', at most 249")
    return topic


def _rules(section: Section) -> Rules:
    found = section.pairs("rules")
    for name in found:
        if not _RULE.fullmatch(name) or name in (DECODE, FOREIGN):
            text = (
                f"is no name of a rule; it takes letters, digits, _ and -, at most 63, and is not {DECODE}, {FOREIGN}"
            )
            section.fault(("rules", name), text)
    return tuple(found.items())


def _check_retry(retry: Section, found: DeadLetters) -> None:
    retry.need("rules", '{known_customer: "payload.customer IS NOT NULL"}')
    retry.need("delays", "[10s, 1m, 10m]")
    for name in {name for name, _ in found.rules} & {name for name, _ in found.retry_rules}:
        retry.fault(("rules", name), "is a rule of 'dead_letters' already; a rule has one name")
    if len(found.delays_ms) > _ATTEMPTS_MAX:
        retry.fault(("delays",), f"{len(found.delays_ms)} attempts are too many; at most {_ATTEMPTS_MAX}")


def check_flow(section: Section, flow: Ingest) -> None:
    """What does not fit the other keys of the flow."""
    letters = flow.dead_letters
    if letters is None:
        return
    if flow.decode is None and not letters.rules and not letters.retry_rules:
        section.fault(("dead_letters",), "nothing could become a dead letter: there is no 'decode' and no 'rules'")
    if flow.decode is not None and flow.decode.mode == "failfast":
        section.fault(("decode", "mode"), "failfast stops the flow; with 'dead_letters' it must be permissive")
    if flow.isolation != "read_committed":
        section.fault(("isolation",), "must be read_committed with 'dead_letters': letters are written in transactions")
    for topic in letters.topics:
        if flow.takes(topic):
            section.fault(("dead_letters",), f"the topic {topic!r} is one that the flow reads")


def check_flows(section: Section, flows: Mapping[str, Ingest]) -> None:
    """What does not fit other flows: a topic of letters belongs to one flow, and lookups name flows."""
    taken: dict[str, str] = {}
    for name, flow in flows.items():
        letters = flow.dead_letters
        if letters is None:
            continue
        for topic in letters.topics:
            if topic in taken:
                section.fault((name, "dead_letters"), f"{topic!r} is a topic of {taken[topic]!r} already")
            taken[topic] = name


def check_lookups(section: Section, flows: Mapping[str, Ingest], names: list[str]) -> None:
    """`names`: of the flows that have tables."""
    for name, flow in flows.items():
        for lookup in flow.dead_letters.lookups if flow.dead_letters is not None else ():
            if lookup not in names:
                where = (name, "dead_letters", "retry", "lookups")
                section.fault(where, f"there is no flow {lookup!r} with a table; {allowed(lookup, names)}")
