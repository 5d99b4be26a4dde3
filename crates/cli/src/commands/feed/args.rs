//! Command-line arguments of `tidemill feed`.

use super::watermark::{Mark, parse_mark};
use crate::times::{self, When};
use crate::values::parse_json_object;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use tidemill_core::feed_definition::{ClientKeys, TryAuth};

#[derive(Debug, Subcommand)]
pub(crate) enum FeedCommand {
    #[command(flatten)]
    Definition(DefinitionCommand),
    /// Add a feed, or change the settings of an existing one
    #[command(
        after_help = "Example:\n  tidemill feed add mine --endpoint http://127.0.0.1:8700/api/diamonds \
                            --username a --password-env P"
    )]
    Add(Box<FeedAddArgs>),
    /// Store a definition file as a feed, and create its table; the statements are shown before they run
    #[command(after_help = "Examples:\n  tidemill feed apply orders.feed.yaml\n  \
                            tidemill feed apply orders.feed.yaml --project shop --schedule '*/10 * * * *' --yes")]
    Apply(Box<FeedApplyArgs>),
    /// Build the rows of a feed again from stored records, with its current definition, without fetching anything
    #[command(after_help = "Example:\n  tidemill feed rebuild orders")]
    Rebuild {
        /// Name of the feed
        name: String,
        /// Number of records to build per request
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        batch: Option<u16>,
    },
    /// List feeds
    #[command(after_help = "Example:\n  tidemill feed list")]
    List,
    /// Show a feed: its watermark, whether it answers, its last syncs, and its definition
    #[command(after_help = "Example:\n  tidemill feed show nivoda")]
    Show {
        /// Name of the feed
        name: String,
    },
    /// Queue a sync of the changes since the watermark, or of all records
    #[command(
        after_help = "Examples:\n  tidemill feed sync nivoda --wait\n  tidemill feed sync nivoda --full"
    )]
    Sync {
        /// Name of the feed
        name: String,
        /// Sync all records, ignoring the watermark
        #[arg(long)]
        full: bool,
        /// Follow the sync until it ends; the exit code is 0 if it succeeded, and 3 otherwise
        #[arg(long)]
        wait: bool,
        /// Idempotency key: a repeated request with the same key returns the first run
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
    },
    /// Stop workers from fetching pages of a feed
    #[command(after_help = "Example:\n  tidemill feed pause nivoda --until 2h --note maintenance")]
    Pause {
        /// Name of the feed
        name: String,
        /// Reason, shown to other operators
        #[arg(long)]
        note: Option<String>,
        /// End of the pause: a time, or a duration from now such as 2h; the default is until the feed is resumed
        #[arg(long, value_parser = times::parse_when)]
        until: Option<When>,
    },
    /// Let workers fetch pages of a paused feed again
    #[command(after_help = "Example:\n  tidemill feed resume nivoda")]
    Resume {
        /// Name of the feed
        name: String,
    },
    /// Show the watermark of a feed and its history, or set it
    #[command(after_help = "Examples:\n  tidemill feed watermark nivoda\n  \
                            tidemill feed watermark nivoda --set 2026-01-16T02:00:00Z --note restored")]
    Watermark {
        /// Name of the feed
        name: String,
        /// Set the watermark to this time, or to this number if the records of the feed are ordered by a number
        #[arg(long, value_parser = parse_mark, conflicts_with = "import", allow_negative_numbers = true)]
        set: Option<Mark>,
        /// Set the watermark from a JSON file: {"lastUpdatedAt": …}
        #[arg(long, value_name = "FILE")]
        import: Option<PathBuf>,
        /// Reason to record with the change
        #[arg(long)]
        note: Option<String>,
    },
    /// Show the record counts of the last scan by range, and how many records were fetched and stored
    #[command(after_help = "Example:\n  tidemill feed heatmap nivoda")]
    Heatmap {
        /// Name of the feed
        name: String,
    },
    /// List records that were rejected, and why
    #[command(after_help = "Example:\n  tidemill feed rejects nivoda --limit 100")]
    Rejects {
        /// Name of the feed; the default is all feeds
        name: Option<String>,
        /// Maximum number of records
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// List gaps: ranges of the partition field that the watermark passed without covering them
    #[command(after_help = "Example:\n  tidemill feed gaps nivoda --all")]
    Gaps {
        /// Name of the feed; the default is all feeds
        name: Option<String>,
        /// Include gaps that a later sync has closed
        #[arg(long)]
        all: bool,
    },
}

