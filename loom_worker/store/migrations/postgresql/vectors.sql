-- Vectors as pgvector compares them, beside the bytes that every database has. `loom prepare` makes this in a database
-- that has the extension; whatever writes message_vectors need not know of it.

CREATE FUNCTION loom_vector(bytes bytea) RETURNS vector LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN (
  SELECT array_agg(((get_byte(bytes, at) + 128) % 256 - 128)::real ORDER BY at)::vector
  FROM generate_series(0, length(bytes) - 1) AS at
);

CREATE TABLE message_embeddings (
  n bigint PRIMARY KEY REFERENCES message_vectors (n) ON DELETE CASCADE,
  embedding vector NOT NULL
);

CREATE FUNCTION loom_vector_is_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO message_embeddings VALUES (NEW.n, loom_vector(NEW.vector))
  ON CONFLICT (n) DO UPDATE SET embedding = excluded.embedding;
  RETURN NULL;
END $$;
CREATE TRIGGER message_vectors_embedded AFTER INSERT OR UPDATE ON message_vectors
FOR EACH ROW EXECUTE FUNCTION loom_vector_is_new();

-- For rows that no trigger has seen: those that were there before it, and those that a move brought.
CREATE FUNCTION loom_embed_rest() RETURNS void LANGUAGE sql AS $$
  INSERT INTO message_embeddings SELECT n, loom_vector(vector) FROM message_vectors ON CONFLICT (n) DO NOTHING
$$;
SELECT loom_embed_rest();
