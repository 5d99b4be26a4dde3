//! The rate limit, measured at the server.

use crate::fixture::{Server, all, open, quick, record};
use std::sync::Arc;
use std::time::Duration;
use tidemill_feeds::{Network, Secret};
use tokio::time::Instant;

#[tokio::test]
async fn rate_holds_for_all_callers_and_can_be_lifted() {
    let server = Server::start().await;
    let mut feed = record(&server.endpoint);
    feed.rate = 50;
    let feed = open(&feed, Some(Secret::new("open sesame")), &Network::Unrestricted, quick()).unwrap();
    feed.count(&all()).await.unwrap();
    let ask = |times: usize| {
        let feed = Arc::clone(&feed);
        async move {
            let begun = Instant::now();
            let tasks: Vec<_> = (0..times)
                .map(|_| {
                    let feed = Arc::clone(&feed);
                    tokio::spawn(async move { feed.count(&all()).await.map(|_| ()) })
                })
                .collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
            begun.elapsed()
        }
    };
    // Twenty-five requests at fifty per second. Faster breaks the limit; how much slower depends on the machine.
    let limited = ask(25).await;
    assert!(limited >= Duration::from_millis(480), "{limited:?}");
    feed.set_rate(500.0);
    let faster = ask(25).await;
    assert!(faster < limited, "{faster:?} at ten times the rate, {limited:?} before");
    feed.set_rate(0.0);
    ask(25).await;
    assert_eq!(server.requests_of("Count").len(), 76);
}
