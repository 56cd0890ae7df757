"""A pipeline out of a tree: the keys of the file's top and what flows of every kind have in common.

All faults are found in one reading; see kinds/ for the keys of each kind.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path as FilePath
from typing import Final

from tidelog.spark.pipeline.faults import Fault, Path, PipelineError, allowed
from tidelog.spark.pipeline.graph import order, reached, unknown
from tidelog.spark.pipeline.kinds import KINDS
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.kinds.kind import Common, Given
from tidelog.spark.pipeline.letters.options import check_flows, check_lookups
from tidelog.spark.pipeline.model import Audit, Flow, Format, Maintenance, Pipeline, Restart, Table, Trigger
from tidelog.spark.pipeline.section import Section
from tidelog.spark.pipeline.tree import Keys, Value

FORMATS: Final[tuple[Format, ...]] = ("delta", "parquet", "iceberg")
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
NAME_FORM: Final = "a small letter, then small letters, digits and _, at most 63"
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_SERVER: Final = re.compile(r"[^\s,:/]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\]:[0-9]{1,5}")


def read(tree: Value, faults: list[Fault], base: FilePath, source: str) -> Pipeline:
    """The pipeline, or a PipelineError with all that is wrong. Relative paths are meant from `base`."""
    lines: dict[Path, int] = {}
    top = Section(tree, (), faults, lines)
    if not isinstance(tree, Keys):
        raise PipelineError(faults or [Fault((), "it must be a section of keys", tree.line)], source)
    name = _name(top)
    servers = _servers(top)
    lake = _lake(top, base)
    work = _work(top, base, name)
    kafka = top.pairs("kafka")
    spark = _spark(top)
    audit = _audit(top)
    default = _defaults(top)
    flows = _flows(top, default, lake, kafka)
    top.done()
    if faults:
        raise PipelineError(faults, source)
    return Pipeline(
        name=name,
        bootstrap_servers=servers,
        work=work,
        flows=flows,
        kafka=kafka,
        spark=spark,
        audit=audit,
        lines=lines,
        source=source,
    )


def _name(top: Section) -> str:
    top.need("name", "orders")
    name = top.text("name")
    if name is not None and not NAME.fullmatch(name):
        top.fault(("name",), f"{name!r} is no name; it takes {NAME_FORM}")
    return name or "pipeline"


def _servers(top: Section) -> str:
    top.need("bootstrap.servers", "127.0.0.1:9092")
    servers = top.texts("bootstrap.servers")
    parts = [part.strip() for text in servers for part in text.split(",")]
    if any(not _SERVER.fullmatch(part) for part in parts):
        top.fault(("bootstrap.servers",), "must be HOST:PORT, or several with commas")
    return ",".join(parts)


def _lake(top: Section, base: FilePath) -> str:
    top.need("lake", "./lake")
    return _directory(top, "lake", "lake", base)


def _work(top: Section, base: FilePath, name: str) -> FilePath:
    return FilePath(_directory(top, "work", f".tidelog/{name}", base))


def _directory(section: Section, key: str, default: str, base: str | FilePath) -> str:
    text = section.text(key) or default
    if _SCHEME.match(text):
        section.fault((key,), "must be a directory that driver and executors see, not a URL")
    return os.path.normpath(os.path.join(base, os.path.expanduser(text)))


def _spark(top: Section) -> dict[str, str]:
    conf = top.pairs("spark")
    for key in conf:
        if not key.startswith("spark."):
            top.fault(("spark", key), "is no Spark setting; their names begin with spark.")
    return conf


def _audit(top: Section) -> Audit | None:
    given = top.has("audit")
    section = top.section("audit")
    default = Audit()
    topic = section.text("topic") or default.topic
    if not _TOPIC.fullmatch(topic):
        section.fault(("topic",), "is no name of a topic; it takes letters, digits, '.', '_' and '-', at most 249")
    window_ms = section.duration_ms("window", default.window_ms, 1_000)
    section.done()
    return Audit(topic=topic, window_ms=window_ms) if given else None


def _defaults(top: Section) -> Common:
    section = top.section("defaults")
    common = _common(section, Common())
    section.done()
    return common


def _common(section: Section, default: Common) -> Common:
    return Common(
        format=section.choice("format", FORMATS, default.format),
        trigger=_trigger(section, default.trigger),
        maintenance=_maintenance(section.section("maintenance"), default.maintenance),
        restart=_restart(section.section("restart"), default.restart),
    )


def _trigger(section: Section, default: Trigger) -> Trigger:
    if section.text("trigger") == "once":
        return Trigger(once=True)
    if not section.has("trigger"):
        return default
    # Shorter than this a flow would spend its time in commits.
    return Trigger(every_ms=section.duration_ms("trigger", default.every_ms, 100))


def _maintenance(section: Section, default: Maintenance) -> Maintenance:
    found = Maintenance(
        batches=section.count("batches", default.batches, 0) or 0,
        every_ms=section.duration_ms("every", default.every_ms, 0),
        target_bytes=section.size("target", default.target_bytes) or default.target_bytes,
        # Files of a batch that is being written now look like orphans.
        orphans_ms=section.duration_ms("orphans", default.orphans_ms, 60_000),
    )
    section.done()
    return found


def _restart(section: Section, default: Restart) -> Restart:
    found = Restart(
        first_ms=section.duration_ms("first", default.first_ms),
        most_ms=section.duration_ms("most", default.most_ms),
        give_up_after=section.count("give_up_after", default.give_up_after) or default.give_up_after,
    )
    if found.most_ms < found.first_ms:
        section.fault(("most",), "must not be shorter than 'first'")
    section.done()
    return found


def _flows(top: Section, default: Common, lake: str, kafka: dict[str, str]) -> dict[str, Flow]:
    section = top.section("flows")
    if not section.names:
        top.fault(("flows",), f"no flows; each is a name with a kind ({', '.join(KINDS)}) and its options")
    flows: dict[str, Flow] = {}
    for name in section.names:
        inner = section.section(name)
        if not NAME.fullmatch(name):
            inner.fault((), f"{name!r} is no name; it takes {NAME_FORM}")
        inner.need("kind", " | ".join(KINDS))
        kind = inner.choice("kind", tuple(KINDS), "")
        if kind:
            common = _common(inner, default)
            table = _table(name, inner, common, lake)
            given = Given(name=name, section=inner, common=common, table=table, kafka=kafka, lake=lake)
            flows[name] = KINDS[kind].read(given)
            inner.done()
    _check_graph(section, flows)
    _check_tables(section, flows)
    _check_topics(section, flows)
    _check_letters(section, flows)
    ordered, _ = order({name: flow.inputs for name, flow in flows.items()})
    return {name: flows[name] for name in ordered}


def _table(name: str, section: Section, common: Common, lake: str) -> Table:
    return Table(path=_directory(section, "table", name, lake), format=common.format)


def _check_graph(section: Section, flows: dict[str, Flow]) -> None:
    # Also those whose kind could not be read: one fault is enough.
    inputs = {name: flows[name].inputs if name in flows else () for name in section.names}
    unreadable = {name: why for name, flow in flows.items() if (why := flow.unreadable) is not None}
    for name, read, text in unknown(inputs, unreadable):
        section.fault((name, flows[name].input_key(read)), text)
    for name, flow in flows.items():
        for other in flow.looked_up:
            others = [one for one in inputs if one != name and (one not in flows or flows[one].tables)]
            if other not in others:
                text = f"there is no other flow {other!r} with a table; {allowed(other, others)}"
                section.fault((name, "right", "table"), text)
    _, circle = order(inputs)
    if circle:
        key = flows[circle[0]].input_key(circle[1])
        section.fault((circle[0], key), f"the flows read each other in a circle: {' <- '.join(circle)}")


def _check_tables(section: Section, flows: dict[str, Flow]) -> None:
    taken: dict[str, str] = {}
    for name, flow in flows.items():
        for table in flow.tables:
            if table.path in taken:
                section.fault((name, "table"), f"{table.path} is the table of {taken[table.path]!r} already")
            taken.setdefault(table.path, name)


def _check_topics(section: Section, flows: dict[str, Flow]) -> None:
    """A flow that writes a topic which it reads would feed itself for ever."""
    for name, flow in flows.items():
        above = [flows[one] for one in reached(name, {one: flows[one].inputs for one in flows})]
        for topic in flow.topics_written:
            source = next((one for one in above if isinstance(one, Ingest) and one.takes(topic)), None)
            if source is not None:
                section.fault((name,), f"writes the topic {topic!r}, which it reads by way of {source.name!r}")


def _check_letters(section: Section, flows: dict[str, Flow]) -> None:
    ingests = {name: flow for name, flow in flows.items() if isinstance(flow, Ingest)}
    check_flows(section, ingests)
    # Also those whose kind could not be read: one fault is enough.
    check_lookups(section, ingests, [name for name in section.names if name not in flows or flows[name].tables])
