//! Cache of the account's token. It is renewed before it expires, by one login for all callers.

use crate::{Secret, Tuning};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// The current token and the login in progress.
#[derive(Debug)]
pub(crate) struct TokenCache<E> {
    state: Mutex<State<E>>,
}

#[derive(Debug)]
struct State<E> {
    token: Option<Arc<Token>>,
    /// The login in progress. Concurrent callers wait for it and share its result, also if it fails.
    login: Option<Arc<PendingLogin<E>>>,
}

/// The result of a login in progress.
type PendingLogin<E> = OnceCell<Result<Arc<Token>, E>>;

/// A token and when to renew it.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) secret: Secret,
    renew_at: Instant,
}

impl Token {
    /// Creates a token that was requested at `asked_at`. Its lifetime may have started that early.
    pub(crate) fn new(secret: Secret, asked_at: Instant, tuning: &Tuning) -> Self {
        let renew_at = asked_at + tuning.token_lifetime.saturating_sub(tuning.token_margin);
        Self { secret, renew_at }
    }

    /// Creates a token whose lifetime the source chose. If it is short, the token is renewed after four fifths of it.
    pub(crate) fn with_lifetime(
        secret: Secret,
        asked_at: Instant,
        lifetime: Duration,
        tuning: &Tuning,
    ) -> Self {
        let margin = tuning.token_margin.min(lifetime / 5);
        Self { secret, renew_at: asked_at + lifetime.saturating_sub(margin) }
    }
}

impl<E: Clone> TokenCache<E> {
    pub(crate) const fn new() -> Self {
        Self { state: Mutex::new(State { token: None, login: None }) }
    }

    /// Returns the current token, or calls `login` if there is no valid one.
    pub(crate) async fn get<F>(&self, login: impl FnOnce() -> F) -> Result<Arc<Token>, E>
    where
        F: Future<Output = Result<Token, E>>,
    {
        let pending = {
            let mut state = self.lock();
            if let Some(token) = state.token.as_ref().filter(|token| Instant::now() < token.renew_at) {
                return Ok(Arc::clone(token));
            }
            Arc::clone(state.login.get_or_insert_with(Arc::default))
        };
        // If the caller that logs in is cancelled, the cell lets the next waiter log in.
        let result = pending.get_or_init(|| async { login().await.map(Arc::new) }).await.clone();
        let mut state = self.lock();
        if state.login.as_ref().is_some_and(|current| Arc::ptr_eq(current, &pending)) {
            state.login = None;
            state.token = result.as_ref().ok().cloned();
        }
        result
    }

    /// Drops a token that the source has refused, unless it was replaced already.
    pub(crate) fn forget(&self, refused: &Arc<Token>) {
        let mut state = self.lock();
        if state.token.as_ref().is_some_and(|token| Arc::ptr_eq(token, refused)) {
            state.token = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A source that counts logins and issues a different token for each.
    #[derive(Default)]
    struct Source(AtomicU32);

    impl Source {
        async fn login(&self) -> Result<Token, String> {
            let number = self.0.fetch_add(1, Ordering::SeqCst);
            let asked_at = Instant::now();
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(Token::new(Secret::new(number.to_string()), asked_at, &Tuning::default()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_renewed_five_minutes_before_expiry() {
        let (tokens, source) = (TokenCache::<String>::new(), Source::default());
        tokens.get(|| source.login()).await.unwrap();
        // The login took a tenth of a second, and the token's lifetime began before it.
        tokio::time::sleep(Duration::from_mins(355) - Duration::from_millis(101)).await;
        assert_eq!(tokens.get(|| source.login()).await.unwrap().secret.expose(), "0");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(tokens.get(|| source.login()).await.unwrap().secret.expose(), "1");
    }

    #[tokio::test(start_paused = true)]
    async fn short_lived_token_is_renewed_after_four_fifths() {
        let token = Token::with_lifetime(
            Secret::new("x"),
            Instant::now(),
            Duration::from_mins(1),
            &Tuning::default(),
        );
        assert_eq!(token.renew_at - Instant::now(), Duration::from_secs(48));
    }

    #[tokio::test(start_paused = true)]
    async fn refused_token_is_dropped_only_if_still_current() {
        let (tokens, source) = (TokenCache::<String>::new(), Source::default());
        let first = tokens.get(|| source.login()).await.unwrap();
        tokens.forget(&first);
        let second = tokens.get(|| source.login()).await.unwrap();
        tokens.forget(&first);
        assert!(Arc::ptr_eq(&second, &tokens.get(|| source.login()).await.unwrap()));
        assert_eq!(source.0.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_a_login_and_its_failure() {
        let (tokens, tries) = (Arc::new(TokenCache::<String>::new()), Arc::new(AtomicU32::new(0)));
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let (tokens, tries) = (Arc::clone(&tokens), Arc::clone(&tries));
                tokio::spawn(async move {
                    let login = || async {
                        tries.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        Err("wrong password".to_owned())
                    };
                    tokens.get(login).await.map(|_| ())
                })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.unwrap(), Err("wrong password".to_owned()));
        }
        assert_eq!(tries.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_login_is_taken_over_by_the_next_caller() {
        let (tokens, source) = (TokenCache::<String>::new(), Source::default());
        let gone = tokio::time::timeout(Duration::from_millis(50), tokens.get(|| source.login()));
        let (gone, token) = tokio::join!(gone, tokens.get(|| source.login()));
        assert!(gone.is_err());
        assert_eq!(token.unwrap().secret.expose(), "1");
    }
}
