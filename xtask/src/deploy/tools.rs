//! The programs that render and validate the objects: kubectl, Helm, and scripts with the schemas.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tidemill_testkit::cluster::find_on_path;

use super::{Objects, VERSIONS};
use crate::{out, venv, workspace};

const REQUIREMENTS: &str = "xtask/deploy/requirements.txt";
const PACKAGE: &str = include_str!("../../deploy/package.json");
const LOCK: &str = include_str!("../../deploy/package-lock.json");

pub(super) struct Tools {
    root: PathBuf,
    /// The virtual environment with Helm and the schemas of Kubernetes.
    python: PathBuf,
    /// The folder with the schemas of KEDA.
    node: PathBuf,
}

/// The objects of the chart.
pub(super) struct Chart {
    pub(super) default: Objects,
    pub(super) production: Objects,
}

impl Tools {
    /// Installs the pinned packages below the target directory, unless they are there.
    pub(super) fn install() -> Result<Self> {
        let target = workspace::target()?.join("deploy");
        let tools = Self { root: workspace::root(), python: target.join("venv"), node: target.join("node") };
        venv::install(&tools.python, REQUIREMENTS, "helm and the schemas of Kubernetes")?;
        tools.install_schemas_of_keda()?;
        Ok(tools)
    }

    fn install_schemas_of_keda(&self) -> Result<()> {
        let record = self.node.join("installed.json");
        if fs::read_to_string(&record).is_ok_and(|installed| installed == LOCK) {
            return Ok(());
        }
        out::line("installing the schemas of KEDA");
        fs::create_dir_all(&self.node)?;
        fs::write(self.node.join("package.json"), PACKAGE)?;
        fs::write(self.node.join("package-lock.json"), LOCK)?;
        let status = Command::new("npm")
            .args(["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
            .current_dir(&self.node)
            .stdin(Stdio::null())
            .status()
            .context("could not run npm")?;
        ensure!(status.success(), "`npm ci` could not install the schemas of KEDA");
        fs::write(&record, LOCK).context("could not record the installed version")
    }

    /// Renders a folder of `deploy/kustomize`, and validates its objects.
    pub(super) fn kustomize(&self, folder: &str) -> Result<Objects> {
        let path = self.root.join("deploy/kustomize").join(folder);
        let text = run(Command::new("kubectl").arg("kustomize").arg(path), "")?;
        self.validated(&text).with_context(|| format!("deploy/kustomize/{folder} is not valid"))
    }

    /// Renders the chart with its defaults and with the values for production. `None` if this machine has no helm.
    pub(super) fn helm(&self) -> Result<Option<Chart>> {
        let own = self.python.join("bin/helm");
        let Some(helm) = own.exists().then_some(own).or_else(|| find_on_path("helm")) else {
            return Ok(None);
        };
        let chart = self.root.join("deploy/helm/tidemill");
        run(Command::new(&helm).arg("lint").arg("--strict").arg(&chart), "")?;
        let render = |values: Option<&Path>| {
            let mut command = Command::new(&helm);
            command.args(["template", "tidemill"]).arg(&chart);
            if let Some(values) = values {
                command.arg("--values").arg(values);
            }
            let text = run(&mut command, "")?;
            self.validated(&text).context("deploy/helm/tidemill is not valid")
        };
        let production = chart.join("values-production.yaml");
        Ok(Some(Chart { default: render(None)?, production: render(Some(&production))? }))
    }

    /// Validates a YAML stream against all schemas, and returns its objects.
    fn validated(&self, yaml: &str) -> Result<Objects> {
        let scripts = self.root.join("xtask/deploy");
        let mut python = Command::new(self.python.join("bin/python"));
        let json = run(python.arg(scripts.join("objects.py")).args(VERSIONS), yaml)?;
        run(Command::new("node").arg(scripts.join("keda.cjs")).current_dir(&self.node), &json)?;
        let list: Vec<Value> = serde_json::from_str(&json).context("objects.py did not print JSON")?;
        let mut objects = Objects::new();
        for object in list {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
            if objects.insert(name.clone(), object).is_some() {
                bail!("{name} exists twice");
            }
        }
        Ok(objects)
    }
}

/// Runs a program with an input, and returns its output. A failure contains its messages.
fn run(command: &mut Command, input: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not run {name}"))?;
    let mut stdin = child.stdin.take().context("the program has no input")?;
    let text = input.to_owned();
    // In a thread of its own: the program may fill its output before it has read all of the input.
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    // A program that fails may close its input early; its own message is better.
    let _ = writer.join();
    if !output.status.success() {
        bail!(
            "{name} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed invalid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_names_no_registry() {
        assert!(!LOCK.contains("\"resolved\""));
        assert!(LOCK.contains("\"integrity\""));
    }

    #[test]
    fn failed_program_reports_its_messages() {
        let failed =
            run(Command::new("sh").args(["-c", "cat; echo wrong >&2; exit 3"]), "input\n").unwrap_err();
        assert_eq!(failed.to_string(), "sh failed:\ninput\nwrong\n");
        assert_eq!(run(&mut Command::new("cat"), "input").unwrap(), "input");
    }
}
