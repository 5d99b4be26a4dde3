//! `[[alerts.targets]]`: who is told, by mail or by webhook. Secrets are named here, and held elsewhere.

use crate::times;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tidemill_core::alert::AlertKind;
use tidemill_core::ids::is_name;
use tidemill_engine::alerts::{Address, Mail, Security, Shape, Target, Way, Webhook};

/// Targets of one configuration.
const TARGETS_MAX: usize = 32;
/// People of one target.
const PEOPLE_MAX: usize = 50;

/// A target as it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
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

/// Reads the list of targets; every fault is reported.
pub(crate) fn read(value: &toml::Value, targets: &mut Vec<Target>, faults: &mut Vec<String>) {
    let Some(list) = value.as_array().filter(|list| list.len() <= TARGETS_MAX) else {
        faults.push(format!("alerts.targets: it must be a list of at most {TARGETS_MAX} [[alerts.targets]]"));
        return;
    };
    let mut names = BTreeSet::new();
    for (number, value) in list.iter().enumerate() {
        let written: Written = match value.clone().try_into() {
            Ok(written) => written,
            Err(error) => {
                let told = error.to_string().trim().replace('\n', " ");
                faults.push(format!("alerts.targets, number {}: {told}", number + 1));
                continue;
            }
        };
        let name = written.name.clone();
        if !names.insert(name.clone()) {
            faults.push(format!("alerts.targets: the name `{name}` is there twice"));
        }
        match target(written) {
            Ok(target) => targets.push(target),
            Err(problem) => faults.push(format!("alerts.targets, {name}: {problem}")),
        }
    }
}

fn target(written: Written) -> Result<Target, String> {
    if !is_name(&written.name) {
        return Err("its name must be lower-case letters, digits and dashes".to_owned());
    }
    let interval = written.interval.as_deref().map(interval).transpose()?;
    let (name, kinds, ca_file) = (written.name.clone(), written.kinds.clone(), written.ca_file.clone());
    let way = match written.kind.as_str() {
        "mail" => mail(written)?,
        "webhook" => webhook(written)?,
        _ => return Err("kind must be mail or webhook".to_owned()),
    };
    let mut target = Target { kinds, ca_file, ..Target::new(name, way) };
    if let Some(interval) = interval {
        target.interval = interval;
    }
    Ok(target)
}

fn interval(text: &str) -> Result<Duration, String> {
    let span = times::duration(text).map_err(|problem| format!("interval: {problem}"))?;
    if span > Duration::from_hours(7 * 24) {
        return Err("interval: it must be at most 7d".to_owned());
    }
    Ok(span)
}

fn mail(written: Written) -> Result<Way, String> {
    if written.url.is_some() || written.url_env.is_some() || written.shape.is_some() {
        return Err("a mail has no url and no shape".to_owned());
    }
    let host = written.host.ok_or("host is missing: the mail server")?;
    let security = match written.security.as_deref().unwrap_or("starttls") {
        "starttls" => Security::StartTls,
        "tls" => Security::Tls,
        "none" if is_loopback(&host) => Security::None,
        "none" => return Err("security none is for a mail server on this machine only".to_owned()),
        _ => return Err("security must be starttls, tls or none".to_owned()),
    };
    let usual = match security {
        Security::StartTls => 587,
        Security::Tls => 465,
        Security::None => 25,
    };
    if written.username.is_some() != written.password_env.is_some() {
        return Err("username and password-env belong together".to_owned());
    }
    let from = written.from.ok_or("from is missing: who the mail is from")?;
    if written.to.is_empty() || written.to.len() > PEOPLE_MAX {
        return Err(format!("to must name 1 to {PEOPLE_MAX} people"));
    }
    Ok(Way::Mail(Mail {
        host,
        port: written.port.unwrap_or(usual),
        security,
        username: written.username,
        password_env: written.password_env,
        from,
        to: written.to,
    }))
}

fn webhook(written: Written) -> Result<Way, String> {
    if written.host.is_some() || written.from.is_some() || !written.to.is_empty() {
        return Err("a webhook has no host, no from and no to".to_owned());
    }
    let shape = match written.shape.as_deref().unwrap_or("generic") {
        "slack" => Shape::Slack,
        "generic" => Shape::Generic,
        _ => return Err("shape must be slack or generic".to_owned()),
    };
    let address = match (written.url, written.url_env) {
        (Some(url), None) if url.starts_with("https://") || is_plain_loopback(&url) => Address::Plain(url),
        // The address may hold a token, so it is not repeated.
        (Some(_), None) => return Err("url must begin with https://".to_owned()),
        (None, Some(name)) => Address::Variable(name),
        (None, None) | (Some(_), Some(_)) => return Err("it needs one of url and url-env".to_owned()),
    };
    Ok(Way::Webhook(Webhook { address, shape, secret_env: written.secret_env }))
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

    fn from(text: &str) -> (Vec<Target>, Vec<String>) {
        let table: toml::Table = text.parse().unwrap();
        let (mut targets, mut faults) = (Vec::new(), Vec::new());
        read(&table["alerts"]["targets"], &mut targets, &mut faults);
        (targets, faults)
    }

    #[test]
    fn mail_and_webhook_are_read() {
        let (targets, faults) = from(
            "[[alerts.targets]]\nname = \"ops\"\nkind = \"mail\"\nhost = \"mail.example.com\"\nusername = \"u\"\n\
             password-env = \"MAIL_PASSWORD\"\nfrom = \"mill@example.com\"\nto = [\"ann@example.com\"]\n\
             kinds = [\"run_failed\"]\ninterval = \"10m\"\n\
             [[alerts.targets]]\nname = \"chat\"\nkind = \"webhook\"\nurl-env = \"SLACK_URL\"\n\
             shape = \"slack\"\n",
        );
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!((targets.len(), targets[0].interval), (2, Duration::from_mins(10)));
        assert!(targets[0].wants(AlertKind::RunFailed) && !targets[0].wants(AlertKind::QueueDeep));
        let Way::Mail(mail) = &targets[0].way else { panic!("{:?}", targets[0]) };
        assert_eq!((mail.port, mail.security), (587, Security::StartTls));
    }

    #[test]
    fn every_fault_is_told_and_no_address_is_repeated() {
        let mail = "kind = \"mail\"\nhost = \"mail.example.com\"\nfrom = \"a@b\"\nto = [\"c@d\"]\n";
        let (targets, faults) = from(&format!(
            "[[alerts.targets]]\nname = \"a\"\n{mail}security = \"none\"\n\
             [[alerts.targets]]\nname = \"b\"\n{mail}username = \"u\"\n\
             [[alerts.targets]]\nname = \"c\"\nkind = \"webhook\"\nurl = \"http://hooks.example.com/T0KEN\"\n\
             [[alerts.targets]]\nname = \"d\"\nkind = \"pigeon\"\n\
             [[alerts.targets]]\nname = \"e\"\nkind = \"webhook\"\nurls = \"x\"\n"
        ));
        assert_eq!((targets.len(), faults.len()), (0, 5), "{faults:?}");
        assert!(!faults.join(" ").contains("T0KEN"), "{faults:?}");
    }
}
