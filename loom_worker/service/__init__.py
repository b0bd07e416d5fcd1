"""Everything a client can ask for, without HTTP.

``service`` the requests · ``allowed`` what a session may choose, ``session_changes`` in the version of its agent that
it keeps · ``announcer`` notifies workers and readers · ``approvals`` decisions of people · ``context_report`` what the
model would be sent · ``waiting`` waits for ends and reads events · ``pattern_catalog`` patterns · ``keys`` API keys ·
``rate_limits`` of keys · ``metrics`` figures and readiness · ``administration`` rules of workspaces · ``terms`` what
agents may spend · ``user_deletion`` deletes all of a user · ``input_guard`` holds messages against guardrails ·
``workflow_runs`` workflows and their runs · ``schedules`` what begins by itself · ``agent_versions`` which version of
an agent sessions get · ``session_search`` search in a session · ``facts`` what is known of users · ``learned`` what
optimizers have found for agents
"""
