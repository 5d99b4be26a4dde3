//! API calls for webhooks and alerts.

use crate::{Client, Error, path_segment, query};
use http::Method;
use tidemill_core::alert::Alert;
use tidemill_core::hook::Hook;
use tidemill_wire::Page;
use tidemill_wire::alerts::{AlertTestResult, ListAlerts, TestAlert};
use tidemill_wire::hooks::PutHook;

impl Client {
    /// Lists the webhooks of all projects.
    pub async fn hooks(&self) -> Result<Page<Hook>, Error> {
        self.get("/v1/hooks".to_owned()).await
    }

    /// Creates or changes a webhook.
    pub async fn put_hook(&self, name: &str, hook: &PutHook) -> Result<Hook, Error> {
        self.request(Method::PUT, format!("/v1/hooks/{}", path_segment(name)), Some(hook), None).await
    }

    /// Removes a webhook by its name.
    pub async fn remove_hook(&self, name: &str) -> Result<(), Error> {
        self.request_no_content(Method::DELETE, format!("/v1/hooks/{}", path_segment(name)), None::<&()>)
            .await
    }

    /// Lists alerts, newest first.
    pub async fn alerts(&self, params: &ListAlerts) -> Result<Page<Alert>, Error> {
        self.get(format!("/v1/alerts{}", query(params)?)).await
    }

    /// Sends a test message to one target or to all of them.
    pub async fn test_alerts(&self, target: Option<String>) -> Result<Page<AlertTestResult>, Error> {
        self.post("/v1/alerts/test".to_owned(), &TestAlert { target }).await
    }
}
