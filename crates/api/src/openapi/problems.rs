//! Error responses of routes. They are derived from the route's properties, so none can be forgotten. A status that is
//! missing here is a bug, and the fuzzer finds it.

use crate::codes;
use crate::endpoint::Endpoint;
use http::Method;
use serde_json::{Map, Value, json};

/// Every error status with its component name and description.
const ALL: [(u16, &str, &str); 12] = [
    (400, "Unreadable", "The request has contradicting hosts, or its body could not be read or is not JSON"),
    (401, "Unknown", "A valid token or signature is required"),
    (
        403,
        "Forbidden",
        "This token is not allowed to do this, or another site or a proxy before a local server sent the request",
    ),
    (404, "Missing", "The named object does not exist or is not visible to this token"),
    (408, "Slow", "The body took too long to arrive"),
    (409, "Conflict", "The request conflicts with the current state: a key, a state, or the holder of a run"),
    (413, "Large", "The body is too large"),
    (421, "Elsewhere", "A local server only answers to the local names of its machine"),
    (422, "Invalid", "The request is invalid; all errors are listed"),
    (429, "Throttled", "Too many requests of this token at the same time; Retry-After is the time to wait"),
    (500, "Internal", "Internal error; the server log contains the cause under the returned id"),
    (503, "Unavailable", "The server is busy or shutting down, or the database does not answer; try again"),
];

/// The error statuses of a route.
fn statuses(endpoint: &Endpoint) -> Vec<u16> {
    let mut statuses = vec![400, 403, 421, 500, 503];
    let changes = endpoint.method != Method::GET;
    if endpoint.permission.is_some() || changes {
        statuses.extend([401, 429]);
    }
    if endpoint.body.is_some() || changes {
        statuses.extend([408, 413]);
    }
    if changes {
        statuses.push(409);
    }
    if endpoint.path.contains('{') || endpoint.query.is_some() || endpoint.body.is_some() {
        statuses.extend([404, 422]);
    }
    statuses
}

/// Adds the error responses of a route.
pub(super) fn add(responses: &mut Map<String, Value>, endpoint: &Endpoint) {
    for (status, name, _) in ALL.into_iter().filter(|(status, ..)| statuses(endpoint).contains(status)) {
        let path = format!("#/components/responses/{name}");
        responses.entry(status.to_string()).or_insert_with(|| json!({"$ref": path}));
    }
    responses.sort_keys();
}

pub(super) fn shared(problem: &Value) -> Value {
    let described = ALL.into_iter().map(|(status, name, description)| {
        let codes: Vec<&str> = codes::with(status).collect();
        let description = format!("{description} ({})", codes.join(", "));
        let described =
            json!({"description": description, "content": {"application/json": {"schema": problem}}});
        (name.to_owned(), described)
    });
    described.collect::<Map<String, Value>>().into()
}

#[cfg(test)]
mod tests {

    #[test]
    fn every_route_lists_its_error_statuses_explicitly() {
        let document = crate::document();
        for endpoint in crate::endpoints() {
            let operation = &document["paths"][endpoint.path][endpoint.method.as_str().to_lowercase()];
            let responses = operation["responses"].as_object().unwrap();
            let route = format!("{} {}", endpoint.method, endpoint.path);
            assert!(!responses.contains_key("default"), "{route}");
            assert!(responses.contains_key("500") && responses.contains_key("503"), "{route}");
            assert_eq!(responses.contains_key("401"), responses.contains_key("429"), "{route}");
            assert!(endpoint.body.is_none() || responses.contains_key("422"), "{route}");
            for answer in responses.values() {
                let path = answer["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
                assert!(path.is_none_or(|path| document.pointer(path).is_some()), "{route}: {answer}");
            }
        }
    }
}
