ALTER TABLE turns ADD COLUMN run_id VARCHAR(40);

ALTER TABLE outbox ADD COLUMN run_id VARCHAR(40);

CREATE TABLE workflow_runs (
  id VARCHAR(40) NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  user TEXT,
  key_id VARCHAR(40),
  workflow VARCHAR(64) NOT NULL,
  workflow_version VARCHAR(64),
  pattern_type VARCHAR(16) NOT NULL,
  spec JSON NOT NULL,
  variables JSON NOT NULL,
  status VARCHAR(16) NOT NULL,
  reason VARCHAR(32),
  cancel VARCHAR(16),
  merged_output TEXT,
  error JSON,
  failed_stage TEXT,
  budget JSON,
  deadline_ms BIGINT,
  webhook_url TEXT,
  webhook_secret TEXT,
  metadata JSON NOT NULL,
  idempotency_key VARCHAR(255),
  fingerprint VARCHAR(64),
  traceparent VARCHAR(64),
  trace JSON,
  request_id VARCHAR(128),
  retry_of VARCHAR(40),
  events INTEGER DEFAULT '0' NOT NULL,
  due_ms BIGINT,
  created_ms BIGINT NOT NULL,
  completed_ms BIGINT,
  PRIMARY KEY (id)
);

CREATE UNIQUE INDEX workflow_runs_by_key ON workflow_runs (workspace, idempotency_key);

CREATE INDEX workflow_runs_by_workspace ON workflow_runs (workspace, id);

CREATE INDEX workflow_runs_due ON workflow_runs (due_ms) WHERE due_ms IS NOT NULL;

CREATE INDEX workflow_runs_open ON workflow_runs (workflow, workspace) WHERE completed_ms IS NULL;

CREATE TABLE run_stages (
  run_id VARCHAR(40) NOT NULL,
  n INTEGER NOT NULL,
  "key" VARCHAR(128) NOT NULL,
  role VARCHAR(16) NOT NULL,
  name VARCHAR(128),
  agent_id VARCHAR(193) NOT NULL,
  conversation VARCHAR(128) NOT NULL,
  session_id VARCHAR(128),
  turn_id VARCHAR(40),
  is_reused BOOLEAN DEFAULT '0' NOT NULL,
  status VARCHAR(16) NOT NULL,
  reason VARCHAR(32),
  prompt TEXT,
  output_text TEXT,
  error JSON,
  usage JSON NOT NULL,
  decision VARCHAR(16),
  comment TEXT,
  approve_by_ms BIGINT,
  on_timeout VARCHAR(16),
  created_ms BIGINT NOT NULL,
  completed_ms BIGINT,
  PRIMARY KEY (run_id, n),
  UNIQUE (run_id, "key"),
  FOREIGN KEY(run_id) REFERENCES workflow_runs (id) ON DELETE CASCADE
);

CREATE TABLE run_events (
  run_id VARCHAR(40) NOT NULL,
  n INTEGER NOT NULL,
  type VARCHAR(32) NOT NULL,
  data JSON NOT NULL,
  at_ms BIGINT NOT NULL,
  PRIMARY KEY (run_id, n),
  FOREIGN KEY(run_id) REFERENCES workflow_runs (id) ON DELETE CASCADE
);

CREATE TRIGGER runs_are_due_when_turns_end AFTER UPDATE OF completed_ms ON turns
WHEN NEW.run_id IS NOT NULL AND NEW.completed_ms IS NOT NULL
BEGIN
  UPDATE workflow_runs SET due_ms = min(coalesce(due_ms, NEW.completed_ms), NEW.completed_ms)
  WHERE id = NEW.run_id AND completed_ms IS NULL;
END;

CREATE TRIGGER runs_are_due_when_turns_are_deleted AFTER DELETE ON turns
WHEN OLD.run_id IS NOT NULL AND OLD.completed_ms IS NULL
BEGIN
  UPDATE workflow_runs SET due_ms = OLD.created_ms WHERE id = OLD.run_id AND completed_ms IS NULL;
END;
