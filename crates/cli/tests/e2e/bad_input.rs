//! Bad input and bad ground: one clear sentence, a hint where there is one action to take, the documented exit code,
//! and nothing is written.

mod configuration;
mod ground;
mod requests;

use crate::process::Ran;
use crate::stage::Stage;

/// What a command must say when it refuses.
#[derive(Clone, Copy, Debug)]
struct Refusal<'r> {
    code: i32,
    sentence: &'r str,
    hint: Option<&'r str>,
}

/// The exit codes of `--help`.
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

    /// Compares what was said: on standard error only, one sentence, and the hint exactly where there is one.
    #[track_caller]
    fn check(self, what: &str, ran: &Ran) {
        assert_eq!(ran.code, Some(self.code), "{what}: {ran:?}");
        assert_eq!(ran.stdout, "", "{what}: {ran:?}");
        let errors: Vec<&str> = ran.stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
        assert_eq!(errors.len(), 1, "{what}: {ran:?}");
        assert!(errors[0].contains(self.sentence), "{what}: {ran:?}");
        // What the argument parser says has its own form: the sentence, and how to use the command.
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

    /// The same for machines: one JSON object with a code, the sentence and the hint.
    #[track_caller]
    fn check_json(self, what: &str, ran: &Ran) {
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(self.code), ""), "{what}: {ran:?}");
        let body: serde_json::Value = serde_json::from_str(&ran.stderr).expect("the failure is JSON");
        assert!(body["code"].as_str().is_some_and(|code| !code.is_empty()), "{what}: {body}");
        assert!(body["message"].as_str().is_some_and(|text| text.contains(self.sentence)), "{what}: {body}");
        assert_eq!(body["hint"].as_str().is_some(), self.hint.is_some(), "{what}: {body}");
    }
}

/// Runs a command that must be refused, as a person and as a machine, and compares the database before and after.
#[track_caller]
fn must_refuse(stage: &Stage, args: &[&str], expected: Refusal<'_>) {
    let before = stage.dump();
    let what = args.join(" ").chars().take(100).collect::<String>();
    expected.check(&what, &stage.tidemill(args));
    expected.check_json(&what, &stage.tidemill(&[&["--json"], args].concat()));
    assert!(stage.dump() == before, "{what}: something was written");
}
