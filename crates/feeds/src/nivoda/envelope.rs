//! What an answer is wrapped in: the data, or errors, and what an error means.

use super::client::{Fault, Nature, words};
use serde::Deserialize;

/// The body of an answer.
#[derive(Deserialize)]
struct Envelope<D> {
    data: Option<D>,
    errors: Option<Vec<Complaint>>,
}

/// One error of the source.
#[derive(Deserialize)]
struct Complaint {
    #[serde(default)]
    message: String,
    extensions: Option<serde_json::Value>,
}

/// The data of an answer. With errors there is none, whatever stands beside them.
pub(super) fn open<'a, D: Deserialize<'a>>(body: &'a [u8]) -> Result<D, Fault> {
    let envelope: Envelope<D> = serde_json::from_slice(body).map_err(|error| {
        // An error beside data of another form is still the error.
        errors(body).unwrap_or_else(|| unreadable(body, &error))
    })?;
    if let Some(fault) = envelope.errors.as_deref().and_then(judge) {
        return Err(fault);
    }
    envelope.data.ok_or_else(|| Fault::new(Nature::Final, "answered without data and without an error"))
}

/// The errors of an answer, whatever else is in it.
pub(super) fn errors(body: &[u8]) -> Option<Fault> {
    let envelope: Envelope<serde::de::IgnoredAny> = serde_json::from_slice(body).ok()?;
    envelope.errors.as_deref().and_then(judge)
}

fn unreadable(body: &[u8], error: &serde_json::Error) -> Fault {
    if body.trim_ascii_start().starts_with(b"<") {
        return Fault::new(Nature::Final, "answered HTML instead of JSON; check the address of the feed");
    }
    if error.is_eof() {
        return Fault::new(Nature::Unreachable, "broke its answer off");
    }
    let reason = format!("answered something that is not the expected JSON ({})", words(&error.to_string()));
    Fault::new(Nature::Final, reason)
}

/// What the errors of an answer mean together: the worst of them decides.
fn judge(complaints: &[Complaint]) -> Option<Fault> {
    let first = complaints.first()?;
    let nature = complaints.iter().map(nature).min_by_key(|nature| rank(*nature)).unwrap_or(Nature::Busy);
    let said = complaints.iter().find(|complaint| self::nature(complaint) == nature).unwrap_or(first);
    let said = words(&said.message);
    let reason = match nature {
        Nature::Account => format!("refused the account or the token (`{said}`)"),
        Nature::Final | Nature::Query => format!("does not accept the question (`{said}`)"),
        Nature::Busy | Nature::Unreachable => format!("reported an error (`{said}`)"),
    };
    Some(Fault::new(nature, reason))
}

const fn rank(nature: Nature) -> u8 {
    match nature {
        Nature::Final | Nature::Query => 0,
        Nature::Account => 1,
        Nature::Busy | Nature::Unreachable => 2,
    }
}

/// Phrases by which servers refuse a question for its form.
const OF_FORM: [&str; 12] = [
    "syntax error",
    "cannot query field",
    "unknown argument",
    "unknown field",
    "unknown type",
    "unknown fragment",
    "unknown directive",
    "is not defined",
    "validation",
    "invalid value for argument",
    "expected type",
    "got invalid value",
];

/// Words by which they refuse a token or an account. There is no code for it, only text.
const OF_ACCOUNT: [&str; 10] = [
    "token",
    "jwt",
    "unauthori",
    "unauthenti",
    "not authori",
    "not authenti",
    "authentication",
    "password",
    "credentials",
    "forbidden",
];

fn nature(complaint: &Complaint) -> Nature {
    let code = complaint.extensions.as_ref().and_then(|extensions| extensions.get("code"));
    match code.and_then(serde_json::Value::as_str) {
        Some("GRAPHQL_PARSE_FAILED" | "GRAPHQL_VALIDATION_FAILED" | "BAD_USER_INPUT") => {
            return Nature::Final;
        }
        Some("UNAUTHENTICATED" | "FORBIDDEN") => return Nature::Account,
        _ => {}
    }
    let message = complaint.message.to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    if says(&OF_FORM) {
        Nature::Final
    } else if says(&OF_ACCOUNT) {
        Nature::Account
    } else {
        Nature::Busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Fault {
        open::<serde::de::IgnoredAny>(body.as_bytes()).unwrap_err()
    }

    #[test]
    fn the_words_of_an_error_decide_what_follows() {
        for (message, nature) in [
            ("Syntax Error: Expected Name, found }", Nature::Final),
            ("Cannot query field \\\"updatedAt\\\" on type X", Nature::Final),
            ("Unknown argument \\\"token\\\" on field \\\"as\\\"", Nature::Final),
            ("Invalid value for argument \\\"query.shape\\\"", Nature::Final),
            ("Token expired", Nature::Account),
            ("jwt malformed", Nature::Account),
            ("Wrong username or password", Nature::Account),
            ("Unauthorized", Nature::Account),
            ("canceling statement due to timeout", Nature::Busy),
            ("", Nature::Busy),
        ] {
            let fault = of(&format!(r#"{{"data":null,"errors":[{{"message":"{message}"}}]}}"#));
            assert_eq!(fault.nature, nature, "{message}");
        }
    }

    #[test]
    fn a_code_goes_before_the_words() {
        let coded =
            |code| of(&format!(r#"{{"errors":[{{"message":"no","extensions":{{"code":"{code}"}}}}]}}"#));
        assert_eq!(coded("UNAUTHENTICATED").nature, Nature::Account);
        assert_eq!(coded("GRAPHQL_VALIDATION_FAILED").nature, Nature::Final);
        assert_eq!(coded("INTERNAL_SERVER_ERROR").nature, Nature::Busy);
    }

    #[test]
    fn the_worst_error_decides() {
        let both = of(r#"{"errors":[{"message":"busy"},{"message":"token expired"}]}"#);
        assert_eq!((both.nature, both.reason.contains("token expired")), (Nature::Account, true));
    }

    #[test]
    fn an_answer_that_is_no_json_is_told_apart_from_one_that_is_cut() {
        assert_eq!(
            of("  <!doctype html>").reason,
            "answered HTML instead of JSON; check the address of the feed"
        );
        assert_eq!(of(r#"{"data":{"as""#).nature, Nature::Unreachable);
        assert_eq!(of("[]").nature, Nature::Final);
        assert_eq!(of("{}").nature, Nature::Final);
        assert_eq!(of(r#"{"data":null,"errors":[]}"#).nature, Nature::Final);
    }
}
