//! Next URLs: their check against the request's URL, and the header `Link`.

use super::{PaginationError, excerpt};
use crate::feed_definition::paging::Paginator;
use url::Url;

/// Resolves a link against the URL of the request. It must stay on the same scheme, host and port.
pub(super) fn next_url(request: &str, link: &str) -> Result<String, PaginationError> {
    let invalid = || PaginationError::InvalidUrl { url: excerpt(link) };
    let base = Url::parse(request).map_err(|_| invalid())?;
    let mut url = base.join(link).map_err(|_| invalid())?;
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return Err(invalid());
    }
    if url.origin() != base.origin() {
        let (host, allowed) = (url.origin().ascii_serialization(), base.origin().ascii_serialization());
        return Err(PaginationError::ForeignUrl { host, allowed });
    }
    url.set_fragment(None);
    Ok(url.into())
}

/// Returns whether a token is the URL of the request itself.
pub(super) fn is_same_url(paginator: &Paginator, request: &str, token: &str) -> bool {
    let has_urls = matches!(
        paginator,
        Paginator::JsonLink { .. } | Paginator::HeaderUrl { .. } | Paginator::HeaderLink { .. }
    );
    has_urls && Url::parse(request).is_ok_and(|url| url.as_str() == token)
}

/// Returns the target of a relation in a header such as `<https://a/b?page=2>; rel="next"`.
pub(super) fn target<'a>(header: &'a str, relation: &str) -> Option<&'a str> {
    let mut rest = header;
    loop {
        let (_, after) = rest.split_once('<')?;
        let (target, after) = after.split_once('>')?;
        // The parameters end at the next link.
        let end = after.find('<').unwrap_or(after.len());
        if has_relation(&after[..end], relation) {
            return Some(target);
        }
        rest = &after[end..];
    }
}

fn has_relation(params: &str, relation: &str) -> bool {
    params.split(';').any(|param| {
        let Some((name, value)) = param.split_once('=') else { return false };
        let value = value.trim().trim_end_matches(',').trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("rel")
            && value.split_ascii_whitespace().any(|word| word.eq_ignore_ascii_case(relation))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_header_names_the_next_page() {
        let github = concat!(
            r#"<https://a/x?page=1>; rel="prev", <https://a/x?page=3,4>; rel="next", "#,
            r#"<https://a/x?page=9>; rel="last""#
        );
        assert_eq!(target(github, "next"), Some("https://a/x?page=3,4"));
        for (header, expected) in [
            ("</x?p=2>; rel=next", Some("/x?p=2")),
            ("<b>; title=\"a\"; rel=\"last next\"", Some("b")),
            ("<b>; rel=\"prev\"", None),
            ("<b>; rel=\"nextish\"", None),
            ("", None),
            ("<b", None),
        ] {
            assert_eq!(target(header, "next"), expected, "{header}");
        }
    }

    #[test]
    fn next_url_stays_on_the_origin_of_the_request() {
        let request = "https://api.example.com/v1/orders?page=1";
        for (link, expected) in [
            ("https://api.example.com/v1/orders?page=2", "https://api.example.com/v1/orders?page=2"),
            ("/v1/orders?page=2#top", "https://api.example.com/v1/orders?page=2"),
            ("?page=2", "https://api.example.com/v1/orders?page=2"),
            ("https://API.example.com:443/x", "https://api.example.com/x"),
        ] {
            assert_eq!(next_url(request, link).as_deref(), Ok(expected), "{link}");
        }
        for link in [
            "https://evil.example.com/x",
            "//evil.example.com/x",
            "http://api.example.com/x",
            "https://api.example.com:8443/x",
        ] {
            assert!(matches!(next_url(request, link), Err(PaginationError::ForeignUrl { .. })), "{link}");
        }
        for link in ["https://ali:hush@api.example.com/x", "file:///etc/passwd", "https://[", "javascript:1"]
        {
            assert!(matches!(next_url(request, link), Err(PaginationError::InvalidUrl { .. })), "{link}");
        }
    }
}
