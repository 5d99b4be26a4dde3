//! Forms for agents, pools and the site restart.

use crate::error_page::ErrorPage;
use crate::forms::{Form, FormOutcome};
use axum::extract::Path;
use axum::response::Response;
use tidemill_wire::graphs::ForgetAgent;
use uuid::Uuid;

fn id(text: &str) -> Result<Uuid, ErrorPage> {
    text.parse().map_err(|_| ErrorPage::not_found(format!("`{text}` is not an agent id")))
}

pub(super) async fn drain(Path(agent): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let draining = form.is_yes("draining")?;
    form.client.drain_agent(id(&agent)?, draining).await?;
    Ok(form.back(FormOutcome::Message(if draining { "draining" } else { "not-draining" })))
}

pub(super) async fn forget(Path(agent): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    if !form.is_checked("sure") {
        return Err(ErrorPage::bad_form("confirm that no command of the agent is running any more"));
    }
    let forget = ForgetAgent { force: form.is_checked("force") };
    let forgotten = form.client.forget_agent(id(&agent)?, forget).await?.forgotten;
    Ok(form.back(FormOutcome::Message(if forgotten { "forgotten" } else { "forgotten-before" })))
}

pub(super) async fn put_pool(form: Form) -> Result<Response, ErrorPage> {
    let size = form.field("size").and_then(|size| size.parse().ok());
    let (Some(name), Some(size)) = (form.field("name"), size) else {
        return Err(ErrorPage::bad_form("a pool needs a name and an integer size"));
    };
    form.client.put_pool(name, size).await?;
    Ok(form.back(FormOutcome::Message("pool-set")))
}

pub(super) async fn remove_pool(form: Form) -> Result<Response, ErrorPage> {
    let name = form.field("name").ok_or_else(|| ErrorPage::bad_form("form field `name` is missing"))?;
    form.client.remove_pool(name).await?;
    Ok(form.back(FormOutcome::Message("pool-removed")))
}

pub(super) async fn prepare(form: Form) -> Result<Response, ErrorPage> {
    form.client.prepare_for_reboot(form.field("note").map(str::to_owned)).await?;
    Ok(form.back(FormOutcome::Message("reboot-prepared")))
}

pub(super) async fn over(form: Form) -> Result<Response, ErrorPage> {
    let resumed = form.client.end_reboot().await?.resumed;
    Ok(form.back(FormOutcome::Message(if resumed { "reboot-over" } else { "reboot-none" })))
}
