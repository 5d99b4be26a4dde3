//! Checks across the sections of a definition: combinations that cannot work.

use super::FeedDefinition;
use super::paging::{EndRule, Lookup, PageAccess, Paginator, Partition};
use super::request::{Auth, Method, ParamTarget, TokenLocation};
use super::target::WriteDisposition;
use crate::definition::error::DefinitionErrors;
use crate::definition::fields::Fields;

pub(super) fn check(definition: &FeedDefinition, fields: &Fields, errors: &mut DefinitionErrors) {
    check_end(definition, fields, errors);
    check_bodies(definition, fields, errors);
    check_graphql(definition, fields, errors);
    check_deletes(definition, fields, errors);
    check_partition(definition, fields, errors);
}

/// Rejects an end of the list that the paginator cannot reach.
fn check_end(definition: &FeedDefinition, fields: &Fields, errors: &mut DefinitionErrors) {
    let (paginator, at) = (&definition.paginator, fields.at("trust"));
    let word = paginator.word();
    let is_single = matches!(paginator, Paginator::SinglePage);
    let is_auto = matches!(paginator, Paginator::Auto { .. });
    let has_positions = matches!(
        paginator,
        Paginator::PageNumber { .. } | Paginator::Offset { .. } | Paginator::GraphqlOffset { .. }
    );
    match &definition.trust.end {
        EndRule::ShortPage if is_single => {
            let message = "a single page has no size, so `end: short_page` cannot be used";
            errors.hint(at, message, "remove `end`");
        }
        EndRule::ShortPage if !paginator.has_limit() && !is_auto && !has_limit_key(fields) => {
            let message =
                format!("`end: short_page` needs the page size, but the paginator `{word}` has none");
            errors.hint(
                at,
                message,
                "write `limit` and `limit_param` in `paginator`, or use `end: empty_page`",
            );
        }
        EndRule::NoNext if has_positions => {
            let message = format!("the paginator `{word}` has no cursor, so `end: no_next` cannot be used");
            errors.hint(at, message, "use `end: empty_page`, `short_page`, `has_more` or `total`");
        }
        EndRule::NoNext if matches!(paginator, Paginator::Keyset { .. }) => {
            let message = "a keyset always has a next key, so `end: no_next` cannot be used";
            errors.hint(at, message, "use `end: empty_page`, `short_page`, `has_more` or `total`");
        }
        EndRule::EmptyPage | EndRule::ShortPage | EndRule::HasMore(_) | EndRule::Total | EndRule::NoNext => {}
    }
}

fn has_limit_key(fields: &Fields) -> bool {
    let mut unused = DefinitionErrors::default();
    fields.child("paginator", &mut unused).is_some_and(|fields| fields.has("limit"))
}

/// Rejects parameters in the body of a request that has none.
fn check_bodies(definition: &FeedDefinition, fields: &Fields, errors: &mut DefinitionErrors) {
    let request = &definition.resource.request;
    if request.method == Method::Post {
        return;
    }
    let is_body = |target: &ParamTarget| matches!(target, ParamTarget::Body(_));
    let in_paginator = match &definition.paginator {
        Paginator::PageNumber { page, size, .. } => is_body(page) || size.as_ref().is_some_and(is_body),
        Paginator::Offset { offset, limit, .. } => is_body(offset) || limit.as_ref().is_some_and(is_body),
        Paginator::Cursor { cursor, limit, .. }
        | Paginator::HeaderCursor { cursor, limit, .. }
        | Paginator::Keyset { cursor, limit, .. } => is_body(cursor) || limit.as_ref().is_some_and(is_body),
        Paginator::JsonLink { limit, .. }
        | Paginator::HeaderUrl { limit, .. }
        | Paginator::HeaderLink { limit, .. } => limit.as_ref().is_some_and(is_body),
        Paginator::SinglePage
        | Paginator::GraphqlOffset { .. }
        | Paginator::GraphqlConnection { .. }
        | Paginator::Auto { .. } => false,
    };
    let in_incremental =
        definition.incremental.as_ref().is_some_and(|incremental| is_body(&incremental.start));
    let in_partition = match &definition.partition {
        Partition::None => false,
        Partition::Heatmap { range, .. } | Partition::TimeWindows { range, .. } => {
            is_body(&range.from) || is_body(&range.to)
        }
        Partition::Values { param, .. } => is_body(param),
    };
    let in_lookup = match &definition.deletes.lookup {
        Some(Lookup::Ids { param, .. }) => is_body(param),
        Some(Lookup::GoneStatus { .. }) | None => false,
    };
    let sections = [
        ("paginator", in_paginator),
        ("incremental", in_incremental),
        ("partition", in_partition),
        ("deletes", in_lookup),
    ];
    for (section, _) in sections.into_iter().filter(|(_, is_used)| *is_used) {
        let message = format!("`{section}` sets a value in the body, but a GET request has none");
        errors.hint(
            fields.at(section),
            message,
            "write `json:` or `graphql:` in `resource`, or use a query parameter",
        );
    }
}

/// Rejects GraphQL paginators and variables without a GraphQL body.
fn check_graphql(definition: &FeedDefinition, fields: &Fields, errors: &mut DefinitionErrors) {
    let is_graphql = definition.resource.request.body.as_ref().is_some_and(super::Body::is_graphql);
    if is_graphql {
        return;
    }
    let hint = "write `graphql:` with `query:` in `resource`";
    if let Paginator::GraphqlOffset { .. } | Paginator::GraphqlConnection { .. } = &definition.paginator {
        let message = format!("the paginator `{}` needs a GraphQL request", definition.paginator.word());
        errors.hint(fields.at("paginator"), message, hint);
    }
    if let Auth::Login(login) = &definition.client.auth
        && let TokenLocation::Variable(name) = &login.location
    {
        errors.hint(
            fields.at("client"),
            format!("the token variable `{name}` needs a GraphQL request"),
            hint,
        );
    }
}

fn check_deletes(definition: &FeedDefinition, fields: &Fields, errors: &mut DefinitionErrors) {
    let deletes = &definition.deletes;
    let at = fields.at("deletes");
    if definition.resource.primary_key.len() > 1 && deletes.lookup.is_some() {
        errors.hint(at, "records with a composite id cannot be looked up by id", "remove `lookup`");
    }
    if definition.into.write_disposition == WriteDisposition::Append
        && (deletes.flag.is_some() || deletes.lookup.is_some())
    {
        let message = "`write_disposition: append` keeps every version, so deletes do not apply";
        errors.hint(at, message, "remove `deletes`, or write `write_disposition: merge`");
    }
    if definition.into.write_disposition == WriteDisposition::Replace && definition.incremental.is_some() {
        let message = "`write_disposition: replace` reads all records, so it cannot be incremental";
        errors.hint(
            fields.at("incremental"),
            message,
            "remove `incremental`, or write `write_disposition: merge`",
        );
    }
}

fn check_partition(definition: &FeedDefinition, fields: &Fields, errors: &mut DefinitionErrors) {
    let Partition::Heatmap { count, .. } = &definition.partition else { return };
    let is_sequential = definition.paginator.access() == PageAccess::Sequential;
    // The count of the smallest page needs a request with a limit, or a request of its own.
    if count.request.is_none() && is_sequential && matches!(definition.paginator, Paginator::SinglePage) {
        let message = "a single page is read completely for each count";
        errors.hint(
            fields.at("partition"),
            message,
            "remove `partition`, or add a count request with `path:`",
        );
    }
}
