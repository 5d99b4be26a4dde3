//! The network that a feed may use: unrestricted, or the hosts that the operator listed.
//!
//! With a list, the host of the endpoint and every address that it resolves to are checked. The client connects to a
//! checked address without resolving the name again, so an answer of the name server that changes in between has no
//! effect. A proxy would resolve the name itself, so none is used.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use tidemill_core::reach::HostRules;

/// The pending answer of a name server.
pub type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves a host name to its addresses.
type Resolver = Arc<dyn Fn(String) -> Lookup + Send + Sync>;

/// The network that a feed may use.
#[derive(Clone)]
pub enum Network {
    Unrestricted,
    /// The hosts that the operator listed.
    Listed(ListedHosts),
}

/// The listed hosts of one project, and the resolver of their names.
#[derive(Clone)]
pub struct ListedHosts {
    rules: HostRules,
    resolve: Resolver,
}

impl ListedHosts {
    /// Creates a network of these hosts with the resolver of the system.
    pub fn new(rules: HostRules) -> Self {
        Self::with_resolver(rules, |name| Box::pin(system_lookup(name)))
    }

    /// Creates a network of these hosts with another resolver.
    pub fn with_resolver(
        rules: HostRules,
        resolve: impl Fn(String) -> Lookup + Send + Sync + 'static,
    ) -> Self {
        Self { rules, resolve: Arc::new(resolve) }
    }

    /// Returns the resolver for connections to one port.
    pub(crate) fn resolver(&self, port: u16) -> CheckedResolver {
        CheckedResolver { hosts: self.clone(), port }
    }

    /// Checks the host of an endpoint. The client connects to an address without the resolver.
    pub(crate) fn check(&self, host: &str, port: u16) -> Result<(), String> {
        if self.rules.allows(host, port) {
            return Ok(());
        }
        Err(format!("host `{host}:{port}` is not in the list reach.hosts"))
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrestricted => f.write_str("Unrestricted"),
            Self::Listed(hosts) => f.debug_tuple("Listed").field(&hosts.rules).finish(),
        }
    }
}

async fn system_lookup(name: String) -> io::Result<Vec<IpAddr>> {
    Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
}

/// A name whose addresses are all outside the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "host `{host}` resolves to {address}, which is not a public address; the operator can add {address} to reach.hosts"
)]
pub(crate) struct AddressError {
    host: String,
    address: IpAddr,
}

/// Resolves names to the addresses that the list allows.
pub(crate) struct CheckedResolver {
    hosts: ListedHosts,
    port: u16,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (hosts, port, host) = (self.hosts.clone(), self.port, name.as_str().to_owned());
        Box::pin(async move {
            let found = (hosts.resolve)(host.clone()).await?;
            let is_allowed = |address: &&IpAddr| hosts.rules.allows_address(&host, **address, port);
            let allowed: Vec<SocketAddr> =
                found.iter().filter(is_allowed).map(|address| SocketAddr::new(*address, port)).collect();
            if let (true, Some(address)) = (allowed.is_empty(), found.first()) {
                return Err(AddressError { host, address: *address }.into());
            }
            let addresses: Addrs = Box::new(allowed.into_iter());
            Ok(addresses)
        })
    }
}
