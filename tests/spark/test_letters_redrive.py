"""Dead letters go back, each once: all or some, twice, and through a command that was killed. No Spark takes part."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("yaml")

from confluent_kafka import Producer

from tests.spark.letter_rig import Rig
from tidelog.cli.main import main
from tidelog.spark.link import Link
from tidelog.spark.pipeline.batch_state import StateError
from tidelog.spark.pipeline.kinds.ingest import Ingest, sink
from tidelog.spark.pipeline.letters import headers as H
from tidelog.spark.pipeline.letters import redriving
from tidelog.spark.pipeline.letters.filters import Wanted
from tidelog.spark.pipeline.letters.reading import records
from tidelog.spark.pipeline.letters.redriving import Redrive, RedriveError
from tidelog.spark.pipeline.letters.sink import LetterSink
from tidelog.spark.pipeline.letters.topics import ensure_topics
from tidelog.spark.pipeline.letters.trail import Step
from tidelog.spark.pipeline.sinks import AppendSink
from tidelog.testing import Broker

QUERY = "0b5e"
TEXT = """\
name: shop
bootstrap.servers: {{servers}}
lake: lake
flows:
  plain: {{{{kind: ingest, topics: orders}}}}
  orders:
    kind: ingest
    topics: orders
    dead_letters: {{{{topic: {dead}, rules: {{{{positive: "value IS NOT NULL"}}}}}}}}
