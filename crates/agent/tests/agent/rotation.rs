//! The secret of an agent's directory: it is replaced when it is due, and a lost response does not lose it.

use crate::fixture::{Fixture, until};
use serde_json::Value;
use std::fs;
use std::time::Duration;
use tidemill_wire::agents::RegisterAgent;

/// Moves the clock of the agent, which runs in this process.
async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Waits for a heartbeat that the agent sends from now on, and for the end of what it does after it.
async fn until_two_heartbeats(fixture: &Fixture) {
    let before = fixture.server.state().heartbeats.len();
    until("the agent sends heartbeats", || fixture.server.state().heartbeats.len() >= before + 2).await;
}

async fn until_registered(fixture: &Fixture, times: usize) -> RegisterAgent {
    until("the agent registers", || fixture.server.state().registered.len() >= times).await;
    let registered = fixture.server.state().registered.clone();
    assert_eq!(registered.len(), times);
    registered[times - 1].clone()
}

/// The current secret in the agent's directory, and the next one if a replacement is not confirmed.
fn stored(fixture: &Fixture) -> (String, Option<String>) {
    let text = fs::read_to_string(fixture.agent_dir().join("agent.json")).unwrap();
    let identity: Value = serde_json::from_str(&text).unwrap();
    let text = |name: &str| identity[name].as_str().map(str::to_owned);
    (text("secret").unwrap(), text("next_secret"))
}

#[tokio::test]
async fn secret_is_rotated_when_due() {
    let fixture = Fixture::new().await;
    fixture.server.state().secret_secs = 3600;
    let agent = fixture.agent();
    let first = until_registered(&fixture, 1).await;
    until_two_heartbeats(&fixture).await;
    assert_eq!(stored(&fixture), (first.next_secret.0.clone(), None));

    advance(Duration::from_mins(58)).await;
    until_two_heartbeats(&fixture).await;
    until_registered(&fixture, 1).await;
    assert_eq!(stored(&fixture).0, first.next_secret.0);

    advance(Duration::from_mins(3)).await;
    let second = until_registered(&fixture, 2).await;
    assert_eq!(second.secret, first.next_secret, "the current secret proves the identity");
    assert_ne!(second.next_secret, second.secret);
    assert_eq!(second.boot, first.boot, "the process stays the same");
    until_two_heartbeats(&fixture).await;
    assert_eq!(stored(&fixture), (second.next_secret.0.clone(), None));

    advance(Duration::from_mins(58)).await;
    until_two_heartbeats(&fixture).await;
    until_registered(&fixture, 2).await;
    advance(Duration::from_mins(3)).await;
    assert_eq!(until_registered(&fixture, 3).await.secret, second.next_secret);
    agent.stop().await.unwrap();
}

/// The server may have accepted the next secret. So the agent keeps both, and sends the same two again.
#[tokio::test]
async fn rotation_with_a_lost_response_is_repeated() {
    let fixture = Fixture::new().await;
    fixture.server.state().secret_secs = 3600;
    let agent = fixture.agent();
    until_registered(&fixture, 1).await;
    until_two_heartbeats(&fixture).await;
    fixture.server.state().lost_responses.insert("register", 1);
    advance(Duration::from_mins(61)).await;
    let lost = until_registered(&fixture, 2).await;
    until_two_heartbeats(&fixture).await;
    assert_eq!(stored(&fixture), (lost.secret.0.clone(), Some(lost.next_secret.0.clone())));

    advance(Duration::from_mins(11)).await;
    let repeated = until_registered(&fixture, 3).await;
    assert_eq!((&repeated.secret, &repeated.next_secret), (&lost.secret, &lost.next_secret));
    until_two_heartbeats(&fixture).await;
    assert_eq!(stored(&fixture), (lost.next_secret.0.clone(), None));
    agent.stop().await.unwrap();
}
