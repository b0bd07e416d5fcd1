"""One turn: saved state, and a loop that is entered again until it has ended.

``entrypoints.py`` called by tasks: lease, claim, run · ``run.py`` the loop · ``decide.py`` what comes next, pure ·
``reply.py`` asks the model · ``context.py`` what the model is sent · ``tool_plan.py`` a reply's tool calls ·
``ending.py`` the end · ``state.py`` a turn's state and messages · ``worker.py`` the parts it runs on ·
``agent_runtime.py`` its agent · ``control.py`` whether it is still ours, and cancel requests · ``waits.py`` what it
waits for, for others
"""
