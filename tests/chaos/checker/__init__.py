"""The anomalies of a history, by name. `check(history)` gives a `Report`.

Errors, after Jepsen's list for Kafka: inconsistent-offsets, duplicate, lost-write, unseen, torn-transaction, phantom,
G1a, dirty-read, precommitted-read, poll-skip, nonmonotonic-poll, nonmonotonic-send (and each of the three within one
operation: int-...), G1c. Of groups: double-owner, zombie-commit, commit-regressed, lost-commit, aborted-commit,
phantom-commit, commit-skip. Of copying: output-missing, output-duplicate, output-invented, output-reordered.
Of compacted topics: lost-key, stale-key, revived-key. Of banks: wrong-total.

Notices, which Kafka allows: G0, G1c-ww, int-send-skip, and for members of a group poll-skip and nonmonotonic-poll
between operations; without idempotence duplicate and nonmonotonic-send. `consume_counts` is reported only."""

from tests.chaos.checker.report import ERRORS, NOTICES, Anomaly, Report
from tests.chaos.checker.rules import check

__all__ = ["ERRORS", "NOTICES", "Anomaly", "Report", "check"]
