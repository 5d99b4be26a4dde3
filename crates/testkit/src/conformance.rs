//! The cases that every door must pass: one list, run once per door, each time on a database of its own.
//!
//! A case is a function of a [`Stage`](crate::door::Stage), and its name is a sentence that is true. Names that begin
//! with `f` and a number are the field's known classes of failure. `conformance!` makes the tests.

pub mod claiming;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Runs as many tasks, all let go at the same instant; what each gave, in their order.
pub async fn at_once<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let gate = Arc::new(Barrier::new(count));
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let (gate, work) = (gate.clone(), task(number));
        tasks.spawn(async move {
            gate.wait().await;
            (number, work.await)
        });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Makes the tests of one door: every case as a test of its own.
#[macro_export]
macro_rules! conformance {
    ($kind:expr) => {
        $crate::topic! { $kind, claiming:
            each_run_is_claimed_once_by_workers_that_race,
        }
    };
}

/// Makes the tests of one topic on one door.
#[macro_export]
macro_rules! topic {
    ($kind:expr, $topic:ident: $($case:ident),+ $(,)?) => {
        mod $topic {
            $(
                #[tokio::test]
                async fn $case() {
                    let stage = $crate::door::Stage::open($kind).await;
                    $crate::conformance::$topic::$case(stage).await;
                }
            )+
        }
    };
}