"""


class Killed(Exception):
    pass


def rig_of(broker: Broker, home: Path, dead: str) -> Rig:
    """A flow that has run once, by its checkpoint, and whose topics are there."""
    rig = Rig(broker, home, TEXT.format(dead=dead))
    flow = rig.pipeline.flows["orders"]
    assert isinstance(flow, Ingest)
    rig.produce("orders", [b"1"])
    ensure_topics(flow, {"bootstrap.servers": rig.servers})
    checkpoint = rig.pipeline.work / "checkpoints" / "orders"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    return rig


def bury(
    rig: Rig, topic: str, offsets: range, *, reason: str = "positive", query: str = QUERY, died_ms: int = 5
) -> None:
    producer = Producer({"bootstrap.servers": rig.servers})
    for offset in offsets:
        said = [(H.TOPIC, "orders"), (H.PARTITION, 0), (H.OFFSET, offset), (H.FLOW, "orders"), (H.QUERY, query)]
        said += [(H.REASON, reason), (H.ATTEMPT, 2), (H.AT, died_ms), (H.REDRIVEN, 0), (H.TIMESTAMP, 77)]
        headers = [("own", b"header"), *H.block(said)]
        producer.produce(topic, b"value", key=b"key-%d" % offset, headers=headers, timestamp=77)
    assert producer.flush(60) == 0


def redrive(rig: Rig, *, step: Callable[[str], None] = lambda step: None, limit: int | None = None) -> Redrive:
    return Redrive(rig.pipeline, "orders", Wanted.of(), rig.clock, step=step, limit=limit)


def sent(rig: Rig, dead: str) -> Counter[int | None]:
    return Counter(letter.number(H.OFFSET) for _, letter in rig.letters(f"{dead}.retry"))


def trail(rig: Rig, dead: str) -> list[Step]:
    import msgspec

    with Link({"bootstrap.servers": rig.servers}) as link:
        found = [record.value or b"" for _, record in records(link, f"{dead}.redriven")]
    return [msgspec.json.decode(value, type=Step) for value in found]


def test_each_letter_goes_back_once_as_it_was(broker: Broker, tmp_path: Path) -> None:
    rig = rig_of(broker, tmp_path, "once.dead")
    bury(rig, "once.dead", range(5))
    bury(rig, "once.dead", range(5, 7), query="another checkpoint")
    rig.produce("once.dead", [b"no letter"])
    first = redrive(rig).run()
    assert first.as_json() | {"run": ""} == {
        "run": "",
        "dry_run": False,
        "read": 8,
        "sent": 5,
        "by_reason": {"positive": 5},
        "sent_before": 0,
        "not_meant": 0,
        "others": 3,
    }
    again = redrive(rig).run()
    assert (again.sent.total(), again.before, again.others) == (0, 5, 3)
    assert sent(rig, "once.dead") == Counter(range(5))
    record, letter = rig.letters("once.dead.retry")[0]
    assert (record.key, record.value, record.timestamp, letter.own) == (b"key-0", b"value", 77, (("own", b"header"),))
    assert letter.origin == ("orders", 0, 0)
    assert letter.is_of("orders", QUERY)
    numbers = {name: letter.number(name) for name in (H.ATTEMPT, H.REDRIVEN, H.TIMESTAMP)}
    assert numbers == {H.ATTEMPT: 0, H.REDRIVEN: 1, H.TIMESTAMP: 77}
    assert letter.number(H.NOT_BEFORE) is None  # at once
    steps = trail(rig, "once.dead")
    assert [(step.topic, step.run, step.query) for step in steps] == [("once.dead", first.run, QUERY)] * 5
    # One that died again is another letter.
    bury(rig, "once.dead", range(1))
    assert redrive(rig).run().sent.total() == 1
    assert sent(rig, "once.dead")[0] == 2


@pytest.mark.parametrize("point", ["written", "committed"])
def test_a_killed_command_is_run_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr(redriving, "CHUNK", 4)
    dead = f"{point}.dead"
    rig = rig_of(broker, tmp_path, dead)
    bury(rig, dead, range(10))
    points: list[str] = []

    def kill(step: str) -> None:
        points.append(step)
        # In the second transaction: with one of its batches out, or all of it done and nobody told.
        if step == point and points.count("committed") == (1 if point == "written" else 2):
            raise Killed

    with pytest.raises(Killed):
        redrive(rig, step=kill).run()
    assert sent(rig, dead).total() == (4 if point == "written" else 8)
    done = redrive(rig).run()
    assert done.sent.total() == (6 if point == "written" else 2)
    assert sent(rig, dead) == Counter(range(10))
    assert Counter(step.offset for step in trail(rig, dead)) == Counter(range(10))


def test_the_command_sends_some_and_says_what(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = rig_of(broker, tmp_path, "some.dead")
    bury(rig, "some.dead", range(3))
    bury(rig, "some.dead", range(3, 6), reason="decode", died_ms=1_000_000)
    command = ["pipeline", "redrive", str(rig.file), "orders"]
    assert main([*command, "--reason", "decode", "--dry-run"]) == 0
    assert capsys.readouterr().out == (
        "3 of 6 letters would be sent back\n  decode: 3\n  3 are not meant by the filter\n"
    )
    assert sent(rig, "some.dead") == Counter()
    assert main([*command, "--where", "offset >= 4 AND reason = 'decode'", "--limit", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by_reason"] == {"decode": 1}
    assert main([*command, "--since", "1970-01-01T00:10:00"]) == 0
    assert "2 of 6 letters were sent back\n  decode: 2\n  1 were sent back before" in capsys.readouterr().out
    assert main([*command, "--key", "key-1"]) == 0
    assert sent(rig, "some.dead") == Counter([3, 4, 5, 1])
    assert {json.dumps(step.filter) for step in trail(rig, "some.dead")} == {
        '{"where": "offset >= 4 AND reason = \'decode\'"}',
        '{"since_ms": 600000}',
        '{"key": "key-1"}',
    }


def test_a_state_that_is_gone_or_not_wanted_any_more_is_refused(broker: Broker, tmp_path: Path) -> None:
    rig = rig_of(broker, tmp_path, "state.dead")
    flow = rig.pipeline.flows["orders"]
    assert isinstance(flow, Ingest)
    checkpoint, home = rig.pipeline.work / "checkpoints" / "orders", rig.pipeline.work / "letters" / "orders" / QUERY
    (checkpoint / "offsets").mkdir()
    # Before it had dead letters, it did not read their topic: it begins with nothing.
    (checkpoint / "offsets" / "2").write_text('v1\n{}\n{"orders": {"0": 5}}')
    assert LetterSink(flow, rig.pipeline)._nothing(3).batch == -1
    (checkpoint / "offsets" / "2").write_text('v1\n{}\n{"orders": {"0": 5}, "state.dead.retry": {"0": 0}}')
    with pytest.raises(StateError, match="has no state for batch 3; it belongs to the checkpoint"):
        LetterSink(flow, rig.pipeline)._nothing(3)
    plain = replace(flow, dead_letters=None)
    assert isinstance(sink(plain, rig.pipeline), AppendSink)
    home.mkdir(parents=True)
    with pytest.raises(StateError, match="the flow had 'dead_letters'"):
        sink(plain, rig.pipeline)


def test_what_cannot_be_redriven(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig = rig_of(broker, tmp_path, "wrong.dead")
    for flow, error in (("plain", "'plain' has no dead letters; there are orders"), ("order", "'order' is no flow")):
        with pytest.raises(RedriveError, match=error):
            Redrive(rig.pipeline, flow, Wanted.of(), rig.clock)
    assert main(["pipeline", "redrive", str(rig.file), "orders", "--where", "offset"]) == 2
    assert "--where: cannot read 'offset'" in capsys.readouterr().err
    (rig.pipeline.work / "checkpoints" / "orders" / "metadata").unlink()
    with pytest.raises(RedriveError, match="'orders' has not run yet"):
        redrive(rig)
