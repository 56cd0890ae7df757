"""Long computations in slices: what a turn may cost, and whose turn it is."""

from __future__ import annotations

from tidelog.coordinator.chores import UNITS_A_TURN, Chores, Work, finish

STEP = UNITS_A_TURN // 4


class Driver:
    """Notes the steps of all works, and in which turn each was made."""

    def __init__(self) -> None:
        self.wakes = 0
        self.turn = 0
        self.steps: list[tuple[int, str]] = []
        self.chores = Chores(self.wake)

    def wake(self) -> None:
        self.wakes += 1

    def work(self, name: str, steps: int, cost: int = STEP) -> Work[None]:
        for _ in range(steps):
            self.steps.append((self.turn, name))
            yield cost
        self.steps.append((self.turn, f"{name} ends"))

    def next_turn(self) -> bool:
        self.turn += 1
        self.chores.next_turn()
        return self.chores.go_on()


def test_what_is_short_is_done_at_once() -> None:
    driver = Driver()
    driver.chores.begin(driver.work("a", 2))
    assert driver.steps == [(0, "a"), (0, "a"), (0, "a ends")]
    assert driver.chores.is_behind and driver.wakes == 1, "what it cost is counted until the next turn"
    assert not driver.next_turn()
    assert not driver.chores.is_behind


def test_a_turn_has_one_sum_for_all() -> None:
    driver = Driver()
    for name in "abc":
        driver.chores.begin(driver.work(name, 2))
    assert [name for _, name in driver.steps] == ["a", "a", "a ends", "b", "b"]
    assert driver.next_turn()
    assert [name for turn, name in driver.steps if turn == 1] == ["b ends", "c", "c", "c ends"]


def test_what_is_long_goes_on_turn_by_turn_and_lets_others_in_between() -> None:
    driver = Driver()
    driver.chores.begin(driver.work("long", 9))
    driver.chores.begin(driver.work("short", 1))
    while driver.chores.is_behind:
        driver.next_turn()
    by_turn = [[name for at, name in driver.steps if at == turn] for turn in range(4)]
    assert by_turn == [
        ["long"] * 4,
        ["long"] * 4,
        ["short", "short ends", "long", "long ends"],
        [],
    ]


def test_a_step_that_costs_more_than_a_turn_is_the_only_one_of_its_turn() -> None:
    driver = Driver()
    driver.chores.begin(driver.work("a", 3, cost=2 * UNITS_A_TURN))
    while driver.chores.is_behind:
        driver.next_turn()
    assert driver.steps == [(0, "a"), (1, "a"), (2, "a"), (3, "a ends")]


def test_what_a_work_begins_waits_until_it_has_stopped() -> None:
    driver = Driver()

    def outer() -> Work[None]:
        driver.chores.begin(driver.work("inner", 1))
        driver.steps.append((driver.turn, "outer"))
        yield 1

    driver.chores.begin(outer())
    assert [name for _, name in driver.steps] == ["outer", "inner", "inner ends"]


def test_all_of_it_at_once() -> None:
    def adding() -> Work[int]:
        total = 0
        for number in range(5):
            total += number
            yield UNITS_A_TURN
        return total

    assert finish(adding()) == 10
