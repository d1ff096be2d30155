-- The foundation: leadership, accounts, tasks, containers, workers, the outbox.
-- Text is compared byte by byte (COLLATE "C"), as the in-memory store compares it. Times are Unix seconds.
-- Payloads and failures are msgpack, stubs JSON: nothing here looks into them.

CREATE TABLE leadership (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    epoch bigint NOT NULL,
    holder text COLLATE "C" NOT NULL,
    url text COLLATE "C" NOT NULL,
    renewed_at_s double precision NOT NULL
) WITH (fillfactor = 10); -- it is updated and locked all the time: leave room on its page

CREATE TABLE workspaces (
    workspace_id text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    created_at_s double precision NOT NULL
);

CREATE TABLE tokens (
    token_id text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    hash bytea NOT NULL UNIQUE,
    hint text COLLATE "C" NOT NULL,
    active boolean NOT NULL,
    created_at_s double precision NOT NULL,
    subject text COLLATE "C" NOT NULL
);
CREATE INDEX tokens_by_subject ON tokens (subject) WHERE active;

CREATE TABLE stubs (
    stub_id text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL,
    spec bytea NOT NULL,
    created_at_s double precision NOT NULL
);

-- An attempt's start changes no indexed column (HOT); `finished` changes once, and keeps the index of the unfinished small.
CREATE TABLE tasks (
    task_id text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL,
    stub_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    finished boolean NOT NULL,
    attempt integer NOT NULL,
    last_log_line integer NOT NULL DEFAULT 0,
    accepted_at_s double precision NOT NULL,
    started_at_s double precision NOT NULL DEFAULT 0,
    ended_at_s double precision NOT NULL DEFAULT 0,
    retry_at_s double precision NOT NULL DEFAULT 0,
    taken_at_s double precision NOT NULL DEFAULT 0,
    container_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    arguments bytea NOT NULL,
    result bytea,
    failure bytea
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tasks ALTER arguments SET STORAGE EXTERNAL; -- packed by the caller: trying to compress it again costs time
ALTER TABLE tasks ALTER result SET STORAGE EXTERNAL;
CREATE INDEX tasks_by_age ON tasks (accepted_at_s, task_id);
CREATE INDEX tasks_unfinished ON tasks (accepted_at_s, task_id) WHERE NOT finished;

CREATE TABLE attempts (
    task_id text COLLATE "C" NOT NULL,
    attempt integer NOT NULL,
    container_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    how text COLLATE "C" NOT NULL,
    ended_at_s double precision NOT NULL,
    why text COLLATE "C" NOT NULL,
    PRIMARY KEY (task_id, attempt)
);

CREATE TABLE containers (
    container_id text COLLATE "C" PRIMARY KEY,
    stub_id text COLLATE "C" NOT NULL,
    workspace_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    requested_at_s double precision NOT NULL,
    placed_at_s double precision NOT NULL,
    ready_at_s double precision NOT NULL,
    ended_at_s double precision NOT NULL,
    how text COLLATE "C",
    why text COLLATE "C" NOT NULL
) WITH (fillfactor = 75);
CREATE INDEX containers_ended ON containers (ended_at_s, container_id) WHERE state = 'ended';

CREATE TABLE workers (
    worker_id text COLLATE "C" PRIMARY KEY,
    pool text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    cpu_milli integer NOT NULL,
    memory_mib integer NOT NULL,
    gpu_count integer NOT NULL,
    gpu_type text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    handle text COLLATE "C" NOT NULL,
    ordered_at_s double precision NOT NULL,
    seen_at_s double precision NOT NULL,
    gone_at_s double precision NOT NULL,
    why text COLLATE "C" NOT NULL
) WITH (fillfactor = 75);
CREATE INDEX workers_gone ON workers (gone_at_s, worker_id) WHERE state = 'gone';

CREATE TABLE pools (
    pool text COLLATE "C" NOT NULL,
    gpu_type text COLLATE "C" NOT NULL,
    cpu_milli integer NOT NULL,
    memory_mib integer NOT NULL,
    gpu_count integer NOT NULL,
    PRIMARY KEY (pool, gpu_type)
);

CREATE TABLE outbox (
    key text COLLATE "C" PRIMARY KEY,
    target text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    created_at_s double precision NOT NULL
) WITH (fillfactor = 75);
