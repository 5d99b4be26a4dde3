//! Error codes and the statuses that they occur with.
//!
//! Codes are part of the API and do not change. The table is part of the OpenAPI document, so a review shows every new
//! or renamed code.

/// Every code with its statuses, in alphabetical order.
pub(crate) const ALL: &[(&str, &[u16])] = &[
    ("bad_feed", &[422]),
    ("bad_graph", &[422]),
    ("bad_host", &[400]),
    ("bad_json", &[400]),
    ("bad_signature", &[401]),
    ("bad_value", &[422]),
    ("busy", &[503]),
    ("csrf", &[403]),
    ("forbidden", &[403]),
    ("forwarded", &[403]),
    ("frozen", &[409]),
    ("internal", &[500]),
    ("invalid", &[422]),
    ("key_conflict", &[409]),
    ("link_over", &[401]),
    ("name_taken", &[409]),
    ("no_links", &[409]),
    ("no_pages", &[403]),
    ("no_route", &[404]),
    ("no_sign_in", &[409]),
    ("not_ready", &[503]),
    ("not_retryable", &[409]),
    ("nothing_yet", &[404]),
    ("out_of_reach", &[403]),
    ("session_over", &[401]),
    ("stale", &[409]),
    ("superseded", &[409]),
    ("throttled", &[429]),
    ("token_expired", &[401]),
    ("token_made", &[409]),
    ("token_revoked", &[401]),
    ("too_large", &[413, 422]),
    ("too_slow", &[408]),
    ("took_too_long", &[503]),
    ("unauthenticated", &[401]),
    ("unavailable", &[503]),
    ("unknown_agent", &[404]),
    ("unknown_environment", &[404]),
    ("unknown_feed", &[404]),
    ("unknown_hook", &[404]),
    ("unknown_job", &[404]),
    ("unknown_pool", &[404]),
    ("unknown_project", &[404]),
    ("unknown_queue", &[404]),
    ("unknown_rule", &[404]),
    ("unknown_run", &[404]),
    ("unknown_schedule", &[404]),
    ("unknown_sync", &[404]),
    ("unknown_task", &[404]),
    ("unknown_token", &[404]),
    ("unknown_worker", &[404]),
    ("unread", &[400]),
    ("wrong_holder", &[403]),
    ("wrong_host", &[421]),
    ("wrong_method", &[405]),
    ("wrong_origin", &[403]),
];

/// Whether a code may occur with a status.
pub(crate) fn is_known(code: &str, status: u16) -> bool {
    ALL.iter().any(|(name, statuses)| *name == code && statuses.contains(&status))
}

/// The codes of a status.
pub(crate) fn with(status: u16) -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(move |(_, statuses)| statuses.contains(&status)).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_unique() {
        assert!(ALL.is_sorted_by(|(one, _), (other, _)| one < other));
    }

    #[test]
    fn openapi_document_lists_every_code_with_its_status() {
        let document = crate::document();
        let said = &document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
        let said: Vec<&str> = said.as_array().unwrap().iter().filter_map(|code| code.as_str()).collect();
        let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        assert_eq!(said, names);
        let throttled = document["components"]["responses"]["Throttled"]["description"].as_str().unwrap();
        assert!(throttled.ends_with("(throttled)"), "{throttled}");
    }
}
