-- The first schema, as it was. Later versions alter it, and semicolons only end statements.

CREATE TABLE sessions (
  lane VARCHAR(40) NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  id VARCHAR(128) NOT NULL,
  agent VARCHAR(128) NOT NULL,
  status VARCHAR(16) NOT NULL,
  user TEXT,
  title TEXT,
  metadata JSON NOT NULL,
  kernel JSON NOT NULL,
  model VARCHAR(128),
  budget JSON,
  usage JSON NOT NULL,
  rom TEXT,
  next_seq INTEGER NOT NULL,
  created_ms BIGINT NOT NULL,
  updated_ms BIGINT NOT NULL,
  PRIMARY KEY (lane),
  UNIQUE (workspace, id)
);

CREATE INDEX sessions_by_time ON sessions (workspace, created_ms, id);

CREATE TABLE usage (
  n INTEGER NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  session_id VARCHAR(128) NOT NULL,
  turn_id VARCHAR(40) NOT NULL,
  agent VARCHAR(128) NOT NULL,
  model VARCHAR(128) NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  cache_read_tokens INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  llm_calls INTEGER NOT NULL,
  cost_usd FLOAT,
  at_ms BIGINT NOT NULL,
  PRIMARY KEY (n)
);

CREATE INDEX usage_by_workspace ON usage (workspace, at_ms);

CREATE TABLE messages (
  n INTEGER NOT NULL,
  id VARCHAR(40) NOT NULL,
  lane VARCHAR(40) NOT NULL,
  session_id VARCHAR(128) NOT NULL,
  turn_id VARCHAR(40) NOT NULL,
  role VARCHAR(16) NOT NULL,
  content TEXT NOT NULL,
  context TEXT NOT NULL,
  tool_calls_json JSON,
  tool_use_id TEXT,
  tool_result_json JSON,
  opaque_json JSON,
  token_count INTEGER NOT NULL,
  cost_usd FLOAT,
  usage JSON,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (n),
  UNIQUE (id),
  FOREIGN KEY(lane) REFERENCES sessions (lane) ON DELETE CASCADE
);

CREATE INDEX messages_by_session ON messages (lane, n);

CREATE TABLE turns (
  id VARCHAR(40) NOT NULL,
  lane VARCHAR(40) NOT NULL,
  session_id VARCHAR(128) NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  agent VARCHAR(128) NOT NULL,
  seq INTEGER NOT NULL,
  status VARCHAR(16) NOT NULL,
  reason VARCHAR(32),
  fence INTEGER DEFAULT '0' NOT NULL,
  deaths INTEGER DEFAULT '0' NOT NULL,
  held_by VARCHAR(64),
  parked_until_ms BIGINT,
  max_attempts INTEGER NOT NULL,
  input TEXT NOT NULL,
  output_text TEXT,
  error JSON,
  usage JSON NOT NULL,
  patterns JSON NOT NULL,
  metadata JSON NOT NULL,
  budget JSON,
  webhook_url TEXT,
  webhook_secret TEXT,
  idempotency_key VARCHAR(255),
  fingerprint VARCHAR(64),
  deadline_ms BIGINT,
  traceparent VARCHAR(64),
  request_id VARCHAR(128),
  retry_of VARCHAR(40),
  created_ms BIGINT NOT NULL,
  started_ms BIGINT,
  completed_ms BIGINT,
  first_token_ms INTEGER,
  run_ms INTEGER DEFAULT '0' NOT NULL,
  PRIMARY KEY (id),
  UNIQUE (lane, seq),
  FOREIGN KEY(lane) REFERENCES sessions (lane) ON DELETE CASCADE
);

CREATE UNIQUE INDEX turns_by_key ON turns (workspace, idempotency_key);

CREATE INDEX turns_by_workspace ON turns (workspace, id);

CREATE INDEX turns_open_by_workspace ON turns (workspace) WHERE status IN ('queued', 'in_progress', 'requires_action');

CREATE INDEX turns_unfinished ON turns (lane, seq) WHERE status IN ('queued', 'in_progress', 'requires_action');

CREATE TABLE calls (
  turn_id VARCHAR(40) NOT NULL,
  position INTEGER NOT NULL,
  id VARCHAR(128) NOT NULL,
  reply_n INTEGER NOT NULL,
  name VARCHAR(128) NOT NULL,
  arguments JSON NOT NULL,
  status VARCHAR(16) NOT NULL,
  sends INTEGER NOT NULL,
  sent_ms BIGINT,
  worker VARCHAR(64),
  started_ms BIGINT,
  finished_ms BIGINT,
  content TEXT,
  PRIMARY KEY (turn_id, position),
  FOREIGN KEY(turn_id) REFERENCES turns (id) ON DELETE CASCADE
);

CREATE TABLE outbox (
  id VARCHAR(40) NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  turn_id VARCHAR(40) NOT NULL,
  url TEXT NOT NULL,
  secret TEXT,
  body TEXT NOT NULL,
  status VARCHAR(16) NOT NULL,
  attempts INTEGER NOT NULL,
  next_ms BIGINT,
  last_status INTEGER,
  last_error TEXT,
  created_ms BIGINT NOT NULL,
  delivered_ms BIGINT,
  PRIMARY KEY (id),
  FOREIGN KEY(turn_id) REFERENCES turns (id) ON DELETE CASCADE
);

CREATE INDEX outbox_by_workspace ON outbox (workspace, id);

CREATE INDEX outbox_due ON outbox (next_ms) WHERE status = 'pending';

CREATE TABLE steps (
  turn_id VARCHAR(40) NOT NULL,
  n INTEGER NOT NULL,
  kind VARCHAR(16) NOT NULL,
  version INTEGER NOT NULL,
  payload JSON NOT NULL,
  PRIMARY KEY (turn_id, n),
  FOREIGN KEY(turn_id) REFERENCES turns (id) ON DELETE CASCADE
);
