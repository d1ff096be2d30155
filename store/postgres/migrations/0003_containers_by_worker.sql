-- A gateway asks whose containers are or were on a worker.
CREATE INDEX containers_by_worker ON containers (worker_id, requested_at_s, container_id);
