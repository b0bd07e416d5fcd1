"""Frozen values that all packages share, one file for each kind of thing.

``sessions``, ``turns``, ``calls`` (of their tools), ``children`` (turns that they wait for), ``agent_messages``
(between agents), ``waiting`` (what they wait for), ``decisions`` (of people), ``channels`` (where users write and
read), ``chat`` (messages to and from models), ``media`` (files in them), ``tools``, ``agents``, ``agent_versions``,
``memory`` (with summaries by date), ``tiers`` (of it), ``facts``, ``fact_changes`` (what becomes of known ones when
others are said), ``patterns``, ``skills``, ``api_keys``, ``tenants`` (whose data a request may reach, and who acts),
``audit`` (who did what), ``notifications`` (events and webhook deliveries), ``webhooks`` (where ends are reported),
``budgets`` (amounts, limits, what is set aside), ``usage`` (how it is looked at), ``guardrails`` (what texts are
searched for), ``judges`` (who looks at answers), ``learned`` (what optimizers have found for agents), ``workspaces``
(their rules), ``workflows``, ``runs`` (of workflows), ``schedules`` (when they begin by themselves) and ``problems``
(of an installation). ``traces`` is what journals keep for ``spans``. ``ids``, ``json``, ``pages`` and ``cutting``
(shortening JSON) are the forms they have in common.
"""
