//! Shares of a limited resource: connections, requests, body bytes or waits.
//!
//! Each class of callers has a share of its own, so no class can take the share of another. Within a class, one holder
//! (a source without a token, or a token) has a limit, too. Only holders that use something are stored, so the memory
//! is bounded by the resource itself.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use uuid::Uuid;

/// Class of a caller. Agents and workers have the largest shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// A caller without a valid token, or whose token is not verified yet.
    Anonymous,
    Person,
    /// An agent, a worker, or any caller of a server without tokens.
    Machine,
}

/// User of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    Source(Source),
    Token(Uuid),
    /// Any caller of a server without tokens.
    Local,
}

/// Network source: an IPv4 address, or the /64 network of an IPv6 address, because one customer gets a whole /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    address: Option<IpAddr>,
    /// Port of a connection that is a source of its own.
    port: Option<u16>,
}

impl Source {
    /// Returns the source of an address, or the common source of callers whose address is unknown.
    pub(crate) fn new(address: Option<IpAddr>) -> Self {
        let network = |address: IpAddr| match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            short @ IpAddr::V4(_) => short,
        };
        Self { address: address.map(network), port: None }
    }

    /// Returns the source of one connection of a trusted proxy, which carries the requests of many callers.
    pub(crate) fn of_proxy(address: SocketAddr) -> Self {
        Self { address: Some(address.ip()), port: Some(address.port()) }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("unknown"),
        }
    }
}

/// Limits of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Limit of all holders of the class together.
    pub(crate) all: usize,
    /// Limit of one holder.
    pub(crate) each: usize,
}

/// Limits of each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) anonymous: Share,
    pub(crate) people: Share,
    pub(crate) machines: Share,
}

impl Shares {
    /// Divides a total: a quarter for anonymous callers, a quarter for people, and the rest for agents and workers. One
    /// holder gets half of its class's share, and a machine's token three quarters, because a fleet may share a token.
    pub(crate) fn divide(total: usize) -> Self {
        let quarter = (total / 4).max(1);
        let rest = total.saturating_sub(2 * quarter).max(1);
        let share = |all: usize, each: usize| Share { all, each: each.max(1) };
        Self {
            anonymous: share(quarter, quarter / 2),
            people: share(quarter, quarter / 2),
            machines: share(rest, rest / 4 * 3),
        }
    }

    /// Gives everything to anonymous callers, for a server that knows no others.
    pub(crate) fn anonymous_only(total: usize) -> Self {
        let none = Share { all: 0, each: 0 };
        Self { anonymous: Share { all: total, each: total }, people: none, machines: none }
    }

    fn of(&self, class: Class) -> Share {
        match class {
            Class::Anonymous => self.anonymous,
            Class::Person => self.people,
            Class::Machine => self.machines,
        }
    }
}

/// The limit that a request for a resource exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// The share of the class is used up.
    Class,
    /// The holder has reached its own limit.
    Holder,
}

/// Use of one resource.
#[derive(Debug)]
pub(crate) struct Budget {
    shares: Shares,
    used: HashMap<Class, usize>,
    holders: HashMap<(Class, Holder), usize>,
}

impl Budget {
    pub(crate) fn new(shares: Shares) -> Self {
        Self { shares, used: HashMap::new(), holders: HashMap::new() }
    }

    /// Takes an amount for a holder, or says which limit forbids it.
    pub(crate) fn take(&mut self, class: Class, holder: Holder, amount: usize) -> Result<(), Exceeded> {
        let share = self.shares.of(class);
        let used = self.used.get(&class).copied().unwrap_or(0);
        let held = self.held(class, holder);
        if held.saturating_add(amount) > share.each {
            return Err(Exceeded::Holder);
        }
        if used.saturating_add(amount) > share.all {
            return Err(Exceeded::Class);
        }
        if amount > 0 {
            self.used.insert(class, used + amount);
            self.holders.insert((class, holder), held + amount);
        }
        Ok(())
    }

    /// Returns an amount that was taken with the same class and holder.
    pub(crate) fn give_back(&mut self, class: Class, holder: Holder, amount: usize) {
        if let Some(used) = self.used.get_mut(&class) {
            *used = used.saturating_sub(amount);
        }
        if let Some(held) = self.holders.get_mut(&(class, holder)) {
            *held = held.saturating_sub(amount);
            if *held == 0 {
                self.holders.remove(&(class, holder));
            }
        }
    }

    /// Amount that a holder has.
    pub(crate) fn held(&self, class: Class, holder: Holder) -> usize {
        self.holders.get(&(class, holder)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> Holder {
        Holder::Source(Source::new(Some(IpAddr::V4(number.into()))))
    }

    fn token(number: u128) -> Holder {
        Holder::Token(Uuid::from_u128(number))
    }

    #[test]
    fn class_cannot_take_the_share_of_another() {
        let mut budget = Budget::new(Shares::divide(64));
        let fill = |budget: &mut Budget, class: Class, holder: fn(u32) -> Holder| {
            (0..1_000).filter(|number| budget.take(class, holder(*number), 1).is_ok()).count()
        };
        assert_eq!(fill(&mut budget, Class::Anonymous, source), 16);
        assert_eq!(fill(&mut budget, Class::Person, |number| token(number.into())), 16);
        assert_eq!(fill(&mut budget, Class::Machine, |number| token(number.into())), 32);
        assert_eq!(budget.take(Class::Anonymous, source(5_000), 1), Err(Exceeded::Class));
        budget.give_back(Class::Machine, token(0), 1);
        assert_eq!(budget.take(Class::Anonymous, source(5_000), 1), Err(Exceeded::Class));
        assert_eq!(budget.take(Class::Machine, token(7_000), 1), Ok(()));
    }

    #[test]
    fn holder_is_limited_and_others_are_not_affected() {
        let mut budget = Budget::new(Shares::divide(64));
        for _ in 0..8 {
            assert_eq!(budget.take(Class::Person, token(1), 1), Ok(()));
        }
        assert_eq!(budget.take(Class::Person, token(1), 1), Err(Exceeded::Holder));
        assert_eq!(budget.take(Class::Person, token(2), 8), Ok(()));
        assert_eq!(budget.take(Class::Machine, token(1), 24), Ok(()), "a fleet may share a token");
        assert_eq!(budget.take(Class::Machine, token(1), 1), Err(Exceeded::Holder));
    }

    #[test]
    fn holders_without_use_are_not_stored() {
        let mut budget = Budget::new(Shares::divide(64));
        for number in 0..10_000 {
            assert_eq!(budget.take(Class::Anonymous, source(number), 0), Ok(()));
            if budget.take(Class::Anonymous, source(number), 3).is_ok() {
                budget.give_back(Class::Anonymous, source(number), 3);
            }
        }
        assert!(budget.holders.is_empty());
        assert_eq!(budget.used[&Class::Anonymous], 0);
    }

    #[test]
    fn smallest_total_leaves_room_for_each_class() {
        for total in 0..4 {
            let mut budget = Budget::new(Shares::divide(total));
            for class in [Class::Anonymous, Class::Person, Class::Machine] {
                assert_eq!(budget.take(class, token(1), 1), Ok(()), "{class:?} of {total}");
            }
        }
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let of = |text: &str| Source::new(text.parse().ok());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
