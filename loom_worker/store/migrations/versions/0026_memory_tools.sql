-- A tool of an agent's own may have had such a name. The index holds no text, so it must be told what it is to forget
-- while the view still gives what it was told before.
CREATE TEMPORARY TABLE reindexed AS SELECT n FROM messages
WHERE coalesce(tool_calls_json, '') || coalesce(tool_result_json, '') LIKE '%"memory\_%' ESCAPE '\';;

INSERT INTO messages_fts5 (messages_fts5, rowid, lane, said, grams, tools)
SELECT 'delete', * FROM messages_searched WHERE n IN (SELECT n FROM reindexed);;

DROP VIEW tools_of_memory;;

CREATE VIEW tools_of_memory (name) AS VALUES
  ('search_conversation'), ('recall_conversation'), ('clear_recalled_context'), ('update_session_context'),
  ('memory_search'), ('memory_summary'), ('memory_recall'), ('memory_semantic');;

INSERT INTO messages_fts5 (rowid, lane, said, grams, tools)
SELECT * FROM messages_searched WHERE n IN (SELECT n FROM reindexed) ORDER BY n;;

DROP TABLE reindexed;;
