ALTER TABLE sessions ADD COLUMN queue_depth INTEGER DEFAULT 0 NOT NULL;

CREATE TABLE workspace_depths (
  workspace VARCHAR(64) NOT NULL,
  turns INTEGER NOT NULL,
  lanes INTEGER NOT NULL,
  PRIMARY KEY (workspace)
) WITHOUT ROWID;

UPDATE sessions SET queue_depth = (
  SELECT count(*) FROM turns
  WHERE turns.lane = sessions.lane AND status IN ('queued', 'in_progress', 'requires_action')
)
WHERE lane IN (SELECT lane FROM turns WHERE status IN ('queued', 'in_progress', 'requires_action'));

INSERT INTO workspace_depths (workspace, turns, lanes)
SELECT workspace, count(*), count(DISTINCT lane) FROM turns
WHERE status IN ('queued', 'in_progress', 'requires_action') GROUP BY workspace;

DROP INDEX turns_open_by_workspace;

CREATE INDEX turns_open_by_status ON turns (status, workspace, created_ms) WHERE completed_ms IS NULL;

CREATE INDEX turns_dead ON turns (workspace) WHERE status = 'failed' AND reason = 'dead';

CREATE TRIGGER depths_count_new_turns AFTER INSERT ON turns
WHEN NEW.completed_ms IS NULL
BEGIN
  UPDATE sessions SET queue_depth = queue_depth + 1 WHERE lane = NEW.lane;
  INSERT INTO workspace_depths (workspace, turns, lanes) VALUES (NEW.workspace, 1, 1)
  ON CONFLICT (workspace) DO UPDATE SET turns = turns + 1,
    lanes = lanes + NOT EXISTS (
      SELECT 1 FROM turns WHERE lane = NEW.lane AND seq <> NEW.seq AND status IN ('queued', 'in_progress', 'requires_action')
    );
END;

CREATE TRIGGER depths_count_ended_turns AFTER UPDATE OF completed_ms ON turns
WHEN (OLD.completed_ms IS NULL) <> (NEW.completed_ms IS NULL)
BEGIN
  UPDATE sessions SET queue_depth = queue_depth - 1 + 2 * (NEW.completed_ms IS NULL) WHERE lane = NEW.lane;
  UPDATE workspace_depths SET turns = turns - 1 + 2 * (NEW.completed_ms IS NULL),
    lanes = lanes + (2 * (NEW.completed_ms IS NULL) - 1) * NOT EXISTS (
      SELECT 1 FROM turns WHERE lane = NEW.lane AND seq <> NEW.seq AND status IN ('queued', 'in_progress', 'requires_action')
    )
  WHERE workspace = NEW.workspace;
END;

CREATE TRIGGER depths_count_deleted_turns AFTER DELETE ON turns
WHEN OLD.completed_ms IS NULL
BEGIN
  UPDATE sessions SET queue_depth = queue_depth - 1 WHERE lane = OLD.lane;
  UPDATE workspace_depths SET turns = turns - 1,
    lanes = lanes - NOT EXISTS (
      SELECT 1 FROM turns WHERE lane = OLD.lane AND seq <> OLD.seq AND status IN ('queued', 'in_progress', 'requires_action')
    )
  WHERE workspace = OLD.workspace;
END;
