-- Full-text search over messages. Statements are separated by blank lines: functions have inner semicolons.

CREATE TEXT SEARCH DICTIONARY loom_porter (TEMPLATE = snowball, LANGUAGE = porter);

-- Without stop words, as the other engine's index: those of a question are dropped before the index is asked.
CREATE TEXT SEARCH CONFIGURATION loom (PARSER = default);

ALTER TEXT SEARCH CONFIGURATION loom ADD MAPPING FOR asciiword, word, numword WITH loom_porter;

ALTER TEXT SEARCH CONFIGURATION loom ADD MAPPING FOR int, uint, float, sfloat WITH simple;

-- Letters without accents and digits, between spaces: the parser would make addresses, hosts, paths and signed numbers
-- of what stands without a space. It would also take 1e5 out of a longer word, for a number; 1ee5 it leaves alone.
-- The database's own collation may know nothing but ASCII.
CREATE FUNCTION loom_folded(said text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(CASE
  WHEN octet_length(said) = char_length(said) THEN regexp_replace(said, '[^a-zA-Z0-9 ]+', ' ', 'g')
  ELSE regexp_replace(
    normalize(regexp_replace(normalize(lower(said COLLATE "und-x-icu"), NFD), '[\u0300-\u036f]+', '', 'g'), NFC)
      COLLATE "und-x-icu", '[^[:alnum:] ]+', ' ', 'g')
END, '([0-9])([eE])(?=[0-9])', '\1\2\2', 'g');

-- A query for any of some words, or words in a row, with | between them; with * behind a word it need only begin so.
-- Null if no letter and no digit is in them.
CREATE FUNCTION loom_query(forms text) RETURNS tsquery LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN right(forms, 1) = '*' THEN CAST(quote_literal(left(forms, -1)) || ':*' AS tsquery)
  ELSE (
    SELECT CAST(string_agg(CAST(query AS text), '|') AS tsquery)
    FROM regexp_split_to_table(forms, '\|') AS form, phraseto_tsquery('loom', loom_folded(form)) AS query
    WHERE numnode(query) > 0)
END;

-- What can be found of a message's tool calls, or of its tools' results. Those of the tools of memory repeat what was
-- said: found once more with every search, they would hide it.
CREATE FUNCTION loom_tools(listed json) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
  SELECT string_agg(
    CASE WHEN item -> 'content' IS NULL THEN item ->> 'name' || ' ' ELSE '' END
      || left(coalesce(item ->> 'content', item ->> 'arguments', ''), 2000), ' ')
  FROM json_array_elements(listed) AS item
  WHERE coalesce(item ->> 'name', '') NOT IN (
    'search_conversation', 'recall_conversation', 'clear_recalled_context', 'update_session_context',
    'memory_search', 'memory_summary', 'memory_recall', 'memory_semantic')
);

-- The session and the neighbourhood of the number are words that no parser has seen: a text's words have no space. A
-- tsvector holds at most 1,048,575 bytes, which 200,000 characters cannot fill.
ALTER TABLE messages ADD COLUMN search tsvector NOT NULL GENERATED ALWAYS AS (
  array_to_tsvector(ARRAY['lane ' || lane, 'block ' || (n >> 12), 'part ' || (n >> 15)]) || to_tsvector('loom', loom_folded(
    left(content, 100000) || ' ' || left(
      coalesce(CASE WHEN tool_calls_json IS NOT NULL THEN loom_tools(tool_calls_json) END || ' ', '')
      || coalesce(CASE WHEN tool_result_json IS NOT NULL THEN loom_tools(tool_result_json) END || ' ', '')
      || coalesce(grams, ''), 100000)))
) STORED;

-- A pending list would make the search slow that meets it, and is emptied by whoever writes when it is full.
CREATE INDEX messages_by_words ON messages USING gin (search) WITH (fastupdate = off);
