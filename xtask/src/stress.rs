//! `stress`: runs time-dependent tests repeatedly on a busy machine.
//!
//! A test that assumes that something has already happened passes on a quiet machine. Here it must pass repeatedly
//! beside processes that use every core. The tests are found by their sources, so there is no list to maintain.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::suites::Suite;
use crate::test::Server;
use crate::{out, setup, suites, workspace};

/// The hidden command of a busy process.
pub(crate) const BUSY: &str = "stress-busy";
/// Calls that wait for a time, or measure one.
const TIMED: [&str; 5] = ["sleep(", "timeout(", "elapsed()", "_within(", "deadline"];

/// The options of the command.
#[derive(Debug, PartialEq, Eq)]
struct Plan<'a> {
    passes: u32,
    busy: u32,
    /// Substrings of test names; empty selects the time-dependent tests.
    filters: Vec<&'a str>,
}

impl<'a> Plan<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Self> {
        let mut plan = Self { passes: 20, busy: 2, filters: Vec::new() };
        let mut words = arguments.iter().copied();
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|text| text.parse::<u32>().ok());
            match word {
                "--passes" => plan.passes = number().context("--passes needs a number")?,
                "--busy" => plan.busy = number().context("--busy needs a number")?,
                "--" => plan.filters = words.by_ref().collect(),
                other => bail!("`{other}` is not an option of stress; a filter comes after --"),
            }
        }
        ensure!(plan.passes > 0, "--passes must be at least 1");
        Ok(plan)
    }

    fn selects(&self, test: &str, timed: &BTreeSet<String>) -> bool {
        if self.filters.is_empty() {
            return test.rsplit("::").next().is_some_and(|name| timed.contains(name));
        }
        self.filters.iter().any(|filter| test.contains(filter))
    }
}

/// Runs the time-dependent tests, or those that match the filters, repeatedly beside busy processes.
pub(crate) fn stress(arguments: &[&str]) -> Result<ExitCode> {
    let plan = Plan::parse(arguments)?;
    setup::ensure_programs()?;
    let mut chosen = Vec::new();
    for suite in suites::build()? {
        let timed = timed_functions(&sources(&suite.source)?)?;
        let tests: Vec<String> =
            listed(&suite)?.into_iter().filter(|test| plan.selects(test, &timed)).collect();
        if !tests.is_empty() {
            chosen.push((suite, tests));
        }
    }
    ensure!(!chosen.is_empty(), "no test matches the filter");
    let server = Server::for_tests()?;
    let folder = workspace::target()?.join("stress");
    fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
    let _busy = Busy::start(plan.busy, || {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(BUSY);
        Ok(command)
    })?;
    let mut failures: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for pass in 1..=plan.passes {
        let started = Instant::now();
        let mut failed = 0;
        for (suite, tests) in &chosen {
            let log = folder.join(format!("pass-{pass}-{}.log", suite.name.replace('/', "-")));
            for test in run_tests(suite, tests, &server, &log)? {
                failed += 1;
                failures.entry(format!("{} {test}", suite.name)).or_default().push(log.clone());
            }
        }
        let count: usize = chosen.iter().map(|(_, tests)| tests.len()).sum();
        let seconds = started.elapsed().as_secs();
        out::line(format!("pass {pass} of {}: {count} tests, {failed} failed, {seconds} s", plan.passes));
    }
    Ok(report(&failures, plan.passes))
}

/// Keeps one core busy until the parent process ends.
pub(crate) fn busy() -> Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("could not follow the parent process")?;
    // If the parent has ended before this call, no signal will arrive.
    if getppid().is_none_or(rustix::process::Pid::is_init) {
        return Ok(ExitCode::FAILURE);
    }
    loop {
        std::hint::spin_loop();
    }
}

/// Busy child processes; they are killed when this is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: u32, command: impl Fn() -> Result<Command>) -> Result<Self> {
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let child = command()?.stdin(Stdio::null()).spawn().context("could not start a busy process")?;
            busy.0.push(child);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the source files of a test binary: its root, the files below it, and the conformance cases of the testkit.
fn sources(source: &Path) -> Result<Vec<PathBuf>> {
    let own = source.with_extension("");
    let is_root = ["main", "lib"].iter().any(|name| own.ends_with(name));
    let folder = if is_root { source.parent().map(Path::to_owned).unwrap_or_default() } else { own };
    let mut files = vec![source.to_owned()];
    if folder.is_dir() {
        files.extend(workspace::files(&folder)?);
    }
    let cases = workspace::root().join("crates/testkit/src/conformance");
    if source.ends_with("testkit/tests/conformance.rs") && cases.is_dir() {
        files.extend(workspace::files(&cases)?);
    }
    files.retain(|file| workspace::has_extension(file, "rs"));
    Ok(files)
}

/// Returns the function names of the files that wait for a time or measure one.
fn timed_functions(files: &[PathBuf]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))?;
        names.extend(timed_names(&text, is_product(file)));
    }
    Ok(names)
}

/// Whether a file belongs to the product; then only its test module counts.
fn is_product(file: &Path) -> bool {
    let has = |name: &str| file.iter().any(|part| part == name);
    has("src") && !has("testkit")
}

/// Returns the function names of a source text that waits for a time or measures one.
fn timed_names(text: &str, is_product: bool) -> Vec<String> {
    let tests =
        if is_product { text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests) } else { text };
    if !TIMED.iter().any(|call| tests.contains(call)) {
        return Vec::new();
    }
    let named = tests.lines().filter_map(|line| line.split_once("fn "));
    let name = |rest: &str| {
        rest.split(|letter: char| letter != '_' && !letter.is_alphanumeric()).next().map(str::to_owned)
    };
    named.filter_map(|(_, rest)| name(rest)).filter(|name| !name.is_empty()).collect()
}

