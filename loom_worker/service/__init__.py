"""Everything a client can ask for, without HTTP.

``service`` the requests · ``allowed`` what a session may choose, ``session_changes`` in the version of its agent that
it keeps · ``announcer`` notifies workers and readers · ``approvals`` decisions of people · ``context_report`` what the
model would be sent · ``waiter`` waits for ends and reads events, ``turn_waiter`` those of turns, with ``turn_follower``
the thread that does so for all (an ``inbox_thread`` with a ``news_listener``), ``followed`` its readers,
``event_source`` what they get next, ``end_waits`` who waits for an end, ``turn_looks`` what is looked up in case news
was lost · ``wait_reports`` what turns wait for · ``pattern_catalog`` patterns · ``keys`` API keys · ``rate_limits`` of
keys · ``metrics`` figures and readiness · ``administration`` rules of workspaces · ``terms`` what agents may spend ·
``user_deletion`` deletes all of a user · ``input_guard`` holds messages against guardrails · ``workflow_runs``
workflows and their runs, with ``run_events`` · ``schedules`` what begins by itself · ``agent_versions`` which version
of an agent sessions get · ``session_search`` search in a session · ``facts`` what is known of users · ``learned`` what
optimizers have found for agents
"""
