//! Login: one for all callers, a new one when the token is refused, no retry for a wrong password.

use crate::fixture::{Server, Step, all, checked, quick};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_feeds::{ErrorClass, Feed, Tuning};

/// Sends fifty concurrent count requests.
async fn fifty(feed: &Arc<dyn Feed>) -> Vec<Result<u64, ErrorClass>> {
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let feed = Arc::clone(feed);
            tokio::spawn(async move {
                feed.count(&all()).await.map(|counted| counted.count).map_err(|error| error.class())
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn fifty_callers_share_one_login() {
    let server = Server::start().await;
    server.login_permits.forget_permits(10_000);
    let feed = server.feed(quick());
    let callers = tokio::spawn({
        let feed = Arc::clone(&feed);
        async move { fifty(&feed).await }
    });
    // Logins are held back until one has arrived, so all callers wait for the same login.
    while server.requests_of("Login").is_empty() {
        tokio::task::yield_now().await;
    }
    server.login_permits.add_permits(10_000);
    assert_eq!(callers.await.unwrap(), vec![Ok(4_711); 50]);
    assert_eq!(server.requests_of("Login").len(), 1);
}

#[tokio::test]
async fn refused_token_is_renewed_once_for_all_callers() {
    let server = Server::start().await;
    let feed = server.feed(quick());
    feed.count(&all()).await.unwrap();
    server.token.fetch_add(1, Ordering::SeqCst);
    assert_eq!(fifty(&feed).await, vec![Ok(4_711); 50]);
    assert_eq!(server.requests_of("Login").len(), 2);
}

#[tokio::test]
async fn token_refused_twice_is_an_auth_error() {
    for refusal in [Step::error("Unauthorized"), Step::status(401)] {
        let server = Server::start().await;
        server.then(vec![refusal; 2]);
        let error = server.feed(quick()).count(&all()).await.unwrap_err();
        assert_eq!(checked(&server, error).class(), ErrorClass::Auth);
        assert_eq!((server.requests_of("Login").len(), server.requests_of("Count").len()), (2, 2));
    }
}

#[tokio::test]
async fn wrong_password_is_tried_once_for_all_callers() {
    let server = Server::start().await;
    server.logins.lock().unwrap().push_back(Step::error("Invalid username or password"));
    let feed = server.feed(quick());
    // Both are polled in one task, so both have joined the login before its answer arrives.
    let (one, other) = (all(), all());
    let (one, other) = tokio::join!(feed.count(&one), feed.count(&other));
    for error in [one.unwrap_err(), other.unwrap_err()] {
        let error = checked(&server, error);
        assert_eq!(error.class(), ErrorClass::Auth);
        assert!(error.to_string().ends_with("the environment variable that holds the password"));
    }
    assert_eq!(server.requests_of("Login").len(), 1);
    assert_eq!(server.requests_of("Login")[0]["variables"]["password"], "open sesame");
}

#[tokio::test]
async fn login_without_a_token_is_an_auth_error() {
    let server = Server::start().await;
    let empty = r#"{"data":{"authenticate":{"username_and_password":null}}}"#;
    server.logins.lock().unwrap().push_back(Step::body(&empty));
    let error = server.feed(quick()).count(&all()).await.unwrap_err();
    assert_eq!(checked(&server, error).class(), ErrorClass::Auth);
}

#[tokio::test]
async fn login_that_fails_for_another_reason_is_retried() {
    let server = Server::start().await;
    server.logins.lock().unwrap().extend([Step::status(500), Step::error("try later")]);
    server.feed(quick()).count(&all()).await.unwrap();
    assert_eq!(server.requests_of("Login").len(), 3);
}

#[tokio::test]
async fn token_is_renewed_before_expiry() {
    let server = Server::start().await;
    let brief = Tuning { token_lifetime: Duration::from_mins(5), ..quick() };
    let feed = server.feed(brief);
    feed.count(&all()).await.unwrap();
    feed.count(&all()).await.unwrap();
    // A lifetime of five minutes minus a margin of five minutes: each request needs a new token.
    assert_eq!(server.requests_of("Login").len(), 2);
}
