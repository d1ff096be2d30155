-- Attached clusters. What was said of one when it joined is JSON in bytea: nothing here looks into it but at its name.
CREATE TABLE clusters (
    cluster_id text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    spec bytea NOT NULL,
    shared boolean NOT NULL,
    created_at_s double precision NOT NULL,
    agent_epoch bigint NOT NULL,
    seen_at_s double precision NOT NULL,
    leaving boolean NOT NULL,
    UNIQUE (workspace_id, name)
);
