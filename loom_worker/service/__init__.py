"""Everything a client can ask for, without HTTP.

``service`` the requests · ``sessions`` changes a session within what its agent allows, and searches in it ·
``announcer`` notifies workers and readers · ``context_report`` what the model would be sent · ``waiting`` waits for
ends and reads events · ``pattern_catalog`` patterns · ``keys`` API keys · ``allowances`` what keys, agents and
workspaces may use · ``metrics`` figures and readiness · ``users`` what is known of users, and the deletion of all of
one · ``input_guard`` holds messages against guardrails, and takes decisions of people · ``workflow_runs`` workflows and
their runs · ``schedules`` what begins by itself · ``agent_versions`` which version of an agent sessions get ·
``learned`` what optimizers have found for agents
"""
