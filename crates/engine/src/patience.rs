//! Trying again: what is transient is asked again, under the same id, for as long as the caller has patience.
//!
//! Every verb can be asked twice. A queue call carries the id of the run it makes, a claim its request id, an event
//! its key, and a finish recognises itself. So a commit whose answer was lost is settled by asking again: the answer
//! is read from what is there, and nothing is done twice.

pub use tidemill_store::chain;

use std::future::Future;
use std::time::Duration;
use tidemill_store::{Class, Error};
use tokio::time::Instant;

/// How long to go on trying.
#[derive(Debug, Clone, Copy)]
pub enum Patience {
    /// Not at all: the first error is the answer.
    None,
    /// For so long.
    For(Duration),
    /// Until it works or turns out to be permanent.
    Endless,
}

const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(3);

/// An error that knows whether it passes: whether asking again may help.
pub trait Passing: std::error::Error {
    /// Whether asking again may help.
    fn passes(&self) -> bool;
}

impl Passing for Error {
    fn passes(&self) -> bool {
        self.class() == Class::Transient
    }
}

impl Patience {
    /// Calls until the answer is not a transient error, or patience is over.
    pub async fn settle<T, E, F>(self, what: &'static str, call: impl Fn() -> F) -> Result<T, E>
    where
        E: Passing,
        F: Future<Output = Result<T, E>>,
    {
        let began = Instant::now();
        let mut wait = WAIT_FIRST;
        loop {
            let error = match call().await {
                Err(error) if error.passes() => error,
                answer => return answer,
            };
            let over = match self {
                Self::None => true,
                Self::For(longest) => began.elapsed() + wait > longest,
                Self::Endless => false,
            };
            if over {
                return Err(error);
            }
            tracing::warn!("could not {what}, trying again in {} ms: {}", wait.as_millis(), chain(&error));
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }
}
