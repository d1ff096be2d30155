-- Retries are used by losses of started attempts only, so they are counted apart from attempts.
ALTER TABLE tasks ADD COLUMN retries_used integer NOT NULL DEFAULT 0;
