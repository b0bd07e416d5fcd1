ALTER TABLE memory ADD COLUMN dated_n BIGINT DEFAULT '0' NOT NULL;

CREATE TABLE dated_summaries (
  id VARCHAR(40) NOT NULL,
  lane VARCHAR(40) NOT NULL,
  session_id VARCHAR(128) NOT NULL,
  content TEXT NOT NULL,
  by_model VARCHAR(128) NOT NULL,
  token_count INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  from_n BIGINT NOT NULL,
  to_n BIGINT NOT NULL,
  from_ms BIGINT NOT NULL,
  to_ms BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY(lane) REFERENCES sessions (lane) ON DELETE CASCADE
);

CREATE INDEX dated_summaries_by_session ON dated_summaries (lane, from_ms);

CREATE TABLE facts (
  id VARCHAR(40) NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  owner VARCHAR(300) NOT NULL,
  user VARCHAR(256),
  lane VARCHAR(40),
  session_id VARCHAR(128),
  message_id VARCHAR(40),
  subject VARCHAR(200) NOT NULL,
  relation VARCHAR(100) NOT NULL,
  object TEXT NOT NULL,
  subject_key VARCHAR(200) NOT NULL,
  words TEXT NOT NULL,
  since_ms BIGINT NOT NULL,
  until_ms BIGINT,
  superseded_by VARCHAR(40),
  confidence FLOAT NOT NULL,
  source VARCHAR(16) NOT NULL,
  seen_ms BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (id)
);

CREATE INDEX facts_by_subject ON facts (workspace, owner, subject_key);

CREATE INDEX facts_by_user ON facts (workspace, user, id);

CREATE TABLE fact_sources (
  fact_id VARCHAR(40) NOT NULL,
  lane VARCHAR(40) NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (fact_id, lane),
  FOREIGN KEY(fact_id) REFERENCES facts (id) ON DELETE CASCADE
);

CREATE INDEX fact_sources_by_session ON fact_sources (lane, n);

CREATE TABLE forgotten_facts (
  workspace VARCHAR(64) NOT NULL,
  owner VARCHAR(300) NOT NULL,
  digest VARCHAR(64) NOT NULL,
  user VARCHAR(256),
  until_ms BIGINT NOT NULL,
  PRIMARY KEY (workspace, owner, digest)
);
