//! API calls for message queues.

use crate::{Client, Error, path_segment, query};
use tidemill_core::queue::{DeadLetter, Message};
use tidemill_wire::Page;
use tidemill_wire::queues::{ListDead, Peek, QueueSummary, ReplayDead, ReplayResponse};

impl Client {
    /// Lists queues with their depths and settings.
    pub async fn queues(&self) -> Result<Page<QueueSummary>, Error> {
        self.get("/v1/queues".to_owned()).await
    }

    /// Returns a queue with its depth.
    pub async fn queue(&self, queue: &str) -> Result<QueueSummary, Error> {
        self.get(format!("/v1/queues/{}", path_segment(queue))).await
    }

    /// Lists the next messages of a queue without receiving them.
    pub async fn peek(&self, queue: &str, params: Peek) -> Result<Page<Message>, Error> {
        self.get(format!("/v1/queues/{}/messages{}", path_segment(queue), query(&params)?)).await
    }

    /// Lists the messages that workers hold, of all queues.
    pub async fn held_messages(&self) -> Result<Page<Message>, Error> {
        self.get("/v1/messages".to_owned()).await
    }

    /// Lists dead letters, oldest first.
    pub async fn dead_letters(&self, queue: &str, params: &ListDead) -> Result<Page<DeadLetter>, Error> {
        self.get(format!("/v1/queues/{}/dead{}", path_segment(queue), query(params)?)).await
    }

    /// Moves dead letters back to their queue.
    pub async fn replay(&self, queue: &str, which: &ReplayDead) -> Result<ReplayResponse, Error> {
        self.post(format!("/v1/queues/{}/replay", path_segment(queue)), which).await
    }
}
