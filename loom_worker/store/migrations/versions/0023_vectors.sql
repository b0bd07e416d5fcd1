CREATE TABLE message_vectors (
  n INTEGER NOT NULL,
  lane VARCHAR(40) NOT NULL,
  model VARCHAR(200) NOT NULL,
  dimensions INTEGER NOT NULL,
  vector BINARY_COLUMN NOT NULL,
  PRIMARY KEY (n),
  FOREIGN KEY(n) REFERENCES messages (n) ON DELETE CASCADE
);

CREATE INDEX message_vectors_by_session ON message_vectors (lane, model);

CREATE TABLE embedding_cursors (
  lane VARCHAR(40) NOT NULL,
  model VARCHAR(200) NOT NULL,
  up_to_n BIGINT NOT NULL,
  PRIMARY KEY (lane),
  FOREIGN KEY(lane) REFERENCES sessions (lane) ON DELETE CASCADE
);
