ALTER TABLE turns ADD COLUMN channel JSON;
ALTER TABLE turns ADD COLUMN output_parts JSON;
CREATE TABLE pairings (
  id VARCHAR(40) NOT NULL PRIMARY KEY,
  workspace VARCHAR(64) NOT NULL,
  channel VARCHAR(128) NOT NULL,
  identity VARCHAR(256) NOT NULL,
  user TEXT NOT NULL,
  created_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX pairings_by_identity ON pairings (workspace, channel, identity);
CREATE INDEX pairings_by_workspace ON pairings (workspace, id);
