//! Markup in place of JSON: an error page of a proxy, or an API that answers XML.

/// Bytes in which a page names its type.
const START_BYTES: usize = 1_024;

/// Returns a message if a body is markup instead of JSON. `subject` is the setting that holds the URL.
pub(crate) fn problem(body: &[u8], subject: &str) -> Option<String> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    if !body.starts_with(b"<") {
        return None;
    }
    let start = String::from_utf8_lossy(&body[..body.len().min(START_BYTES)]).to_ascii_lowercase();
    let is_html = start.contains("<html") || start.contains("<!doctype html");
    // XHTML also begins with an XML declaration.
    Some(if is_html {
        format!("answered HTML instead of JSON; check {subject}")
    } else if start.starts_with("<?xml") {
        "answered XML instead of JSON; ask for JSON, such as with the header `Accept: application/json`"
            .to_owned()
    } else {
        format!("answered HTML or XML instead of JSON; check {subject}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_named_by_its_start() {
        let kind = |body: &str| {
            let problem = problem(body.as_bytes(), "the URL")?;
            problem.split_once(" instead of JSON; ").map(|(kind, _)| kind.to_owned())
        };
        for (body, expected) in [
            ("<!DOCTYPE HTML><p>x", "answered HTML"),
            (" \n<HTML>", "answered HTML"),
            ("<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0\">", "answered HTML"),
            ("<?xml version=\"1.0\"?><items/>", "answered XML"),
            ("\u{feff}<?xml version=\"1.0\"?><items/>", "answered XML"),
            ("<h1>502 Bad Gateway</h1>", "answered HTML or XML"),
            ("<items/>", "answered HTML or XML"),
        ] {
            assert_eq!(kind(body).as_deref(), Some(expected), "{body}");
        }
        for body in ["", "{\"a\": \"<html>\"}", "Service <b>"] {
            assert_eq!(kind(body), None, "{body}");
        }
    }
}
