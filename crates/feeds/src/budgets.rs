//! Rate limits that several feeds share.

use crate::rate_limiter::RateLimiter;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The shared rate limiters of a process, by the name of the budget.
#[derive(Debug, Default, Clone)]
pub struct Budgets(Arc<Mutex<HashMap<String, Arc<RateLimiter>>>>);

impl Budgets {
    /// Returns the rate limiter of a budget, or one of its own without a name.
    pub(crate) fn limiter(&self, budget: Option<&str>, per_second: f64) -> Arc<RateLimiter> {
        let new = || Arc::new(RateLimiter::new(per_second));
        let Some(name) = budget else { return new() };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(name.to_owned()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_with_one_budget_share_a_limiter() {
        let budgets = Budgets::default();
        let shop = budgets.limiter(Some("shop"), 5.0);
        assert!(Arc::ptr_eq(&shop, &budgets.limiter(Some("shop"), 5.0)));
        assert!(!Arc::ptr_eq(&shop, &budgets.limiter(Some("other"), 5.0)));
        assert!(!Arc::ptr_eq(&budgets.limiter(None, 5.0), &budgets.limiter(None, 5.0)));
    }
}
