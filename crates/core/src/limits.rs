//! The bounds of everything, and the defaults. The database's functions are rendered with the same numbers.

/// Bytes of a project's, environment's, schedule's or worker's name.
pub const NAME_BYTES_MAX: usize = 128;
/// Bytes of an event's message.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of an event's payload, as JSON text.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a run's metadata, as JSON text.
pub const METADATA_BYTES_MAX: usize = 256 * 1024;
/// Bytes of an idempotency, concurrency or event key, a git reference, a label, an artifact's URL, the reason of a
/// cancellation, or the name of the person who asks for one.
pub const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a message's body, as JSON text.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// Levels of nested objects and arrays in a JSON document.
pub const JSON_DEPTH_MAX: usize = 64;
/// Levels that a request may add around the documents it contains.
pub const JSON_ENVELOPE_LEVELS: usize = 8;
/// Levels of nesting up to which a stored document is read. `serde_json` reads 127, and answers add a few levels.
pub const JSON_READ_DEPTH_MAX: usize = 100;
/// Runs, events or rows in one call.
pub const BATCH_MAX: usize = 1_000;
/// Events of one run that one look at the end of its record passes over, however few it finds.
pub const TAIL_EVENTS_MAX: i32 = 20_000;
/// Failed runs that one look for those that nothing made good passes over, however few it finds.
pub const FAILURES_MAX: usize = 5_000;
/// Labels on a run or a worker.
pub const LABELS_MAX: usize = 32;
/// Largest priority, and the smallest with a minus sign.
pub const PRIORITY_MAX: i32 = 1_000_000;
/// Tries that a run may ask for.
pub const ATTEMPTS_MAX: i32 = 1_000;

