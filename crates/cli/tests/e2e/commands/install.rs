//! Tests that the first five minutes of `docs/install.md` work when pasted, with the commands of the systemd units.
//!
//! `deploy/test-package` installs the real package. Here the services are ordinary processes, and `systemctl` and
//! `runuser` are functions of the shell.

use std::fs;
use std::path::PathBuf;

use super::readme::{free_address, run_script, script};
use crate::fixture::{Fixture, Kind};

/// Runs services from the units in `units/`, and commands of the services' user without the variables of the caller.
const FUNCTIONS: &str = r#"
field() { sed -n "s/^$1=//p" "units/$2.service"; }
start() (
  unset TIDEMILL_SERVER TIDEMILL_TOKEN TIDEMILL_SERVER_LISTEN
  while read -r setting; do export "${setting?}"; done < <(field Environment "$1")
  read -r -a words < <(field ExecStart "$1")
  if [ "$(field Type "$1")" = oneshot ]; then exec "${words[@]}"; fi
  "${words[@]}" > "units/$1.log" 2>&1 &
  echo $! > "units/$1.pid"
)
stop() {
  local pid
  pid=$(cat "units/$1.pid")
  kill "$pid"
  # A process whose parent has gone may stay as a zombie.
  while grep -qs '^State:.[^Z]' "/proc/$pid/status"; do sleep 0.1; done
}
systemctl() {
  case "$*" in
    "enable --now "*) start "$3" ;;
    "start "*) start "$2" ;;
    "restart "*) stop "$2"; start "$2" ;;
    *) echo "unknown command: systemctl $*" >&2; return 1 ;;
  esac
}
runuser() (
  [ "$1 $2 $3" = "-u tidemill --" ]
  shift 3
  unset TIDEMILL_SERVER TIDEMILL_TOKEN
  cd /
  exec "$@"
)
stop_all() { for file in units/*.pid; do stop "$(basename "$file" .pid)"; done; }
trap stop_all EXIT
"#;

#[test]
fn first_minutes_of_the_package_work_when_pasted() {
    let fixture = Fixture::bare(Kind::Sqlite);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (server, source) = (free_address(), free_address());
    let folder = |name: &str| {
        fs::create_dir_all(fixture.path(name)).expect("the directory is created");
        fixture.path(name).display().to_string()
    };
    let (etc, state, agent, home) = (folder("etc"), folder("state"), folder("agent"), folder("home"));
    let replacements = [
        ("/etc/tidemill", etc.as_str()),
        ("/var/lib/tidemill-agent", agent.as_str()),
        ("/var/lib/tidemill", state.as_str()),
        ("/root", home.as_str()),
        ("127.0.0.1:7171", server.as_str()),
        ("127.0.0.1:8700", source.as_str()),
        ("/usr/bin/tidemill", "tidemill"),
        // The agent tests cover isolation; not every machine that runs this test offers it.
        ("--isolation required", "--isolation auto"),
    ];
    let replaced = |text: String| replacements.iter().fold(text, |text, (old, new)| text.replace(old, new));
    let configuration =
        fs::read_to_string(root.join("deploy/debian/tidemill.toml")).expect("the file exists");
    fixture.write("etc/tidemill.toml", &replaced(configuration));
    folder("units");
    for unit in ["tidemill", "tidemill-migrate", "tidemill-agent"] {
        let name = format!("{unit}.service");
        let text = fs::read_to_string(root.join("deploy/systemd").join(&name)).expect("the unit exists");
        fixture.write(&format!("units/{name}"), &replaced(text));
    }
    let pasted = script("docs/install.md", &["### The first five minutes\n"], &replacements);
    let console = format!(
        "curl --silent --fail --output page.html http://{server}/sign-in\ngrep -qi token page.html\n"
    );
    run_script(&fixture, &format!("{FUNCTIONS}{pasted}{console}"), &server);

    let database = fixture.path("state/tidemill.db").display().to_string();
    for lane in ["ops", "graph", "sync"] {
        let list =
            fixture.ok(&["--database", &database, "run", "list", "--lane", lane, "--status", "success"]);
        assert!(list.contains("run-"), "no run of lane {lane} succeeded: {list}");
    }
    let log = fs::read_to_string(fixture.path("units/tidemill.log")).expect("the service has a log");
    assert!(!log.contains("first admin token"), "a token existed before the first start: {log}");
}
