CREATE TABLE pattern_uses (
  workspace VARCHAR(64) NOT NULL,
  pattern_id VARCHAR(255) NOT NULL,
  digest VARCHAR(16) NOT NULL,
  uses INTEGER NOT NULL,
  succeeded INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  cost_usd FLOAT NOT NULL,
  tokens BIGINT NOT NULL,
  last_ms BIGINT NOT NULL,
  PRIMARY KEY (workspace, pattern_id, digest)
);