/// How often a worker process says that it lives.
pub const BEAT_SECS: u64 = 5;
/// Silence after which a worker process counts as dead.
pub const DEAD_AFTER_SECS: u64 = 20;
/// How long a run's own lease lasts without an event or heartbeat of that run.
pub const LEASE_SECS: u64 = 300;
/// Time between asking a run to stop and ending it without its worker.
pub const CANCEL_GRACE_SECS: u64 = 30;
/// Time between two sweeps while there is work.
pub const SWEEP_SECS: u64 = 5;
/// Time between two sweeps when nothing happens.
pub const SWEEP_IDLE_SECS: u64 = 15;
/// Tries in all, as far as failures are concerned that workers report, unless the request says otherwise.
pub const ATTEMPTS_DEFAULT: i32 = 1;
/// Times a run may lose its worker before it is put into quarantine.
pub const LOSSES_DEFAULT: i32 = 3;
/// Wait before the first retry of a reported failure.
pub const BACKOFF_SECS: i32 = 5;
/// Longest wait before a retry.
pub const BACKOFF_SECS_MAX: i32 = 3_600;
/// Window in which an event without a key counts as the same event.
pub const EVENT_REPEAT_SECS: u64 = 10;
/// Days that finished runs are kept.
pub const RETENTION_DAYS: u32 = 90;
/// Seconds for which a token may be made: ten years.
pub const TOKEN_SECS_MAX: u64 = 10 * 365 * 86_400;
/// Seconds for which somebody who signed in stays signed in.
pub const SESSION_SECS: u32 = 12 * 3_600;
/// Sessions of one token; the oldest make room.
pub const SESSIONS_MAX: u32 = 100;
/// How long a token counts as good without a look at the database: revocation bites everywhere within this time.
pub const TOKEN_TRUST_SECS: u32 = 5;
/// Tokens and sessions that a process remembers.
pub const TOKENS_KNOWN_MAX: usize = 4_096;
/// Time between two records of a token's last use.
pub const TOKEN_USE_SECS: u32 = 60;
/// Days that dead letters are kept.
pub const DEAD_LETTER_DAYS: u32 = 14;
/// Silence within a step after which PostgreSQL ends it: a frozen process must not keep what it has locked.
pub const STEP_IDLE_SECS: u32 = 10;
/// Connections of one process to PostgreSQL.
pub const POOL_CONNECTIONS: u32 = 4;
/// Records per page of a sync.
pub const PAGE_SIZE: u32 = 30;
/// Time before the watermark that an incremental sync reads again.
pub const OVERLAP_SECS: u64 = 15 * 60;
/// How long a feed may be down before its partitions fail.
pub const GIVE_UP_SECS: u64 = 6 * 3_600;
/// Share of a feed's stones that one sync may delete.
pub const DELETE_LIMIT: f64 = 0.2;
/// Longest wait that a feed may ask for by `Retry-After`.
pub const RETRY_AFTER_SECS_MAX: u64 = 5 * 60;
/// Bytes of records that a page, or one read of consolidation and repricing, brings into memory. One record is always
/// read.
pub const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Requests per second to a feed, over all workers.
pub const FEED_RATE: u32 = 25;
/// Stones that one request prices again.
pub const REPRICE_STONES_MAX: u16 = 10_000;
/// Bytes of the first cause in the reason of a failed sync.
pub const CAUSE_BYTES_MAX: usize = 1024;
/// Days that syncs are kept.
pub const SYNC_RETENTION_DAYS: u32 = 30;
/// Events that wait for one reader of a live stream. Who falls further behind is let go, and comes back by its
/// last id.
pub const LIVE_EVENTS_MAX: usize = 1_000;
/// Live streams of one server.
pub const LIVE_STREAMS_MAX: usize = 4_096;
/// Bytes of a body that a webhook may send.
pub const HOOK_BODY_BYTES_MAX: usize = 25 * 1024 * 1024;
/// Seconds by which the time of a signed webhook may be off.
pub const HOOK_WINDOW_SECS: i64 = 300;
/// Rules of one webhook.
pub const HOOK_RULES_MAX: usize = 64;
/// Runs that may wait before people are told.
pub const QUEUE_DEPTH_ALERT: u32 = 100;
/// How long a partition may make no progress before people are told.
pub const STUCK_SECS: u64 = 10 * 60;
/// How far the clock of a source that does not tell its time may be behind ours: a source that stamps its local time as
/// UTC is at most 12 hours behind.
pub const UNKNOWN_CLOCK_SECS: u32 = 12 * 3_600;
/// How old a watermark may be before people are told.
pub const WATERMARK_AGE_SECS: u64 = 24 * 3_600;
/// Time between two messages about the same kind of thing to the same target.
pub const ALERT_INTERVAL_SECS: u64 = 3_600;
/// Tries to hand a message to its target.
pub const DELIVERY_ATTEMPTS_MAX: i32 = 10;
/// Wait before the second try; it doubles.
pub const DELIVERY_BACKOFF_SECS: i64 = 30;
/// How long one try may take before another process tries.
pub const DELIVERY_LEASE_SECS: i64 = 120;
/// Time between two signs of life of an agent.
pub const AGENT_BEAT_SECS: u64 = 5;
/// Stages that are noted from one sign of life of an agent, so that its answer comes soon; the next one tells the rest.
pub const BEAT_STAGES_MAX: usize = 50;
/// How long an agent may be silent before it gets no more tasks, and those it has not begun go to others.
pub const AGENT_SILENT_SECS: u64 = 20;
/// How long a controller acts without renewing its lease.
pub const CONTROLLER_LEASE_SECS: u64 = 15;
/// Bytes of output that are kept of one task.
pub const TASK_LOG_BYTES_MAX: u64 = 50 * 1024 * 1024;
/// Bytes of output that are kept of one ops run.
pub const RUN_LOG_BYTES_MAX: u64 = 50 * 1024 * 1024;
/// Bytes that each line of a run's output counts beside its text: a line is a row of its own.
pub const RUN_LOG_LINE_BYTES: u64 = 64;
/// Bytes of output in one report.
pub const LOG_CHUNK_BYTES_MAX: usize = 256 * 1024;
/// Files that one job may leave.
pub const OUTPUTS_MAX: usize = 10_000;
/// Tasks that an agent may hold.
pub const AGENT_TASKS_MAX: usize = 1_000;
/// Jobs whose outputs an agent asks about in one call.
pub const KEPT_MAX: usize = 500;
/// Bytes of the text of a graph.
pub const GRAPH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Characters of a graph's name, and of what names are looked for by.
pub const GRAPH_NAME_CHARS_MAX: usize = 128;
/// Levels of nesting in the file of a graph.
pub const GRAPH_DEPTH_MAX: usize = 16;
/// Jobs of a graph.
pub const GRAPH_JOBS_MAX: usize = 50_000;
/// Bytes of the name of a job, an output, a pool, a label or a workspace in the file of a graph.
pub const GRAPH_WORD_BYTES_MAX: usize = 64;
/// Bytes of the command of a job.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// Jobs that one job needs.
pub const NEEDS_MAX: usize = 1_000;
/// Bytes of the pattern of an output, or of another path in the file of a graph.
pub const PATTERN_BYTES_MAX: usize = 512;
/// Bytes of the name of a variable.
pub const VARIABLE_NAME_BYTES_MAX: usize = 128;
/// Bytes of a variable with its name, `=` and the NUL at its end: Linux executes nothing with a longer one
/// (`MAX_ARG_STRLEN`).
pub const VARIABLE_BYTES_MAX: usize = 128 * 1024;
/// Bytes of the variables of a job in all. Linux allows a quarter of the stack limit, usually 2 MiB, for them, the
/// arguments, the secrets and what the agent adds.
pub const ENVIRONMENT_BYTES_MAX: usize = 1024 * 1024;
/// Days of the longest time in the file of a graph.
pub const GRAPH_DAYS_MAX: u32 = 365;
/// Seconds that an agent may be silent at least before a job of it runs elsewhere.
pub const RERUN_AFTER_SECS_MIN: u32 = 10;
/// Times that a job may ask to be tried again.
pub const RETRIES_MAX: i32 = 100;
/// Largest weight of a job.
pub const JOB_WEIGHT_MAX: i32 = 1_000;
/// Free bytes below which the disk of an agent counts as full.
pub const AGENT_DISK_FREE_BYTES_MIN: u64 = 64 * 1024;
/// Largest weight of a job, size of a pool, and capacity of an agent.
pub const WEIGHT_MAX: i32 = 1_000_000;
/// Jobs that a controller writes in one step.
pub const CONTROLLER_BATCH: usize = 500;
/// Time between two passes of a controller over everything.
pub const CONTROLLER_PASS_SECS: u64 = 60;
/// Time on top of the silence that a job allows its agent, before the job counts as lost: its supervisor has long
/// ended the command by then.
pub const LOST_MARGIN_SECS: i64 = 30;
/// Days for which an agent that fell silent is counted on: jobs that only it could take are accepted, and wait for it.
pub const AGENT_MEMORY_DAYS: i64 = 7;
/// How long what a probe found counts, unless it says so again.
pub const PROBE_SECS: i64 = 900;
/// Lines of output that are shown with a job that failed.
pub const TAIL_LINES: usize = 20;
/// Orders in one answer to an agent.
pub const ORDERS_MAX: usize = 64;
/// Names of a pool, of a job or of a workspace, in bytes.
pub const POOL_NAME_BYTES_MAX: usize = 64;
/// Intervals in which the pace of a sync is told.
pub const PACE_POINTS_MAX: usize = 60;
