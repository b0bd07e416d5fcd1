import pytest

from loom_worker.guard.findings import redacted
from loom_worker.guard.vendor_keys import vendors

# Put together here, for a scanner of secrets would take each for a real one.
MIXED, HEX = "a1B2c3D4e5" * 6, "0a1b2c3d4e5f6789" * 3
EXAMPLES = {
    "Slack webhook": "hooks.slack.com" + "/services/T0AB12CD3/B0EF45GH6/" + MIXED[:24],
    "Discord webhook": "discord.com/api" + "/webhooks/123456789012345678/" + MIXED,
    "GitLab": "gl" + "rt-" + MIXED[:20],
    "Age": "AGE" + "-SECRET-KEY-1" + MIXED.upper()[:58],
    "Atlassian": "ATATT" + "3" + MIXED,
    "AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "DigitalOcean": "dop" + "_v1_" + (HEX * 2)[:64],
    "Figma": "figd" + "_" + MIXED[:43],
    "GitHub": "ghp" + "_" + MIXED[:36],
    "Google": "AIza" + "Sy" + MIXED[:33],
    "Heroku": "HRKU" + "-" + MIXED[:36],
    "Hugging Face": "hf" + "_" + MIXED[:34],
    "JSON Web Token": "eyJ" + "hbGciOiJIUzI1NiJ9." + MIXED + "." + MIXED[:43],
    "Loom": "loom" + "_" + MIXED[:43],
    "New Relic": "NRAK" + "-" + MIXED.upper()[:27],
    "npm": "npm" + "_" + MIXED[:36],
    "Perplexity": "pplx" + "-" + MIXED[:48],
    "Sentry": "sntrys" + "_" + MIXED,
    "Slack": "xoxb" + "-" + "123456789012-" + MIXED[:24],
    "Stripe": "sk" + "_live_" + MIXED[:24],
    "Supabase": "sbp" + "_" + HEX[:40],
    "Tailscale": "tskey" + "-auth-" + MIXED[:30],
    "SendGrid": "SG" + "." + MIXED[:22] + "." + MIXED[:43],
    "PyPI": "pypi" + "-AgE" + MIXED,
    "Docker": "dckr" + "_pat_" + MIXED[:27],
    "Databricks": "dapi" + HEX[:32],
    "Vault": "hvs" + "." + MIXED[:24],
    "Shopify": "shpat" + "_" + HEX[:32],
    "Twilio": "SK" + HEX[:32],
    "Linear": "lin" + "_api_" + MIXED[:40],
    "Notion": "ntn" + "_" + MIXED[:46],
    "Postman": "PMAK" + "-" + HEX[:24] + "-" + HEX[:34],
    "Grafana": "glsa" + "_" + MIXED[:32] + "_" + HEX[:8],
    "Telegram": "123456789" + ":" + MIXED[:35],
    "Azure": "abc" + "8Q~" + MIXED[:34],
    "Groq": "gsk" + "_" + MIXED[:52],
    "xAI": "xai" + "-" + MIXED,
    "Replicate": "r8" + "_" + MIXED[:37],
    "1Password": "A3" + "-ASWWYB-798JRYLJVD4-23DC2-86TVM-H43EB",
    "Brevo": "xkeysib" + "-" + (HEX * 2)[:64] + "-" + MIXED[:16],
    "Doppler": "dp.pt" + "." + MIXED[:43],
    "HubSpot": "pat-na1" + "-0a1b2c3d-4e5f-6789-0a1b-2c3d4e5f6789",
    "Netlify": "nfp" + "_" + MIXED[:36],
    "PlanetScale": "pscale_pw" + "_" + MIXED[:43],
    "Pulumi": "pul" + "-" + HEX[:40],
    "RubyGems": "rubygems" + "_" + HEX,
    "Square": "EAAA" + MIXED[:56],
    "Asana": "1/" + "6068827397402625:" + HEX[:32],
    "Dropbox": "sl" + "." + MIXED * 3,
    "Laravel": "base64" + ":" + MIXED[:43] + "=",
    "Resend": "re" + "_" + MIXED[:8] + "_" + MIXED[:24],
    "Sonar": "squ" + "_" + HEX[:40],
    "Fly": "fo1" + "_" + MIXED[:43],
}


def test_every_example_is_one_of_a_vendor() -> None:
    assert EXAMPLES.keys() <= vendors().keys()


@pytest.mark.cases("key", list(EXAMPLES.values()))
def test_a_vendors_key_is_taken_out_of_a_text(key: str) -> None:
    assert redacted(f"it said\\n{key} and went on") == "it said\\n[redacted] and went on"
    assert redacted(f"use {key}, please") == "use [redacted], please"


@pytest.mark.cases(
    "key",
    [
        "bot123456789" + ":" + MIXED[:35],
        "discord.com/api" + "/v10/webhooks/123456789012345678/" + MIXED,
        "gl" + "pat-" + MIXED[:27] + ".01." + MIXED[:9],
    ],
)
def test_a_key_is_taken_out_whole_in_the_forms_in_which_it_is_used(key: str) -> None:
    assert redacted(f"https://{key}/x") == "https://[redacted]/x"


@pytest.mark.cases("text", ["dapi", "gsk_your_key_here", "xai-<key>", "SG.x.y", "lin_api_...", "12:30:45", "hvs.token"])
def test_a_placeholder_stays(text: str) -> None:
    assert redacted(text) == text
