"""Shapes of the keys that vendors issue, found bare in a text.

The shapes are those that the vendors' own pages show. Where a vendor names no length, the shape takes what all known
keys have in common.
"""

import re

VENDOR_KEYS = {
    "Slack webhook": r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{20,}",
    "Discord webhook": r"discord(?:app)?\.com/api/webhooks/\d{10,25}/[\w-]{30,}",
    "GitLab": r"gl(?:ptt|rt|dt|soat|cbt|ft|imt|agent)-[\w-]{20,}",
    "SendGrid": r"SG\.[\w-]{16,32}\.[\w-]{16,64}",
    "PyPI": r"pypi-AgE[\w-]{50,}",
    "Docker": r"dckr_(?:pat|oat)_[\w-]{20,}",
    "Databricks": r"dapi[0-9a-f]{32}(?!\w)",
    "Vault": r"hv[sbr]\.[\w-]{24,}",
    "Shopify": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}(?!\w)",
    "Twilio": r"SK[0-9a-f]{32}(?!\w)",
    "Linear": r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}",
    "Notion": r"ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}(?!\w)",
    "Postman": r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}(?!\w)",
    "Grafana": r"glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}|glc_[A-Za-z0-9+/]{32,}",
    "Telegram": r"\d{8,10}:[\w-]{35}(?![\w-])",
    "Azure": r"[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])",
    "Groq": r"gsk_[A-Za-z0-9]{40,}",
    "xAI": r"xai-[A-Za-z0-9]{40,}",
    "Replicate": r"r8_[A-Za-z0-9]{30,}",
    "Fly": r"fo1_[\w-]{40,}|fm[12][ar]?_[A-Za-z0-9+/=_-]{40,}",
}
VENDOR_KEY = re.compile(rf"(?:(?<![\w-])|(?<=\\[nrt]))(?:{'|'.join(VENDOR_KEYS.values())})", re.ASCII)
"""Any of them. Each begins at a boundary with a short part of fixed form, which keeps the search linear."""
