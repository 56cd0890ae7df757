"""Ad reporting: impressions joined with clicks, and what each campaign spends.

Ads are shown (an impression) and sometimes clicked, within ten minutes if ever; a campaign pays for impressions that
were clicked. Both are topics of their own, written by different systems. A pipeline (ad_reporting.yaml) joins them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Producer
from story import Story, tell

HOUR = datetime(2026, 11, 17, 10, tzinfo=UTC)
CAMPAIGNS = {"boots": 30, "tea": 12, "lamps": 45}  # and what a click costs, in cents
SHOWN = 300


def an_hour() -> tuple[list[dict[str, Any]], list[dict[str, Any]], Counter[str]]:
    """Impressions, clicks, and what each campaign must pay. Clicks are odd, as in life."""
    chance = random.Random(7)
    impressions, clicks, spend = [], [], Counter(dict.fromkeys(CAMPAIGNS, 0))
    for number in range(1, SHOWN + 1):
        at = HOUR + timedelta(seconds=chance.uniform(0, 45 * 60))
        campaign = chance.choice(list(CAMPAIGNS))
        impressions.append({"id": number, "campaign": campaign, "bid_cents": CAMPAIGNS[campaign], "at": at.isoformat()})
        if number % 10 == 0:  # clicked twice, by an impatient finger: paid once
            clicks += [{"impression": number, "at": (at + timedelta(seconds=s)).isoformat()} for s in (30, 31)]
        elif number % 10 == 5:  # clicked once
            clicks.append({"impression": number, "at": (at + timedelta(minutes=9)).isoformat()})
        elif number == 77:  # a tab that was open for long: not paid
            clicks.append({"impression": number, "at": (at + timedelta(minutes=11)).isoformat()})
        if number % 5 == 0:
            spend[campaign] += CAMPAIGNS[campaign]
    clicks.append({"impression": 9999, "at": (HOUR + timedelta(minutes=5)).isoformat()})  # of no impression: a fraud?
    return impressions, clicks, spend


def play(story: Story) -> None:
    story.topic("impressions", partitions=2)
    story.topic("clicks", partitions=2)
    producer = Producer({"bootstrap.servers": story.bootstrap, "acks": "all"})
    impressions, clicks, spend = an_hour()
    # The next hour begins: its first records tell both streams that the one before is over.
    later = (HOUR + timedelta(minutes=75)).isoformat()
    beyond = {"id": SHOWN + 1, "campaign": "tea", "bid_cents": 12, "at": later}
    # Clicks go first: which of the two topics is ahead makes no difference.
    for click in (*clicks, {"impression": SHOWN + 1, "at": later}):
        producer.produce("clicks", key=str(click["impression"]), value=json.dumps(click))
    for impression in (*impressions, beyond):
        producer.produce("impressions", key=str(impression["id"]), value=json.dumps(impression))
    producer.flush()
    story.act(f"{SHOWN} impressions and {len(clicks)} clicks on them within an hour")
    story.pipeline("ad_reporting")

    pairs = [row for row in story.rows("clicked") if row["left"]["payload"]["id"] <= SHOWN]
    alone = story.rows("not_clicked")
    hourly = {row["campaign"]: row["impressions"] for row in story.rows("per_hour")}
    # An impression that was clicked twice is in two pairs: it is paid once.
    paid = {row["left"]["payload"]["id"]: row["left"]["payload"] for row in pairs}
    clicked = Counter(ad["campaign"] for ad in paid.values())
    spent: Counter[str] = Counter(dict.fromkeys(CAMPAIGNS, 0))
    for ad in paid.values():
        spent[ad["campaign"]] += ad["bid_cents"]

    story.act("The report of the hour")
    lines = [
        (name, hourly[name], clicked[name], f"{clicked[name] / hourly[name]:.1%}", f"{spent[name] / 100:.2f}")
        for name in CAMPAIGNS
    ]
    story.table(["CAMPAIGN", "SHOWN", "CLICKED", "RATE", "SPEND"], lines)
    story.expect(
        spent == spend, f"{sum(spent.values()) / 100:.2f} is spent, as it must be: double clicks are paid once"
    )
    not_clicked = [row for row in alone if row["side"] == "left"]
    story.expect(
        len(paid) + len(not_clicked) == sum(hourly.values()) == SHOWN, "every impression is clicked or not, once"
    )

    story.act("Clicks that nobody pays for")
    odd = sorted(row["right"]["payload"]["impression"] for row in alone if row["side"] == "right")
    story.say(f"impression 77 was clicked after eleven minutes, and 9999 was never shown: {odd}")
    story.expect(odd == [77, 9999], "both are kept, to be looked at")


if __name__ == "__main__":
    tell(play, __doc__)
