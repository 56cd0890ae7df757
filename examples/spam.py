"""Spam: users who post too often get on a block list, which is a compacted topic.

A pipeline (spam.yaml) counts posts per user over sliding windows. A window with too many of them writes its user into
the block list. Whoever must know the list reads that topic from its beginning: the newest record of a user counts, and
one without a value (a tombstone) takes the user off.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from story import Story, read, tell

BEGIN = datetime(2026, 11, 17, 10, tzinfo=UTC)
PEOPLE = ("ann", "ben", "cleo", "dan", "eve")
LIMIT = 20  # posts within a minute, as in spam.yaml
# A flood of 24 posts across a full minute, half of it before and half after.
BURST = [BEGIN + timedelta(minutes=1, seconds=45 + 1.25 * number) for number in range(24)]
BOT = [BEGIN + timedelta(seconds=2 * number) for number in range(120)]  # thirty a minute, all the time


def posts() -> list[tuple[datetime, str]]:
    chance = random.Random(7)
    made = [(BEGIN + timedelta(seconds=chance.uniform(0, 300)), user) for user in PEOPLE for _ in range(25)]
    made += [(at, "bot-1") for at in BOT] + [(at, "bot-2") for at in BURST]
    return sorted(made)


def play(story: Story) -> None:
    story.topic("posts", partitions=2)
    story.topic("block-list", cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": story.bootstrap, "acks": "all"})
    made = posts()
    for at, user in made:
        producer.produce("posts", key=user, value=json.dumps({"user": user, "text": "buy!", "at": at.isoformat()}))
    producer.flush()
    story.act(f"{len(PEOPLE)} people and two bots have written {len(made)} posts within five minutes")
    story.pipeline("spam")

    story.act("The block list")
    blocked = block_list(story)
    story.table(
        ["USER", "POSTS", "WITHIN A MINUTE FROM"], [(u, b["posts"], b["window_start"]) for u, b in blocked.items()]
    )
    story.expect(sorted(blocked) == ["bot-1", "bot-2"], "both bots are on it, and nobody else")
    tumbling = max(sum(at.minute == minute for at in BURST) for minute in range(5))
    story.say(f"bot-2 posted across a full minute: windows that do not overlap have {tumbling} of its posts at most")
    story.expect(tumbling < LIMIT, "only sliding windows see it")

    story.act("A reader of the list lets posts pass, or not")
    for user in ("ann", "bot-1"):
        story.say(f"{user}: {'refused' if user in blocked else 'welcome'}")

    story.act("bot-2 was a machine that reported a fire: support takes it off the list, by a record without a value")
    producer.produce("block-list", key="bot-2", value=None)
    producer.flush()
    story.expect(sorted(block_list(story)) == ["bot-1"], "only bot-1 is left")


def block_list(story: Story) -> dict[str, dict[str, object]]:
    """As any service builds it: all records from the beginning, the newest of a key counts."""
    found: dict[str, dict[str, object]] = {}
    for message in read(story.bootstrap, "block-list"):
        user = message.key().decode()
        found.pop(user, None)
        if message.value() is not None:
            found[user] = json.loads(message.value())
    return found


if __name__ == "__main__":
    tell(play, __doc__)
