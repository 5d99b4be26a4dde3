//! Reverse proxies whose `X-Forwarded-For` header is believed.
//!
//! Behind a proxy, all requests have the proxy's address. The header names the real one, but any client can send it, so
//! it counts only from the configured addresses.

use http::HeaderMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A network, such as `10.0.0.0/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// A text that is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it must be an address or a network, such as 10.0.0.7 or 10.0.0.0/8")]
pub struct InvalidNetworkError;

impl FromStr for Network {
    type Err = InvalidNetworkError;

    fn from_str(text: &str) -> Result<Self, InvalidNetworkError> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| InvalidNetworkError)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| InvalidNetworkError))?;
        if bits <= most { Ok(Self { address, bits }) } else { Err(InvalidNetworkError) }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The proxies that a server trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// Trusts the proxies in these networks.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Returns the client of a request: the last address that no trusted proxy has. Addresses before it are claims of
    /// that client.
    pub(super) fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        if !self.contains(peer.ip()) {
            return peer;
        }
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        let words = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.rsplit(','));
        let mut client = peer;
        for word in words {
            let Ok(address) = word.trim().parse::<IpAddr>() else { break };
            client = SocketAddr::new(address, 0);
            if !self.contains(address) {
                break;
            }
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(trusted: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let trusted = TrustedProxies::new(trusted.iter().map(|text| text.parse().unwrap()).collect());
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        trusted.client(format!("{peer}:1").parse().unwrap(), &headers).ip().to_string()
    }

    #[test]
    fn forwarded_address_counts_only_from_a_trusted_proxy() {
        assert_eq!(client(&[], "10.0.0.1", &["192.0.2.1"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.2"], "10.0.0.1", &["192.0.2.1"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["192.0.2.1"]), "192.0.2.1");
        assert_eq!(client(&["0.0.0.0/0"], "10.0.0.1", &["192.0.2.1"]), "192.0.2.1");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn claims_of_the_client_are_ignored() {
        let trusted = ["10.0.0.0/8"];
        assert_eq!(client(&trusted, "10.0.0.1", &["1.1.1.1, 192.0.2.1, 10.0.0.9"]), "192.0.2.1");
        assert_eq!(client(&trusted, "10.0.0.1", &["1.1.1.1", "192.0.2.1,10.0.0.9"]), "192.0.2.1");
        assert_eq!(client(&trusted, "10.0.0.1", &["192.0.2.1, unknown"]), "10.0.0.1");
    }

    #[test]
    fn invalid_networks_are_refused() {
        for text in ["", "host", "10.0.0.0/33", "10.0.0.0/x", "10.0.0", "::/129"] {
            assert_eq!(text.parse::<Network>(), Err(InvalidNetworkError), "{text}");
        }
        assert_eq!("10.0.0.7".parse::<Network>().unwrap().to_string(), "10.0.0.7/32");
    }
}
