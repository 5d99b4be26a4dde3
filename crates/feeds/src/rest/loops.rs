//! Detection of cursor loops: the same token at two places of one list.
//!
//! The paginator itself notices a token that repeats at once. This memory also finds longer loops within one process.
//! It is bounded; the checks of the sync find loops over several processes.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use tidemill_core::feed_definition::{PaginationError, Place, RecordQuery};

/// Lists that are remembered.
const LISTS_MAX: usize = 256;
/// Tokens of one list that are remembered.
const TOKENS_MAX: usize = 4_096;

/// Tokens of the lists that this process reads.
#[derive(Debug, Default)]
pub(super) struct TokenMemory {
    hasher: RandomState,
    lists: Mutex<HashMap<u64, Tokens>>,
}

#[derive(Debug, Default)]
struct Tokens {
    /// Offset of each token, and the token of the page that led to it.
    origins: HashMap<u64, (u64, u64)>,
    order: VecDeque<u64>,
}

impl TokenMemory {
    /// Forgets the tokens of a list that is read from its beginning.
    pub(super) fn begin(&self, query: &RecordQuery, place: &Place) {
        if place.token.is_none() {
            let list = self.hasher.hash_one(query);
            self.lists.lock().unwrap_or_else(PoisonError::into_inner).remove(&list);
        }
    }

    /// Remembers the token of the page after `place`. The same token after another page is a loop; after the same page
    /// it is a repeated request.
    pub(super) fn check(
        &self,
        query: &RecordQuery,
        place: &Place,
        next: &Place,
    ) -> Result<(), PaginationError> {
        let Some(token) = &next.token else { return Ok(()) };
        let (list, hash) = (self.hasher.hash_one(query), self.hasher.hash_one(token));
        let origin = (place.offset, self.hasher.hash_one(&place.token));
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() >= LISTS_MAX && !lists.contains_key(&list) {
            lists.clear();
        }
        let tokens = lists.entry(list).or_default();
        match tokens.origins.get(&hash) {
            Some(known) if *known != origin => {
                let token = token.chars().take(80).collect();
                return Err(PaginationError::RepeatedToken { token });
            }
            Some(_) => return Ok(()),
            None => {}
        }
        if tokens.order.len() == TOKENS_MAX
            && let Some(oldest) = tokens.order.pop_front()
        {
            tokens.origins.remove(&oldest);
        }
        tokens.order.push_back(hash);
        tokens.origins.insert(hash, origin);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64, token: &str) -> Place {
        Place { offset, token: Some(token.to_owned()) }
    }

    #[test]
    fn token_after_another_page_is_a_loop() {
        for records in [10, 0] {
            let (memory, query) = (TokenMemory::default(), RecordQuery::default());
            let (a, b) = (place(records, "a"), place(2 * records, "b"));
            memory.check(&query, &Place::default(), &a).unwrap();
            memory.check(&query, &a, &b).unwrap();
            memory.check(&query, &a, &b).unwrap();
            assert!(
                memory.check(&query, &b, &place(3 * records, "a")).is_err(),
                "pages of {records} records"
            );
            let other = RecordQuery { value: Some("x".into()), ..RecordQuery::default() };
            memory.check(&other, &b, &place(3 * records, "a")).unwrap();
        }
    }

    #[test]
    fn list_that_is_read_again_may_repeat_its_tokens() {
        let (memory, query) = (TokenMemory::default(), RecordQuery::default());
        memory.check(&query, &place(5, "x"), &place(10, "a")).unwrap();
        memory.begin(&query, &Place::default());
        memory.check(&query, &place(6, "x"), &place(12, "a")).unwrap();
    }

    #[test]
    fn memory_is_bounded() {
        let (memory, query) = (TokenMemory::default(), RecordQuery::default());
        for number in 0..10_000 {
            memory.check(&query, &Place::default(), &place(number, &number.to_string())).unwrap();
        }
        let lists = memory.lists.lock().unwrap();
        assert!(lists.values().all(|tokens| tokens.origins.len() == TOKENS_MAX));
    }
}
