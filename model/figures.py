"""The figures the product keeps, each in one place, with its unit in its name and its source."""

from __future__ import annotations

from typing import Final

# Ports (specification, "The controlplane")
STREAM_PORT: Final = 1993
HTTP_PORT: Final = 1994
WORKER_PORT: Final = 1995  # of a worker that is dialled; each has an address of its own, so it is the same for all
METRICS_PORT: Final = 9090

# Liveness of a session and of a worker (figures, "Time and liveness")
HEARTBEAT_S: Final = 5.0
PEER_SILENT_AFTER_S: Final = 15.0
WORKER_LEASE_S: Final = 300.0
REPORT_WAIT_S: Final = 15.0  # a new leader places nothing new before workers re-reported, or this long
OWN_OUTAGE_S: Final = 1.0  # our own loop stood still: nobody else is blamed for the silence in it
SWEEP_S: Final = 1.0  # how often sessions over carriers that need heartbeats are looked at
SESSION_KEPT_S: Final = 300.0  # a session without a carrier is kept as long as a worker's lease
HANDSHAKE_LIMIT_S: Final = 10.0
DIAL_LIMIT_S: Final = 15.0
CARRIER_WRITE_LIMIT_S: Final = 30.0
GOODBYE_WAIT_S: Final = 2.0
CARRIER_DEAD_AFTER_S: Final = 45.0  # nothing was heard over it: it is ended, and the dialler dials anew
LEADER_LEASE_S: Final = 5.0
LEADER_RENEW_S: Final = 1.0

# Redial: full jitter (figures)
REDIAL_FIRST_MIN_S: Final = 0.5
REDIAL_FIRST_MAX_S: Final = 15.0
REDIAL_MAX_S: Final = 30.0
REDIAL_RESET_AFTER_S: Final = 60.0

# Containers (figures)
CONTAINER_START_LIMIT_S: Final = 900.0
STOP_GRACE_S: Final = 30.0
STARTING_STOP_GRACE_S: Final = 1.0  # of one that has not loaded its code yet: nothing of a task can be half done
IDLE_WORKER_S: Final = 300.0
WORKER_START_LIMIT_S: Final = 1200.0  # one that has not reported by then is ended, and ordered anew where it is wanted
GUARD_PENDING: Final = 20  # the provisioning guard holds while so many workers of a pool are pending,
GUARD_PER_MINUTE: Final = 30  # or so many were added within a minute (figures, "Clusters and pools")
GUARD_WINDOW_S: Final = 60.0
CRASH_LOOP_FAILURES: Final = 3
CRASH_LOOP_FIRST_S: Final = 60.0
CRASH_LOOP_MAX_S: Final = 3600.0
DRAIN_S: Final = 0.5  # a backlog that one container works off within this needs no second one

# Attached clusters (figures, "Clusters and pools")
REPORT_EVERY_S: Final = 10.0  # an agent's node report
REPORT_CHANGE_S: Final = 1.0  # and within this of a change
REPORT_STALE_S: Final = 90.0  # no new worker there; running workers go on taking work
JOB_START_LIMIT_S: Final = 1200.0  # a worker Job whose pod has not started is removed
JOB_WITHOUT_POD_S: Final = 30.0  # then it is told as "not admitted (quota or webhook)"
JOB_KEPT_S: Final = 30  # a finished Job
JOB_GRACE_S: Final = 120
JOB_RESERVE_CPU_MILLI: Final = 500  # left of a node's free CPU and memory
JOB_RESERVE_MEMORY_MIB: Final = 1024
CLUSTERS_PER_WORKSPACE: Final = 5  # 0: no limit
JOIN_WAIT_S: Final = 180.0
JOIN_LOOK_S: Final = 5.0

# SDK defaults (specification of the SDK); `sdk/job.py` says them in its signature, so that importing it stays quick
JOB_CPU: Final = 0.125
JOB_MEMORY_MIB: Final = 128
JOB_TIMEOUT_S: Final = 3600
JOB_RETRIES: Final = 3
JOB_KEEP_WARM_S: Final = 10.0
MAX_IN_FLIGHT: Final = 2000  # of a map: keeps hundreds of containers busy, and every result of it can be held

# Sizes (figures, "Sizes")
FRAME_MAX_BYTES: Final = 1 << 20
BATCH_BYTES: Final = 64 << 10
MAILBOX_SLOTS: Final = 1024
LOCAL_SLOTS: Final = 65_536  # for bursts of actors of one process; a letter is small, its payload is shared
STREAMS_MAX: Final = 20_000  # a gateway process; beyond, peers dial another one
DEAD_LETTERS: Final = 1000
RESEND_ENVELOPES: Final = 4096
RESEND_BYTES: Final = 8 << 20
INLINE_MAX_BYTES: Final = 512 << 10
PAYLOAD_MAX_BYTES: Final = 256 << 20
LOG_LINE_MAX_BYTES: Final = 64 << 10
LOG_KEPT_BYTES: Final = 64 << 20
REST_BODY_MAX_BYTES: Final = 32 << 20

# How long finished tasks are kept (figures, "SDK defaults")
KEPT_AFTER_READ_S: Final = 600.0
KEPT_UNREAD_S: Final = 43_200.0

# Credits: calls handed to one warm container ahead of time, so that short calls never wait for a round trip
CREDIT_WINDOW_MAX: Final = 64
CREDIT_HORIZON_S: Final = 0.1  # a container never holds much more work than this
HAND_BACK_AFTER_S: Final = 1.0  # that one call has run for: those behind it may run in another container

# Who may speak, and what is tried again (architecture, sections 5 and 13)
TOKEN_KEPT_S: Final = 10.0  # a token revoked elsewhere is refused after this, without any wake-up
FAILURES_ALLOWED: Final = 10  # of one address, within
FAILURES_WITHIN_S: Final = 60.0
CRASHES_TO_QUARANTINE: Final = 3  # of a letter's handler

# Room (figures, "Time and liveness")
GANG_READY_S: Final = 300.0  # all workers of a gang are ready within this, or all are given back
GANG_RETRY_S: Final = 60.0  # then it waits this long before workers are ordered for it again

# Fair share (figures): a workspace over its share gives a warm container back after
FAIR_SLICE_S: Final = 2.0
