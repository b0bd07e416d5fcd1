ALTER TABLE calls ADD COLUMN error_id VARCHAR(40);
ALTER TABLE calls ADD COLUMN ref VARCHAR(40);
ALTER TABLE calls ADD COLUMN approval VARCHAR(16);
ALTER TABLE calls ADD COLUMN approve_by_ms BIGINT;
CREATE TABLE blobs (
  id VARCHAR(40) NOT NULL,
  lane VARCHAR(40) NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  session_id VARCHAR(128) NOT NULL,
  turn_id VARCHAR(40) NOT NULL,
  tool VARCHAR(128) NOT NULL,
  size_bytes BIGINT NOT NULL,
  stored_bytes BIGINT NOT NULL,
  checksum VARCHAR(64) NOT NULL,
  compressed BOOLEAN NOT NULL,
  content_type VARCHAR(64) NOT NULL,
  metadata JSON NOT NULL,
  stored_at_ms BIGINT NOT NULL,
  used_ms BIGINT NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX blobs_by_session ON blobs (lane);
CREATE INDEX blobs_by_size ON blobs (stored_bytes);
CREATE INDEX blobs_by_use ON blobs (used_ms);
CREATE TABLE blob_grants (
  ref VARCHAR(40) NOT NULL,
  lane VARCHAR(40) NOT NULL,
  PRIMARY KEY (ref, lane),
  FOREIGN KEY(ref) REFERENCES blobs (id) ON DELETE CASCADE
);
CREATE INDEX blob_grants_by_session ON blob_grants (lane);
CREATE TABLE agent_errors (
  id VARCHAR(40) NOT NULL,
  lane VARCHAR(40) NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  session_id VARCHAR(128) NOT NULL,
  turn_id VARCHAR(40) NOT NULL,
  tool_name VARCHAR(128) NOT NULL,
  at_ms BIGINT NOT NULL,
  short_summary TEXT NOT NULL,
  raw_error JSON NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX agent_errors_by_age ON agent_errors (at_ms);
CREATE INDEX agent_errors_by_session ON agent_errors (lane, at_ms);
CREATE INDEX agent_errors_by_time ON agent_errors (workspace, at_ms);
CREATE INDEX agent_errors_by_tool ON agent_errors (workspace, tool_name, at_ms);
CREATE TABLE shared_memory (
  workspace VARCHAR(64) NOT NULL,
  namespace VARCHAR(16) NOT NULL,
  owner VARCHAR(128) NOT NULL,
  "key" VARCHAR(256) NOT NULL,
  value JSON,
  is_deleted BOOLEAN DEFAULT '0' NOT NULL,
  version INTEGER NOT NULL,
  revision BIGINT NOT NULL,
  updated_by VARCHAR(128) NOT NULL,
  updated_ms BIGINT NOT NULL,
  PRIMARY KEY (workspace, namespace, owner, "key")
);
CREATE INDEX shared_memory_by_revision ON shared_memory (workspace, namespace, owner, revision);
