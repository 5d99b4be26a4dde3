//! Invalid input and unusable databases: one clear message, a hint, the documented exit code, and no write.

mod configuration;
mod database;
mod requests;

use crate::fixture::Fixture;
use crate::process::Output;

/// Expected output of a refused command.
#[derive(Clone, Copy, Debug)]
struct Refusal<'r> {
    code: i32,
    sentence: &'r str,
    hint: Option<&'r str>,
}

/// Exit codes, as `--help` documents them.
const OUTAGE: i32 = 1;
const USAGE: i32 = 2;
const REFUSED: i32 = 3;

fn refusal(code: i32, sentence: &str) -> Refusal<'_> {
    Refusal { code, sentence, hint: None }
}

impl<'r> Refusal<'r> {
    fn hint(self, hint: &'r str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    /// Checks that only standard error has output: one message, and the hint if one is expected.
    #[track_caller]
    fn check(self, what: &str, ran: &Output) {
        assert_eq!(ran.code, Some(self.code), "{what}: {ran:?}");
        assert_eq!(ran.stdout, "", "{what}: {ran:?}");
        let errors: Vec<&str> = ran.stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
        assert_eq!(errors.len(), 1, "{what}: {ran:?}");
        assert!(errors[0].contains(self.sentence), "{what}: {ran:?}");
        // Errors of the argument parser have another format: the message, and the usage text.
        if ran.stderr.contains("For more information, try '--help'") {
            return;
        }
        let hints: Vec<&str> = ran.stderr.lines().filter_map(|line| line.strip_prefix("hint: ")).collect();
        match self.hint {
            Some(hint) => assert!(hints.len() == 1 && hints[0].contains(hint), "{what}: {ran:?}"),
            None => assert!(hints.is_empty(), "{what}: {ran:?}"),
        }
        let lines = ran.stderr.lines().filter(|line| !line.starts_with("warning: ")).count();
        assert_eq!(lines, errors.len() + hints.len(), "{what}: {ran:?}");
    }

    /// Checks the JSON output: one object with a code, the message and the hint.
    #[track_caller]
    fn check_json(self, what: &str, ran: &Output) {
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(self.code), ""), "{what}: {ran:?}");
        let body: serde_json::Value = serde_json::from_str(&ran.stderr).expect("the failure is JSON");
        assert!(body["code"].as_str().is_some_and(|code| !code.is_empty()), "{what}: {body}");
        assert!(body["message"].as_str().is_some_and(|text| text.contains(self.sentence)), "{what}: {body}");
        assert_eq!(body["hint"].as_str().is_some(), self.hint.is_some(), "{what}: {body}");
    }
}

/// Runs a command that must be refused, with and without `--json`, and checks that the database does not change.
#[track_caller]
fn must_refuse(fixture: &Fixture, args: &[&str], expected: Refusal<'_>) {
    let before = fixture.dump();
    let what = args.join(" ").chars().take(100).collect::<String>();
    expected.check(&what, &fixture.tidemill(args));
    expected.check_json(&what, &fixture.tidemill(&[&["--json"], args].concat()));
    assert!(fixture.dump() == before, "{what}: the database was changed");
}
