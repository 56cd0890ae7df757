"""Proof that what was produced has landed: from the broker's log and the table's files only (docs/audit.md).

coverage     intervals of offsets in bounded memory
batches      what a fetch answer holds, from headers; log reads whole partitions
lake         the rows of the table
compare      missing, doubled, surplus
auditing     the order of it all; report is what comes out
"""

from tidelog.spark.audit.auditing import audit
from tidelog.spark.audit.checkpoint import Claim, claim_of
from tidelog.spark.audit.compare import Span, Tally
from tidelog.spark.audit.errors import AuditError
from tidelog.spark.audit.lake import Outlet, Table
from tidelog.spark.audit.report import PartitionReport, Report, Window

__all__ = [
    "AuditError",
    "Claim",
    "Outlet",
    "PartitionReport",
    "Report",
    "Span",
    "Table",
    "Tally",
    "Window",
    "audit",
    "claim_of",
]
