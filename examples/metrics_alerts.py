"""Alerts on service metrics: minutes in which a service was too slow or failed too often.

Services write a metric for each request. A pipeline (metrics_alerts.yaml) counts them by windows of a minute; a closed
window over a threshold becomes a record in the topic `alerts`.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from story import Story, read, tell

BEGIN = datetime(2026, 11, 17, 10, tzinfo=UTC)
MINUTES = 8
SERVICES = {"checkout": 120, "login": 80, "search": 40}  # and their usual latency in ms
SLOW = {("checkout", 3), ("checkout", 4)}  # (service, minute): its database is busy
FAILING = {("login", 5)}  # a bad release, taken back within the minute


def metrics() -> list[dict[str, object]]:
    """Twenty a minute of each service. They come out of order, as the services do not wait for each other."""
    chance = random.Random(7)
    made: list[dict[str, object]] = []
    for minute in range(MINUTES):
        of_minute = []
        for service, usual_ms in SERVICES.items():
            for number in range(20):
                at = BEGIN + timedelta(minutes=minute, seconds=chance.uniform(0, 59))
                slower = 5 if (service, minute) in SLOW else 1
                failed = (service, minute) in FAILING and number % 2 == 0
                latency_ms = usual_ms * slower * chance.uniform(0.8, 1.2)
                of_minute.append({"service": service, "latency_ms": latency_ms, "failed": failed, "at": at.isoformat()})
        chance.shuffle(of_minute)
        made += of_minute
    return made


def play(story: Story) -> None:
    story.topic("metrics", partitions=2)
    story.topic("alerts")
    producer = Producer({"bootstrap.servers": story.bootstrap, "acks": "all"})
    made = metrics()
    for metric in made:
        producer.produce("metrics", key=str(metric["service"]), value=json.dumps(metric))
    producer.flush()
    story.act(f"{len(SERVICES)} services have written {len(made)} metrics of {MINUTES} minutes")
    story.pipeline("metrics_alerts")

    story.act("The windows that are closed. Metrics of the last two minutes may still be on their way: those are open")
    closed = sorted(story.rows("minutes"), key=lambda row: (row["service"], row["window_start"]))
    for service in SERVICES:
        latencies = [f"{row['latency_ms']:3.0f} ms" for row in closed if row["service"] == service]
        story.say(f"{service:9} {'  '.join(latencies)}")
    found = [(row["service"], (row["window_start"] - BEGIN) // timedelta(minutes=1)) for row in closed]
    expected = [(service, minute) for service in SERVICES for minute in range(MINUTES - 2)]
    story.expect(found == expected, f"each service has each of {MINUTES - 2} minutes once")
    story.expect(all(row["requests"] == 20 for row in closed), "each window has all of its metrics")

    story.act("The alerts: windows over a threshold")
    alerts = [json.loads(message.value()) for message in read(story.bootstrap, "alerts")]
    alerts.sort(key=lambda alert: alert["window_start"])
    columns = ("service", "window_start", "latency_ms", "failures", "requests")
    story.table(
        [column.upper() for column in columns], [[cell(alert[column]) for column in columns] for alert in alerts]
    )
    raised = [(alert["service"], datetime.fromisoformat(alert["window_start"])) for alert in alerts]
    wanted = sorted((service, BEGIN + timedelta(minutes=minute)) for service, minute in SLOW | FAILING)
    story.expect(sorted(raised) == wanted, "there is one alert for each bad minute, and no other")


def cell(value: object) -> object:
    return f"{value:.0f}" if isinstance(value, float) else value


if __name__ == "__main__":
    tell(play, __doc__)
