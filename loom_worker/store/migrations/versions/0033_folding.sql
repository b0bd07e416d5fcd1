CREATE TABLE depth_deltas (
  workspace VARCHAR(64) NOT NULL,
  n INTEGER NOT NULL,
  turns INTEGER NOT NULL,
  lanes INTEGER NOT NULL,
  PRIMARY KEY (workspace, n)
) WITHOUT ROWID;

CREATE TABLE use_deltas (
  n INTEGER NOT NULL PRIMARY KEY,
  workspace VARCHAR(64) NOT NULL,
  pattern_id VARCHAR(255) NOT NULL,
  digest VARCHAR(16) NOT NULL,
  uses INTEGER NOT NULL,
  succeeded INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  cost_usd FLOAT NOT NULL,
  tokens BIGINT NOT NULL,
  last_ms BIGINT NOT NULL
);

CREATE TABLE audit_inbox (
  n INTEGER NOT NULL PRIMARY KEY,
  workspace VARCHAR(64) NOT NULL,
  at_ms BIGINT NOT NULL,
  action VARCHAR(32) NOT NULL,
  key_id VARCHAR(40),
  "user" TEXT,
  channel TEXT,
  agent TEXT,
  model TEXT,
  session_id TEXT,
  turn_id VARCHAR(40),
  subject TEXT,
  status TEXT,
  reason TEXT,
  tools TEXT,
  decisions TEXT,
  tokens BIGINT,
  cost_nano BIGINT,
  duration_ms BIGINT
);

ALTER TABLE audit_chains ADD COLUMN taken_n BIGINT DEFAULT '0' NOT NULL;

CREATE TRIGGER audit_inbox_is_appended BEFORE INSERT ON audit_inbox
WHEN EXISTS (SELECT 1 FROM audit_inbox WHERE n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'rows of the audit are only appended'); END;

CREATE TRIGGER audit_inbox_is_not_changed BEFORE UPDATE ON audit_inbox
BEGIN SELECT RAISE(ABORT, 'rows of the audit are never changed'); END;

CREATE TRIGGER audit_inbox_is_kept BEFORE DELETE ON audit_inbox
WHEN OLD.n > coalesce((SELECT taken_n FROM audit_chains WHERE workspace = OLD.workspace), 0)
BEGIN SELECT RAISE(ABORT, 'rows of the audit leave the inbox for their chain alone'); END;

DROP TRIGGER depths_count_new_turns;

DROP TRIGGER depths_count_ended_turns;

DROP TRIGGER depths_count_deleted_turns;

CREATE TRIGGER depths_count_new_turns AFTER INSERT ON turns
WHEN NEW.completed_ms IS NULL
BEGIN
  UPDATE sessions SET queue_depth = queue_depth + 1 WHERE lane = NEW.lane;
  INSERT INTO depth_deltas (workspace, n, turns, lanes) VALUES (
    NEW.workspace, 1 + coalesce((SELECT max(n) FROM depth_deltas WHERE workspace = NEW.workspace), 0), 1,
    (SELECT count(*) FROM sessions WHERE lane = NEW.lane AND queue_depth = 1)
  );
END;

CREATE TRIGGER depths_count_ended_turns AFTER UPDATE OF completed_ms ON turns
WHEN (OLD.completed_ms IS NULL) <> (NEW.completed_ms IS NULL)
BEGIN
  UPDATE sessions SET queue_depth = queue_depth - 1 + 2 * (NEW.completed_ms IS NULL) WHERE lane = NEW.lane;
  INSERT INTO depth_deltas (workspace, n, turns, lanes) VALUES (
    NEW.workspace, 1 + coalesce((SELECT max(n) FROM depth_deltas WHERE workspace = NEW.workspace), 0),
    2 * (NEW.completed_ms IS NULL) - 1,
    (2 * (NEW.completed_ms IS NULL) - 1)
      * (SELECT count(*) FROM sessions WHERE lane = NEW.lane AND queue_depth = (NEW.completed_ms IS NULL))
  );
END;

CREATE TRIGGER depths_count_deleted_turns AFTER DELETE ON turns
WHEN OLD.completed_ms IS NULL
BEGIN
  UPDATE sessions SET queue_depth = queue_depth - 1 WHERE lane = OLD.lane;
  INSERT INTO depth_deltas (workspace, n, turns, lanes) VALUES (
    OLD.workspace, 1 + coalesce((SELECT max(n) FROM depth_deltas WHERE workspace = OLD.workspace), 0), -1,
    -(SELECT count(*) FROM sessions WHERE lane = OLD.lane AND queue_depth = 0)
  );
END;

CREATE TRIGGER depths_count_deleted_lanes AFTER DELETE ON sessions
WHEN OLD.queue_depth > 0
BEGIN
  INSERT INTO depth_deltas (workspace, n, turns, lanes) VALUES (
    OLD.workspace, 1 + coalesce((SELECT max(n) FROM depth_deltas WHERE workspace = OLD.workspace), 0), 0, -1
  );
END;
