CREATE TABLE learned_layers (
  workspace VARCHAR(64) NOT NULL,
  agent VARCHAR(128) NOT NULL,
  version INTEGER NOT NULL,
  form VARCHAR(16) NOT NULL,
  made_with VARCHAR(64) NOT NULL,
  digest VARCHAR(64) NOT NULL,
  source VARCHAR(255) NOT NULL,
  note TEXT NOT NULL,
  sizes JSON NOT NULL,
  layer JSON NOT NULL,
  key_id VARCHAR(40) NOT NULL,
  for_user TEXT,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (workspace, agent, version)
);

CREATE TABLE learned_activations (
  workspace VARCHAR(64) NOT NULL,
  agent VARCHAR(128) NOT NULL,
  version INTEGER NOT NULL,
  trial_version INTEGER,
  share FLOAT NOT NULL,
  history JSON NOT NULL,
  changed_ms BIGINT NOT NULL,
  PRIMARY KEY (workspace, agent)
);

ALTER TABLE sessions ADD COLUMN learned_version INTEGER;

ALTER TABLE sessions ADD COLUMN learned_part JSON;

ALTER TABLE turns ADD COLUMN learned_version INTEGER;

CREATE INDEX turns_by_learned ON turns (workspace, agent, learned_version, id) WHERE learned_version IS NOT NULL;
