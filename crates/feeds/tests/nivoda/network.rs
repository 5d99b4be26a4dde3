//! Listed hosts: the addresses behind a name are checked before a connection.

use crate::fixture::{Server, Step, all, open, quick, record};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tidemill_core::reach::{HostRule, HostRules};
use tidemill_feeds::{ErrorClass, Feed, FeedError, ListedHosts, Network, Secret, endpoints};

fn rules(entries: &[&str]) -> HostRules {
    entries.iter().map(|entry| entry.parse::<HostRule>().unwrap()).collect()
}

/// Opens a feed whose names all resolve to these addresses; a later lookup gets the next list.
fn resolving(
    endpoint: &str,
    entries: &[&str],
    answers: Vec<Vec<IpAddr>>,
) -> Result<Arc<dyn Feed>, FeedError> {
    let lookups = AtomicU32::new(0);
    let hosts = ListedHosts::with_resolver(rules(entries), move |_| {
        let number = lookups.fetch_add(1, Ordering::SeqCst) as usize;
        let answer = answers[number.min(answers.len() - 1)].clone();
        Box::pin(async move { Ok(answer) })
    });
    open(&record(endpoint), Some(Secret::new("open sesame")), &Network::Listed(hosts), quick())
}

fn local() -> IpAddr {
    "127.0.0.1".parse().unwrap()
}

/// Returns the endpoint of a server under another host name.
fn named(server: &Server, name: &str) -> String {
    server.endpoint.replace("127.0.0.1", name)
}

#[tokio::test]
async fn name_that_resolves_to_loopback_is_refused() {
    let server = Server::start().await;
    let endpoint = named(&server, "supplier.example.com");
    let feed = resolving(&endpoint, &["*.example.com"], vec![vec![local()]]).unwrap();
    let error = feed.count(&all()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Permanent);
    assert!(error.refusal().is_some_and(|reason| reason.contains("127.0.0.1")), "{error}");
    // A name or an address without a rule is refused when the feed is opened.
    for endpoint in [named(&server, "localhost"), server.endpoint.clone()] {
        let refused = resolving(&endpoint, &["*.example.com", "*.localhost"], vec![vec![local()]]);
        assert!(refused.is_err_and(|error| error.refusal().is_some()), "{endpoint}");
    }
    assert_eq!(server.requests.lock().unwrap().len(), 0, "nothing was sent");
}

#[tokio::test]
async fn listed_private_address_is_used() {
    let server = Server::start().await;
    let endpoint = named(&server, "supplier.example.com");
    let feed = resolving(&endpoint, &["supplier.example.com", "127.0.0.0/8"], vec![vec![local()]]).unwrap();
    assert_eq!(feed.count(&all()).await.unwrap().count, 4_711);
    let direct = server.endpoint.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let feed = resolving(&server.endpoint, &[direct], vec![Vec::new()]).unwrap();
    assert_eq!(feed.count(&all()).await.unwrap().count, 4_711);
    let feed = resolving(&named(&server, "localhost"), &["localhost"], vec![vec![local()]]).unwrap();
    assert_eq!(feed.count(&all()).await.unwrap().count, 4_711);
}

#[tokio::test]
async fn name_that_changes_its_address_is_checked_at_each_connection() {
    let server = Server::start().await;
    // No server listens at the first address, which is listed. So the client looks the name up again.
    let listed: IpAddr = "127.0.0.2".parse().unwrap();
    let endpoint = named(&server, "supplier.example.com");
    let entries = ["supplier.example.com", "127.0.0.2"];
    let feed = resolving(&endpoint, &entries, vec![vec![listed, local()], vec![local()]]).unwrap();
    let error = feed.count(&all()).await.unwrap_err();
    assert!(error.refusal().is_some(), "{error}");
    assert_eq!(server.requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let (server, target) = (Server::start().await, Server::start().await);
    let location: &'static str = Box::leak(target.endpoint.clone().into_boxed_str());
    server.logins.lock().unwrap().push_back(Step::Answer(307, vec![("location", location)], String::new()));
    let direct = server.endpoint.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let feed = resolving(&server.endpoint, &[direct], vec![Vec::new()]).unwrap();
    let error = feed.count(&all()).await.unwrap_err();
    assert!(error.to_string().contains("307"), "{error}");
    assert_eq!(target.requests.lock().unwrap().len(), 0);
}

#[test]
fn endpoint_is_read_like_a_url() {
    for (endpoint, host, port) in [
        ("https://API.example.com/x", "api.example.com", 443),
        ("http://0x7f.1:8700/", "127.0.0.1", 8700),
        ("http://2130706433/", "127.0.0.1", 80),
        ("http://[::1]:8700/", "::1", 8700),
        ("http://ⓛocalhost/", "localhost", 80),
    ] {
        let found = endpoints(&record(endpoint)).unwrap().remove(0);
        assert_eq!((found.host.as_str(), found.port), (host, port), "{endpoint}");
    }
    assert!(endpoints(&record("/var/lib/stones")).is_err());
}
