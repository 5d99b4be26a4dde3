//! What can be done to agents, pools and the site: each form is one call of the door.

use crate::act::{Done, Form};
use crate::oops::Oops;
use axum::extract::Path;
use axum::response::Response;
use tidemill_wire::graphs::ForgetAgent;
use uuid::Uuid;

fn id(text: &str) -> Result<Uuid, Oops> {
    text.parse().map_err(|_| Oops::nothing("this is not the id of an agent"))
}

pub(super) async fn drain(Path(agent): Path<String>, form: Form) -> Result<Response, Oops> {
    let draining = form.is_yes("draining")?;
    form.client.drain_agent(id(&agent)?, draining).await?;
    Ok(form.back(Done::Plain(if draining { "draining" } else { "not-draining" })))
}

pub(super) async fn forget(Path(agent): Path<String>, form: Form) -> Result<Response, Oops> {
    if !form.is_ticked("sure") {
        return Err(Oops::bad_form("say that nothing of the agent runs any more"));
    }
    let forget = ForgetAgent { force: form.is_ticked("force") };
    let forgotten = form.client.forget_agent(id(&agent)?, forget).await?.forgotten;
    Ok(form.back(Done::Plain(if forgotten { "forgotten" } else { "forgotten-before" })))
}

pub(super) async fn put_pool(form: Form) -> Result<Response, Oops> {
    let size = form.field("size").and_then(|size| size.parse().ok());
    let (Some(name), Some(size)) = (form.field("name"), size) else {
        return Err(Oops::bad_form("a pool has a name, and a size that is a whole number"));
    };
    form.client.put_pool(name, size).await?;
    Ok(form.back(Done::Plain("pool-set")))
}

pub(super) async fn remove_pool(form: Form) -> Result<Response, Oops> {
    let name = form.field("name").ok_or_else(|| Oops::bad_form("this form does not say which pool"))?;
    form.client.remove_pool(name).await?;
    Ok(form.back(Done::Plain("pool-removed")))
}

pub(super) async fn prepare(form: Form) -> Result<Response, Oops> {
    form.client.prepare_for_reboot(form.field("note").map(str::to_owned)).await?;
    Ok(form.back(Done::Plain("reboot-prepared")))
}

pub(super) async fn over(form: Form) -> Result<Response, Oops> {
    let resumed = form.client.end_reboot().await?.resumed;
    Ok(form.back(Done::Plain(if resumed { "reboot-over" } else { "reboot-none" })))
}
