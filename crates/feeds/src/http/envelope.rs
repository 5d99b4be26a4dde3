//! The GraphQL envelope of a response (data or errors), and the classification of errors.

use super::client::{ErrorKind, RequestError, quote};
use serde::Deserialize;

/// The body of a response.
#[derive(Deserialize)]
struct Envelope<D> {
    data: Option<D>,
    errors: Option<Vec<GraphqlError>>,
}

#[derive(Deserialize)]
struct GraphqlError {
    #[serde(default)]
    message: String,
    extensions: Option<serde_json::Value>,
}

/// Returns the data of a response. If it contains errors, partial data is ignored.
pub(crate) fn read_data<'a, D: Deserialize<'a>>(body: &'a [u8]) -> Result<D, RequestError> {
    let envelope: Envelope<D> = serde_json::from_slice(body).map_err(|error| {
        // The body may contain an error next to data of an unexpected shape; then the error counts.
        find_error(body).unwrap_or_else(|| unreadable(body, &error))
    })?;
    if let Some(error) = envelope.errors.as_deref().and_then(classify) {
        return Err(error);
    }
    envelope
        .data
        .ok_or_else(|| RequestError::new(ErrorKind::Malformed, "answered without data and without an error"))
}

/// Returns the classified errors of a response, if it contains any.
pub(crate) fn find_error(body: &[u8]) -> Option<RequestError> {
    let envelope: Envelope<serde::de::IgnoredAny> = serde_json::from_slice(body).ok()?;
    envelope.errors.as_deref().and_then(classify)
}

fn unreadable(body: &[u8], error: &serde_json::Error) -> RequestError {
    if let Some(problem) = super::markup::problem(body, "the endpoint of the feed") {
        return RequestError::new(ErrorKind::Malformed, problem);
    }
    if error.is_eof() {
        return RequestError::new(ErrorKind::Unreachable, "answered with truncated JSON");
    }
    let reason = format!("answered with unexpected JSON ({})", quote(&error.to_string()));
    RequestError::new(ErrorKind::Malformed, reason)
}

/// Classifies the errors of a response; the most severe one decides.
fn classify(errors: &[GraphqlError]) -> Option<RequestError> {
    let first = errors.first()?;
    let kind = errors.iter().map(kind_of).min_by_key(|kind| rank(*kind)).unwrap_or(ErrorKind::Busy);
    let error = errors.iter().find(|error| kind_of(error) == kind).unwrap_or(first);
    let message = quote(&error.message);
    let reason = match kind {
        ErrorKind::Unauthorized => format!("refused the account or the token (`{message}`)"),
        ErrorKind::Rejected | ErrorKind::InvalidQuery | ErrorKind::OutOfReach => {
            format!("rejected the query (`{message}`)")
        }
        ErrorKind::RateLimited => format!("limits the request rate (`{message}`)"),
        ErrorKind::Busy | ErrorKind::Unreachable | ErrorKind::Malformed | ErrorKind::TooLarge => {
            format!("reported an error (`{message}`)")
        }
    };
    Some(RequestError::new(kind, reason))
}

const fn rank(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Rejected | ErrorKind::InvalidQuery | ErrorKind::OutOfReach => 0,
        ErrorKind::Unauthorized => 1,
        ErrorKind::RateLimited => 2,
        ErrorKind::Busy | ErrorKind::Unreachable | ErrorKind::Malformed | ErrorKind::TooLarge => 3,
    }
}

/// Codes of servers that reject a request as invalid.
const INVALID_REQUEST_CODES: [&str; 3] =
    ["GRAPHQL_PARSE_FAILED", "GRAPHQL_VALIDATION_FAILED", "BAD_USER_INPUT"];

/// Codes of servers that refuse a token or an account.
const ACCOUNT_CODES: [&str; 7] = [
    "UNAUTHENTICATED",
    "UNAUTHORIZED",
    "FORBIDDEN",
    "TOKEN_EXPIRED",
    "INVALID_TOKEN",
    "JWT_EXPIRED",
    "INVALID_CREDENTIALS",
];

/// Codes of servers that report an exceeded rate limit.
const RATE_LIMIT_CODES: [&str; 4] = ["TOO_MANY_REQUESTS", "RATE_LIMITED", "RATE_LIMIT_EXCEEDED", "THROTTLED"];

