import pytest

from loom_worker.core.errors import Invalid
from loom_worker.webhook.address import check_url
from tests.unit.guard.net.hostile import ALWAYS_REFUSED, PRIVATE


@pytest.mark.cases("url", PRIVATE)
def test_a_private_target_is_refused_and_told_what_opens_it(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_url(url, allow_private=False)
    (flaw,) = refused.value.flaws
    assert flaw.pointer == "/webhook/url"
    assert "LOOM_ALLOW_PRIVATE_WEBHOOKS=1" in flaw.detail
    assert str(refused.value) == f"webhook URL refused: {flaw.detail}"
    check_url(url, allow_private=True)


@pytest.mark.cases("url", ALWAYS_REFUSED)
def test_an_unfit_url_is_refused_at_its_place_in_the_request(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_url(url, allow_private=True)
    assert [flaw.pointer for flaw in refused.value.flaws] == ["/webhook/url"]


def test_a_public_url_is_accepted() -> None:
    check_url("https://example.com/hook?a=1", allow_private=False)
