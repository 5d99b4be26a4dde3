//! A server of the built binary, with its own SQLite database, on a free loopback port.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace;

const START_TIMEOUT: Duration = Duration::from_mins(1);
const LISTENS: &str = "listening on ";
/// Runs its arguments as a command, and ends it when standard input closes, which it does when this program ends.
const ENDS_WITH_INPUT: &str = "\"$@\" & read -r _; kill $!; wait $!";

/// The server process. Dropping this ends it.
pub(crate) struct Server {
    child: Child,
    /// URL without a slash at its end.
    pub(super) url: String,
    /// Token of the user who started the server.
    pub(super) token: String,
}

impl Server {
    /// Builds the binary, and starts a server with an empty database.
    ///
    /// The faults build another binary of the same name. Call this before they do.
    pub(crate) fn start() -> Result<Self> {
        // The example is named because it needs the features of the tests. Without it, cargo would build most crates
        // a second time with fewer features.
        let built = workspace::cargo()
            .args(["build", "--quiet", "--workspace", "--bin", "tidemill", "--example", "serve"])
            .status();
        ensure!(built.context("could not run cargo")?.success(), "the server does not compile");
        let ours = std::env::current_exe().context("could not find the path of this program")?;
        let binary = ours.parent().context("the path of this program has no folder")?.join("tidemill");
        let folder = workspace::target()?.join("clients/server");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        super::tools::run(prepare(&mut Command::new(&binary), &folder).arg("migrate"))?;
        let log = folder.join("server.log");
        let mut shell = Command::new("sh");
        shell.args(["-c", ENDS_WITH_INPUT, "server"]).arg(&binary).args([
            "server",
            "--listen",
            "127.0.0.1:0",
        ]);
        prepare(&mut shell, &folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = shell.spawn().context("could not start the server")?;
        let mut server = Self { child, url: String::new(), token: String::new() };
        server.url = wait_for_url(&log)?;
        server.token = token(&folder.join("tokens"))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // This closes standard input first, which ends the server.
        let _ = self.child.wait();
    }
}

/// Gives a command the settings of the server, and no others.
fn prepare<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("TIDEMILL_") || text.starts_with("PG") || text == "DATABASE_URL" {
            command.env_remove(name);
        }
    }
    command
        .current_dir(folder)
        .env("HOME", folder)
        .env("TIDEMILL_DATABASE", folder.join("tidemill.db"))
        .env("TIDEMILL_SERVER_TOKEN_DIR", folder.join("tokens"))
}

fn wait_for_url(log: &Path) -> Result<String> {
    let started = Instant::now();
    loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        if let Some(url) = url(&text) {
            return Ok(url.to_owned());
        }
        if text.contains("error:") || started.elapsed() > START_TIMEOUT {
            bail!("the server did not start; its log is:\n{text}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Parses the URL from a complete line of the log.
fn url(log: &str) -> Option<&str> {
    let (_, rest) = log.split_once(LISTENS)?;
    Some(rest.split_once('\n')?.0.trim_end_matches('/'))
}

/// Reads the only file of the folder in which the server writes its token.
fn token(folder: &Path) -> Result<String> {
    let entry = fs::read_dir(folder).context("the server wrote no token")?.next();
    let path = entry.context("the server wrote no token")??.path();
    let token = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    Ok(token.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_read_from_a_complete_line_only() {
        assert_eq!(url("the server is listening on http://127.0.0.1:4280"), None);
        let log =
            "the server is listening on http://127.0.0.1:42809\nthe console is at http://127.0.0.1:42809/\n";
        assert_eq!(url(log), Some("http://127.0.0.1:42809"));
    }
}
