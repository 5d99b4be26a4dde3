//! A directory and a server process that cannot outlive their owner, even if the owner is killed.
//!
//! A small shell process, the watcher, reads a pipe whose other end only the owner holds. When the pipe closes, by a
//! drop, the end of the process or `kill -9`, the watcher ends the server and removes the directory. Rejected: the
//! parent-death signal of Linux (`setpriv --pdeathsig`), because it fires when the *thread* that started the child
//! ends, and libtest runs each test in a thread of its own. Also rejected: waiting for PostgreSQL to notice that its
//! directory is gone, because that takes a minute.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, geteuid, kill_process};

/// Arguments: the directory, and the signal that ends the server. Each input line is the id of the server process, or
/// empty if there is none. An orphan may remain a zombie for a while, so zombies count as ended.
const WATCHER: &str = r#"
server=
while read -r line; do server=$line; done
runs() {
  kill -0 "$server" || return 1
  state=
  if [ -r "/proc/$server/stat" ]; then read -r _ _ state _ <"/proc/$server/stat"; fi
  [ "$state" != Z ]
}
if [ -n "$server" ] && kill -"$2" "$server"; then
  tries=0
  while runs && [ "$tries" -lt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
  if runs; then kill -9 "$server"; fi
fi
rm -rf "$1" || { sleep 1; rm -rf "$1"; }
"#;

/// A system account that a server runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Account {
    /// Returns the account for servers that refuse to run as root, or `None` if this process is not root.
    pub(crate) fn for_server() -> Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let accounts = fs::read_to_string("/etc/passwd").context("could not read /etc/passwd")?;
        match ["postgres", "nobody"].iter().find_map(|name| Self::named(name, &accounts)) {
            Some(account) => Ok(Some(account)),
            None => {
                bail!(
                    "there is no user `postgres` or `nobody` to run a server as; run the tests as another user"
                )
            }
        }
    }

    fn named(name: &str, accounts: &str) -> Option<Self> {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next()? != name {
                return None;
            }
            let uid = fields.nth(1)?.parse().ok()?;
            Some(Self { uid, gid: fields.next()?.parse().ok()? })
        })
    }
}

/// A temporary directory, and the watcher that removes it.
#[derive(Debug)]
pub(crate) struct Guard {
    directory: PathBuf,
    watcher: Child,
    /// Closing it ends the watcher; `None` only while dropping.
    orders: Option<ChildStdin>,
}

impl Guard {
    /// Creates a directory in `parent` owned by `account`, and a watcher that ends its server with `signal`.
    pub(crate) fn new(parent: &Path, account: Option<Account>, signal: Signal) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("tidemill-test-")
            .tempdir_in(parent)
            .context("could not make a temporary directory for a server")?;
        if let Some(account) = account {
            chown(directory.path(), Some(account.uid), Some(account.gid))?;
        }
        let mut watcher = Command::new("sh")
            .args(["-c", WATCHER, "watcher"])
            .arg(directory.path())
            .arg(signal.as_raw().to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C at the terminal must not reach the watcher, because it still has to clean up.
            .process_group(0)
            .spawn()
            .context("could not start `sh`, which runs the watcher")?;
        let orders = watcher.stdin.take();
        Ok(Self { directory: directory.keep(), watcher, orders })
    }

    /// Returns the directory that this guard removes.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Tells the watcher which process to end, or none if the server has ended.
    pub(crate) fn watch(&mut self, server: Option<u32>) -> Result<()> {
        let order = server.map_or_else(String::new, |pid| pid.to_string());
        let Some(orders) = &mut self.orders else { return Ok(()) };
        writeln!(orders, "{order}").context("the process that watches over a server has ended")
    }

    /// Returns a command that runs in the directory as `account`, detached from the terminal and from the caller's
    /// `PG…` variables.
    pub(crate) fn command(&self, program: &Path, account: Option<Account>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory).stdin(Stdio::null()).process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        if let Some(account) = account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.orders.take());
        // The watcher cleans up even if this wait fails.
        let _ = self.watcher.wait();
    }
}

/// Ends a server with `signal`, and kills it if it has not ended after `timeout`.
pub(crate) fn end(server: &mut Child, signal: Signal, timeout: Duration) -> Result<()> {
    if server.try_wait()?.is_some() {
        return Ok(());
    }
    let pid =
        i32::try_from(server.id()).ok().and_then(Pid::from_raw).context("the process id is out of range")?;
    kill_process(pid, signal)?;
    let deadline = Instant::now() + timeout;
    while server.try_wait()?.is_none() {
        if Instant::now() > deadline {
            server.kill()?;
            server.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns the last lines of a log, for a message.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_else(|error| format!("(no log: {error})"));
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_from_the_list_of_users() {
        let accounts =
            "root:x:0:0:root:/root:/bin/bash\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(Account::named("postgres", accounts), Some(Account { uid: 101, gid: 104 }));
        assert_eq!(Account::named("nobody", accounts), None);
    }

    #[test]
    fn a_dropped_guard_ends_its_process_and_removes_its_directory() {
        let mut guard = Guard::new(&std::env::temp_dir(), None, Signal::TERM).unwrap();
        let directory = guard.directory().to_owned();
        let mut sleeper = guard.command(Path::new("sleep"), None).arg("600").spawn().unwrap();
        guard.watch(Some(sleeper.id())).unwrap();
        drop(guard);
        assert!(!sleeper.wait().unwrap().success());
        assert!(!directory.exists());
    }
}