/// Lists the tests of a suite that are not ignored.
fn listed(suite: &Suite) -> Result<Vec<String>> {
    let list = |more: &[&str]| -> Result<BTreeSet<String>> {
        let output = suite.command().args(["--list", "--format", "terse"]).args(more).output();
        let output = output.with_context(|| format!("could not list the tests of {}", suite.name))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    };
    let ignored = list(&["--ignored"])?;
    Ok(list(&[])?.into_iter().filter(|test| !ignored.contains(test)).collect())
}

/// Runs tests of one suite once, writes their output to a file, and returns the failed ones.
fn run_tests(suite: &Suite, tests: &[String], server: &Server, log: &Path) -> Result<Vec<String>> {
    let output = suite.command().envs(server.variables()).arg("--exact").args(tests).output();
    let output = output.with_context(|| format!("could not run {}", suite.name))?;
    let said = [output.stdout, output.stderr].concat();
    fs::write(log, &said).with_context(|| format!("could not write {}", log.display()))?;
    let mut failed = failed_tests(&String::from_utf8_lossy(&said));
    if !output.status.success() && failed.is_empty() {
        failed.push(format!("(ended with {})", output.status));
    }
    Ok(failed)
}

/// The tests that libtest says have failed.
fn failed_tests(said: &str) -> Vec<String> {
    let verdicts = said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    verdicts.map(|name| name.split(" - ").next().unwrap_or(name).to_owned()).collect()
}

/// The seed that a test printed, from the output of its suite.
fn seed_of(test: &str, said: &str) -> Option<String> {
    let (_, own) = said.split_once(&format!("---- {test} stdout ----"))?;
    let own = own.split("\n---- ").next().unwrap_or(own);
    let (_, seed) = own.split_once("TIDEMILL_SEED=")?;
    Some(seed.chars().take_while(char::is_ascii_digit).collect())
}

/// Says which tests failed how often, and where their output is.
fn report(failures: &BTreeMap<String, Vec<PathBuf>>, passes: u32) -> ExitCode {
    if failures.is_empty() {
        out::line(format!("no test failed in {passes} passes"));
        return ExitCode::SUCCESS;
    }
    for (test, logs) in failures {
        out::line(format!("{test} failed in {} of {passes} passes", logs.len()));
        let name = test.split_once(' ').map_or(test.as_str(), |(_, name)| name);
        for log in logs {
            let said = fs::read_to_string(log).unwrap_or_default();
            let seed =
                seed_of(name, &said).map_or_else(String::new, |seed| format!(" (TIDEMILL_SEED={seed})"));
            out::line(format!("    {}{seed}", log.display()));
        }
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_before_the_filter() {
        let plan = Plan::parse(&["--passes", "3", "--busy", "0", "--", "claim", "sync"]).unwrap();
        assert_eq!(plan, Plan { passes: 3, busy: 0, filters: vec!["claim", "sync"] });
        assert_eq!(Plan::parse(&[]).unwrap(), Plan { passes: 20, busy: 2, filters: Vec::new() });
        for bad in [&["--passes"][..], &["--passes", "0"], &["--busy", "x"], &["claim"]] {
            assert!(Plan::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn tests_are_chosen_by_their_source_or_by_the_filter() {
        let waits = "async fn waits() {\n    sleep(SOON).await;\n}\npub(crate) fn looks<T>() {}\n";
        let timed: BTreeSet<String> = timed_names(waits, false).into_iter().collect();
        assert_eq!(timed.iter().map(String::as_str).collect::<Vec<_>>(), ["looks", "waits"]);
        assert!(timed_names("fn quick() {}", false).is_empty());
        // Code of the product may sleep; its tests are asked.
        assert!(
            timed_names(&format!("{waits}#[cfg(test)]\nmod tests {{ fn quick() {{}} }}"), true).is_empty()
        );
        let any = Plan { passes: 1, busy: 0, filters: Vec::new() };
        assert!(any.selects("postgres::waits", &timed) && !any.selects("waits::quick", &timed));
        let some = Plan { filters: vec!["sqlite::"], ..any };
        assert!(some.selects("sqlite::quick", &timed) && !some.selects("postgres::waits", &timed));
    }

    #[test]
    fn failures_and_their_seeds_are_read_from_the_output() {
        let said = "test a::b ... ok\ntest c ... FAILED\ntest d - should panic ... FAILED\n\n---- c stdout ----\n\
                    seed: TIDEMILL_SEED=42\nthread panicked\n\n---- d stdout ----\nseed: TIDEMILL_SEED=7\n";
        assert_eq!(failed_tests(said), ["c", "d"]);
        assert_eq!(seed_of("c", said).as_deref(), Some("42"));
        assert_eq!(seed_of("a::b", said), None);
    }

    #[test]
    fn busy_processes_end_with_their_owner() {
        let command = || {
            let mut command = Command::new("sleep");
            command.arg("infinity");
            Ok(command)
        };
        let busy = Busy::start(2, command).unwrap();
        let pids: Vec<u32> = busy.0.iter().map(Child::id).collect();
        assert!(pids.iter().all(|pid| Path::new(&format!("/proc/{pid}")).exists()));
        drop(busy);
        assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
    }
}
