//! Projects and their environments.

use crate::codec::{Columns, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::project::{FlagName, Project, project_scope};
use tidemill_core::{EnvId, Timestamp};

struct Environment {
    project_id: String,
    name: String,
}

impl FromColumns for Environment {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { project_id: row.text("project_id")?, name: row.text("env_type")? })
    }
}

impl FromColumns for Project {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            project_id: row.text("project_id")?,
            environments: Vec::new(),
            paused: None,
            created_at: row.time("created_at")?,
        })
    }
}

impl Tx<'_> {
    /// Creates a project and its environments if they do not exist; returns whether anything was created.
    pub async fn create_project(
        &mut self,
        project: &str,
        environments: &[String],
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = SqlTime(self.moment(now));
        let made = on!(self, catalog::PROJECT_CREATE, [project, now], execute, "create a project")?.count();
        let mut made = made > 0;
        for name in environments {
            let env_id = EnvId::new(project, name);
            let row = on!(
                self,
                catalog::ENVIRONMENT_CREATE,
                [env_id.as_str(), project, name.as_str(), now],
                execute,
                "create an environment"
            )?;
            made |= row.count() > 0;
        }
        Ok(made)
    }

    /// Returns every project, with its environments and its pause flag.
    pub async fn projects(&mut self) -> Result<Vec<Project>, Error> {
        let mut projects: Vec<Project> = on!(self, catalog::PROJECT_LIST, [], fetch_all, "list projects")?
            .readable("projects", "project_id");
        let environments: Vec<Environment> =
            on!(self, catalog::ENVIRONMENT_LIST, [], fetch_all, "list projects")?
                .readable("environments", "project_id");
        let flags = self.flags().await?;
        for project in &mut projects {
            let own = environments.iter().filter(|environment| environment.project_id == project.project_id);
            project.environments = own.map(|environment| environment.name.clone()).collect();
            let scope = project_scope(&project.project_id);
            project.paused =
                flags.iter().find(|flag| flag.flag == FlagName::Paused && flag.scope == scope).cloned();
        }
        Ok(projects)
    }
}

impl Store {
    /// Creates a project and its environments if they do not exist; returns whether anything was created.
    pub async fn create_project(
        &self,
        project: &str,
        environments: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let project = project.to_owned();
        self.write(move |mut tx| {
            Box::pin(async move {
                let created = tx.create_project(&project, &environments, now).await?;
                if !created {
                    tx.skip_audit();
                }
                Ok(created)
            })
        })
        .await
    }

    /// Returns every project, with its environments and its pause flag.
    pub async fn projects(&self) -> Result<Vec<Project>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.projects().await })).await
    }
}
