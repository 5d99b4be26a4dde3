//! Limits and defaults. The SQL functions are generated with the same numbers.

/// Bytes of the name of a project, environment, schedule or worker.
pub const NAME_BYTES_MAX: usize = 128;
/// Bytes of an event's message.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of an event's payload, as JSON text.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a run's metadata, as JSON text.
pub const METADATA_BYTES_MAX: usize = 256 * 1024;
/// Bytes of an idempotency, concurrency or event key, a git reference, a label, an artifact's URL, the reason of a
/// cancel, or the name of its caller.
pub const KEY_BYTES_MAX: usize = 1024;
/// Bytes of the kind of a run.
pub const KIND_BYTES_MAX: usize = 100;
/// Kinds of runs that the metrics of one process distinguish. Further kinds are counted as `other`.
pub const KIND_LABELS_MAX: usize = 100;
/// Bytes of a message's body, as JSON text.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// Levels of nested objects and arrays in a JSON document.
pub const JSON_DEPTH_MAX: usize = 64;
/// Levels that a request may add around the documents it contains.
pub const JSON_ENVELOPE_LEVELS: usize = 8;
/// Levels of nesting up to which a stored document is read. `serde_json` reads 127, and responses add a few levels.
pub const JSON_READ_DEPTH_MAX: usize = 100;
/// Runs, events or rows in one call.
pub const BATCH_MAX: usize = 1_000;
/// Events that one query of the end of a run's log scans at most.
pub const TAIL_EVENTS_MAX: i32 = 20_000;
/// Failed runs that one query for open failures scans at most.
pub const FAILURES_MAX: usize = 5_000;
/// Labels on a run or a worker.
pub const LABELS_MAX: usize = 32;
/// Largest absolute value of a priority.
pub const PRIORITY_MAX: i32 = 1_000_000;
/// Largest number of attempts or losses that a request may allow.
pub const ATTEMPTS_MAX: i32 = 1_000;

