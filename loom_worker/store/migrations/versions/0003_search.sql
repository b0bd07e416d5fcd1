-- Full-text search over messages. A statement ends at a line that ends in two semicolons: triggers have inner ones.

ALTER TABLE messages ADD COLUMN grams TEXT;;

-- Their calls and results repeat what was said: found once more with every search, they would hide it.
CREATE VIEW tools_of_memory (name) AS VALUES
  ('search_conversation'), ('recall_conversation'), ('clear_recalled_context'), ('update_session_context');;

-- What can be found of a message. Arguments and results of tools may be JSON that SQLite cannot read (NaN): then they are not searched.
CREATE VIEW messages_searched (n, lane, said, grams, tools) AS
SELECT n, lane, content, grams,
  coalesce((SELECT group_concat(json_extract(value, '$.name') || ' ' ||
      substr(coalesce(json_extract(value, '$.arguments'), ''), 1, 2000), ' ')
    FROM json_each(CASE WHEN json_valid(tool_calls_json) THEN tool_calls_json END)
    WHERE coalesce(json_extract(value, '$.name'), '') NOT IN (SELECT name FROM tools_of_memory)), '') || ' ' ||
  coalesce((SELECT group_concat(substr(coalesce(json_extract(value, '$.content'), ''), 1, 2000), ' ')
    FROM json_each(CASE WHEN json_valid(tool_result_json) THEN tool_result_json END)
    WHERE coalesce(json_extract(value, '$.name'), '') NOT IN (SELECT name FROM tools_of_memory)), '')
FROM messages;;

-- The session is a column of the index, so that a search meets no row of another one. The index holds no copy of the
-- text (it cannot read the view itself: FTS5 allows it no json_each), so what is to be forgotten must be told to it.
CREATE VIRTUAL TABLE messages_fts5 USING fts5(
  lane, said, grams, tools,
  content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);;

CREATE TRIGGER messages_fts5_insert AFTER INSERT ON messages BEGIN
  INSERT INTO messages_fts5 (rowid, lane, said, grams, tools) SELECT * FROM messages_searched WHERE n = new.n;
END;;

-- Before, not after: the index forgets what the row still says.
CREATE TRIGGER messages_fts5_delete BEFORE DELETE ON messages BEGIN
  INSERT INTO messages_fts5 (messages_fts5, rowid, lane, said, grams, tools)
  SELECT 'delete', * FROM messages_searched WHERE n = old.n;
END;;

CREATE TRIGGER messages_fts5_update_old
BEFORE UPDATE OF n, lane, content, grams, tool_calls_json, tool_result_json ON messages BEGIN
  INSERT INTO messages_fts5 (messages_fts5, rowid, lane, said, grams, tools)
  SELECT 'delete', * FROM messages_searched WHERE n = old.n;
END;;

CREATE TRIGGER messages_fts5_update_new
AFTER UPDATE OF n, lane, content, grams, tool_calls_json, tool_result_json ON messages BEGIN
  INSERT INTO messages_fts5 (rowid, lane, said, grams, tools) SELECT * FROM messages_searched WHERE n = new.n;
END;;
