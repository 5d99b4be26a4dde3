//! Configuration of `[[alerts.targets]]`: mail and webhook targets.
//!
//! Secrets stay in environment variables; the configuration contains only their names.

use crate::times;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tidemill_core::alert::AlertKind;
use tidemill_core::ids::is_name;
use tidemill_engine::alerts::{Address, BodyFormat, Channel, Mail, Security, Target, Webhook};

const TARGETS_MAX: usize = 32;
/// Maximum number of mail recipients of one target.
const RECIPIENTS_MAX: usize = 50;

/// A target as the file contains it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TargetConfig {
    name: String,
    kind: String,
    #[serde(default)]
    kinds: Vec<AlertKind>,
    interval: Option<String>,
    ca_file: Option<PathBuf>,
    host: Option<String>,
    port: Option<u16>,
    security: Option<String>,
    username: Option<String>,
    password_env: Option<String>,
    from: Option<String>,
    #[serde(default)]
    to: Vec<String>,
    url: Option<String>,
    url_env: Option<String>,
    shape: Option<String>,
    secret_env: Option<String>,
}

/// A key of a target, for the reference page.
#[cfg(test)]
pub(crate) struct TargetKey {
    pub(crate) name: &'static str,
    /// The kinds of targets that have the key.
    pub(crate) kinds: &'static str,
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
}

#[cfg(test)]
const fn key(name: &'static str, kinds: &'static str, default: &'static str, doc: &'static str) -> TargetKey {
    TargetKey { name, kinds, default, doc }
}

/// All keys, in the order of [`TargetConfig`].
#[cfg(test)]
pub(crate) const KEYS: [TargetKey; 16] = [
    key("name", "both", "required", "Unique name: lower-case letters, digits and hyphens."),
    key("kind", "both", "required", "`mail` or `webhook`."),
    key("kinds", "both", "all", "List of the kinds of alerts that this target gets."),
    key(
        "interval",
        "both",
        "`1h`",
        "Minimum time between messages of one kind for one feed or project; at most 7d.",
    ),
    key("ca-file", "both", "none", "PEM file with additional certificate authorities for this target."),
    key("host", "mail", "required", "Name of the mail server."),
    key(
        "port",
        "mail",
        "`587`, `465` or `25`",
        "Port of the mail server; the default depends on `security`.",
    ),
    key("security", "mail", "`starttls`", "`starttls`, `tls`, or `none` for a mail server on this machine."),
    key("username", "mail", "none", "Login of the mail server; it needs `password-env`."),
    key("password-env", "mail", "none", "Environment variable with the password of the login."),
    key("from", "mail", "required", "Address of the sender."),
    key("to", "mail", "required", "List of 1 to 50 addresses of recipients."),
    key("url", "webhook", "`url` or `url-env`", "Address of the webhook: `https://`, or this machine."),
    key(
        "url-env",
        "webhook",
        "`url` or `url-env`",
        "Environment variable with the address, if it contains a token.",
    ),
    key("shape", "webhook", "`generic`", "Body of the request: `generic` or `slack`."),
    key("secret-env", "webhook", "none", "Environment variable with the secret that signs the body."),
];

/// Reads the list of targets, and collects all errors.
pub(crate) fn read(value: &toml::Value, targets: &mut Vec<Target>, errors: &mut Vec<String>) {
    let Some(list) = value.as_array().filter(|list| list.len() <= TARGETS_MAX) else {
        errors.push(format!("alerts.targets: it must be a list of at most {TARGETS_MAX} [[alerts.targets]]"));
        return;
    };
    let mut names = BTreeSet::new();
    for (number, value) in list.iter().enumerate() {
        let config: TargetConfig = match value.clone().try_into() {
            Ok(config) => config,
            Err(error) => {
                let message = error.to_string().trim().replace('\n', " ");
                errors.push(format!("alerts.targets, number {}: {message}", number + 1));
                continue;
            }
        };
        let name = config.name.clone();
        if !names.insert(name.clone()) {
            errors.push(format!("alerts.targets: the name `{name}` is used twice"));
        }
        match target(config) {
            Ok(target) => targets.push(target),
            Err(problem) => errors.push(format!("alerts.targets, {name}: {problem}")),
        }
    }
}

