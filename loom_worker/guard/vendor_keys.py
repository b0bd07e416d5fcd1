"""Shapes of the keys that vendors issue, found bare in a text.

The prefixes and lengths are those of the public rules of gitleaks (MIT,
https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml, as of 2026-11) and of the vendors' own pages; a
length is given as a minimum where vendors have changed it.
"""

import re

VENDOR_KEYS = {
    "Age": r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    "Atlassian": r"ATATT3[\w=-]{40,}",
    "AWS": r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "Azure": r"[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])",
    "Databricks": r"dapi[0-9a-f]{32}(?!\w)",
    "DigitalOcean": r"do[opr]_v1_[0-9a-f]{64}",
    "Discord webhook": r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{10,25}/[\w-]{30,}",
    "Docker": r"dckr_(?:pat|oat)_[\w-]{20,}",
    "Figma": r"figd_[\w-]{40,}",
    "Fly": r"fo1_[\w-]{40,}|fm[12][ar]?_[A-Za-z0-9+/=_-]{40,}",
    "GitHub": r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
    "GitLab": r"gl(?:pat|ptt|rt|dt|soat|cbt|ft|imt|agent)-[\w-]{20,}(?:\.[\w-]{2,}){0,2}",
    "Google": r"AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{28}",
    "Grafana": r"glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}|glc_[A-Za-z0-9+/]{32,}|eyJrIjoi[A-Za-z0-9]{60,}",
    "Groq": r"gsk_[A-Za-z0-9]{40,}",
    "Heroku": r"HRKU-[\w-]{36,}",
    "Hugging Face": r"hf_[A-Za-z0-9]{30,}|api_org_[A-Za-z0-9]{30,}",
    "JSON Web Token": r"eyJ[\w-]{6,}(?:\.[\w-]*){2,4}",
    "Linear": r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}",
    "Loom": r"loom_[0-9A-Za-z]{43}",
    "New Relic": r"NRAK-[A-Z0-9]{27}",
    "Notion": r"ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}(?!\w)",
    "npm": r"npm_[A-Za-z0-9]{30,}",
    "Perplexity": r"pplx-[A-Za-z0-9]{40,}",
    "Postman": r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}(?!\w)",
    "PyPI": r"pypi-AgE[\w-]{50,}",
    "Replicate": r"r8_[A-Za-z0-9]{30,}",
    "SendGrid": r"SG\.[\w-]{16,32}\.[\w-]{16,64}",
    "Sentry": r"sntry[su]_[\w+/=-]{40,}",
    "Shopify": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}(?!\w)",
    "Slack": r"xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}",
    "Slack webhook": r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{20,}",
    "Stripe": r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{20,}",
    "Supabase": r"sbp_[0-9a-f]{40}",
    "Tailscale": r"tskey-[a-z]{3,12}-[\w-]{20,}",
    "Telegram": r"(?:bot)?\d{8,10}:[\w-]{35}(?![\w-])",
    "Twilio": r"SK[0-9a-f]{32}(?!\w)",
    "Vault": r"hv[sbr]\.[\w-]{24,}",
    "xAI": r"xai-[A-Za-z0-9]{40,}",
}
VENDOR_KEY = re.compile(rf"(?:(?<![\w-])|(?<=\\[nrt]))(?:{'|'.join(VENDOR_KEYS.values())})", re.ASCII)
"""Any of them. Each begins at a boundary with a short part of fixed form, which keeps the search linear."""
