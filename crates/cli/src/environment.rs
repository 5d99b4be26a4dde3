//! Environment variables that Tidemill reads or sets.

pub(crate) const DATABASE: &str = "TIDEMILL_DATABASE";
pub(crate) const SCHEMA: &str = "TIDEMILL_SCHEMA";
pub(crate) const SERVER: &str = "TIDEMILL_SERVER";
pub(crate) const TOKEN: &str = "TIDEMILL_TOKEN";
pub(crate) const CA_FILE: &str = "TIDEMILL_CA_FILE";
pub(crate) const CONFIG: &str = "TIDEMILL_CONFIG";
/// Log filter in the syntax of `tracing_subscriber::EnvFilter`.
const LOG: &str = "TIDEMILL_LOG";
pub(crate) const LOG_FORMAT: &str = "TIDEMILL_LOG_FORMAT";
/// Destination of traces, as OpenTelemetry defines it.
const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Variables of other programs that can contain access to the database.
const DATABASE_SECRETS: &[&str] = &["PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "DATABASE_URL"];

/// Prefix of the variables that a command does inherit: the demo passes settings to its commands.
const INHERITED_PREFIX: &str = "TIDEMILL_DEMO_";

/// Lists the variables that a command never inherits: those of Tidemill, and access to the database.
pub(crate) fn secret_variables() -> Vec<String> {
    let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = ours.filter(|name| name.starts_with("TIDEMILL_") && !name.starts_with(INHERITED_PREFIX));
    ours.chain(DATABASE_SECRETS.iter().map(|name| (*name).to_owned())).collect()
}

/// Internal command that only processes of Tidemill start.
pub(crate) enum InternalCommand {
    /// Supervise the command of a worker.
    Supervise,
    /// Supervise a command that outlives its agent.
    SuperviseLasting,
    /// Replace this process by the command.
    Launch,
}

/// Returns the internal command that this process was started for.
pub(crate) fn internal_command() -> Option<InternalCommand> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != "supervise" {
        return None;
    }
    match arguments.next() {
        Some(step) if step == "launch" => Some(InternalCommand::Launch),
        Some(step) if step == "lasting" => Some(InternalCommand::SuperviseLasting),
        Some(_) | None => Some(InternalCommand::Supervise),
    }
}

/// Returns whether the command line contains `--json`, even if it is invalid otherwise.
///
/// Words after `--` belong to another command.
pub(crate) fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

pub(crate) fn log_filter() -> Option<String> {
    std::env::var(LOG).ok().filter(|filter| !filter.is_empty())
}

pub(crate) fn otlp_endpoint() -> Option<String> {
    std::env::var(OTLP_ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty())
}

/// Returns the name of the variable for a configuration key: `TIDEMILL_WORKER_DEAD_AFTER` for `worker.dead-after`.
pub(crate) fn variable_name(path: &str) -> String {
    format!("TIDEMILL_{}", path.replace(['.', '-'], "_").to_uppercase())
}

/// Returns the name and value of the variable for a configuration key.
pub(crate) fn variable_of_key(path: &str) -> Option<(String, String)> {
    let name = variable_name(path);
    std::env::var(&name).ok().map(|value| (name, value))
}

/// Returns the secret in a variable that a feed definition names.
pub(crate) fn secret(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Directory for the state of programs, as the XDG specification defines it.
pub(crate) fn state_home() -> Option<std::path::PathBuf> {
    std::env::var_os("XDG_STATE_HOME").map(Into::into)
}

/// Returns whether this process can show windows.
pub(crate) fn has_display() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("WAYLAND_DISPLAY") || is_set("DISPLAY")
}

/// Returns whether NO_COLOR is set.
pub(crate) fn no_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Name of the current user.
pub(crate) fn user() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "cli".to_owned())
}

pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns whether the command line contains a database address with a password.
pub(crate) fn has_password_on_command_line() -> bool {
    std::env::args().any(|argument| {
        let address = argument.strip_prefix("--database=").unwrap_or(&argument);
        let Some((scheme, rest)) = address.split_once("://") else { return false };
        let authority = rest.split('/').next().unwrap_or_default();
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        scheme.starts_with("postgres") && (user.contains(':') || rest.contains("password="))
    })
}

/// Returns whether the command line contains a token.
pub(crate) fn has_token_on_command_line() -> bool {
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
