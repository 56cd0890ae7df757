"""What goes wrong during a run, drawn from a seed: a fault every second or two, a quarter of the time none."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from tests.chaos.brokers import Lab
from tests.chaos.crew import Crew, Life, Slot

DEFAULT = ("kill-node", "cut", "lose-answers", "pause-client", "kill-client", "hijack", "calm", "calm")
PAUSES_S = (0.5, 2.0, 7.0)
"""The last one is longer than sessions and transactions last."""


class Faults:
    def __init__(self, lab: Lab, crew: Crew, seed: int, names: tuple[str, ...], say: Callable[[str], None]) -> None:
        self._lab = lab
        self._crew = crew
        self._chance = random.Random(seed)
        self._names = names
        self._say = say
        self._paused: list[tuple[float, Life]] = []
        self.counts: Counter[str] = Counter()
        self._over = threading.Event()

    def run(self, seconds: float) -> None:
        """Returns with everything healed: the node runs, no one is stopped, every slot is filled."""
        deadline = time.monotonic() + seconds
        # Each of them at least once, if there is time: a fault that never came proves nothing. A kill of the node comes
        # in any case: the tests of short runs rely on it, and its turn may be the last.
        waiting = self._chance.sample(self._names, len(self._names))
        while (left := deadline - time.monotonic()) > 0 or "kill-node" in waiting:
            pause_s = self._chance.uniform(0.3, 1.5)
            if self._over.wait(min(left, pause_s) if left > 0 else pause_s):
                break
            name = waiting.pop() if waiting else self._chance.choice(self._names)
            self.counts[name] += 1
            self._say(name)
            getattr(self, "_" + name.replace("-", "_"))()
            self._let_go(time.monotonic())
            self.fill()
        self._lab.proxy.lose_answers = 0.0
        self._let_go(float("inf"))
        self.fill()

    def _calm(self) -> None:
        self._lab.proxy.lose_answers = 0.0

    def _kill_node(self) -> None:
        self._lab.kill()
        self._over.wait(self._chance.uniform(0, 1))
        self._lab.restart()

    def _cut(self) -> None:
        self._lab.proxy.cut_all()

    def _lose_answers(self) -> None:
        self._lab.proxy.lose_answers = 0.05

    def _pause_client(self) -> None:
        if life := self._one():
            self._crew.pause(life)
            self._paused.append((time.monotonic() + self._chance.choice(PAUSES_S), life))

    def _kill_client(self) -> None:
        if life := self._one():
            self._crew.kill(life)

    def _hijack(self) -> None:
        """Another process takes over while the first one lives: both speak for one transactional id or instance."""
        slots = [slot for slot in self._crew.slots if slot.task.transactional_id or slot.task.instance]
        if slots:
            self._start(self._chance.choice(slots))

    def _one(self) -> Life | None:
        lives = [life for life in self._crew.alive if not life.is_paused]
        return self._chance.choice(lives) if lives else None

    def _let_go(self, now_s: float) -> None:
        due = [life for until, life in self._paused if until <= now_s]
        self._paused = [(until, life) for until, life in self._paused if until > now_s]
        for life in due:
            self._crew.go_on(life)

    def fill(self) -> None:
        """Who has ended gets a successor."""
        for slot in self._crew.slots:
            if not slot.is_done and not any(life.is_alive for life in slot.lives):
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        self._crew.start(slot, self._chance.randrange(2**32))
