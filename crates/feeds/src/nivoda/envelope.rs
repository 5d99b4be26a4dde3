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
    envelope.data.ok_or_else(|| Fault::new(Nature::Garbled, "answered without data and without an error"))
}

/// The errors of an answer, whatever else is in it.
pub(super) fn errors(body: &[u8]) -> Option<Fault> {
    let envelope: Envelope<serde::de::IgnoredAny> = serde_json::from_slice(body).ok()?;
    envelope.errors.as_deref().and_then(judge)
}

fn unreadable(body: &[u8], error: &serde_json::Error) -> Fault {
    if body.trim_ascii_start().starts_with(b"<") {
        return Fault::new(Nature::Garbled, "answered HTML instead of JSON; check the address of the feed");
    }
    if error.is_eof() {
        return Fault::new(Nature::Unreachable, "broke its answer off");
    }
    let reason = format!("answered something that is not the expected JSON ({})", words(&error.to_string()));
    Fault::new(Nature::Garbled, reason)
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
        Nature::Limited => format!("limits the requests (`{said}`)"),
        Nature::Busy | Nature::Unreachable | Nature::Garbled | Nature::TooLarge => {
            format!("reported an error (`{said}`)")
        }
    };
    Some(Fault::new(nature, reason))
}

const fn rank(nature: Nature) -> u8 {
    match nature {
        Nature::Final | Nature::Query => 0,
        Nature::Account => 1,
        Nature::Limited => 2,
        Nature::Busy | Nature::Unreachable | Nature::Garbled | Nature::TooLarge => 3,
    }
}

/// Codes by which servers refuse a question for its form.
const CODES_OF_FORM: [&str; 3] = ["GRAPHQL_PARSE_FAILED", "GRAPHQL_VALIDATION_FAILED", "BAD_USER_INPUT"];

/// Codes by which they refuse a token or an account.
const CODES_OF_ACCOUNT: [&str; 7] = [
    "UNAUTHENTICATED",
    "UNAUTHORIZED",
    "FORBIDDEN",
    "TOKEN_EXPIRED",
    "INVALID_TOKEN",
    "JWT_EXPIRED",
    "INVALID_CREDENTIALS",
];

/// Codes by which they say that the account asks too often.
const CODES_OF_LIMIT: [&str; 4] = ["TOO_MANY_REQUESTS", "RATE_LIMITED", "RATE_LIMIT_EXCEEDED", "THROTTLED"];

/// How messages begin by which servers refuse a question for its form.
const OF_FORM: [&str; 10] = [
    "syntax error",
    "cannot query field",
    "unknown argument",
    "unknown field",
    "unknown type",
    "unknown fragment",
    "unknown directive",
    "validation error",
    "invalid value for argument",
    "expected type",
];

/// What such a message says of a variable.
const OF_VARIABLE: [&str; 3] = ["is not defined", "got invalid value", "expected type"];

/// Whole messages by which they refuse a token or an account where they give no code. What follows after a colon or
/// another mark is a remark. A word somewhere in a sentence decides nothing: "unexpected token <" is a parser's error.
const OF_ACCOUNT: [&str; 24] = [
    "unauthorized",
    "unauthorised",
    "unauthenticated",
    "not authorized",
    "not authenticated",
    "forbidden",
    "access denied",
    "authentication required",
    "authentication failed",
    "token expired",
    "token has expired",
    "token is expired",
    "token invalid",
    "token is invalid",
    "token is not valid",
    "invalid token",
    "expired token",
    "jwt expired",
    "jwt malformed",
    "invalid jwt",
    "invalid credentials",
    "invalid username or password",
    "wrong username or password",
    "wrong password",
];

/// What one error means: its code decides, and its words where the code does not.
fn nature(complaint: &Complaint) -> Nature {
    let code = complaint.extensions.as_ref().and_then(|extensions| extensions.get("code"));
    if let Some(code) = code.and_then(serde_json::Value::as_str) {
        for (codes, nature) in [
            (&CODES_OF_FORM[..], Nature::Final),
            (&CODES_OF_ACCOUNT, Nature::Account),
            (&CODES_OF_LIMIT, Nature::Limited),
        ] {
            if codes.contains(&code) {
                return nature;
            }
        }
    }
    let message = complaint.message.trim().to_lowercase();
    let is_of_variable =
        message.starts_with("variable \"$") && OF_VARIABLE.iter().any(|phrase| message.contains(phrase));
    if is_of_variable || OF_FORM.iter().any(|phrase| message.starts_with(phrase)) {
        Nature::Final
    } else if OF_ACCOUNT.iter().any(|phrase| is_whole(&message, phrase)) {
        Nature::Account
    } else {
        Nature::Busy
    }
}

/// Whether a message is this phrase, or this phrase and a remark.
fn is_whole(message: &str, phrase: &str) -> bool {
    message.strip_prefix(phrase).is_some_and(|rest| {
        let rest = rest.trim_start();
        rest.is_empty() || rest.starts_with([':', '.', ',', ';', '!', '(', '`', '-'])
    })
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
            ("Variable \\\"$query\\\" got invalid value 7", Nature::Final),
            ("Token expired", Nature::Account),
            ("Invalid token.", Nature::Account),
            ("Unauthorized: the token is invalid or has expired", Nature::Account),
            ("Unexpected token < in JSON at position 0", Nature::Busy),
            ("worker died while serving a token", Nature::Busy),
            ("could not read the password policy", Nature::Busy),
            ("the authentication service timed out", Nature::Busy),
            ("the validation service timed out", Nature::Busy),
            ("invalid tokenizer state", Nature::Busy),
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
        assert_eq!(coded("TOKEN_EXPIRED").nature, Nature::Account);
        assert_eq!(coded("RATE_LIMITED").nature, Nature::Limited);
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
        for body in ["  <!doctype html>", "[]", "{}", "{]", r#"{"data":null,"errors":[]}"#] {
            assert_eq!(of(body).nature, Nature::Garbled, "{body}");
        }
    }
}
