"""What an administrator asks for: a workspace's rules, and that they hold at once."""

from loom_worker.core.values.budgets import limits_of
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import LOCAL, Actor
from loom_worker.core.values.workspaces import Workspace
from loom_worker.service.announcer import Announcer
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.workspaces import Workspaces


class WorkspaceRules:
    """The rules of workspaces."""

    def __init__(self, database: Database, announcer: Announcer) -> None:
        self._workspaces = Workspaces(database)
        self._budgets = Budgets(database)
        self._announcer = announcer

    def report(self, name: str) -> Json:
        """A workspace with what is used of its budget."""
        return self._with_spending(self._workspaces.get(name))

    def change(self, name: str, changes: Json, *, by: Actor = LOCAL) -> Json:
        """Change some of its rules; what runs in a workspace that is disabled is interrupted at once.

        Args:
            changes: members of the rules; null clears one.
        """
        workspace, lanes = self._workspaces.patch(name, changes, now_ms=now_ms(), by=by)
        for lane in lanes:
            if workspace.rules.is_disabled:
                self._announcer.alert(lane)
            else:
                self._announcer.wake(lane)
        return self._with_spending(workspace)

    def _with_spending(self, workspace: Workspace) -> Json:
        moment_ms = now_ms()
        limits = limits_of("workspace", workspace.name, workspace.rules.budget, now_ms=moment_ms)
        used = self._budgets.report(limits, now_ms=moment_ms) if limits else ()
        return {**workspace.as_json(), "spending": list(used)}
