//! Host rules: names, name patterns, addresses and networks, each with an optional port.
//!
//! A name in a URL says little about the address behind it. So an endpoint is checked twice: its name against the
//! rules, and each address that the name resolves to. An address that is not public needs a rule of its own.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The name of this machine that resolves to a loopback address.
const LOCALHOST: &str = "localhost";
/// Longest host name, by RFC 1035.
const HOST_BYTES_MAX: usize = 253;

/// A host that projects may use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostRule {
    target: Target,
    /// `None` for every port.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Name(String),
    /// Every name below this one.
    Below(String),
    Network {
        address: IpAddr,
        /// Number of leading bits that an address must share.
        prefix: u8,
    },
}

impl HostRule {
    /// Returns whether an endpoint with this host is listed. The host is written as in the parsed URL.
    pub fn allows(&self, host: &str, port: u16) -> bool {
        let host = plain(host);
        let is_listed = match (&self.target, host.parse::<IpAddr>()) {
            (Target::Network { address, prefix }, Ok(asked)) => contains(*address, *prefix, asked),
            (Target::Name(name), Err(_)) => *name == host,
            (Target::Below(parent), Err(_)) => {
                host.strip_suffix(parent.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (Target::Network { .. }, Err(_)) | (Target::Name(_) | Target::Below(_), Ok(_)) => false,
        };
        is_listed && self.port.is_none_or(|own| own == port)
    }

    /// Returns whether a connection to an address that is not public is listed.
    fn allows_private(&self, host: &str, address: IpAddr, port: u16) -> bool {
        let is_listed = match &self.target {
            Target::Network { address: network, prefix } => contains(*network, *prefix, address),
            Target::Name(name) => name == LOCALHOST && host == LOCALHOST && address.is_loopback(),
            Target::Below(_) => false,
        };
        is_listed && self.port.is_none_or(|own| own == port)
    }
}

/// The hosts that one project may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRules(pub(super) Vec<HostRule>);

impl HostRules {
    /// Returns whether a project may use an endpoint with this host.
    pub fn allows(&self, host: &str, port: u16) -> bool {
        self.0.iter().any(|rule| rule.allows(host, port))
    }

    /// Returns whether a project may connect to an address that its endpoint's host resolved to.
    pub fn allows_address(&self, host: &str, address: IpAddr, port: u16) -> bool {
        is_public(address) || self.0.iter().any(|rule| rule.allows_private(&plain(host), address, port))
    }
}

impl FromIterator<HostRule> for HostRules {
    fn from_iter<T: IntoIterator<Item = HostRule>>(rules: T) -> Self {
        Self(rules.into_iter().collect())
    }
}

/// Returns a host in the form in which it is compared.
fn plain(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn contains(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    let prefix = u32::from(prefix);
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let differing = network.to_bits() ^ address.to_bits();
            differing.leading_zeros() >= prefix
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let differing = network.to_bits() ^ address.to_bits();
            differing.leading_zeros() >= prefix
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// Returns whether an address belongs to a host of the public internet.
///
/// Addresses that embed another one, such as `::ffff:127.0.0.1`, are not public.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_reserved = matches!(
        (first, second, third),
        // "This" network, networks of providers, protocol assignments, 6to4 relays, benchmarks, reserved.
        (0 | 240..=255, _, _) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _)
    );
    !(is_reserved
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // All public addresses are in 2000::/3. The exceptions within it are special networks, documentation and 6to4,
    // which embeds an IPv4 address.
    let [first, second, ..] = address.segments();
    let is_special = (first == 0x2001 && (second < 0x0200 || second == 0x0db8))
        || first == 0x2002
        || (first == 0x3fff && second < 0x1000);
    (0x2000..=0x3fff).contains(&first) && !is_special
}

impl FromStr for HostRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(64).collect();
        let error = |problem: &str| format!("`{shown}` {problem}");
        if text.contains("://") {
            return Err(error("is not a host; write it without a scheme and a path"));
        }
        let (host, port) = split_port(text).map_err(error)?;
        if let Some(network) = network(host).map_err(error)? {
            return Ok(Self { target: network, port });
        }
        let (name, target): (&str, fn(String) -> Target) = match host.strip_prefix("*.") {
            Some(parent) => (parent, Target::Below),
            None => (host, Target::Name),
        };
        if !is_host_name(name) {
            return Err(error(
                "is not a host; write a name, *.name, an address or a network such as 10.0.0.0/8",
            ));
        }
        Ok(Self { target: target(plain(name)), port })
    }
}

/// Splits `host:port`, `[address]:port` and `network/prefix:port`.
fn split_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("has no colon before its port")?)),
            None => return Err("has no closing bracket"),
        },
        // A second colon makes it an IPv6 address without brackets, which has no port.
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            Some(_) | None => (text, None),
        },
    };
    let port =
        port.map(|port| port.parse::<u16>().ok().filter(|port| *port > 0).ok_or("has an invalid port"));
    Ok((host, port.transpose()?))
}

fn network(host: &str) -> Result<Option<Target>, &'static str> {
    let (address, prefix) = host.split_once('/').map_or((host, None), |(host, prefix)| (host, Some(prefix)));
    let Ok(address) = address.parse::<IpAddr>() else {
        return if prefix.is_some() { Err("is not a network such as 10.0.0.0/8") } else { Ok(None) };
    };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        Some(text) => {
            text.parse::<u8>().ok().filter(|prefix| *prefix <= bits).ok_or("has an invalid prefix")?
        }
        None => bits,
    };
    Ok(Some(Target::Network { address, prefix }))
}

fn is_host_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_plain);
    // URLs convert a host such as `127.1` or `0x7f000001` to an address, so such a name never matches.
    let is_number = |label: &str| label.starts_with(|first: char| first.is_ascii_digit());
    name.len() <= HOST_BYTES_MAX
        && name.split('.').all(is_label)
        && !name.rsplit('.').next().is_some_and(is_number)
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match &self.target {
            Target::Name(name) => name.clone(),
            Target::Below(parent) => format!("*.{parent}"),
            Target::Network { address, prefix } => {
                let is_single = *prefix == if address.is_ipv4() { 32 } else { 128 };
                if is_single { address.to_string() } else { format!("{address}/{prefix}") }
            }
        };
        match self.port {
            Some(port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some(port) => write!(f, "{host}:{port}"),
            None => f.write_str(&host),
        }
    }
}

impl serde::Serialize for HostRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
