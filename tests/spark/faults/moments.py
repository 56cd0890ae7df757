"""When a fault strikes: at any time, while tasks run, or between a table's commit and Spark's own.

The last one is a matter of milliseconds that chance alone would seldom find, and the one in which rows are doubled by a
table that does not know its batches.
"""

from __future__ import annotations

import time
from random import Random
from typing import Final

from tests.spark.faults.driver import Driver
from tests.spark.faults.processes import until

MOMENTS: Final = ("any", "in a batch", "committed")
_ANY_S: Final = 3.0


def wait_for(moment: str, driver: Driver, random: Random) -> str:
    """Returns in that moment; what it was, in words."""
    if moment == "any":
        wait_s = random.uniform(0, _ANY_S)
        time.sleep(wait_s)  # chance itself, no event
        return f"after {wait_s:.1f} s"
    flow = random.choice(sorted(driver.pipeline.flows))
    before = driver.committed(flow)
    until(lambda: driver.is_in_batch(flow) and driver.committed(flow) > before, f"no batch of {flow}", every_s=0.002)
    if moment == "in a batch":
        time.sleep(random.uniform(0, 0.5))
        return f"in a batch of {flow}"
    known = driver.table_commits(flow)
    batch = driver.committed(flow)
    until(
        lambda: driver.committed(flow) > batch or bool(driver.table_commits(flow) - known),
        f"no commit of {flow}",
        every_s=0.001,
    )
    return f"between {flow}'s commit and Spark's" if driver.committed(flow) == batch else f"after a commit of {flow}"
