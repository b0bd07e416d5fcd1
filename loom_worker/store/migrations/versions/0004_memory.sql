ALTER TABLE sessions ADD COLUMN tools JSON;
ALTER TABLE sessions ADD COLUMN backend TEXT;
ALTER TABLE sessions ADD COLUMN agent_version VARCHAR(64);
ALTER TABLE sessions ADD COLUMN token_correction FLOAT;
ALTER TABLE sessions ADD COLUMN memory_seen INTEGER DEFAULT '0' NOT NULL;

CREATE TABLE memory (
  lane VARCHAR(40) NOT NULL,
  version INTEGER DEFAULT '0' NOT NULL,
  first_n BIGINT DEFAULT '0' NOT NULL,
  l2_text TEXT DEFAULT '' NOT NULL,
  l2_from_n BIGINT DEFAULT '0' NOT NULL,
  schemas JSON,
  refs JSON,
  promoted JSON,
  changes JSON,
  due_ms BIGINT,
  held_by VARCHAR(64),
  held_ms BIGINT,
  PRIMARY KEY (lane),
  FOREIGN KEY(lane) REFERENCES sessions (lane) ON DELETE CASCADE
);

CREATE INDEX memory_due ON memory (due_ms) WHERE due_ms IS NOT NULL;

CREATE TABLE memory_snapshots (
  id VARCHAR(40) NOT NULL,
  lane VARCHAR(40) NOT NULL,
  session_id VARCHAR(128) NOT NULL,
  snapshot_type VARCHAR(16) NOT NULL,
  content TEXT NOT NULL,
  token_count INTEGER NOT NULL,
  from_n BIGINT NOT NULL,
  to_n BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY(lane) REFERENCES sessions (lane) ON DELETE CASCADE
);

CREATE INDEX memory_snapshots_by_session ON memory_snapshots (lane, id);

-- Without it every turn that is deleted costs a look at all deliveries.
CREATE INDEX outbox_by_turn ON outbox (turn_id);
