"""A directory with ACLs is not opened to everybody unless somebody says so; other things that are kept are told of."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.kernel.errors import TidelogError
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.carried import UnenforcedAclsError, check_carried, check_version
from tidelog.node.config import load
from tidelog.protocol.messages import records_metadata as r

QUOTA = r.ClientQuotaRecord(key="producer_byte_rate", value=1.0)
ACLS = [r.AccessControlEntryRecord(id=bytes([number]) * 16) for number in (1, 2)]
SCRAM = r.UserScramCredentialRecord(name="a", mechanism=1)


def check(records: list[Any], *overrides: str) -> None:
    publisher = MetadataPublisher()
    publisher.apply(records, 0, 1)
    check_carried(publisher.image, load(None, {}, overrides))


def test_acls_that_would_not_be_enforced_are_a_reason_not_to_start() -> None:
    with pytest.raises(UnenforcedAclsError, match=r"holds 2 ACLs, .*set tidelog.acls.unenforced.allow=true"):
        check([QUOTA, *ACLS])


def test_who_says_so_is_warned_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    check([QUOTA, *ACLS, SCRAM], "tidelog.acls.unenforced.allow=true")
    assert [record.getMessage() for record in caplog.records] == [
        "the metadata holds 1 client quota, 2 ACLs, 1 SCRAM credential: kept for Apache Kafka, but nothing here acts "
        "on them yet"
    ]


def test_what_was_removed_is_no_matter(caplog: pytest.LogCaptureFixture) -> None:
    check([*ACLS, *(r.RemoveAccessControlEntryRecord(id=acl.id) for acl in ACLS)])
    assert not caplog.records


@pytest.mark.parametrize("level", [0, 25, 30])
def test_metadata_of_this_release_and_of_older_ones_is_read(level: int) -> None:
    check_version(MetadataImage(features={"metadata.version": level, "group.version": 7}))


def test_metadata_of_a_newer_release_is_refused() -> None:
    with pytest.raises(TidelogError, match=r"metadata\.version 31, and this release knows up to 30"):
        check_version(MetadataImage(features={"metadata.version": 31}))
