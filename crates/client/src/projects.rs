//! Projects with their environments, and flags.

use crate::{Client, Error, part, query};
use http::Method;
use tidemill_core::project::{Flag, Project};
use tidemill_core::stats::Stats;
use tidemill_wire::Page;
use tidemill_wire::projects::{ClearFlag, Pause, ProjectPut, PutProject, Resumed, SetFlag};

impl Client {
    /// Projects, with their environments and what holds them.
    pub async fn projects(&self) -> Result<Page<Project>, Error> {
        self.get("/v1/projects".to_owned()).await
    }

    /// A project.
    pub async fn project(&self, project: &str) -> Result<Project, Error> {
        self.get(format!("/v1/projects/{}", part(project))).await
    }

    /// Makes a project, or adds environments to it.
    pub async fn put_project(&self, project: &str, put: &PutProject) -> Result<ProjectPut, Error> {
        self.ask(Method::PUT, format!("/v1/projects/{}", part(project)), Some(put), None).await
    }

    /// Lets no run of a project be claimed.
    pub async fn pause_project(&self, project: &str, pause: &Pause) -> Result<Flag, Error> {
        self.post(format!("/v1/projects/{}/pause", part(project)), pause).await
    }

    /// Lets a project go on.
    pub async fn resume_project(&self, project: &str) -> Result<Resumed, Error> {
        self.ask(Method::POST, format!("/v1/projects/{}/resume", part(project)), None::<&()>, None).await
    }

    /// What is held.
    pub async fn flags(&self) -> Result<Page<Flag>, Error> {
        self.get("/v1/flags".to_owned()).await
    }

    /// Switches a flag on, or changes its note and end.
    pub async fn set_flag(&self, flag: &SetFlag) -> Result<Flag, Error> {
        self.ask(Method::PUT, "/v1/flags".to_owned(), Some(flag), None).await
    }

    /// Switches a flag off.
    pub async fn clear_flag(&self, flag: &ClearFlag) -> Result<Resumed, Error> {
        self.ask(Method::DELETE, format!("/v1/flags{}", query(flag)?), None::<&()>, None).await
    }

    /// What is going on, and what went on lately, in numbers.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.get("/v1/stats".to_owned()).await
    }
}
