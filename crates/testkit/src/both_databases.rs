//! Tests that run on both databases.

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
