//! Builds with a known fault put in: the suite must catch each of them, or it proves nothing.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use tidemill_testkit::cluster::SERVER_URL_VARIABLE;

use crate::{out, workspace};

/// A feature that breaks the product in one way, and the module of `caught.rs` that must notice.
struct Break {
    feature: &'static str,
    module: &'static str,
}

const fn noticed(feature: &'static str, module: &'static str) -> Break {
    Break { feature, module }
}

/// The builds. Those of syncs share one, because each takes a while to compile and their modules have nothing in
/// common.
const BUILDS: [&[Break]; 3] = [
    &[noticed("broken-no-fence", "fence::")],
    &[noticed("broken-commit-then-send", "send::")],
    &[
        noticed("broken-count-without-lock", "count::"),
        noticed("broken-watermark-now", "watermark::"),
        noticed("broken-short-page-ends", "short::"),
    ],
];

/// Requires that each break fails at least one test of its module, and says which.
pub(crate) fn broken_builds(server_url: &str) -> Result<()> {
    for breaks in BUILDS {
        let features: Vec<String> =
            breaks.iter().map(|one| format!("tidemill-testkit/{}", one.feature)).collect();
        let failed = caught_by(&features.join(","), server_url)?;
        for one in breaks {
            let caught_by: Vec<&str> =
                failed.iter().map(String::as_str).filter(|test| test.starts_with(one.module)).collect();
            ensure!(
                !caught_by.is_empty(),
                "no test of `{}` catches the broken build `{}`; add one to crates/testkit/tests/caught.rs that \
                 does",
                one.module,
                one.feature
            );
            out::line(format!("the broken build `{}` is caught by: {}", one.feature, caught_by.join(", ")));
        }
    }
    Ok(())
}

fn caught_by(feature: &str, server_url: &str) -> Result<Vec<String>> {
    out::line(format!("trying the deliberately broken build `{feature}`"));
    // Built first and alone, so that a failure to compile is never taken for a test that fails.
    let built = command(feature).arg("--no-run").status().context("could not run cargo")?;
    ensure!(
        built.success(),
        "the broken build `{feature}` does not compile; mend it, for it proves nothing so"
    );
    let output = command(feature)
        .env(SERVER_URL_VARIABLE, server_url)
        .stderr(Stdio::null())
        .output()
        .context("could not run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match verdict(&text) {
        Verdict::Failed(tests) if !output.status.success() => Ok(tests),
        Verdict::Failed(_) | Verdict::Passed => bail!(
            "no test catches the broken build `{feature}`; add one to crates/testkit/tests/caught.rs that does"
        ),
        Verdict::Unknown => bail!(
            "the tests of the broken build `{feature}` ended without a result ({}); they said:\n{}",
            output.status,
            text.trim()
        ),
    }
}

/// The whole workspace is named, not the one package, so that its dependencies are not built once more with
/// other features.
fn command(features: &str) -> Command {
    let mut command = workspace::cargo();
    command.args(["test", "--quiet", "--workspace", "--test", "caught"]);
    command.arg("--features").arg(features);
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
