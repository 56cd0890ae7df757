"""What happens to records that are gone before they were read: the query ends, or a warning is logged."""

from __future__ import annotations

import logging
from typing import Final

from tidelog.kernel.errors import TidelogError

_LOG: Final = logging.getLogger(__name__)


class DataLossError(TidelogError):
    """Records that a query had to read are gone."""


def report_loss(message: str, *, fail: bool) -> None:
    if fail:
        raise DataLossError(f"{message}. Set the option failOnDataLoss to false to go on with what is left")
    _LOG.warning("data loss: %s; going on with what is left (failOnDataLoss is false)", message)