/// Commands for definition files. They need no database.
#[derive(Debug, Subcommand)]
pub(crate) enum DefinitionCommand {
    /// Request a URL once, show the records and the paging, and write a definition of the feed
    #[command(after_help = "Examples:\n  tidemill feed try http://127.0.0.1:8001/orders\n  \
                            tidemill feed try http://127.0.0.1:8001/orders --table shop.orders --bearer-env TOKEN")]
    Try {
        /// Address of a list of records, without credentials
        url: String,
        /// File for the definition, or - for standard output; the default is named after the last part of the path
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Table of the definition, with its schema; the default is named after the last part of the path
        #[arg(long, value_name = "TABLE")]
        table: Option<String>,
        #[command(flatten)]
        client: TryClientArgs,
    },
    /// Check a definition file; every error is printed with line and column
    #[command(after_help = "Example:\n  tidemill feed check orders.feed.yaml")]
    Check {
        /// Definition file, or - for standard input
        file: PathBuf,
    },
    /// Fetch the first page of a definition, and show its records as rows of the table
    #[command(after_help = "Example:\n  tidemill feed preview orders.feed.yaml --limit 5")]
    Preview {
        /// Definition file, or - for standard input
        file: PathBuf,
        /// Maximum number of records
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Print the JSON schema of definition files, for editors
    #[command(after_help = "Example:\n  tidemill feed schema")]
    Schema,
}

// Headers and credentials of a request. Secrets are names of variables. This is no doc comment, because clap would use
// it as the description of the command.
#[derive(Debug, Args)]
pub(crate) struct TryClientArgs {
    /// Header of the request, without secrets; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Environment variable with a bearer token
    #[arg(long, value_name = "VAR", conflicts_with_all = ["username", "api_key_env"])]
    pub(crate) bearer_env: Option<String>,
    /// User name of HTTP basic authentication
    #[arg(long, value_name = "NAME", requires = "password_env", conflicts_with = "api_key_env")]
    pub(crate) username: Option<String>,
    /// Environment variable with the password of the user
    #[arg(long, value_name = "VAR", requires = "username")]
    pub(crate) password_env: Option<String>,
    /// Header of an API key, and the environment variable with the key
    #[arg(long, value_name = "HEADER=VAR", value_parser = parse_header)]
    pub(crate) api_key_env: Option<(String, String)>,
}

impl From<TryClientArgs> for ClientKeys {
    fn from(args: TryClientArgs) -> Self {
        let auth = match (args.bearer_env, args.username.zip(args.password_env), args.api_key_env) {
            (Some(variable), ..) => TryAuth::Bearer(variable),
            (None, Some((username, variable)), _) => TryAuth::Basic(username, variable),
            (None, None, Some((header, variable))) => TryAuth::ApiKey(header, variable),
            (None, None, None) => TryAuth::None,
        };
        Self { headers: args.headers, auth }
    }
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    let (name, value) = parts.ok_or("it must have the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The feed to add
#[derive(Debug, Args)]
pub(crate) struct FeedAddArgs {
    /// Name of the feed: lower-case letters, digits and hyphens
    pub(crate) name: String,
    /// Type of the feed: nivoda; other APIs have a definition file, see `tidemill feed apply`
    #[arg(long, default_value = "nivoda")]
    pub(crate) kind: String,
    /// Address of the feed's API
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: String,
    /// User name of the account at the feed
    #[arg(long, value_name = "NAME")]
    pub(crate) username: Option<String>,
    /// Environment variable with the password, on every machine that runs workers; the password is never stored
    #[arg(long, value_name = "VAR")]
    pub(crate) password_env: Option<String>,
    /// Project that the runs of the feed belong to
    #[arg(long, default_value = "default", value_name = "PROJECT")]
    pub(crate) project: String,
    /// Cron expression of incremental syncs, with five or six fields
    #[arg(long, value_name = "CRON")]
    pub(crate) schedule: Option<String>,
    /// Cron expression of full syncs, which mark the records that the feed removed as deleted
    #[arg(long, value_name = "CRON")]
    pub(crate) full_schedule: Option<String>,
    /// Time zone of the cron expressions
    #[arg(long, default_value = "UTC", value_name = "ZONE")]
    pub(crate) time_zone: String,
    /// Maximum requests per second over all workers; 0 means no limit
    #[arg(long, default_value_t = tidemill_core::limits::FEED_RATE, value_name = "N")]
    pub(crate) rate: u32,
    /// Destination for a copy of the watermark: a path, s3://bucket/key or az://container/key
    #[arg(long, value_name = "URL")]
    pub(crate) watermark_copy: Option<String>,
    /// Further settings of this type of feed, as a JSON object
    #[arg(long, value_parser = parse_json_object, value_name = "JSON")]
    pub(crate) settings: Option<tidemill_core::Json>,
}

/// The definition to apply
#[derive(Debug, Args)]
pub(crate) struct FeedApplyArgs {
    /// Definition file, or - for standard input
    pub(crate) file: PathBuf,
    /// Project that the runs of the feed belong to; the default is the current one, or `default` for a new feed
    #[arg(long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,
    /// Cron expression of incremental syncs, with five or six fields
    #[arg(long, value_name = "CRON")]
    pub(crate) schedule: Option<String>,
    /// Cron expression of full syncs, which find the records that the source removed
    #[arg(long, value_name = "CRON")]
    pub(crate) full_schedule: Option<String>,
    /// Time zone of the cron expressions
    #[arg(long, default_value = "UTC", value_name = "ZONE")]
    pub(crate) time_zone: String,
    /// Destination for a copy of the watermark: a path, s3://bucket/key or az://container/key
    #[arg(long, value_name = "URL")]
    pub(crate) watermark_copy: Option<String>,
    /// Run the statements without asking
    #[arg(long, conflicts_with = "plan")]
    pub(crate) yes: bool,
    /// Show the statements and change nothing
    #[arg(long)]
    pub(crate) plan: bool,
}