fn target(config: TargetConfig) -> Result<Target, String> {
    if !is_name(&config.name) {
        return Err("its name must consist of lower-case letters, digits and hyphens".to_owned());
    }
    let interval = config.interval.as_deref().map(interval).transpose()?;
    let (name, kinds, ca_file) = (config.name.clone(), config.kinds.clone(), config.ca_file.clone());
    let channel = match config.kind.as_str() {
        "mail" => mail(config)?,
        "webhook" => webhook(config)?,
        _ => return Err("kind must be mail or webhook".to_owned()),
    };
    let mut target = Target { kinds, ca_file, ..Target::new(name, channel) };
    if let Some(interval) = interval {
        target.interval = interval;
    }
    Ok(target)
}

fn interval(text: &str) -> Result<Duration, String> {
    let span = times::parse_duration(text).map_err(|problem| format!("interval: {problem}"))?;
    if span > Duration::from_hours(7 * 24) {
        return Err("interval: it must be at most 7d".to_owned());
    }
    Ok(span)
}

fn mail(config: TargetConfig) -> Result<Channel, String> {
    if config.url.is_some() || config.url_env.is_some() || config.shape.is_some() {
        return Err("a mail target cannot have url, url-env or shape".to_owned());
    }
    let host = config.host.ok_or("host is missing; set it to the mail server")?;
    let security = match config.security.as_deref().unwrap_or("starttls") {
        "starttls" => Security::StartTls,
        "tls" => Security::Tls,
        "none" if is_loopback(&host) => Security::None,
        "none" => return Err("security `none` is only allowed for a mail server on this machine".to_owned()),
        _ => return Err("security must be starttls, tls or none".to_owned()),
    };
    let default_port = match security {
        Security::StartTls => 587,
        Security::Tls => 465,
        Security::None => 25,
    };
    if config.username.is_some() != config.password_env.is_some() {
        return Err("username and password-env must be used together".to_owned());
    }
    let from = config.from.ok_or("from is missing; set it to the address of the sender")?;
    if config.to.is_empty() || config.to.len() > RECIPIENTS_MAX {
        return Err(format!("to must contain 1 to {RECIPIENTS_MAX} addresses"));
    }
    Ok(Channel::Mail(Mail {
        host,
        port: config.port.unwrap_or(default_port),
        security,
        username: config.username,
        password_env: config.password_env,
        from,
        to: config.to,
    }))
}

fn webhook(config: TargetConfig) -> Result<Channel, String> {
    if config.host.is_some() || config.from.is_some() || !config.to.is_empty() {
        return Err("a webhook target cannot have host, from or to".to_owned());
    }
    let format = match config.shape.as_deref().unwrap_or("generic") {
        "slack" => BodyFormat::Slack,
        "generic" => BodyFormat::Generic,
        _ => return Err("shape must be slack or generic".to_owned()),
    };
    let address = match (config.url, config.url_env) {
        (Some(url), None) if url.starts_with("https://") || is_plain_loopback(&url) => Address::Plain(url),
        // The address may contain a token, so the error does not repeat it.
        (Some(_), None) => return Err("url must begin with https://".to_owned()),
        (None, Some(name)) => Address::Variable(name),
        (None, None) | (Some(_), Some(_)) => return Err("set either url or url-env".to_owned()),
    };
    Ok(Channel::Webhook(Webhook { address, format, secret_env: config.secret_env }))
}

fn is_loopback(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "::1" | "[::1]")
}

