//! Projects with their environments, flags and statistics.

use crate::{Client, Error, path_segment, query};
use http::Method;
use tidemill_core::project::{Flag, Project};
use tidemill_core::stats::Stats;
use tidemill_wire::Page;
use tidemill_wire::projects::{ClearFlag, Pause, PutProject, PutProjectResponse, ResumeResponse, SetFlag};

impl Client {
    /// Lists projects with their environments and flags.
    pub async fn projects(&self) -> Result<Page<Project>, Error> {
        self.get("/v1/projects".to_owned()).await
    }

    /// Returns a project with its environments.
    pub async fn project(&self, project: &str) -> Result<Project, Error> {
        self.get(format!("/v1/projects/{}", path_segment(project))).await
    }

    /// Creates a project or adds environments to it.
    pub async fn put_project(&self, project: &str, put: &PutProject) -> Result<PutProjectResponse, Error> {
        self.request(Method::PUT, format!("/v1/projects/{}", path_segment(project)), Some(put), None).await
    }

    /// Pauses a project: its runs are not claimed.
    pub async fn pause_project(&self, project: &str, pause: &Pause) -> Result<Flag, Error> {
        self.post(format!("/v1/projects/{}/pause", path_segment(project)), pause).await
    }

    /// Resumes a project that is paused.
    pub async fn resume_project(&self, project: &str) -> Result<ResumeResponse, Error> {
        self.request(
            Method::POST,
            format!("/v1/projects/{}/resume", path_segment(project)),
            None::<&()>,
            None,
        )
        .await
    }

    /// Lists the flags that are set.
    pub async fn flags(&self) -> Result<Page<Flag>, Error> {
        self.get("/v1/flags".to_owned()).await
    }

    /// Sets a flag, or changes its note and end.
    pub async fn set_flag(&self, flag: &SetFlag) -> Result<Flag, Error> {
        self.request(Method::PUT, "/v1/flags".to_owned(), Some(flag), None).await
    }

    /// Clears a flag in its scope.
    pub async fn clear_flag(&self, flag: &ClearFlag) -> Result<ResumeResponse, Error> {
        self.request(Method::DELETE, format!("/v1/flags{}", query(flag)?), None::<&()>, None).await
    }

    /// Returns counts of current and recent runs.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.get("/v1/stats".to_owned()).await
    }
}
