//! The table of settings: the values that each accepts, and its purpose.

use super::numbers::Unit::{self, Blocks, Kilobytes, Milliseconds, Seconds};
use firn_base::text_style::IntervalStyle;

/// The type of a setting.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// on or off
    Boolean,
    /// Only off.
    Off,
    /// A whole number in a range, of a unit.
    Integer(Option<Unit>, i32, i32),
    /// A number with a fraction in a range, of a unit.
    Real(Option<Unit>, f64, f64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A text, which its name may restrict.
    Text,
    /// The name of a locale.
    Locale,
    /// A time zone.
    TimeZone,
    /// A style of dates and the order of their fields.
    DateStyle,
    /// An encoding, by one of its names.
    Encoding,
    /// A role, which is the user.
    Role,
    /// Cannot be changed; PostgreSQL's word for what it is.
    Fixed(&'static str),
}

impl Kind {
    /// What its numbers count.
    pub(super) fn unit(self) -> Option<Unit> {
        match self {
            Kind::Integer(unit, ..) | Kind::Real(unit, ..) => unit,
            _ => None,
        }
    }

    /// PostgreSQL's word for what it takes.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Boolean | Kind::Off => "bool",
            Kind::Integer(..) => "integer",
            Kind::Real(..) => "real",
            Kind::Choice(_) => "enum",
            Kind::Fixed(word) => word,
            _ => "string",
        }
    }
}

pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
}

const fn parameter(name: &'static str, default: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, default, kind, about }
}

const ISOLATION: Kind =
    Kind::Choice(&["serializable", "repeatable read", "read committed", "read uncommitted"]);

const SERVER_MESSAGES: Kind = Kind::Choice(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log", "fatal",
    "panic",
]);

