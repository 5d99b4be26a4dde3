//! What a command left: matched by pattern, measured, and kept for those that need it.

use crate::artifacts::{copy, copy_file};
use crate::beneath::{Kind, Root};
use crate::executor::Fault;
use crate::home::make_dir;
use crate::place::remove_all;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use tidemill_core::graph::pattern::Pattern;
use tidemill_core::limits;
use tidemill_core::task::Output;
use tidemill_supervisor::Mask;

/// What a directory may hold before we stop to look at it.
const ENTRIES_MAX: usize = 1_000_000;
/// Files that are named as a hint.
const HINTS_MAX: usize = 20;
/// Characters of such a name.
const HINT_CHARS_MAX: usize = 200;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Files that match.
    pub(crate) outputs: Vec<Output>,
    /// Names and patterns of outputs that nothing matched.
    pub(crate) unmatched: Vec<String>,
    /// Files that are new and match nothing.
    pub(crate) hint: Vec<String>,
}

/// Looks for what patterns match below a directory, and measures it. `brought` is what was there before, by its
/// SHA-256. No name of a file is told without the mask.
pub(crate) fn find(
    work: &Path,
    patterns: &BTreeMap<String, Pattern>,
    brought: &BTreeMap<&str, &str>,
    mask: &Mask,
    halt: &AtomicBool,
) -> Result<Found, Fault> {
    let failed =
        |error: io::Error| Fault::passing(format!("what the command left could not be looked at: {error}"));
    let mut found = Found::default();
    if patterns.is_empty() {
        return Ok(found);
    }
    let root = Root::open(work).map_err(failed)?;
    let mut matched = BTreeSet::new();
    let mut waiting = vec![OsString::new()];
    let mut seen = 0;
    while let Some(dir) = waiting.pop() {
        let entries = match root.entries(&dir) {
            Ok(entries) => entries,
            // A directory that the command took its own rights from holds nothing for anybody.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            Err(error) => return Err(failed(error)),
        };
        seen += entries.len();
        if seen > ENTRIES_MAX {
            return Err(Fault::fatal(format!("the command left more than {ENTRIES_MAX} files")));
        }
        for entry in entries {
            let mut path = dir.clone();
            if !path.is_empty() {
                path.push("/");
            }
            path.push(entry.name);
            let shown = mask.hide(&escaped(&path));
            let is_match = || patterns.values().any(|pattern| pattern.matches(&path.to_string_lossy()));
            match (entry.kind, path.to_str()) {
                (Kind::Dir, _) => waiting.push(path),
                (Kind::File, Some(path)) => {
                    let tools = Tools { root: &root, patterns, brought, halt };
                    take_file(&tools, path, &shown, &mut matched, &mut found)?;
                }
                (Kind::File, None) if is_match() => {
                    let why = "matches an output and is not UTF-8, so it cannot be handed on: rename it";
                    return Err(Fault::fatal(format!("the file name `{shown}` {why}")));
                }
                (Kind::File, None) => hint(&mut found.hint, &shown),
                (Kind::Link | Kind::Other, _) if is_match() => {
                    let what = if entry.kind == Kind::Link { "a symbolic link" } else { "no plain file" };
                    hint(&mut found.hint, &format!("{shown} ({what})"));
                }
                (Kind::Link | Kind::Other, _) => {}
            }
        }
    }
    let unmatched = patterns.iter().filter(|(name, _)| !matched.contains(*name));
    found.unmatched = unmatched.map(|(name, pattern)| format!("{name} ({})", pattern.as_str())).collect();
    if found.unmatched.is_empty() {
        found.hint.clear();
    }
    found.outputs.sort_unstable_by(|one, other| (&one.name, &one.path).cmp(&(&other.name, &other.path)));
    Ok(found)
}

/// What files are looked at with.
struct Tools<'a> {
    root: &'a Root,
    patterns: &'a BTreeMap<String, Pattern>,
    brought: &'a BTreeMap<&'a str, &'a str>,
    halt: &'a AtomicBool,
}

/// Takes a file that matches; `shown` is its path as it may be told.
fn take_file(
    tools: &Tools<'_>,
    path: &str,
    shown: &str,
    matched: &mut BTreeSet<String>,
    found: &mut Found,
) -> Result<(), Fault> {
    let Tools { root, patterns, brought, halt } = tools;
    let names: Vec<&String> =
        patterns.iter().filter(|(_, pattern)| pattern.matches(path)).map(|(name, _)| name).collect();
    if names.is_empty() {
        if !brought.contains_key(path) {
            hint(&mut found.hint, shown);
        }
        return Ok(());
    }
    // A path is handed on as it is, to the server and to other agents.
    if shown != escaped(OsStr::new(path)) {
        let why = "matches an output and holds the value of a secret: rename it";
        return Err(Fault::fatal(format!("the file name `{shown}` {why}")));
    }
    let measured = root.read(path).and_then(|file| copy(file, io::sink(), halt));
    let (sha256, bytes) =
        measured.map_err(|error| Fault::passing(format!("`{shown}` could not be read: {error}")))?;
    // What was brought and is as it was is not what this job left.
    if brought.get(path) == Some(&sha256.as_str()) {
        return Ok(());
    }
    for name in names {
        matched.insert(name.clone());
        if found.outputs.len() == limits::OUTPUTS_MAX {
            return Err(Fault::fatal(format!("more than {} files match", limits::OUTPUTS_MAX)));
        }
        found.outputs.push(Output {
            name: name.clone(),
            path: path.to_owned(),
            size_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            sha256: sha256.clone(),
            url: None,
        });
    }
    Ok(())
}

