CREATE TABLE agent_versions (
  agent VARCHAR(128) NOT NULL,
  n INTEGER NOT NULL,
  version VARCHAR(64) NOT NULL,
  digest VARCHAR(64) NOT NULL,
  document TEXT NOT NULL,
  changed_by VARCHAR(64) NOT NULL,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (agent, n),
  UNIQUE (agent, version)
);

CREATE TABLE agent_labels (
  workspace VARCHAR(64) NOT NULL,
  agent VARCHAR(128) NOT NULL,
  label VARCHAR(16) NOT NULL,
  version VARCHAR(64) NOT NULL,
  share FLOAT NOT NULL,
  changed_by VARCHAR(64) NOT NULL,
  updated_ms BIGINT NOT NULL,
  PRIMARY KEY (workspace, agent, label)
);

ALTER TABLE turns ADD COLUMN agent_version VARCHAR(64);

UPDATE sessions SET agent_version = NULL WHERE agent_version IS NOT NULL AND agent = REPLACE(agent, ':', '');
