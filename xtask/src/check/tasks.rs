//! Checks that no background task runs without supervision, and that no build profile disables unwinding.
//!
//! A panic in a bare task ends it silently, and everything that depends on it stops. So loops run under the store's
//! `TaskMonitor`, which restarts and reports them. The monitor needs unwinding.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Finding;
use crate::workspace::{files, has_extension};

/// Crates that are not part of the product.
const DEVELOPMENT: [&str; 2] = ["crates/bench/", "crates/testkit/"];

/// Files that may spawn tasks, and how many. Each task ends with one request, run or command, or supervises itself.
const ALLOWED: [(&str, usize); 15] = [
    // Ends with one task of a graph: it waits for one child process.
    ("crates/agent/src/executor.rs", 1),
    // Ends with one request, whose caller gets the panic.
    ("crates/api/src/access.rs", 1),
    // Ends with one look-up of a token, whose caller joins it.
    ("crates/api/src/access/lookup_queue.rs", 1),
    // Ends with one refused body, of which it discards a limited part.
    ("crates/api/src/server/limited_body.rs", 1),
    // Ends with one stream, whose reader reconnects.
    ("crates/api/src/live/frame.rs", 1),
    // The server of a demo: it supervises its own loop, and the demo ends with it.
    ("crates/cli/src/commands/demo/console.rs", 1),
    // The server of metrics supervises its own loop.
    ("crates/cli/src/commands/metrics.rs", 1),
    // Waits for one signal.
    ("crates/cli/src/commands/work.rs", 1),
    // Ends with one claim, which its caller joins.
    ("crates/cli/src/remote.rs", 1),
    // Ends with one count; readers count themselves if it is outdated.
    ("crates/console/src/stats_cache.rs", 1),
    // Ends with one run: it writes the run's events.
    ("crates/engine/src/worker/log.rs", 1),
    // The supervision itself.
    ("crates/store/src/monitor.rs", 1),
    // Ends with one transaction whose caller is gone.
    ("crates/store/src/run_to_completion.rs", 1),
    // Ends with one command: it sends messages to its supervisor.
    ("crates/supervisor/src/handle.rs", 1),
    // The simulated supplier: one task for its server and one for each connection.
    ("crates/supplier/src/server.rs", 2),
];

// Written in two parts, so that this file follows its own rule.
const SPAWNS: [&str; 4] = [
    concat!("tokio::sp", "awn("),
    concat!("tokio::task::sp", "awn("),
    concat!("runtime.sp", "awn("),
    concat!("Handle::current().sp", "awn("),
];

/// Returns one finding for each task without supervision, and for each profile that aborts on a panic.
pub(super) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if is_product(&name) && has_extension(&path, "rs") {
            findings.extend(spawns(&name, &fs::read_to_string(&path)?));
        }
        if name.ends_with("Cargo.toml") {
            findings.extend(aborts(&name, &fs::read_to_string(&path)?));
        }
    }
    for name in [".cargo/config.toml", ".ci/run"] {
        if let Ok(text) = fs::read_to_string(root.join(name)) {
            findings.extend(aborts(name, &text));
        }
    }
    Ok(findings)
}

fn is_product(name: &str) -> bool {
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
    name.starts_with("crates/")
        && name.contains("/src/")
        && !is_test
        && !DEVELOPMENT.iter().any(|crate_| name.starts_with(crate_))
}

/// Finds the tasks that a file of the product spawns beyond the allowed number.
fn spawns(name: &str, text: &str) -> Vec<Finding> {
    let allowed = ALLOWED.iter().find(|(path, _)| *path == name).map_or(0, |(_, count)| *count);
    let product = (1..).zip(text.lines()).take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    let found = product.filter(|(_, line)| {
        let code = line.split("//").next().unwrap_or_default();
        SPAWNS.iter().any(|spawn| code.contains(spawn))
    });
    let message = "a task without supervision: run the loop through `TaskMonitor`, or give the reason in \
                   xtask/src/check/tasks.rs";
    found.skip(allowed).map(|(line, _)| Finding::new(name, line, message)).collect()
}

/// Finds settings that end the process at the first panic.
fn aborts(name: &str, text: &str) -> Vec<Finding> {
    let found = (1..).zip(text.lines()).filter(|(_, line)| {
        let setting: String = line.chars().filter(|char| !char.is_whitespace() && *char != '"').collect();
        !setting.starts_with('#') && setting.contains("panic=abort")
    });
    let message = "a panic would end the process: the isolation of loops and steps needs unwinding";
    found.map(|(line, _)| Finding::new(name, line, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{shown, tree};

    #[test]
    fn bare_task_in_the_product_is_a_finding() {
        let spawn = SPAWNS[0];
        let source =
            format!("//! x\nfn f() {{\n    {spawn}g());\n}}\n#[cfg(test)]\nmod t {{ {spawn}g()); }}\n");
        let commented = format!("//! x\n// {spawn}\n");
        let root = tree(&[
            ("crates/engine/src/loops.rs", source.as_str()),
            ("crates/engine/src/words.rs", commented.as_str()),
            ("crates/engine/src/live/tests.rs", source.as_str()),
            ("crates/testkit/src/loops.rs", source.as_str()),
            ("crates/store/src/monitor.rs", source.as_str()),
        ]);
        let found = shown(&findings(root.path()).unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("crates/engine/src/loops.rs:3: a task without supervision"),
            "{found:?}"
        );
    }

    #[test]
    fn second_task_beside_an_allowed_one_is_a_finding() {
        let spawn = SPAWNS[0];
        let source = format!("//! x\n{spawn}one());\n{spawn}other());\n");
        let root = tree(&[("crates/store/src/monitor.rs", source.as_str())]);
        let found = shown(&findings(root.path()).unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/store/src/monitor.rs:3:"), "{found:?}");
    }

    #[test]
    fn profile_that_aborts_on_a_panic_is_a_finding() {
        let root = tree(&[
            ("Cargo.toml", "[profile.release]\ndebug = false\npanic = \"abort\"\n"),
            ("crates/store/Cargo.toml", "[package]\n# panic = \"abort\" would be wrong\n"),
            (".cargo/config.toml", "[build]\nrustflags = [\"-C\", \"panic=abort\"]\n"),
        ]);
        let found = shown(&findings(root.path()).unwrap());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("Cargo.toml:3:"), "{found:?}");
        assert!(found[1].starts_with(".cargo/config.toml:2:"), "{found:?}");
    }
}
