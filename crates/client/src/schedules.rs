//! Schedules.

use crate::{Client, Error, part};
use http::Method;
use tidemill_core::schedule::Schedule;
use tidemill_wire::Page;
use tidemill_wire::schedules::{PauseSchedule, PutSchedule};

impl Client {
    /// Schedules.
    pub async fn schedules(&self) -> Result<Page<Schedule>, Error> {
        self.get("/v1/schedules".to_owned()).await
    }

    /// A schedule.
    pub async fn schedule(&self, name: &str) -> Result<Schedule, Error> {
        self.get(format!("/v1/schedules/{}", part(name))).await
    }

    /// Makes a schedule, or changes the one of that name.
    pub async fn put_schedule(&self, name: &str, put: &PutSchedule) -> Result<Schedule, Error> {
        self.ask(Method::PUT, format!("/v1/schedules/{}", part(name)), Some(put), None).await
    }

    /// Removes a schedule; its runs stay.
    pub async fn remove_schedule(&self, name: &str) -> Result<(), Error> {
        self.order(Method::DELETE, format!("/v1/schedules/{}", part(name)), None::<&()>).await
    }

    /// Stops a schedule from firing.
    pub async fn pause_schedule(&self, name: &str, pause: &PauseSchedule) -> Result<Schedule, Error> {
        self.post(format!("/v1/schedules/{}/pause", part(name)), pause).await
    }

    /// Lets a schedule fire again, from its next time on.
    pub async fn resume_schedule(&self, name: &str) -> Result<Schedule, Error> {
        self.ask(Method::POST, format!("/v1/schedules/{}/resume", part(name)), None::<&()>, None).await
    }
}
