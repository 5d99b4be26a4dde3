//! Open connections, and the choice of the connection that is closed when there are too many.
//!
//! A connection is anonymous until a request on it has a valid token; then it counts for that token. Only anonymous
//! connections without a running request are closed to make room: first the oldest one of the source that has the most.
//! A source that opens many connections therefore competes only with itself.

use super::budget::{Budget, Class, Exceeded, Holder, Shares, Source};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// State of a connection.
#[derive(Debug, Default)]
struct ConnectionState {
    /// Requests without a complete response.
    requests: usize,
    is_evicted: bool,
}

type SharedState = Arc<watch::Sender<ConnectionState>>;

/// Open connections of a server. Cheap to clone.
#[derive(Clone)]
pub(super) struct ConnectionTable {
    inner: Arc<Mutex<Table>>,
}

struct Table {
    budget: Budget,
    /// Anonymous connections, oldest first.
    anonymous: BTreeMap<u64, (Source, SharedState)>,
    next: u64,
}

impl Table {
    /// Takes a place for a connection of this source.
    fn admit(&mut self, source: Source) -> Option<(u64, SharedState)> {
        let holder = Holder::Source(source);
        loop {
            let evicted = match self.budget.take(Class::Anonymous, holder, 1) {
                Ok(()) => break,
                Err(Exceeded::Holder) => self.oldest_idle(Some(source)),
                Err(Exceeded::Class) => {
                    let largest = self.largest_source();
                    self.oldest_idle(largest).or_else(|| self.oldest_idle(None))
                }
            };
            self.evict(evicted?);
        }
        let (number, state) = (self.next, SharedState::default());
        self.next += 1;
        self.anonymous.insert(number, (source, state.clone()));
        Some((number, state))
    }

    fn largest_source(&self) -> Option<Source> {
        let mut counts: HashMap<Source, usize> = HashMap::new();
        for (source, _) in self.anonymous.values() {
            *counts.entry(*source).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(source, _)| source)
    }

    /// The oldest anonymous connection without a request, of one source or of all.
    fn oldest_idle(&self, of: Option<Source>) -> Option<u64> {
        let mut candidates = self.anonymous.iter();
        let found = candidates
            .find(|(_, (source, state))| of.is_none_or(|of| of == *source) && state.borrow().requests == 0);
        found.map(|(number, _)| *number)
    }

    fn evict(&mut self, number: u64) {
        if let Some((source, state)) = self.anonymous.remove(&number) {
            self.budget.give_back(Class::Anonymous, Holder::Source(source), 1);
            state.send_modify(|state| state.is_evicted = true);
            metrics::counter!("tidemill_http_refused_total", "why" => "evicted").increment(1);
        }
    }
}

