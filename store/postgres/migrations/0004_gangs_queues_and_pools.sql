-- Gangs, cards, quotas; and what people configure while the platform runs. JSON in bytea: nothing here looks into it.
ALTER TABLE containers ADD COLUMN gang_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE containers ADD COLUMN rank integer NOT NULL DEFAULT 0;
ALTER TABLE containers ADD COLUMN cards integer[] NOT NULL DEFAULT '{}';
ALTER TABLE containers ADD COLUMN flavor text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN traits bytea NOT NULL DEFAULT '{}';
ALTER TABLE workers ADD COLUMN gang_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE pools ADD COLUMN max_workers integer NOT NULL DEFAULT 0;
ALTER TABLE pools ADD COLUMN offers bytea NOT NULL DEFAULT '[]';

CREATE TABLE pool_specs (
    name text COLLATE "C" PRIMARY KEY,
    declaration text COLLATE "C" NOT NULL
);

CREATE TABLE queueing (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    configuration bytea NOT NULL
);
