//! The product with a known fault put in: the suite must catch each of them, or it proves nothing.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use tidemill_core::broken::Break;
use tidemill_testkit::cluster::SERVER_URL_VARIABLE;

use crate::{out, workspace};

/// The module of `caught.rs` that must notice a fault.
const fn module(fault: Break) -> &'static str {
    match fault {
        Break::NoFence => "fence::",
        Break::CommitThenSend => "send::",
        Break::CountWithoutLock => "count::",
        Break::WatermarkDetail => "watermark::",
        Break::ShortPageEnds => "short::",
    }
}

/// Requires that each fault fails at least one test of its module, and says which.
pub(crate) fn faults(server_url: &str) -> Result<()> {
    out::line("building the product with faults put in");
    // Built first and alone, so that a failure to compile is never taken for a test that fails.
    let built = command().arg("--no-run").status().context("could not run cargo")?;
    ensure!(built.success(), "the build with faults does not compile; mend it, for it proves nothing so");
    // Without a fault the very same build is whole: otherwise what fails below would fail anyway.
    match run(None, server_url)? {
        Verdict::Passed => {}
        Verdict::Failed(tests) => bail!("without a fault these tests of `caught` fail: {}", tests.join(", ")),
        Verdict::Unknown => bail!("the tests of `caught` ended without a result"),
    }
    for fault in Break::ALL {
        let (name, module) = (fault.name(), module(fault));
        match run(Some(fault), server_url)? {
            Verdict::Failed(tests) => {
                out::line(format!("the fault `{name}` is caught by: {}", tests.join(", ")));
            }
            Verdict::Passed => bail!(
                "no test of `{module}` catches the fault `{name}`; add one to crates/testkit/tests/caught.rs that does"
            ),
            Verdict::Unknown => bail!("with the fault `{name}` the tests ended without a result"),
        }
    }
    Ok(())
}

/// Runs the tests of a fault's module with it, or all of them without any.
fn run(fault: Option<Break>, server_url: &str) -> Result<Verdict> {
    let mut command = command();
    command.env_remove(Break::VARIABLE).env(SERVER_URL_VARIABLE, server_url).stderr(Stdio::null());
    if let Some(fault) = fault {
        command.env(Break::VARIABLE, fault.name()).args(["--", module(fault)]);
    }
    let output = command.output().context("could not run cargo")?;
    let verdict = verdict(&String::from_utf8_lossy(&output.stdout));
    let is_agreed = output.status.success() == (verdict == Verdict::Passed);
    Ok(if is_agreed { verdict } else { Verdict::Unknown })
}

/// The whole workspace is named, not the one package, so that its dependencies are not built once more with
/// other features.
fn command() -> Command {
    let mut command = workspace::cargo();
    command.args([
        "test",
        "--quiet",
        "--workspace",
        "--test",
        "caught",
        "--features",
        "tidemill-testkit/broken",
    ]);
    command
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(Vec<String>),
    /// The tests did not run to their end.
    Unknown,
}

/// Reads what libtest says at its end.
fn verdict(text: &str) -> Verdict {
    if text.lines().any(|line| line.starts_with("test result: FAILED")) {
        // The names stand after the last line `failures:`, indented, up to an empty line.
        let last = text.rsplit("\nfailures:\n").next().unwrap_or_default();
        let names: Vec<String> =
            last.lines().take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect();
        if names.is_empty() { Verdict::Unknown } else { Verdict::Failed(names) }
    } else if text.lines().any(|line| line.starts_with("test result: ok")) {
        Verdict::Passed
    } else {
        Verdict::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_that_failed_are_named() {
        let text = "\nrunning 3 tests\nF.F\nfailures:\n\n---- a::b stdout ----\nfailures:\n oops\n\n\n\
                    failures:\n    a::b\n    c\n\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\n\n";
        assert_eq!(verdict(text), Verdict::Failed(vec!["a::b".into(), "c".into()]));
    }

    #[test]
    fn a_pass_and_an_early_end_are_told_apart() {
        assert_eq!(verdict("running 1 test\n.\ntest result: ok. 1 passed; 0 failed\n"), Verdict::Passed);
        assert_eq!(verdict("running 1 test\n"), Verdict::Unknown);
        assert_eq!(verdict(""), Verdict::Unknown);
    }
}