/// A path as it is told: bytes that are not UTF-8, and control characters, are escaped.
fn escaped(path: &OsStr) -> String {
    let mut told = String::new();
    for chunk in path.as_bytes().utf8_chunks() {
        for symbol in chunk.valid().chars() {
            if symbol.is_control() { told.extend(symbol.escape_default()) } else { told.push(symbol) }
        }
        for byte in chunk.invalid() {
            let _ = write!(told, "\\x{byte:02X}");
        }
    }
    told
}

fn hint(hints: &mut Vec<String>, path: &str) {
    if hints.len() < HINTS_MAX {
        hints.push(path.chars().take(HINT_CHARS_MAX).collect());
    }
}

/// Keeps what was found under `kept`, instead of what an earlier attempt left there.
///
/// A file gets a second name where that is possible: its first one goes with the task's directory.
pub(crate) fn keep(work: &Path, outputs: &[Output], kept: &Path, halt: &AtomicBool) -> io::Result<()> {
    let mut beside = kept.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let kept = keep_beside(work, outputs, beside, halt).and_then(|()| {
        remove_all(kept)?;
        std::fs::rename(beside, kept)
    });
    if kept.is_err() {
        // A half is of no use, and takes space that may be what was missing.
        let _ = remove_all(beside);
    }
    kept
}

fn keep_beside(work: &Path, outputs: &[Output], beside: &Path, halt: &AtomicBool) -> io::Result<()> {
    remove_all(beside)?;
    make_dir(beside)?;
    let (from, to) = (Root::open(work)?, Root::open(beside)?);
    let paths: BTreeSet<&str> = outputs.iter().map(|output| output.path.as_str()).collect();
    for path in paths {
        if !from.link(path, &to)? {
            copy_file(from.read(path)?, &to.create(path)?, halt)?;
        }
        // What is promised to others must last.
        to.read(path)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn patterns(pairs: &[(&str, &str)]) -> BTreeMap<String, Pattern> {
        pairs.iter().map(|(name, pattern)| ((*name).to_owned(), pattern.parse().unwrap())).collect()
    }

    fn look(work: &Path, pairs: &[(&str, &str)], brought: &[(&str, &str)]) -> Found {
        let brought = brought.iter().copied().collect();
        find(work, &patterns(pairs), &brought, &Mask::default(), &AtomicBool::new(false)).unwrap()
    }

    const X: &str = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";

    #[test]
    fn what_matches_is_measured_and_what_does_not_is_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("out dir/ü")).unwrap();
        fs::write(dir.path().join("out dir/ü/part 1.csv"), "x").unwrap();
        fs::write(dir.path().join("sumary.txt"), "").unwrap();
        fs::write(dir.path().join("brought.txt"), "x").unwrap();
        let wanted = [("parts", "out dir/*/part *.csv"), ("summary", "summary.txt")];
        let found = look(dir.path(), &wanted, &[("brought.txt", X)]);
        let path = "out dir/ü/part 1.csv".to_owned();
        let sha256 = X.to_owned();
        let output = Output { name: "parts".to_owned(), path, size_bytes: 1, sha256, url: None };
        assert_eq!(found.outputs, [output]);
        assert_eq!(
            (found.unmatched, found.hint),
            (vec!["summary (summary.txt)".to_owned()], vec!["sumary.txt".to_owned()])
        );
    }

    #[test]
    fn what_was_brought_counts_only_when_it_was_changed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.csv"), "x").unwrap();
        assert_eq!(look(dir.path(), &[("all", "*.csv")], &[("a.csv", X)]).unmatched, ["all (*.csv)"]);
        fs::write(dir.path().join("a.csv"), "y").unwrap();
        assert_eq!(look(dir.path(), &[("all", "*.csv")], &[("a.csv", X)]).outputs.len(), 1);
    }

    #[test]
    fn links_are_not_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret.csv"), "x").unwrap();
        symlink(outside.path(), dir.path().join("way")).unwrap();
        symlink(outside.path().join("secret.csv"), dir.path().join("a.csv")).unwrap();
        symlink(dir.path(), dir.path().join("round")).unwrap();
        let found = look(dir.path(), &[("all", "*.csv"), ("deep", "way/*.csv"), ("loop", "round/*")], &[]);
        assert_eq!(found.outputs, []);
        assert_eq!(found.hint, ["a.csv (a symbolic link)"]);
    }

    #[test]
    fn what_is_kept_replaces_what_was() {
        let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let kept = kept.path().join("w/job");
        for text in ["old", "new"] {
            fs::create_dir_all(dir.path().join("a")).unwrap();
            let _ = fs::remove_file(dir.path().join("a/b"));
            fs::write(dir.path().join("a/b"), text).unwrap();
            let found = look(dir.path(), &[("b", "a/b")], &[]);
            keep(dir.path(), &found.outputs, &kept, &AtomicBool::new(false)).unwrap();
            assert_eq!(fs::read_to_string(kept.join("a/b")).unwrap(), text);
        }
        keep(dir.path(), &[], &kept, &AtomicBool::new(false)).unwrap();
        assert!(!kept.join("a").exists());
    }

    #[test]
    fn a_large_file_is_left_when_told_to_halt() {
        let dir = tempfile::tempdir().unwrap();
        fs::File::create(dir.path().join("large")).unwrap().set_len(1 << 40).unwrap();
        let (wanted, mask) = (patterns(&[("l", "large")]), Mask::default());
        let halted = find(dir.path(), &wanted, &BTreeMap::new(), &mask, &AtomicBool::new(true));
        assert!(halted.is_err());
    }
}
