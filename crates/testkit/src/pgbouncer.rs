//! A throwaway pgbouncer in transaction mode, in front of an existing server.
//!
//! Each statement outside a transaction may run on another server connection, and there are few of them. So code that
//! relies on a session (named statements, LISTEN, session locks, SET) fails here at once.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use crate::cluster::{Account, Address, Guard, end, executable, find_on_path, free_port, tail};

/// Number of server connections that all clients of one database share.
pub const SERVER_CONNECTIONS_MAX: u32 = 4;

const START_TIMEOUT: Duration = Duration::from_mins(1);
const STOP_TIMEOUT: Duration = Duration::from_mins(1);

/// A pgbouncer process. Dropping it stops the process and removes its directory.
#[derive(Debug)]
pub struct Pgbouncer {
    process: Child,
    port: u16,
    /// Owns the directory, and ends the process if this process is killed.
    guard: Guard,
}

impl Pgbouncer {
    /// Finds the program on the `PATH` or where packages install it.
    pub fn find() -> Result<PathBuf> {
        find_on_path("pgbouncer")
            .or_else(|| executable(Path::new("/usr/sbin/pgbouncer")))
            .or_else(|| executable(Path::new("/usr/bin/pgbouncer")))
            .context("`pgbouncer` was not found; on Debian run `apt-get install pgbouncer`")
    }

    /// Starts a pgbouncer for every database of the server, and returns when it accepts connections.
    ///
    /// Clients need no password; the connections to the server use the user and password of `server_url`.
    pub fn start(server_url: &str) -> Result<Self> {
        let program = Self::find()?;
        let server = Address::parse(server_url)?;
        let account = Account::for_server()?;
        // It stores nothing on disk, so it can be killed.
        let mut guard = Guard::new(&std::env::temp_dir(), account, Signal::KILL)?;
        let port = free_port()?;
        let file = guard.directory().join("pgbouncer.ini");
        fs::write(&file, configuration(&server, port, knows_prepared_statements(&program)))?;
        let log_path = guard.directory().join("pgbouncer.log");
        let log = fs::File::create(&log_path)?;
        if let Some(account) = account {
            chown(&file, Some(account.uid), Some(account.gid))?;
            chown(&log_path, Some(account.uid), Some(account.gid))?;
        }
        let process = guard
            .command(&program, account)
            .arg(&file)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("could not start pgbouncer")?;
        guard.watch(Some(process.id()))?;
        let mut pgbouncer = Self { process, port, guard };
        pgbouncer.wait_until_ready(&log_path)?;
        Ok(pgbouncer)
    }

    /// Returns the URL of `database` through this pgbouncer.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait()? {
                self.guard.watch(None)?;
                bail!("pgbouncer did not start ({status}); its log ends:\n{}", tail(log));
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("pgbouncer was not ready in time; its log ends:\n{}", tail(log));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        // The guard ends the remaining processes, so a failure here is ignored.
        if end(&mut self.process, Signal::KILL, STOP_TIMEOUT).is_ok() {
            let _ = self.guard.watch(None);
        }
    }
}

/// Returns whether this version has `max_prepared_statements`, added in 1.21. Older versions refuse the setting.
fn knows_prepared_statements(program: &Path) -> bool {
    let Ok(output) = Command::new(program).arg("--version").output() else { return false };
    version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|version| version >= (1, 21))
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.lines().next()?.rsplit(' ').next()?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn configuration(server: &Address, port: u16, knows_prepared_statements: bool) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let password =
        server.password.as_deref().map_or_else(String::new, |text| format!(" password={}", quoted(text)));
    // Newer versions support named statements across connections; the code under test must not need that.
    let prepared = if knows_prepared_statements { "max_prepared_statements = 0\n" } else { "" };
    format!(
        "[databases]\n\
         * = host={host} port={server_port} user={user}{password}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = {SERVER_CONNECTIONS_MAX}\n\
         max_client_conn = 200\n\
         ignore_startup_parameters = extra_float_digits,options,search_path,statement_timeout\n\
         server_login_retry = 1\n\
         {prepared}",
        host = quoted(&server.host),
        server_port = server.port,
        user = quoted(&server.user),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_statements_are_turned_off_only_where_the_setting_exists() {
        assert_eq!(version("PgBouncer 1.18.0\nlibevent 2.1.12-stable\n"), Some((1, 18)));
        assert_eq!(version("PgBouncer 1.24.1\n"), Some((1, 24)));
        let server = Address::parse("postgres://me:it's@host:5/x").unwrap();
        assert!(!configuration(&server, 7, false).contains("max_prepared_statements"));
        assert!(configuration(&server, 7, true).ends_with("max_prepared_statements = 0\n"));
        assert!(configuration(&server, 7, true).contains("user='me' password='it''s'\n"));
    }
}
