"""The Agent2Agent protocol (https://a2a-protocol.org), versions 1.0 and 0.3 over JSON-RPC.

``rpc`` requests, answers and errors · ``methods`` their names in both versions · ``messages`` what clients send ·
``front`` what is done with it, through the service · ``tasks`` a turn as a task · ``updates`` a turn's events as
those of a stream · ``push`` push notifications, which are webhooks · ``cards`` agent cards · ``version_03`` the older
form of all of this. Everything else here writes and reads the form of 1.0, which is the JSON of its Protocol Buffers.
"""