impl ConnectionTable {
    pub(super) fn new(shares: Shares) -> Self {
        let table = Table { budget: Budget::new(shares), anonymous: BTreeMap::new(), next: 0 };
        Self { inner: Arc::new(Mutex::new(table)) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The table is valid after every statement, so a poisoned lock can be used.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a new connection, if necessary that of an idle one.
    pub(super) fn admit(&self, source: Source) -> Option<Arc<Connection>> {
        let (number, state) = self.table().admit(source)?;
        Some(Arc::new(Connection { table: self.clone(), number, state, account: Mutex::default() }))
    }
}

/// Place of an open connection; given back on drop.
pub(crate) struct Connection {
    table: ConnectionTable,
    number: u64,
    state: SharedState,
    /// Class and holder that the connection counts for since it was authenticated.
    account: Mutex<Option<(Class, Holder)>>,
}

impl Connection {
    fn account(&self) -> MutexGuard<'_, Option<(Class, Holder)>> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the connection for an authenticated caller. If its share is used up, the connection stays anonymous.
    pub(crate) fn authenticate(&self, class: Class, holder: Holder) {
        let mut account = self.account();
        if account.is_some() {
            return;
        }
        let mut table = self.table.table();
        // An evicted connection has no place any more; it ends after this request.
        if !table.anonymous.contains_key(&self.number) || table.budget.take(class, holder, 1).is_err() {
            return;
        }
        *account = Some((class, holder));
        if let Some((source, _)) = table.anonymous.remove(&self.number) {
            table.budget.give_back(Class::Anonymous, Holder::Source(source), 1);
        }
    }

    /// Marks the connection as busy until the returned value is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> RunningRequest {
        self.state.send_modify(|state| state.requests += 1);
        RunningRequest(self.clone())
    }

    /// Waits until the connection must be closed to make room for others.
    pub(super) async fn evicted(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let _ = state.wait_for(|state| state.is_evicted && state.requests == 0).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let account = self.account().take();
        let mut table = self.table.table();
        if let Some((class, holder)) = account {
            table.budget.give_back(class, holder, 1);
        } else if let Some((source, _)) = table.anonymous.remove(&self.number) {
            table.budget.give_back(Class::Anonymous, Holder::Source(source), 1);
        }
    }
}

/// A request on a connection.
pub(crate) struct RunningRequest(Arc<Connection>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.requests -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Share;
    use super::*;
    use uuid::Uuid;

    fn source(number: u32) -> Source {
        Source::new(Some(std::net::IpAddr::V4(number.into())))
    }

    fn table(all: usize, each: usize) -> ConnectionTable {
        let known = Share { all: 2, each: 1 };
        ConnectionTable::new(Shares { anonymous: Share { all, each }, people: known, machines: known })
    }

    fn is_evicted(connection: &Connection) -> bool {
        connection.state.borrow().is_evicted
    }

    #[test]
    fn source_beyond_its_limit_loses_its_oldest_idle_connection() {
        let table = table(10, 2);
        let other = table.admit(source(2)).unwrap();
        let (first, second) = (table.admit(source(1)).unwrap(), table.admit(source(1)).unwrap());
        let busy = first.begin_request();
        let third = table.admit(source(1)).unwrap();
        assert!(is_evicted(&second), "the oldest one is busy");
        assert!(![&other, &first, &third].into_iter().any(|connection| is_evicted(connection)));
        let also_busy = third.begin_request();
        assert!(table.admit(source(1)).is_none(), "all are busy");
        assert!(table.admit(source(3)).is_some(), "other sources have room");
        drop((busy, also_busy));
        assert!(table.admit(source(1)).is_some() && is_evicted(&first));
    }

    #[test]
    fn full_table_evicts_from_the_source_with_most_connections() {
        let table = table(4, 3);
        let single = table.admit(source(1)).unwrap();
        let many: Vec<_> = (0..3).map(|_| table.admit(source(2)).unwrap()).collect();
        let newcomer = table.admit(source(3)).unwrap();
        assert!(is_evicted(&many[0]) && !is_evicted(&single) && !is_evicted(&newcomer));
        drop(many);
        let again: Vec<_> = (4..6).map(|number| table.admit(source(number)).unwrap()).collect();
        assert!(!is_evicted(&single) && !again.iter().any(|connection| is_evicted(connection)));
    }

    #[test]
    fn authenticated_connection_is_never_evicted() {
        let table = table(2, 2);
        let token = Holder::Token(Uuid::from_u128(1));
        let known = table.admit(source(1)).unwrap();
        known.authenticate(Class::Machine, token);
        let beyond = table.admit(source(1)).unwrap();
        beyond.authenticate(Class::Machine, token);
        let flood: Vec<_> = (0..100).map(|_| table.admit(source(1)).unwrap()).collect();
        assert!(!is_evicted(&known));
        assert!(is_evicted(&beyond), "the token's share was used up, so it stayed anonymous");
        assert_eq!(flood.iter().filter(|connection| !is_evicted(connection)).count(), 2);
        drop((known, beyond, flood));
        let table = table.table();
        assert!(table.anonymous.is_empty());
        assert_eq!(table.budget.held(Class::Machine, token), 0);
        assert_eq!(table.budget.held(Class::Anonymous, Holder::Source(source(1))), 0);
    }
}
