//! Tests that run on both databases, and tests that run for each kind of pagination.

/// Makes the tests `postgres::case` and `sqlite::case` of each case: an `async fn case(kind: Kind)` in this module, or
/// in a module below it. The tests have 2 worker threads unless the list begins with `worker_threads = 4;`.
///
/// ```ignore
/// on_both! { run_is_stored, run_is_found }
/// on_both! { worker_threads = 4; runs::run_is_stored, runs::run_is_found }
/// ```
#[macro_export]
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        $crate::on_both! { @tests 2, $(super::$case => $case),+ }
    };
    ($($module:ident :: $case:ident),+ $(,)?) => {
        $crate::on_both! { @tests 2, $(super::$module::$case => $case),+ }
    };
    (worker_threads = $threads:tt; $($module:ident :: $case:ident),+ $(,)?) => {
        $crate::on_both! { @tests $threads, $(super::$module::$case => $case),+ }
    };
    (@tests $threads:tt, $($($path:ident)::+ => $case:ident),+) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = $threads)]
            async fn $case() { $($path)::+($crate::interface::Kind::Postgres).await; })+
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = $threads)]
            async fn $case() { $($path)::+($crate::interface::Kind::Sqlite).await; })+
        }
    };
}

/// Makes the tests `rest::case` and `rest_soak::case` of each case: an `async fn case((kind, pagination))` in a module
/// below this one. On every commit the database is SQLite, and a printed choice selects the pagination. `cargo xtask
/// soak` runs each pagination on both databases.
///
/// ```ignore
/// on_rest! { contradictions::cursor_that_does_not_move_fails_the_sync, except [PageNumber, Offset]; }
/// ```
#[macro_export]
macro_rules! on_rest {
    ($($module:ident :: $case:ident, except [$($excluded:ident),*];)+) => {
        mod rest {
            use $crate::rest_fixture::{RestKind, any_of, paged_except};

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() {
                let excluded: &[RestKind] = &[$(RestKind::$excluded),*];
                let pagination = any_of(&paged_except(excluded));
                super::$module::$case(($crate::interface::Kind::Sqlite, pagination)).await;
            })+
        }

        mod rest_soak {
            use $crate::interface::Kind;
            use $crate::rest_fixture::{RestKind, paged_except};

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            #[ignore = "long; cargo xtask soak runs it"]
            async fn $case() {
                let excluded: &[RestKind] = &[$(RestKind::$excluded),*];
                for pagination in paged_except(excluded) {
                    for kind in [Kind::Sqlite, Kind::Postgres] {
                        println!("{kind:?}, {pagination}");
                        super::$module::$case((kind, pagination)).await;
                    }
                }
            })+
        }
    };
}