/// Interval between heartbeats of a worker process.
pub const HEARTBEAT_SECS: u64 = 5;
/// Time without a heartbeat after which a worker process counts as dead.
pub const DEAD_AFTER_SECS: u64 = 20;
/// Duration of a run's lease without an event or heartbeat of that run.
pub const LEASE_SECS: u64 = 300;
/// Time between the request to cancel a run and its end without confirmation of its worker.
pub const CANCEL_GRACE_SECS: u64 = 30;
/// Interval between sweeps while there is work.
pub const SWEEP_SECS: u64 = 5;
/// Interval between sweeps without work.
pub const SWEEP_IDLE_SECS: u64 = 15;
/// Default number of attempts before a reported failure is final.
pub const ATTEMPTS_DEFAULT: i32 = 1;
/// Default number of lost workers before a run is quarantined.
pub const LOSSES_DEFAULT: i32 = 3;
/// Default wait before the first retry of a reported failure.
pub const BACKOFF_SECS: i32 = 5;
/// Longest wait before a retry.
pub const BACKOFF_SECS_MAX: i32 = 3_600;
/// Window within which an equal event without a key is a duplicate.
pub const EVENT_REPEAT_SECS: u64 = 10;
/// Retention of finished runs in days.
pub const RETENTION_DAYS: u32 = 90;
/// Projects that one token may name.
pub const TOKEN_PROJECTS_MAX: usize = 64;
/// Longest lifetime of a token: ten years.
pub const TOKEN_SECS_MAX: u64 = 10 * 365 * 86_400;
/// Lifetime of a browser session.
pub const SESSION_SECS: u32 = 12 * 3_600;
/// Sessions of one token; a new session replaces the oldest one.
pub const SESSIONS_MAX: u32 = 100;
/// Lifetime of a browser session at a local server, which forgets its sessions when it ends.
pub const LOCAL_SESSION_SECS: u32 = 7 * 86_400;
/// Lifetime of a one-time link that signs in to the console.
pub const SIGN_IN_LINK_SECS: u32 = 10 * 60;
/// Unused one-time links of a server. A new one replaces the oldest.
pub const SIGN_IN_LINKS_MAX: u32 = 16;
/// Time for which a verified token is cached. A revocation takes effect everywhere within this time.
pub const TOKEN_CACHE_SECS: u32 = 5;
/// Tokens and sessions in the cache of a process.
pub const TOKEN_CACHE_MAX: usize = 4_096;
/// Interval between updates of a token's last use.
pub const TOKEN_USE_SECS: u32 = 60;
/// Retention of dead letters in days.
pub const DEAD_LETTER_DAYS: u32 = 14;
/// Idle time within a transaction after which PostgreSQL aborts it, so that a frozen process releases its locks.
pub const STEP_IDLE_SECS: u32 = 10;
/// Connections of one process to PostgreSQL.
pub const POOL_CONNECTIONS: u32 = 4;
/// Records per page of a sync.
pub const PAGE_SIZE: u32 = 30;
/// Time before the watermark that an incremental sync covers again.
pub const OVERLAP_SECS: u64 = 15 * 60;
/// Duration of a feed's outage after which its partitions fail.
pub const GIVE_UP_SECS: u64 = 6 * 3_600;
/// Fraction of a feed's records that one sync may delete.
pub const DELETE_LIMIT: f64 = 0.2;
/// Longest `Retry-After` of a feed that is honoured.
pub const RETRY_AFTER_SECS_MAX: u64 = 5 * 60;
/// Bytes of records that a page, or one read of consolidation and repricing, loads into memory. At least one record is
/// always read.
pub const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Rows refused by a unique key that are written again in one transaction.
pub const UNIQUE_ROWS_MAX: usize = 10_000;
/// Requests per second to a feed, over all workers.
pub const FEED_RATE: u32 = 25;
/// Stones that one request reprices at most.
pub const REPRICE_STONES_MAX: u16 = 10_000;
/// Bytes of the first cause in the reason of a failed sync.
pub const CAUSE_BYTES_MAX: usize = 1024;
/// Retention of syncs in days.
pub const SYNC_RETENTION_DAYS: u32 = 30;
/// Events buffered for one reader of a live stream. A reader that falls further behind is disconnected and resumes
/// with its last event id.
pub const LIVE_EVENTS_MAX: usize = 1_000;
/// Live streams of one server.
pub const LIVE_STREAMS_MAX: usize = 4_096;
/// Bytes of a webhook's body.
pub const HOOK_BODY_BYTES_MAX: usize = 25 * 1024 * 1024;
/// Largest difference between the time of a signed webhook and the server's time.
pub const HOOK_WINDOW_SECS: i64 = 300;
/// Time in days for which a signed body from GitHub is remembered. GitHub signs no time, so an older body could be
/// replayed.
pub const HOOK_REPLAY_DAYS: i64 = 400;
/// Entries of one list of the section `reach`.
pub const REACH_ENTRIES_MAX: usize = 256;
/// Rules of one webhook.
pub const HOOK_RULES_MAX: usize = 64;
/// Number of waiting runs that raises an alert.
pub const QUEUE_DEPTH_ALERT: u32 = 100;
/// Time without progress of a partition that raises an alert.
pub const STUCK_SECS: u64 = 10 * 60;
/// Assumed lag of the clock of a source that does not report its time: a source that writes its local time as UTC is at
/// most 12 hours behind.
pub const UNKNOWN_CLOCK_SECS: u32 = 12 * 3_600;
/// Age of a watermark that raises an alert.
pub const WATERMARK_AGE_SECS: u64 = 24 * 3_600;
/// Interval between messages of the same group to the same target.
pub const ALERT_INTERVAL_SECS: u64 = 3_600;
/// Attempts to deliver a message to its target.
pub const DELIVERY_ATTEMPTS_MAX: i32 = 10;
/// Wait before the second delivery attempt; it doubles.
pub const DELIVERY_BACKOFF_SECS: i64 = 30;
/// Duration of a delivery attempt after which another process may take it over.
pub const DELIVERY_LEASE_SECS: i64 = 120;
/// Interval between heartbeats of an agent.
pub const AGENT_HEARTBEAT_SECS: u64 = 5;
/// Stages that one heartbeat of an agent updates at most, to keep the response fast; the next heartbeat updates the
/// rest.
pub const HEARTBEAT_STAGES_MAX: usize = 50;
/// Silence of an agent after which it gets no new tasks, and tasks that it has not started go to other agents.
pub const AGENT_SILENT_SECS: u64 = 20;
/// Age of the secret in an agent's directory at which the agent replaces it, if it is not restarted earlier.
pub const AGENT_SECRET_SECS: u64 = 86_400;
/// Duration of a controller's lease.
pub const CONTROLLER_LEASE_SECS: u64 = 15;
/// Stored bytes of output per task.
pub const TASK_LOG_BYTES_MAX: u64 = 50 * 1024 * 1024;
/// Stored bytes of output per ops run.
pub const RUN_LOG_BYTES_MAX: u64 = 50 * 1024 * 1024;
/// Overhead of a line of output that counts towards the limit: each line is a database row.
pub const RUN_LOG_LINE_BYTES: u64 = 64;
/// Bytes of output in one report.
pub const LOG_CHUNK_BYTES_MAX: usize = 256 * 1024;
/// Output files of one job.
pub const OUTPUTS_MAX: usize = 10_000;
/// Tasks that an agent may hold.
pub const AGENT_TASKS_MAX: usize = 1_000;
/// Number of processes and threads of an isolated task, unless its job has a limit.
pub const TASK_PROCESSES_MAX: u32 = 4_096;
/// Size of `/dev/shm` of an isolated task, unless its job has a memory limit.
pub const TASK_SHARED_MEMORY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Jobs in one retention request of an agent.
pub const RETENTION_JOBS_MAX: usize = 500;
/// Bytes of a graph file.
pub const GRAPH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Characters of a graph's name, and of the prefix in a search by name.
pub const GRAPH_NAME_CHARS_MAX: usize = 128;
/// Levels of nesting in a graph file or a feed definition.
pub const DEFINITION_DEPTH_MAX: usize = 16;
/// Jobs of a graph.
pub const GRAPH_JOBS_MAX: usize = 50_000;
/// Bytes of the name of a job, an output, a pool, a label or a workspace in a graph file.
pub const GRAPH_WORD_BYTES_MAX: usize = 64;
/// Bytes of the command of a job.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// Jobs that one job needs.
pub const NEEDS_MAX: usize = 1_000;
/// Bytes of the pattern of an output, or of another path in a graph file.
pub const PATTERN_BYTES_MAX: usize = 512;
/// Bytes of the name of a variable.
pub const VARIABLE_NAME_BYTES_MAX: usize = 128;
/// Bytes of a variable with its name, `=` and the final NUL: the limit of Linux for `execve` (`MAX_ARG_STRLEN`).
pub const VARIABLE_BYTES_MAX: usize = 128 * 1024;
/// Total bytes of the variables of a job. Linux allows a quarter of the stack limit, usually 2 MiB, for variables,
/// arguments, secrets and the variables that the agent adds.
pub const ENVIRONMENT_BYTES_MAX: usize = 1024 * 1024;
/// Longest duration in a graph file, in days.
pub const GRAPH_DAYS_MAX: u32 = 365;
/// Smallest value of `rerun after`.
pub const RERUN_AFTER_SECS_MIN: u32 = 10;
/// Largest number of retries of a job.
pub const RETRIES_MAX: i32 = 100;
/// Largest weight of a job in a graph file.
pub const JOB_WEIGHT_MAX: i32 = 1_000;
/// Smallest memory limit of a job: less is a forgotten unit, and no command could start.
pub const JOB_MEMORY_BYTES_MIN: u64 = 1024 * 1024;
/// Largest limit of a job's processes: the largest number of processes of Linux.
pub const JOB_PROCESSES_MAX: i32 = 4_194_304;
/// Largest CPU share of a job, in percent of one processor.
pub const JOB_CPU_PERCENT_MAX: u32 = 100_000;
/// Free bytes below which the disk of an agent counts as full.
pub const AGENT_DISK_FREE_BYTES_MIN: u64 = 64 * 1024;
/// Largest size of a pool and largest capacity of an agent.
pub const WEIGHT_MAX: i32 = 1_000_000;
/// Jobs that a controller writes in one transaction.
pub const CONTROLLER_BATCH: usize = 500;
/// Interval between full passes of a controller.
pub const CONTROLLER_PASS_SECS: u64 = 60;
/// Margin after the `rerun after` time before a job counts as lost. By then its supervisor has stopped the command.
pub const LOST_MARGIN_SECS: i64 = 30;
/// Days for which a silent agent still counts as available: jobs that only it could take are accepted and wait for it.
pub const AGENT_MEMORY_DAYS: i64 = 7;
/// Validity of a probe's result.
pub const PROBE_SECS: i64 = 900;
/// Lines of output that are shown for a failed job.
pub const TAIL_LINES: usize = 20;
/// Orders in one response to an agent.
pub const ORDERS_MAX: usize = 64;
/// Bytes of the name of a pool, a job or a workspace.
pub const POOL_NAME_BYTES_MAX: usize = 64;
/// Entries in one seal of the audit log.
pub const SEAL_ENTRIES_MAX: usize = 500;
/// Interval between two passes that seal the audit log.
pub const SEAL_SECS: u64 = 10;
/// Refused calls of one actor that are recorded per minute. The next recorded one has the number of skipped ones.
pub const REFUSALS_PER_MINUTE: u32 = 30;
/// Intervals in the throughput chart of a sync.
pub const PACE_POINTS_MAX: usize = 60;
/// Bytes of a feed definition.
pub const FEED_DEFINITION_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the name of a feed or of a shared rate limit.
pub const FEED_NAME_BYTES_MAX: usize = 64;
/// Bytes of a URL or a path in a feed definition, and of the URL of a next page.
pub const FEED_URL_BYTES_MAX: usize = 4096;
/// Headers or parameters of a request in a feed definition.
pub const FEED_PARAMS_MAX: usize = 64;
/// Bytes of a header or a parameter in a feed definition.
pub const FEED_PARAM_BYTES_MAX: usize = 4096;
/// Bytes of a request body in a feed definition, as JSON text.
pub const FEED_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a path in a JSON value.
pub const FEED_PATH_BYTES_MAX: usize = 512;
/// Steps of a path in a JSON value.
pub const FEED_PATH_STEPS_MAX: usize = 32;
/// Largest number of records on a page of a feed.
pub const FEED_PAGE_SIZE_MAX: u32 = 10_000;
/// Records on a page of a feed, unless its definition says otherwise.
pub const FEED_PAGE_SIZE: u32 = 100;
/// Bytes of a paginator's token.
pub const FEED_TOKEN_BYTES_MAX: usize = 4096;
/// Longest time limit of a request to a feed.
pub const FEED_TIMEOUT_SECS_MAX: u32 = 600;
/// Time limit of a request to a feed, unless its definition says otherwise.
pub const FEED_TIMEOUT_SECS: u32 = 45;
/// Largest request rate of a feed per second.
pub const FEED_RATE_MAX: u32 = 10_000;
/// Values of a partition by a list of values.
pub const FEED_VALUES_MAX: usize = 1_000;
/// Columns of a feed's table. PostgreSQL allows 1,600.
pub const FEED_COLUMNS_MAX: usize = 400;
/// Bytes of the name of a schema, a table or a column: the limit of PostgreSQL.
pub const IDENTIFIER_BYTES_MAX: usize = 63;
/// Columns of a primary key, or paths of a composite id.
pub const FEED_KEY_PARTS_MAX: usize = 8;
/// Bytes of a CEL expression.
pub const EXPRESSION_BYTES_MAX: usize = 1024;
/// Levels of nested comprehensions such as `map` and `exists` in a CEL expression.
pub const EXPRESSION_LOOPS_MAX: usize = 2;
/// Steps that all CEL expressions over one small record may need together. A large record may need more.
pub const EXPRESSION_STEPS_MAX: u64 = 200_000;
/// Values in a list or a map that a CEL expression builds from a small record. A large record may have more.
pub const EXPRESSION_VALUES_MAX: u64 = 100_000;
/// Digits of a number in a record.
pub const NUMBER_DIGITS_MAX: usize = 1_000;
/// Ids in one lookup request to a feed.
pub const FEED_LOOKUP_IDS_MAX: u32 = 1_000;
/// Records from which columns are inferred.
pub const INFERENCE_RECORDS_MAX: usize = 1_000;
