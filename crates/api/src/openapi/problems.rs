//! With which statuses a route says no. They follow from what the route asks for, so none can be forgotten; a status
//! that is not listed here is a fault, and the fuzzer finds it.

use crate::codes;
use crate::endpoint::Endpoint;
use http::Method;
use serde_json::{Map, Value, json};

/// Every status of a problem: the name of its description, and what it means.
const ALL: [(u16, &str, &str); 12] = [
    (400, "Unreadable", "The body cannot be read, or is not JSON"),
    (401, "Unknown", "It takes a valid token or signature"),
    (403, "Forbidden", "This token may not do it, or the request comes from a page of another place"),
    (404, "Missing", "What is named is not there, for this token"),
    (408, "Slow", "The body took too long to arrive"),
    (409, "Conflict", "It does not go with how things are: a key, a state, or who holds a run"),
    (413, "Large", "The body is too large"),
    (421, "Elsewhere", "A server without tokens answers under the names of its own machine alone"),
    (422, "Invalid", "What is wrong with what was asked, every fault at once"),
    (429, "Throttled", "Too many unknown tokens came from there; Retry-After says how long to wait"),
    (500, "Internal", "A fault of the server; its log has the cause under the id that is told"),
    (503, "Unavailable", "Not now: the server is busy or ends, or the database does not answer; ask again"),
];

/// The statuses with which a route may say no.
fn statuses(endpoint: &Endpoint) -> Vec<u16> {
    let mut statuses = vec![421, 500, 503];
    let changes = endpoint.method != Method::GET;
    if endpoint.allowed.is_some() || changes {
        statuses.extend([401, 403, 429]);
    }
    if endpoint.body.is_some() || changes {
        statuses.extend([400, 408, 413]);
    }
    if changes {
        statuses.push(409);
    }
    if endpoint.path.contains('{') || endpoint.query.is_some() || endpoint.body.is_some() {
        statuses.extend([404, 422]);
    }
    statuses
}

/// Adds them to what a route answers.
pub(super) fn add(responses: &mut Map<String, Value>, endpoint: &Endpoint) {
    for (status, name, _) in ALL.into_iter().filter(|(status, ..)| statuses(endpoint).contains(status)) {
        let path = format!("#/components/responses/{name}");
        responses.entry(status.to_string()).or_insert_with(|| json!({"$ref": path}));
    }
    responses.sort_keys();
}

/// What each of them says, for the parts that routes share.
pub(super) fn shared(problem: &Value) -> Value {
    let described = ALL.into_iter().map(|(status, name, says)| {
        let codes: Vec<&str> = codes::with(status).collect();
        let says = format!("{says} ({})", codes.join(", "));
        let described = json!({"description": says, "content": {"application/json": {"schema": problem}}});
        (name.to_owned(), described)
    });
    described.collect::<Map<String, Value>>().into()
}

#[cfg(test)]
mod tests {

    #[test]
    fn every_route_lists_how_it_says_no_and_nothing_stands_for_the_rest() {
        let document = crate::document();
        for endpoint in crate::endpoints() {
            let operation = &document["paths"][endpoint.path][endpoint.method.as_str().to_lowercase()];
            let responses = operation["responses"].as_object().unwrap();
            let place = format!("{} {}", endpoint.method, endpoint.path);
            assert!(!responses.contains_key("default"), "{place}");
            assert!(responses.contains_key("500") && responses.contains_key("503"), "{place}");
            assert_eq!(responses.contains_key("401"), responses.contains_key("429"), "{place}");
            assert!(endpoint.body.is_none() || responses.contains_key("422"), "{place}");
            for answer in responses.values() {
                let path = answer["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
                assert!(path.is_none_or(|path| document.pointer(path).is_some()), "{place}: {answer}");
            }
        }
    }
}
