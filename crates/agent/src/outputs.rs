//! Collects the outputs of a command: matches them by pattern, computes their SHA-256 and retains them.

use crate::agent_dir::make_dir;
use crate::artifacts::{copy, copy_file};
use crate::confined_dir::{ConfinedDir, EntryKind};
use crate::executor::TaskError;
use crate::task_dir::remove_all;
use crate::task_users;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use tidemill_core::glob::Glob;
use tidemill_core::graph::pattern::Pattern;
use tidemill_core::limits;
use tidemill_core::task::Output;
use tidemill_supervisor::Mask;

/// Maximum number of files in the working directory.
const ENTRIES_MAX: usize = 1_000_000;
/// Maximum number of unmatched files that are reported as a hint.
const HINTS_MAX: usize = 20;
/// Maximum length of such a file name.
const HINT_CHARS_MAX: usize = 200;

/// Outputs found in the working directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CollectedOutputs {
    pub(crate) outputs: Vec<Output>,
    /// Names and patterns of outputs without a matching file.
    pub(crate) unmatched: Vec<String>,
    /// New files that match no pattern.
    pub(crate) hint: Vec<String>,
}

/// Finds the files below a directory that match a pattern.
///
/// `inputs` maps the paths of the input files to their SHA-256. Secrets in reported file names are masked.
pub(crate) fn collect(
    work: &Path,
    patterns: &BTreeMap<String, Pattern>,
    inputs: &BTreeMap<&str, &str>,
    mask: &Mask,
    cancelled: &AtomicBool,
) -> Result<CollectedOutputs, TaskError> {
    let failed = |error: io::Error| {
        TaskError::transient(format!("could not read the working directory of the command: {error}"))
    };
    let mut found = CollectedOutputs::default();
    if patterns.is_empty() {
        return Ok(found);
    }
    let globs: Vec<(&String, Glob)> = patterns.iter().map(|(name, pattern)| (name, pattern.glob())).collect();
    let root = ConfinedDir::open(work).map_err(failed)?;
    let context = MatchContext { root: &root, globs: &globs, inputs, cancelled };
    let mut matched = BTreeSet::new();
    let mut pending = vec![OsString::new()];
    let mut files = 0;
    while let Some(dir) = pending.pop() {
        let entries = match root.entries(&dir) {
            Ok(entries) => entries,
            // The command removed its own access to this directory.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            Err(error) => return Err(failed(error)),
        };
        files += entries.len();
        if files > ENTRIES_MAX {
            return Err(TaskError::fatal(format!("the working directory has more than {ENTRIES_MAX} files")));
        }
        for entry in entries {
            let mut path = dir.clone();
            if !path.is_empty() {
                path.push("/");
            }
            path.push(entry.name);
            let shown = mask.hide(&escaped(&path));
            let is_match = || globs.iter().any(|(_, glob)| glob.matches(&path.to_string_lossy()));
            match (entry.kind, path.to_str()) {
                (EntryKind::Dir, _) => pending.push(path),
                (EntryKind::File, Some(path)) => {
                    add_file(&context, path, &shown, &mut matched, &mut found)?;
                }
                (EntryKind::File, None) if is_match() => {
                    let why = "matches an output but is not valid UTF-8: rename it";
                    return Err(TaskError::fatal(format!("the file name `{shown}` {why}")));
                }
                (EntryKind::File, None) => hint(&mut found.hint, &shown),
                (EntryKind::Link | EntryKind::Other, _) if is_match() => {
                    let what =
                        if entry.kind == EntryKind::Link { "a symbolic link" } else { "not a regular file" };
                    hint(&mut found.hint, &format!("{shown} ({what})"));
                }
                (EntryKind::Link | EntryKind::Other, _) => {}
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

/// Parameters that apply to all files.
struct MatchContext<'a> {
    root: &'a ConfinedDir,
    globs: &'a [(&'a String, Glob)],
    inputs: &'a BTreeMap<&'a str, &'a str>,
    cancelled: &'a AtomicBool,
}

/// Adds a file that matches; `shown` is its masked path.
fn add_file(
    context: &MatchContext<'_>,
    path: &str,
    shown: &str,
    matched: &mut BTreeSet<String>,
    found: &mut CollectedOutputs,
) -> Result<(), TaskError> {
    let MatchContext { root, globs, inputs, cancelled } = context;
    let names: Vec<&String> =
        globs.iter().filter(|(_, glob)| glob.matches(path)).map(|(name, _)| *name).collect();
    if names.is_empty() {
        if !inputs.contains_key(path) {
            hint(&mut found.hint, shown);
        }
        return Ok(());
    }
    // The path of an output is sent unmasked to the server and to other agents.
    if shown != escaped(OsStr::new(path)) {
        let why = "matches an output but contains the value of a secret: rename it";
        return Err(TaskError::fatal(format!("the file name `{shown}` {why}")));
    }
    let copied = root.read(path).and_then(|file| copy(file, io::sink(), cancelled));
    let (sha256, bytes) =
        copied.map_err(|error| TaskError::transient(format!("could not read `{shown}`: {error}")))?;
    // Unmodified inputs are not outputs.
    if inputs.get(path) == Some(&sha256.as_str()) {
        return Ok(());
    }
    for name in names {
        matched.insert(name.clone());
        if found.outputs.len() == limits::OUTPUTS_MAX {
            return Err(TaskError::fatal(format!(
                "more than {} files match the outputs",
                limits::OUTPUTS_MAX
            )));
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

/// Converts a path to text: invalid UTF-8 and control characters are escaped.
fn escaped(path: &OsStr) -> String {
    let mut text = String::new();
    for chunk in path.as_bytes().utf8_chunks() {
        for symbol in chunk.valid().chars() {
            if symbol.is_control() { text.extend(symbol.escape_default()) } else { text.push(symbol) }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    text
}

fn hint(hints: &mut Vec<String>, path: &str) {
    if hints.len() < HINTS_MAX {
        hints.push(path.chars().take(HINT_CHARS_MAX).collect());
    }
}

/// Retains outputs in the directory `retained`, replacing those of an earlier attempt.
///
/// Files are hard-linked if possible, because the task directory is removed later.
pub(crate) fn retain(
    work: &Path,
    outputs: &[Output],
    retained: &Path,
    cancelled: &AtomicBool,
) -> io::Result<()> {
    let mut temporary = retained.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = Path::new(&temporary);
    let result = copy_outputs(work, outputs, temporary, cancelled).and_then(|()| {
        remove_all(retained)?;
        std::fs::rename(temporary, retained)
    });
    if result.is_err() {
        // An incomplete copy is useless, and uses disk space that may have been missing.
        let _ = remove_all(temporary);
    }
    result
}

fn copy_outputs(work: &Path, outputs: &[Output], to: &Path, cancelled: &AtomicBool) -> io::Result<()> {
    remove_all(to)?;
    make_dir(to)?;
    let (from, to) = (ConfinedDir::open(work)?, ConfinedDir::open(to)?);
    let paths: BTreeSet<&str> = outputs.iter().map(|output| output.path.as_str()).collect();
    for path in paths {
        if !from.link(path, &to)? {
            copy_file(from.read(path)?, &to.create(path)?, cancelled)?;
        }
        let retained = to.read(path)?;
        task_users::take_over(&retained)?;
        // Reported outputs must survive a power loss.
        retained.sync_all()?;
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

    fn collect_all(work: &Path, pairs: &[(&str, &str)], inputs: &[(&str, &str)]) -> CollectedOutputs {
        let inputs = inputs.iter().copied().collect();
        collect(work, &patterns(pairs), &inputs, &Mask::default(), &AtomicBool::new(false)).unwrap()
    }

    const X: &str = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";

    #[test]
    fn matching_files_are_outputs_and_new_files_are_hints() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("out dir/ü")).unwrap();
        fs::write(dir.path().join("out dir/ü/part 1.csv"), "x").unwrap();
        fs::write(dir.path().join("sumary.txt"), "").unwrap();
        fs::write(dir.path().join("brought.txt"), "x").unwrap();
        let wanted = [("parts", "out dir/*/part *.csv"), ("summary", "summary.txt")];
        let found = collect_all(dir.path(), &wanted, &[("brought.txt", X)]);
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
    fn input_is_an_output_only_if_it_was_changed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.csv"), "x").unwrap();
        assert_eq!(collect_all(dir.path(), &[("all", "*.csv")], &[("a.csv", X)]).unmatched, ["all (*.csv)"]);
        fs::write(dir.path().join("a.csv"), "y").unwrap();
        assert_eq!(collect_all(dir.path(), &[("all", "*.csv")], &[("a.csv", X)]).outputs.len(), 1);
    }

    #[test]
    fn symbolic_links_are_not_outputs() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret.csv"), "x").unwrap();
        symlink(outside.path(), dir.path().join("way")).unwrap();
        symlink(outside.path().join("secret.csv"), dir.path().join("a.csv")).unwrap();
        symlink(dir.path(), dir.path().join("round")).unwrap();
        let found =
            collect_all(dir.path(), &[("all", "*.csv"), ("deep", "way/*.csv"), ("loop", "round/*")], &[]);
        assert_eq!(found.outputs, []);
        assert_eq!(found.hint, ["a.csv (a symbolic link)"]);
    }

    #[test]
    fn retained_outputs_replace_earlier_ones() {
        let (dir, retained) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let retained = retained.path().join("w/job");
        for text in ["old", "new"] {
            fs::create_dir_all(dir.path().join("a")).unwrap();
            let _ = fs::remove_file(dir.path().join("a/b"));
            fs::write(dir.path().join("a/b"), text).unwrap();
            let found = collect_all(dir.path(), &[("b", "a/b")], &[]);
            retain(dir.path(), &found.outputs, &retained, &AtomicBool::new(false)).unwrap();
            assert_eq!(fs::read_to_string(retained.join("a/b")).unwrap(), text);
        }
        retain(dir.path(), &[], &retained, &AtomicBool::new(false)).unwrap();
        assert!(!retained.join("a").exists());
    }

    #[test]
    fn cancelled_collection_fails_early() {
        let dir = tempfile::tempdir().unwrap();
        fs::File::create(dir.path().join("large")).unwrap().set_len(1 << 40).unwrap();
        let (wanted, mask) = (patterns(&[("l", "large")]), Mask::default());
        let result = collect(dir.path(), &wanted, &BTreeMap::new(), &mask, &AtomicBool::new(true));
        assert!(result.is_err());
    }
}
