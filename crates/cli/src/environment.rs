//! Every environment variable that Tidemill reads or sets, in one place.

/// Where the data is.
pub(crate) const DATABASE: &str = "TIDEMILL_DATABASE";
/// The schema on PostgreSQL.
pub(crate) const SCHEMA: &str = "TIDEMILL_SCHEMA";
/// The server to go through.
pub(crate) const SERVER: &str = "TIDEMILL_SERVER";
/// The token for that server.
pub(crate) const TOKEN: &str = "TIDEMILL_TOKEN";
/// Certificates of authorities that are trusted beside the usual ones.
pub(crate) const CA_FILE: &str = "TIDEMILL_CA_FILE";
/// The configuration file.
pub(crate) const CONFIG: &str = "TIDEMILL_CONFIG";
/// What is logged, in the notation of `tracing`.
const LOG: &str = "TIDEMILL_LOG";
/// How the log looks.
pub(crate) const LOG_FORMAT: &str = "TIDEMILL_LOG_FORMAT";
/// Where traces go, for every program that speaks OpenTelemetry.
const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Variables of other programs that lead to the database.
const DATABASE_SECRETS: &[&str] = &["PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "DATABASE_URL"];

/// What a command may inherit of ours: the demo talks to its own commands.
const HANDED_ON: &str = "TIDEMILL_DEMO_";

/// Variables that a command never inherits: all of our own, and whatever else leads to the database.
pub(crate) fn secrets() -> Vec<String> {
    let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = ours.filter(|name| name.starts_with("TIDEMILL_") && !name.starts_with(HANDED_ON));
    ours.chain(DATABASE_SECRETS.iter().map(|name| (*name).to_owned())).collect()
}

/// A step that only our own processes take.
pub(crate) enum Hidden {
    /// Stand between a worker and its command.
    Supervise,
    /// Stand beside a command that outlives its agent.
    SuperviseLasting,
    /// Become the command.
    Launch,
}

/// The hidden step that this process was started for.
pub(crate) fn hidden_step() -> Option<Hidden> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != "supervise" {
        return None;
    }
    match arguments.next() {
        Some(step) if step == "launch" => Some(Hidden::Launch),
        Some(step) if step == "lasting" => Some(Hidden::SuperviseLasting),
        Some(_) | None => Some(Hidden::Supervise),
    }
}

/// Whether the command line asks for JSON, as far as one that is not understood can be read. What follows `--` belongs
/// to another command.
pub(crate) fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

pub(crate) fn log_filter() -> Option<String> {
    std::env::var(LOG).ok().filter(|filter| !filter.is_empty())
}

/// Where traces go, where every program is told so.
pub(crate) fn otlp_endpoint() -> Option<String> {
    std::env::var(OTLP_ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty())
}

/// A value from the environment for a key of the configuration: `worker.dead-after` is
/// `TIDEMILL_WORKER_DEAD_AFTER`.
pub(crate) fn for_key(path: &str) -> Option<(String, String)> {
    let name = format!("TIDEMILL_{}", path.replace(['.', '-'], "_").to_uppercase());
    std::env::var(&name).ok().map(|value| (name, value))
}

/// Whether people asked for no colour.
pub(crate) fn no_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Who sits at this terminal.
pub(crate) fn person() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "cli".to_owned())
}

/// The name of this machine.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether the database's address, with a password in it, stands on the command line.
pub(crate) fn password_on_command_line() -> bool {
    std::env::args().any(|argument| {
        let address = argument.strip_prefix("--database=").unwrap_or(&argument);
        let Some((scheme, rest)) = address.split_once("://") else { return false };
        let authority = rest.split('/').next().unwrap_or_default();
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        scheme.starts_with("postgres") && (user.contains(':') || rest.contains("password="))
    })
}

/// Whether a token stands on the command line.
pub(crate) fn token_on_command_line() -> bool {
    let mut arguments = std::env::args().skip(1).take_while(|argument| argument != "--");
    while let Some(argument) = arguments.next() {
        let token = match argument.strip_prefix("--token") {
            Some("") => arguments.next(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        if token.is_some_and(|token| !token.starts_with('@')) {
            return true;
        }
    }
    false
}