fn is_plain_loopback(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    is_loopback(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parser lists its keys when it refuses an unknown one.
    #[test]
    fn documented_keys_are_those_of_the_parser() {
        let (_, errors) = parse_targets("[[alerts.targets]]\nunknown = 1\n");
        let (_, listed) = errors[0].split_once("expected one of ").unwrap();
        let listed: Vec<&str> = listed.split(", ").map(|name| name.trim_matches('`')).collect();
        assert_eq!(KEYS.map(|key| key.name).to_vec(), listed);
        let (_, errors) = parse_targets("[[alerts.targets]]\nname = 'a'\nkind = 'mail'\n");
        assert!(errors[0].contains("host is missing"), "{errors:?}");
    }

    /// The defaults of the page are those of the parser.
    #[test]
    fn documented_defaults_are_those_of_the_parser() {
        let (targets, errors) = parse_targets(
            "[[alerts.targets]]\nname = 'a'\nkind = 'mail'\nhost = 'h'\nfrom = 'a@b.ch'\nto = ['c@d.ch']\n\
             [[alerts.targets]]\nname = 'b'\nkind = 'webhook'\nurl-env = 'U'\n",
        );
        assert!(errors.is_empty(), "{errors:?}");
        let default = |name: &str| KEYS.iter().find(|key| key.name == name).unwrap().default;
        assert_eq!(default("interval"), format!("`{}`", times::format_exact(targets[0].interval)));
        let Channel::Mail(mail) = &targets[0].channel else { panic!("{targets:?}") };
        assert!(
            matches!(mail.security, Security::StartTls) && default("port").starts_with("`587`"),
            "{mail:?}"
        );
        let Channel::Webhook(webhook) = &targets[1].channel else { panic!("{targets:?}") };
        assert!(matches!(webhook.format, BodyFormat::Generic), "{webhook:?}");
    }

    fn parse_targets(text: &str) -> (Vec<Target>, Vec<String>) {
        let table: toml::Table = text.parse().unwrap();
        let (mut targets, mut errors) = (Vec::new(), Vec::new());
        read(&table["alerts"]["targets"], &mut targets, &mut errors);
        (targets, errors)
    }

    #[test]
    fn mail_and_webhook_targets_are_read() {
        let (targets, errors) = parse_targets(
            "[[alerts.targets]]\nname = \"ops\"\nkind = \"mail\"\nhost = \"mail.example.com\"\nusername = \"u\"\n\
             password-env = \"MAIL_PASSWORD\"\nfrom = \"tidemill@example.com\"\nto = [\"ann@example.com\"]\n\
             kinds = [\"run_failed\"]\ninterval = \"10m\"\n\
             [[alerts.targets]]\nname = \"chat\"\nkind = \"webhook\"\nurl-env = \"SLACK_URL\"\n\
             shape = \"slack\"\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!((targets.len(), targets[0].interval), (2, Duration::from_mins(10)));
        assert!(targets[0].wants(AlertKind::RunFailed) && !targets[0].wants(AlertKind::QueueDeep));
        let Channel::Mail(mail) = &targets[0].channel else { panic!("{:?}", targets[0]) };
        assert_eq!((mail.port, mail.security), (587, Security::StartTls));
    }

    #[test]
    fn all_errors_are_reported_without_webhook_addresses() {
        let mail = "kind = \"mail\"\nhost = \"mail.example.com\"\nfrom = \"a@b\"\nto = [\"c@d\"]\n";
        let (targets, errors) = parse_targets(&format!(
            "[[alerts.targets]]\nname = \"a\"\n{mail}security = \"none\"\n\
             [[alerts.targets]]\nname = \"b\"\n{mail}username = \"u\"\n\
             [[alerts.targets]]\nname = \"c\"\nkind = \"webhook\"\nurl = \"http://hooks.example.com/T0KEN\"\n\
             [[alerts.targets]]\nname = \"d\"\nkind = \"pigeon\"\n\
             [[alerts.targets]]\nname = \"e\"\nkind = \"webhook\"\nurls = \"x\"\n"
        ));
        assert_eq!((targets.len(), errors.len()), (0, 5), "{errors:?}");
        assert!(!errors.join(" ").contains("T0KEN"), "{errors:?}");
    }
}
