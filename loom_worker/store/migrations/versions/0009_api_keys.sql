CREATE TABLE api_keys (
  id VARCHAR(40) NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  name VARCHAR(128) NOT NULL,
  hash VARCHAR(64) NOT NULL,
  prefix VARCHAR(16) NOT NULL,
  scopes JSON NOT NULL,
  user TEXT,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT,
  revoked_ms BIGINT,
  rotated_from VARCHAR(40),
  last_used_ms BIGINT,
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX api_keys_by_hash ON api_keys (hash);
CREATE INDEX api_keys_by_workspace ON api_keys (workspace, id);
CREATE INDEX sessions_by_user ON sessions (workspace, user, created_ms, id) WHERE user IS NOT NULL;
ALTER TABLE usage ADD COLUMN user TEXT;
UPDATE usage SET user = (SELECT sessions.user FROM sessions
  WHERE sessions.workspace = usage.workspace AND sessions.id = usage.session_id);
CREATE INDEX usage_by_user ON usage (workspace, user, at_ms) WHERE user IS NOT NULL;
