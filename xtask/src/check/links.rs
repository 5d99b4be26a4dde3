//! Links between the pages of the documentation: files and anchors exist, and the book has each page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use super::Finding;
use crate::workspace::{files, has_extension};

/// The table of contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Folders whose pages need no entry in the table of contents.
const OUTSIDE_BOOK: [&str; 1] = ["docs/history/"];

/// A link with its line.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    line: usize,
    target: String,
}

/// Returns one finding for each broken link and for each page that the book does not list.
pub(crate) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut pages = BTreeMap::new();
    for path in files(root)?.into_iter().filter(|path| has_extension(path, "md")) {
        let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
        pages.insert(name, fs::read_to_string(&path)?);
    }
    let mut findings = Vec::new();
    for (page, text) in &pages {
        for Link { line, target } in links(text) {
            if let Some(problem) = problem(root, &pages, page, &target) {
                findings.push(Finding::new(page.to_string_lossy(), line, format!("{problem}: `{target}`")));
            }
        }
    }
    findings.extend(unlisted(&pages));
    Ok(findings)
}

/// Pages of `docs/` that the table of contents does not link.
fn unlisted(pages: &BTreeMap<PathBuf, String>) -> Vec<Finding> {
    let Some(summary) = pages.get(Path::new(SUMMARY)) else { return Vec::new() };
    let listed: BTreeSet<PathBuf> =
        links(summary).iter().map(|link| normal(&Path::new("docs").join(&link.target))).collect();
    let is_page = |page: &&PathBuf| {
        page.starts_with("docs")
            && **page != Path::new(SUMMARY)
            && !OUTSIDE_BOOK.iter().any(|folder| page.starts_with(folder))
    };
    let missing = pages.keys().filter(is_page).filter(|page| !listed.contains(*page));
    missing
        .map(|page| {
            Finding::new(page.to_string_lossy(), 1, format!("the page is not in {SUMMARY}; add a line there"))
        })
        .collect()
}

/// The reason why a link does not work, or `None`.
fn problem(
    root: &Path,
    pages: &BTreeMap<PathBuf, String>,
    page: &Path,
    target: &str,
) -> Option<&'static str> {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() {
        page.to_owned()
    } else {
        normal(&page.parent().unwrap_or(Path::new("")).join(file))
    };
    if !root.join(&path).exists() {
        return Some("the link leads to a file that does not exist");
    }
    let anchor = anchor?;
    let known = pages.get(&path).is_some_and(|text| anchors(text).contains(anchor));
    (!known).then_some("no heading has the anchor of the link")
}

/// The targets of the links of a page that lead out of `docs/`. They work in the repository, and not in the book.
pub(crate) fn leaving(page: &Path, text: &str) -> Vec<String> {
    let folder = page.parent().unwrap_or(Path::new(""));
    let is_outside =
        |target: &String| !target.contains("://") && !normal(&folder.join(target)).starts_with("docs");
    links(text).into_iter().map(|link| link.target).filter(is_outside).collect()
}

/// Removes `.` and `..` from a path.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => normal.push(part),
        }
    }
    normal
}

/// The lines of a page that are not in a fenced code block, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        !inside && !is_fence
    })
}

/// The inline links and images of a page.
fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    // A link may have a line break between its text and its target.
    let mut is_open = false;
    for (line, text) in prose(text) {
        let text = without_code(text);
        let mut rest = text.as_str();
        if is_open && let Some(after) = rest.strip_prefix('(') {
            rest = after;
            if let Some((target, _)) = rest.split_once(')') {
                links.push(Link { line, target: target.to_owned() });
            }
        }
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, left)) = after.split_once(')') else { break };
            links.push(Link { line, target: target.split(' ').next().unwrap_or_default().to_owned() });
            rest = left;
        }
        is_open = text.ends_with(']');
    }
    links
}

/// The line without its code spans, in which brackets are no links.
fn without_code(line: &str) -> String {
    if line.matches('`').count() % 2 == 1 {
        return line.to_owned();
    }
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// The anchors of the headings of a page. A repeated heading gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        let is_heading = heading.len() < line.len() && heading.starts_with(' ');
        if !is_heading {
            continue;
        }
        let anchor = anchor(heading);
        let mut unique = anchor.clone();
        for number in 1.. {
            if anchors.insert(unique.clone()) {
                break;
            }
            unique = format!("{anchor}-{number}");
        }
    }
    anchors
}

/// The anchor of a heading: lower case, hyphens for spaces, and no punctuation.
fn anchor(heading: &str) -> String {
    let text = heading.trim().to_lowercase();
    let kept =
        text.chars().filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_'));
    kept.map(|character| if character == ' ' { '-' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{shown, tree};
    use super::*;

    #[test]
    fn broken_links_and_anchors_are_reported() {
        let root = tree(&[
            (
                "README.md",
                "[a](docs/a.md#two-words) [b](docs/no.md) [c](https://example.com/no) `[d](no.md)`\n",
            ),
            (
                "docs/a.md",
                "# A\n## Two `words`\n[up](../README.md) [here](#a) [no](#b)\n```\n[x](no.md)\n# b\n```\n[z]\n(b.md)\n",
            ),
            ("docs/b.md", "# B\n## Same\n## Same\n[second](#same-1)\n"),
            ("docs/SUMMARY.md", "- [A](a.md)\n"),
        ]);
        assert_eq!(
            shown(&findings(root.path()).unwrap()),
            [
                "README.md:1: the link leads to a file that does not exist: `docs/no.md`",
                "docs/a.md:3: no heading has the anchor of the link: `#b`",
                "docs/b.md:1: the page is not in docs/SUMMARY.md; add a line there",
            ]
        );
    }

    #[test]
    fn links_that_leave_the_book_are_found() {
        let text = "[a](../README.md) [b](b.md#c) [c](../../README.md) [d](https://example.com) [e](#e)";
        assert_eq!(leaving(Path::new("docs/a.md"), text), ["../README.md", "../../README.md"]);
        assert_eq!(leaving(Path::new("docs/adr/a.md"), text), ["../../README.md"]);
    }

    #[test]
    fn anchors_are_those_of_the_book() {
        assert_eq!(anchor(" `worker.dead-after` and what, if…"), "workerdead-after-and-what-if");
    }
}
