//! API calls that manage schedules.

use crate::{Client, Error, path_segment};
use http::Method;
use tidemill_core::schedule::Schedule;
use tidemill_wire::Page;
use tidemill_wire::schedules::{PauseSchedule, PutSchedule};

impl Client {
    /// Lists the schedules of all projects.
    pub async fn schedules(&self) -> Result<Page<Schedule>, Error> {
        self.get("/v1/schedules".to_owned()).await
    }

    /// Returns a schedule by its name.
    pub async fn schedule(&self, name: &str) -> Result<Schedule, Error> {
        self.get(format!("/v1/schedules/{}", path_segment(name))).await
    }

    /// Creates a schedule or changes the one with this name.
    pub async fn put_schedule(&self, name: &str, put: &PutSchedule) -> Result<Schedule, Error> {
        self.request(Method::PUT, format!("/v1/schedules/{}", path_segment(name)), Some(put), None).await
    }

    /// Removes a schedule. Its runs stay.
    pub async fn remove_schedule(&self, name: &str) -> Result<(), Error> {
        self.request_no_content(Method::DELETE, format!("/v1/schedules/{}", path_segment(name)), None::<&()>)
            .await
    }

    /// Pauses or resumes a schedule by its name.
    pub async fn pause_schedule(&self, name: &str, pause: &PauseSchedule) -> Result<Schedule, Error> {
        self.post(format!("/v1/schedules/{}/pause", path_segment(name)), pause).await
    }

    /// Resumes a schedule from its next time on.
    pub async fn resume_schedule(&self, name: &str) -> Result<Schedule, Error> {
        self.request(Method::POST, format!("/v1/schedules/{}/resume", path_segment(name)), None::<&()>, None)
            .await
    }
}