/// Every setting, sorted by lower-case name. Those that only affect PostgreSQL's planner, memory or log are included because drivers
/// and tools set them.
pub(super) static PARAMETERS: &[Parameter] = &[
    parameter("application_name", "", Kind::Text, "The name of the client's application."),
    parameter("array_nulls", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("backend_flush_after", "0", Kind::Integer(Some(Blocks), 0, 256), "Accepted; has no effect."),
    parameter(
        "backslash_quote",
        "safe_encoding",
        Kind::Choice(&["safe_encoding", "on", "off"]),
        "Accepted; has no effect.",
    ),
    parameter("bytea_output", "hex", Kind::Choice(&["escape", "hex"]), "How bytea is printed."),
    parameter("check_function_bodies", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter(
        "client_connection_check_interval",
        "1s",
        Kind::Integer(Some(Milliseconds), 0, i32::MAX),
        "Interval of checks whether the client of a running statement is still connected; 0 for none.",
    ),
    parameter(
        "client_encoding",
        "UTF8",
        Kind::Encoding,
        "The encoding of strings that the client sends and receives.",
    ),
    parameter(
        "client_min_messages",
        "notice",
        Kind::Choice(&[
            "debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error",
        ]),
        "The lowest severity of messages that are sent to the client.",
    ),
    parameter("commit_delay", "0", Kind::Integer(None, 0, 100000), "Accepted; has no effect."),
    parameter("commit_siblings", "5", Kind::Integer(None, 0, 1000), "Accepted; has no effect."),
    parameter(
        "constraint_exclusion",
        "partition",
        Kind::Choice(&["partition", "on", "off"]),
        "Accepted; has no effect.",
    ),
    parameter("cpu_index_tuple_cost", "0.005", Kind::Real(None, 0.0, f64::MAX), "Accepted; has no effect."),
    parameter("cpu_operator_cost", "0.0025", Kind::Real(None, 0.0, f64::MAX), "Accepted; has no effect."),
    parameter("cpu_tuple_cost", "0.01", Kind::Real(None, 0.0, f64::MAX), "Accepted; has no effect."),
    parameter("cursor_tuple_fraction", "0.1", Kind::Real(None, 0.0, 1.0), "Accepted; has no effect."),
    parameter("DateStyle", "ISO, MDY", Kind::DateStyle, "How dates are printed and read."),
    parameter(
        "deadlock_timeout",
        "1s",
        Kind::Integer(Some(Milliseconds), 1, i32::MAX),
        "Accepted; has no effect: deadlocks are found at once.",
    ),
    parameter("default_statistics_target", "100", Kind::Integer(None, 1, 10000), "Accepted; has no effect."),
    parameter("default_table_access_method", "heap", Kind::Text, "Accepted; has no effect."),
    parameter("default_tablespace", "", Kind::Text, "Accepted; has no effect."),
    parameter("default_text_search_config", "pg_catalog.simple", Kind::Text, "Accepted; has no effect."),
    parameter(
        "default_toast_compression",
        "pglz",
        Kind::Choice(&["pglz", "lz4"]),
        "Accepted; has no effect.",
    ),
    parameter(
        "default_transaction_deferrable",
        "off",
        Kind::Boolean,
        "Whether new transactions are deferrable, which has no effect.",
    ),
    parameter(
        "default_transaction_isolation",
        "serializable",
        ISOLATION,
        "The isolation level of new transactions.",
    ),
    parameter(
        "default_transaction_read_only",
        "off",
        Kind::Boolean,
        "Whether new transactions are read-only.",
    ),
    parameter(
        "effective_cache_size",
        "4GB",
        Kind::Integer(Some(Blocks), 1, i32::MAX),
        "Accepted; has no effect.",
    ),
    parameter("effective_io_concurrency", "1", Kind::Integer(None, 0, 1000), "Accepted; has no effect."),
    parameter("enable_async_append", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_bitmapscan", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_gathermerge", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_hashagg", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_hashjoin", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_incremental_sort", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_indexonlyscan", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_indexscan", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_material", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_memoize", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_mergejoin", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_nestloop", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_parallel_append", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_parallel_hash", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_partition_pruning", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_partitionwise_aggregate", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_partitionwise_join", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_seqscan", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_sort", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("enable_tidscan", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("escape_string_warning", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter(
        "extra_float_digits",
        "1",
        Kind::Integer(None, -15, 3),
        "Above 0 floats are printed shortest and exact, else with so many more digits than all keep.",
    ),
    parameter(
        "firn.read_after",
        "",
        Kind::Text,
        "A position of the log, or a token of firn_commit_token(), that the statements of a replica wait for.",
    ),
    parameter(
        "firn.read_after_timeout",
        "10s",
        Kind::Integer(Some(Milliseconds), 0, i32::MAX),
        "Longest wait for the position of firn.read_after; 0 for no limit.",
    ),
    parameter(
        "firn.route_min_rows",
        "500000",
        Kind::Integer(None, 0, i32::MAX),
        "Queries that handle fewer rows, as far as is known before they run, are not handed to replicas.",
    ),
    parameter(
        "firn.route_queries",
        "on",
        Kind::Boolean,
        "Lets replicas run long queries, if the server was started with --route-queries.",
    ),
    parameter(
        "firn.stale_reads",
        "off",
        Kind::Boolean,
        "Queries do not wait until it is certain that this server is the primary of the voters.",
    ),
    parameter(
        "force_parallel_mode",
        "off",
        Kind::Choice(&["off", "on", "regress"]),
        "Accepted; has no effect.",
    ),
    parameter("from_collapse_limit", "8", Kind::Integer(None, 1, i32::MAX), "Accepted; has no effect."),
    parameter("geqo", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("geqo_effort", "5", Kind::Integer(None, 1, 10), "Accepted; has no effect."),
    parameter("geqo_generations", "0", Kind::Integer(None, 0, i32::MAX), "Accepted; has no effect."),
    parameter("geqo_pool_size", "0", Kind::Integer(None, 0, i32::MAX), "Accepted; has no effect."),
    parameter("geqo_seed", "0", Kind::Real(None, 0.0, 1.0), "Accepted; has no effect."),
    parameter("geqo_selection_bias", "2", Kind::Real(None, 1.5, 2.0), "Accepted; has no effect."),
    parameter("geqo_threshold", "12", Kind::Integer(None, 2, i32::MAX), "Accepted; has no effect."),
    parameter("hash_mem_multiplier", "2", Kind::Real(None, 1.0, 1000.0), "Accepted; has no effect."),
    parameter("hot_standby", "on", Kind::Fixed("bool"), "A replica accepts connections."),
    parameter(
        "idle_in_transaction_session_timeout",
        "0",
        Kind::Integer(Some(Milliseconds), 0, i32::MAX),
        "Longest that a client may leave a transaction block idle; 0 for ever.",
    ),
    parameter(
        "idle_session_timeout",
        "0",
        Kind::Integer(Some(Milliseconds), 0, i32::MAX),
        "Longest that a client may be idle outside transaction blocks; 0 for ever.",
    ),
    parameter("in_hot_standby", "off", Kind::Fixed("bool"), "Whether the server is a replica."),
    parameter("integer_datetimes", "on", Kind::Fixed("bool"), "Times are integers."),
    parameter(
        "IntervalStyle",
        "postgres",
        Kind::Choice(IntervalStyle::NAMES),
        "The format in which intervals are printed and read.",
    ),
    parameter("is_superuser", "on", Kind::Fixed("bool"), "Every user may do everything."),
    parameter("jit", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter("jit_above_cost", "100000", Kind::Real(None, -1.0, f64::MAX), "Accepted; has no effect."),
    parameter(
        "jit_inline_above_cost",
        "500000",
        Kind::Real(None, -1.0, f64::MAX),
        "Accepted; has no effect.",
    ),
    parameter(
        "jit_optimize_above_cost",
        "500000",
        Kind::Real(None, -1.0, f64::MAX),
        "Accepted; has no effect.",
    ),
    parameter("join_collapse_limit", "8", Kind::Integer(None, 1, i32::MAX), "Accepted; has no effect."),
    parameter("lc_collate", "C", Kind::Fixed("string"), "Strings compare by their bytes."),
    parameter("lc_ctype", "C.UTF-8", Kind::Fixed("string"), "Characters are those of Unicode."),
    parameter("lc_messages", "C", Kind::Locale, "Messages are English."),
    parameter("lc_monetary", "C", Kind::Locale, "Accepted; has no effect."),
    parameter("lc_numeric", "C", Kind::Locale, "Accepted; has no effect."),
    parameter("lc_time", "C", Kind::Locale, "Accepted; has no effect."),
    parameter(
        "lock_timeout",
        "0",
        Kind::Integer(Some(Milliseconds), 0, i32::MAX),
        "Longest that a statement waits for a row or a table; 0 for ever.",
    ),
    parameter("log_duration", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter(
        "log_error_verbosity",
        "default",
        Kind::Choice(&["terse", "default", "verbose"]),
        "Accepted; has no effect.",
    ),
    parameter("log_executor_stats", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter("log_lock_waits", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter(
        "log_min_duration_sample",
        "-1",
        Kind::Integer(Some(Milliseconds), -1, i32::MAX),
        "Accepted; has no effect.",
    ),
    parameter(
        "log_min_duration_statement",
        "-1",
        Kind::Integer(Some(Milliseconds), -1, i32::MAX),
        "Accepted; has no effect.",
    ),
    parameter("log_min_error_statement", "error", SERVER_MESSAGES, "Accepted; has no effect."),
    parameter("log_min_messages", "warning", SERVER_MESSAGES, "Accepted; has no effect."),
    parameter("log_parser_stats", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter("log_planner_stats", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter(
        "log_statement",
        "none",
        Kind::Choice(&["none", "ddl", "mod", "all"]),
        "Accepted; has no effect.",
    ),
    parameter("log_statement_stats", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter(
        "logical_decoding_work_mem",
        "64MB",
        Kind::Integer(Some(Kilobytes), 64, i32::MAX),
        "Accepted; has no effect.",
    ),
    parameter("maintenance_io_concurrency", "10", Kind::Integer(None, 0, 1000), "Accepted; has no effect."),
    parameter(
        "maintenance_work_mem",
        "64MB",
        Kind::Integer(Some(Kilobytes), 1024, i32::MAX),
        "Accepted; has no effect.",
    ),
    parameter("max_identifier_length", "63", Kind::Fixed("integer"), "Bytes of a name."),
    parameter("max_index_keys", "32", Kind::Fixed("integer"), "Columns of an index."),
    parameter(
        "max_parallel_maintenance_workers",
        "2",
        Kind::Integer(None, 0, 1024),
        "Accepted; has no effect.",
    ),
    parameter("max_parallel_workers", "8", Kind::Integer(None, 0, 1024), "Accepted; has no effect."),
    parameter(
        "max_parallel_workers_per_gather",
        "2",
        Kind::Integer(None, 0, 1024),
        "Accepted; has no effect.",
    ),
    parameter(
        "max_slot_wal_keep_size",
        "-1",
        Kind::Fixed("string"),
        "Most of the log that is retained for those who follow it; -1 for no limit.",
    ),
    parameter(
        "max_stack_depth",
        "2MB",
        Kind::Integer(Some(Kilobytes), 100, i32::MAX),
        "How deep statements may nest: 300 levels, and less in proportion if it is below 2MB.",
    ),
    parameter(
        "memory_limit",
        "0",
        Kind::Fixed("string"),
        "Most memory that the store may hold; 0 for no limit.",
    ),
    parameter(
        "min_parallel_index_scan_size",
        "512kB",
        Kind::Integer(Some(Blocks), 0, 715827882),
        "Accepted; has no effect.",
    ),
    parameter(
        "min_parallel_table_scan_size",
        "8MB",
        Kind::Integer(Some(Blocks), 0, 715827882),
        "Accepted; has no effect.",
    ),
    parameter("parallel_leader_participation", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("parallel_setup_cost", "1000", Kind::Real(None, 0.0, f64::MAX), "Accepted; has no effect."),
    parameter("parallel_tuple_cost", "0.1", Kind::Real(None, 0.0, f64::MAX), "Accepted; has no effect."),
    parameter(
        "password_encryption",
        "scram-sha-256",
        Kind::Choice(&["md5", "scram-sha-256"]),
        "Accepted; has no effect.",
    ),
    parameter(
        "plan_cache_mode",
        "auto",
        Kind::Choice(&["auto", "force_generic_plan", "force_custom_plan"]),
        "Accepted; has no effect.",
    ),
    parameter(
        "query_memory",
        "0",
        Kind::Fixed("string"),
        "Most memory that running queries may hold together in hash tables and sort buffers.",
    ),
    parameter("quote_all_identifiers", "off", Kind::Off, "Names are quoted where they need it."),
    parameter("random_page_cost", "4", Kind::Real(None, 0.0, f64::MAX), "Accepted; has no effect."),
    parameter(
        "recursive_worktable_factor",
        "10",
        Kind::Real(None, 0.001, 1000000.0),
        "Accepted; has no effect.",
    ),
    parameter("role", "none", Kind::Role, "The role whose rights count; every user may do everything."),
    parameter("row_security", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("search_path", "\"$user\", public", Kind::Text, "Schemas in which names are looked up."),
    parameter("seq_page_cost", "1", Kind::Real(None, 0.0, f64::MAX), "Accepted; has no effect."),
    parameter("server_encoding", "UTF8", Kind::Fixed("string"), "Strings are UTF-8."),
    parameter(
        "server_version",
        "15.0 (FirnDB)",
        Kind::Fixed("string"),
        "The PostgreSQL whose dialect we follow.",
    ),
    parameter("server_version_num", "150000", Kind::Fixed("integer"), "The same as a number."),
    parameter("session_authorization", "firn", Kind::Role, "The user."),
    parameter(
        "session_replication_role",
        "origin",
        Kind::Choice(&["origin", "replica", "local"]),
        "With replica, foreign keys are not checked, and their actions not carried out.",
    ),
    parameter(
        "standard_conforming_strings",
        "on",
        Kind::Boolean,
        "Whether backslashes are ordinary characters in strings.",
    ),
    parameter(
        "statement_timeout",
        "0",
        Kind::Integer(Some(Milliseconds), 0, i32::MAX),
        "Longest that a statement may run; 0 for ever.",
    ),
    parameter("synchronize_seqscans", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter(
        "synchronous_commit",
        "on",
        Kind::Choice(&["local", "remote_write", "remote_apply", "on", "off"]),
        "What COMMIT waits for: nothing, the disk here, or also synchronous standbys.",
    ),
    parameter(
        "synchronous_standby_names",
        "",
        Kind::Fixed("string"),
        "Replicas that COMMIT waits for; firn_set_synchronous_standby_names() changes it.",
    ),
    parameter("tcp_keepalives_count", "0", Kind::Integer(None, 0, i32::MAX), "Accepted; has no effect."),
    parameter(
        "tcp_keepalives_idle",
        "0",
        Kind::Integer(Some(Seconds), 0, i32::MAX),
        "Accepted; has no effect.",
    ),
    parameter(
        "tcp_keepalives_interval",
        "0",
        Kind::Integer(Some(Seconds), 0, i32::MAX),
        "Accepted; has no effect.",
    ),
    parameter(
        "tcp_user_timeout",
        "0",
        Kind::Integer(Some(Milliseconds), 0, i32::MAX),
        "Accepted; has no effect.",
    ),
    parameter(
        "temp_buffers",
        "8MB",
        Kind::Integer(Some(Blocks), 100, 1073741823),
        "Accepted; has no effect.",
    ),
    parameter(
        "temp_file_limit",
        "-1",
        Kind::Integer(Some(Kilobytes), -1, i32::MAX),
        "Most that the session's queries may hold in temporary files; -1 for no limit.",
    ),
    parameter("temp_tablespaces", "", Kind::Text, "Accepted; has no effect."),
    parameter("TimeZone", "UTC", Kind::TimeZone, "The time zone in which timestamptz is printed and read."),
    parameter("timezone_abbreviations", "Default", Kind::Text, "Accepted; has no effect."),
    parameter("track_activities", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("track_counts", "on", Kind::Boolean, "Accepted; has no effect."),
    parameter("track_functions", "none", Kind::Choice(&["none", "pl", "all"]), "Accepted; has no effect."),
    parameter("track_io_timing", "off", Kind::Boolean, "Accepted; has no effect."),
    parameter(
        "transaction_deferrable",
        "off",
        Kind::Boolean,
        "Whether this transaction is deferrable, which has no effect.",
    ),
    parameter("transaction_isolation", "serializable", ISOLATION, "The isolation level of this transaction."),
    parameter("transaction_read_only", "off", Kind::Boolean, "Whether this transaction is read-only."),
    parameter(
        "transaction_timeout",
        "0",
        Kind::Integer(Some(Milliseconds), 0, i32::MAX),
        "Accepted as 0: the time of transactions is not limited.",
    ),
    parameter("transform_null_equals", "off", Kind::Off, "x = NULL is NULL."),
    parameter(
        "vacuum_cost_delay",
        "0",
        Kind::Real(Some(Milliseconds), 0.0, 100.0),
        "Accepted; has no effect.",
    ),
    parameter("vacuum_cost_limit", "200", Kind::Integer(None, 1, 10000), "Accepted; has no effect."),
    parameter("vacuum_cost_page_dirty", "20", Kind::Integer(None, 0, 10000), "Accepted; has no effect."),
    parameter("vacuum_cost_page_hit", "1", Kind::Integer(None, 0, 10000), "Accepted; has no effect."),
    parameter("vacuum_cost_page_miss", "2", Kind::Integer(None, 0, 10000), "Accepted; has no effect."),
    parameter(
        "vacuum_failsafe_age",
        "1600000000",
        Kind::Integer(None, 0, 2100000000),
        "Accepted; has no effect.",
    ),
    parameter(
        "vacuum_freeze_min_age",
        "50000000",
        Kind::Integer(None, 0, 1000000000),
        "Accepted; has no effect.",
    ),
    parameter(
        "vacuum_freeze_table_age",
        "150000000",
        Kind::Integer(None, 0, 2000000000),
        "Accepted; has no effect.",
    ),
    parameter(
        "vacuum_multixact_failsafe_age",
        "1600000000",
        Kind::Integer(None, 0, 2100000000),
        "Accepted; has no effect.",
    ),
    parameter(
        "vacuum_multixact_freeze_min_age",
        "5000000",
        Kind::Integer(None, 0, 1000000000),
        "Accepted; has no effect.",
    ),
    parameter(
        "vacuum_multixact_freeze_table_age",
        "150000000",
        Kind::Integer(None, 0, 2000000000),
        "Accepted; has no effect.",
    ),
    parameter("work_mem", "4MB", Kind::Integer(Some(Kilobytes), 64, i32::MAX), "Accepted; has no effect."),
    parameter("xmlbinary", "base64", Kind::Choice(&["base64", "hex"]), "Accepted; has no effect."),
    parameter("xmloption", "content", Kind::Choice(&["content", "document"]), "Accepted; has no effect."),
];
