//! `tidemill up` with tokens: a job must reach neither the server nor its database.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::RunState;

use crate::fixture::{Fixture, Kind, TIMEOUT};
use crate::process::not_tested;
use crate::server::server;

/// The job that took over the server: it reads the server's environment and its database.
///
/// The second server is the control: without isolation, the same job finds all of it.
#[test]
fn job_of_up_with_tokens_cannot_reach_the_server() {
    let fixture = Fixture::new(Kind::Sqlite);
    fs::set_permissions(fixture.path(""), fs::Permissions::from_mode(0o755)).expect("the mode is set");
    for (words, is_isolated) in [(&["up", "--auth"][..], true), (&["up", "--agent-isolation", "off"], false)]
    {
        let (mut up, _) = server(&fixture, words, &[("SERVER_CREDENTIAL", "hunter2")]);
        if up.stderr().contains("no agent runs here") {
            let missing = "this user cannot isolate the tasks of `up --auth`";
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
            return not_tested(missing);
        }
        let script = format!(
            "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep SERVER_CREDENTIAL; head -c 13 {0}; echo; \
             test -s {0}-wal && echo sees-journal; test -e /proc/{1}/environ && echo sees-server; true",
            fixture.path("tidemill.db").display(),
            up.pid()
        );
        let text = format!("version: 1\njobs:\n  attack:\n    run: |\n      {script}\n");
        let file = fixture.write("attack.graph.yaml", &text).display().to_string();
        let submitted = fixture.ok(&["graph", "submit", &file, "--project", "shop", "--env", "staging"]);
        let run: RunId = submitted.trim().parse().expect("the output is a run id");
        assert_eq!(fixture.wait_for_end(&run).status, RunState::Success, "{}", up.stderr());
        let log = fixture.ok(&["graph", "logs", run.as_str(), "attack"]);
        for evidence in ["hunter2", "SQLite format", "sees-journal", "sees-server"] {
            assert_eq!(log.contains(evidence), !is_isolated, "{evidence}: {log}");
        }
        up.signal(Signal::TERM);
        assert_eq!(up.wait_for_exit(TIMEOUT), Some(0), "{}", up.stderr());
    }
}
