CREATE TABLE files (
  id VARCHAR(40) PRIMARY KEY NOT NULL, workspace VARCHAR(64) NOT NULL, user TEXT, name TEXT NOT NULL,
  content_type VARCHAR(64) NOT NULL, size_bytes BIGINT NOT NULL, checksum VARCHAR(64) NOT NULL,
  width INTEGER NOT NULL, height INTEGER NOT NULL, pages INTEGER NOT NULL,
  is_used BOOLEAN NOT NULL, session_id VARCHAR(128), created_ms BIGINT NOT NULL
);
CREATE INDEX files_by_workspace ON files (workspace, id);
CREATE INDEX files_by_size ON files (workspace, size_bytes);
CREATE TABLE file_uses (
  file_id VARCHAR(40) NOT NULL,
  lane VARCHAR(40) NOT NULL,
  PRIMARY KEY (file_id, lane),
  FOREIGN KEY(file_id) REFERENCES files (id) ON DELETE CASCADE,
  FOREIGN KEY(lane) REFERENCES sessions (lane) ON DELETE CASCADE
);
CREATE INDEX file_uses_by_session ON file_uses (lane);
ALTER TABLE turns ADD COLUMN parts JSON;
ALTER TABLE calls ADD COLUMN media JSON;
ALTER TABLE messages ADD COLUMN media_json JSON
