"""One contract for both tiers."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_worker.blobs.disk import DiskTier
from loom_worker.blobs.memory import MemoryTier
from loom_worker.blobs.tier import Tier, is_ref
from tests.unit.blobs.made import new_ref


@pytest.fixture(params=["disk", "memory"])
def tier(request: pytest.FixtureRequest, disk: DiskTier, memory: MemoryTier) -> Tier:
    return disk if request.param == "disk" else memory


@given(st.binary(max_size=5_000))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_tier_gives_back_what_it_was_given(tier: Tier, data: bytes) -> None:
    ref = new_ref()
    tier.put(ref, data)
    assert tier.get(ref, most_bytes=len(data)) == data


def test_a_tier_knows_nothing_of_other_references(tier: Tier) -> None:
    tier.put(new_ref(), b"data")
    assert tier.get(new_ref(), most_bytes=100) is None


def test_what_is_dropped_is_gone_and_the_rest_stays(tier: Tier) -> None:
    gone, stays = new_ref(), new_ref()
    tier.put(gone, b"gone")
    tier.put(stays, b"stays")
    tier.drop([gone, new_ref()])
    tier.drop([])
    assert (tier.get(gone, most_bytes=9), tier.get(stays, most_bytes=9)) == (None, b"stays")


def test_a_tier_keeps_the_last_bytes_of_a_reference(tier: Tier) -> None:
    ref = new_ref()
    tier.put(ref, b"first, and longer")
    tier.put(ref, b"second")
    assert tier.get(ref, most_bytes=99) == b"second"


def test_no_more_is_read_than_shows_that_there_is_more(tier: Tier) -> None:
    ref = new_ref()
    tier.put(ref, os.urandom(5_000))
    read = tier.get(ref, most_bytes=100)
    assert read is not None
    assert len(read) == 101


@pytest.mark.cases(
    "name", ["", "ref_", "ref_../../../../etc/passwd", f"ref_{'a' * 31}", f"ref_{'a' * 32}\n", f"ref_{'A' * 32}", "*"]
)
def test_what_is_no_reference_never_becomes_a_path_or_a_key(tier: Tier, name: str) -> None:
    assert not is_ref(name)
    with pytest.raises(ValueError, match="not a reference"):
        tier.put(name, b"data")
    with pytest.raises(ValueError, match="not a reference"):
        tier.get(name, most_bytes=1)
    with pytest.raises(ValueError, match="not a reference"):
        tier.drop([name])
