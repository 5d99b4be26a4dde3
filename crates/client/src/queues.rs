//! Queues.

use crate::{Client, Error, part, query};
use tidemill_core::queue::{DeadLetter, Message};
use tidemill_wire::Page;
use tidemill_wire::queues::{ListDead, Peek, QueueLine, ReplayDead, Replayed};

impl Client {
    /// Queues, what is in them, and how they treat it.
    pub async fn queues(&self) -> Result<Page<QueueLine>, Error> {
        self.get("/v1/queues".to_owned()).await
    }

    /// A queue.
    pub async fn queue(&self, queue: &str) -> Result<QueueLine, Error> {
        self.get(format!("/v1/queues/{}", part(queue))).await
    }

    /// The next messages of a queue; nothing is taken.
    pub async fn peek(&self, queue: &str, asked: Peek) -> Result<Page<Message>, Error> {
        self.get(format!("/v1/queues/{}/messages{}", part(queue), query(&asked)?)).await
    }

    /// The messages that workers hold, of every queue.
    pub async fn held_messages(&self) -> Result<Page<Message>, Error> {
        self.get("/v1/messages".to_owned()).await
    }

    /// Dead letters, the oldest first.
    pub async fn dead_letters(&self, queue: &str, asked: &ListDead) -> Result<Page<DeadLetter>, Error> {
        self.get(format!("/v1/queues/{}/dead{}", part(queue), query(asked)?)).await
    }

    /// Sends dead letters again.
    pub async fn replay(&self, queue: &str, which: &ReplayDead) -> Result<Replayed, Error> {
        self.post(format!("/v1/queues/{}/replay", part(queue)), which).await
    }
}
