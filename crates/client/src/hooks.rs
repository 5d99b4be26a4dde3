//! Webhooks and alerts.

use crate::{Client, Error, part, query};
use http::Method;
use tidemill_core::alert::Alert;
use tidemill_core::hook::Hook;
use tidemill_wire::Page;
use tidemill_wire::alerts::{ListAlerts, TestAlert, Tested};
use tidemill_wire::hooks::PutHook;

impl Client {
    /// Lists webhooks.
    pub async fn hooks(&self) -> Result<Page<Hook>, Error> {
        self.get("/v1/hooks".to_owned()).await
    }

    /// Sets up a webhook, or changes it.
    pub async fn put_hook(&self, name: &str, hook: &PutHook) -> Result<Hook, Error> {
        self.ask(Method::PUT, format!("/v1/hooks/{}", part(name)), Some(hook), None).await
    }

    /// Removes a webhook.
    pub async fn remove_hook(&self, name: &str) -> Result<(), Error> {
        self.order(Method::DELETE, format!("/v1/hooks/{}", part(name)), None::<&()>).await
    }

    /// Lists alerts, the newest first.
    pub async fn alerts(&self, asked: &ListAlerts) -> Result<Page<Alert>, Error> {
        self.get(format!("/v1/alerts{}", query(asked)?)).await
    }

    /// Sends a test message to one target or to all of them.
    pub async fn test_alerts(&self, target: Option<String>) -> Result<Page<Tested>, Error> {
        self.post("/v1/alerts/test".to_owned(), &TestAlert { target }).await
    }
}
