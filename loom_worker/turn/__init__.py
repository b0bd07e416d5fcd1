"""One turn: saved state, and a loop that is entered again until it has ended.

``entrypoints`` called by tasks: lease, claim, run, judge · ``run`` the loop · ``decide`` what comes next, pure ·
``reply`` asks the model · ``context`` what the model is sent · ``tool_plan`` a reply's tool calls · ``text_calls``
those in its text · ``agent_calls`` what those that other agents answer need, pure · ``children`` does it · ``ending``
the end and its metrics · ``state`` a turn's state · ``transcript`` its messages · ``worker`` the parts it runs on ·
``agent_runtime`` its agent · ``control`` whether it is still ours, and cancel requests · ``waits`` what it waits for,
for others, and when its model was asked · ``channel`` the answer as messages of a channel · ``plain_text`` without
Markdown · ``filtering`` results and answers under guardrails · ``judging`` what judges need and come to · ``reporting``
what a monitor is told
"""