/// Beginnings of messages that reject a request as invalid.
const INVALID_REQUEST_PREFIXES: [&str; 10] = [
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

/// Phrases of such a message about a variable.
const INVALID_VARIABLE_PHRASES: [&str; 3] = ["is not defined", "got invalid value", "expected type"];

/// Complete messages that refuse a token or an account, for servers that send no code. Text after a colon or another
/// mark is ignored. A phrase inside a sentence does not count: "unexpected token <" is a parser's error.
const ACCOUNT_MESSAGES: [&str; 24] = [
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

/// Classifies one error: by its code, or by its message if the code is not known.
fn kind_of(error: &GraphqlError) -> ErrorKind {
    let code = error.extensions.as_ref().and_then(|extensions| extensions.get("code"));
    if let Some(code) = code.and_then(serde_json::Value::as_str) {
        for (codes, kind) in [
            (&INVALID_REQUEST_CODES[..], ErrorKind::Rejected),
            (&ACCOUNT_CODES, ErrorKind::Unauthorized),
            (&RATE_LIMIT_CODES, ErrorKind::RateLimited),
        ] {
            if codes.contains(&code) {
                return kind;
            }
        }
    }
    let message = error.message.trim().to_lowercase();
    let is_of_variable = message.starts_with("variable \"$")
        && INVALID_VARIABLE_PHRASES.iter().any(|phrase| message.contains(phrase));
    if is_of_variable || INVALID_REQUEST_PREFIXES.iter().any(|phrase| message.starts_with(phrase)) {
        ErrorKind::Rejected
    } else if ACCOUNT_MESSAGES.iter().any(|phrase| is_phrase(&message, phrase)) {
        ErrorKind::Unauthorized
    } else {
        ErrorKind::Busy
    }
}

/// Whether a message is this phrase, optionally followed by a remark.
fn is_phrase(message: &str, phrase: &str) -> bool {
    message.strip_prefix(phrase).is_some_and(|rest| {
        let rest = rest.trim_start();
        rest.is_empty() || rest.starts_with([':', '.', ',', ';', '!', '(', '`', '-'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> RequestError {
        read_data::<serde::de::IgnoredAny>(body.as_bytes()).unwrap_err()
    }

    #[test]
    fn error_message_determines_the_class() {
        for (message, kind) in [
            ("Syntax Error: Expected Name, found }", ErrorKind::Rejected),
            ("Cannot query field \\\"updatedAt\\\" on type X", ErrorKind::Rejected),
            ("Unknown argument \\\"token\\\" on field \\\"as\\\"", ErrorKind::Rejected),
            ("Invalid value for argument \\\"query.shape\\\"", ErrorKind::Rejected),
            ("Variable \\\"$query\\\" got invalid value 7", ErrorKind::Rejected),
            ("Token expired", ErrorKind::Unauthorized),
            ("Invalid token.", ErrorKind::Unauthorized),
            ("Unauthorized: the token is invalid or has expired", ErrorKind::Unauthorized),
            ("Unexpected token < in JSON at position 0", ErrorKind::Busy),
            ("worker died while serving a token", ErrorKind::Busy),
            ("could not read the password policy", ErrorKind::Busy),
            ("the authentication service timed out", ErrorKind::Busy),
            ("the validation service timed out", ErrorKind::Busy),
            ("invalid tokenizer state", ErrorKind::Busy),
            ("jwt malformed", ErrorKind::Unauthorized),
            ("Wrong username or password", ErrorKind::Unauthorized),
            ("Unauthorized", ErrorKind::Unauthorized),
            ("canceling statement due to timeout", ErrorKind::Busy),
            ("", ErrorKind::Busy),
        ] {
            let error = of(&format!(r#"{{"data":null,"errors":[{{"message":"{message}"}}]}}"#));
            assert_eq!(error.kind, kind, "{message}");
        }
    }

    #[test]
    fn error_code_takes_precedence_over_the_message() {
        let coded =
            |code| of(&format!(r#"{{"errors":[{{"message":"no","extensions":{{"code":"{code}"}}}}]}}"#));
        assert_eq!(coded("UNAUTHENTICATED").kind, ErrorKind::Unauthorized);
        assert_eq!(coded("GRAPHQL_VALIDATION_FAILED").kind, ErrorKind::Rejected);
        assert_eq!(coded("INTERNAL_SERVER_ERROR").kind, ErrorKind::Busy);
        assert_eq!(coded("TOKEN_EXPIRED").kind, ErrorKind::Unauthorized);
        assert_eq!(coded("RATE_LIMITED").kind, ErrorKind::RateLimited);
    }

    #[test]
    fn most_severe_error_determines_the_class() {
        let both = of(r#"{"errors":[{"message":"busy"},{"message":"token expired"}]}"#);
        assert_eq!((both.kind, both.reason.contains("token expired")), (ErrorKind::Unauthorized, true));
    }

    #[test]
    fn non_json_and_truncated_answers_are_distinguished() {
        assert_eq!(
            of("  <!doctype html>").reason,
            "answered HTML instead of JSON; check the endpoint of the feed"
        );
        assert_eq!(of(r#"{"data":{"as""#).kind, ErrorKind::Unreachable);
        for body in ["  <!doctype html>", "[]", "{}", "{]", r#"{"data":null,"errors":[]}"#] {
            assert_eq!(of(body).kind, ErrorKind::Malformed, "{body}");
        }
    }
}
