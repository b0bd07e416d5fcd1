"""The Agent2Agent protocol (https://a2a-protocol.org), versions 1.0 and 0.3 over JSON-RPC.

``rpc`` requests, answers, errors and the names of methods · ``messages`` what clients send · ``front`` what is done
with it, through the service, and agent cards · ``tasks`` a turn as a task, its events as those of a stream · ``push``
push notifications, which are webhooks · ``version_03`` the older form of all of this. Everything else here writes and
reads the form of 1.0, which is the JSON of its Protocol Buffers.
"""
