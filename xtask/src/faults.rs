//! Checks that the tests catch known faults.
//!
//! Each file `faults/<name>.patch` adds one fault to a copy of the repository (ADR 27). The copy is built once with all
//! of them. The environment variable [`VARIABLE`] selects the one that is on in a test process.

mod copy;
mod patch;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tidemill_testkit::cluster::SERVER_URL_VARIABLE;

use crate::suites::{self, Suite};
use crate::{out, workspace};
use patch::Patch;
use verdict::{Verdict, verdict};

/// The fault of a process. Without it, the copy behaves as the product does.
const VARIABLE: &str = "TIDEMILL_FAULT";
/// Faults that are checked at the same time: their tests wait for the database most of the time.
const AT_ONCE: usize = 2;
/// Time limit for the tests of one fault. Only a test that hangs reaches it.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Test targets that start an example program, which cargo does not build with a filter.
const EXAMPLES: [(&str, &str); 2] = [("agent", "agent_program"), ("supervisor", "supervisor_program")];
/// Start of the line in which a test reports behaviour that this machine cannot test.
const NOT_TESTED: &str = "not tested: ";

/// Checks every fault, or the one called `only`.
pub(crate) fn check(server_url: &str, only: Option<&str>) -> Result<()> {
    let began = Instant::now();
    let patches = patch::read_all(&workspace::root().join("faults"))?;
    if let Some(name) = only {
        ensure!(patches.iter().any(|patch| patch.name == name), "unknown fault `{name}`; see faults/*.patch");
    }
    let directory = workspace::target()?.join("faults");
    let tree = copy::create(&directory, &patches)?;
    let checked: Vec<&Patch> =
        patches.iter().filter(|patch| only.is_none_or(|name| patch.name == name)).collect();
    let targets: BTreeSet<&str> =
        checked.iter().flat_map(|patch| patch.tests.keys().map(String::as_str)).collect();
    out::line(format!("building the tests {} with {} faults", join(&targets), patches.len()));
    let bench = Bench { suites: build(&tree, &targets)?, server_url, outputs: directory.join("output") };
    fs::create_dir_all(&bench.outputs).context("could not create the folder for the output of tests")?;
    out::line(format!("the copy with faults is built after {} s", began.elapsed().as_secs()));
    bench.check_without_fault(&checked)?;
    let uncaught = bench.check_all(checked)?;
    ensure!(uncaught.is_empty(), "{}", uncaught.join("\n"));
    out::line(format!("the faults took {} s", began.elapsed().as_secs()));
    Ok(())
}

/// Builds the named test targets of the copy. The version of the copy differs, so that its crates stand beside those of
/// the repository in one target folder, and both share the dependencies.
fn build(tree: &Path, targets: &BTreeSet<&str>) -> Result<BTreeMap<String, Suite>> {
    let target_folder = workspace::target()?;
    let cargo = || {
        let mut command = workspace::cargo();
        command.current_dir(tree).env("CARGO_TARGET_DIR", &target_folder);
        // Only the crates of the workspace have debug information, and the copy needs none.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    };
    let failed =
        "the copy with faults does not compile; correct the patches in faults/ (see target/faults/tree)";
    let arguments: Vec<&str> = targets.iter().flat_map(|target| ["--test", target]).collect();
    let suites = suites::build_with(cargo(), &arguments).context(failed)?;
    let examples: Vec<&str> = EXAMPLES
        .iter()
        .filter(|(target, _)| targets.contains(target))
        .flat_map(|(_, example)| ["--example", example])
        .collect();
    if !examples.is_empty() {
        let built = cargo().args(["build", "--workspace", "--quiet"]).args(examples).status();
        ensure!(built.context("could not run cargo")?.success(), failed);
    }
    let short = |suite: &Suite| suite.name.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(suites.into_iter().map(|suite| (short(&suite), suite)).collect())
}

/// The built test programs of the copy.
struct Bench<'a> {
    suites: BTreeMap<String, Suite>,
    server_url: &'a str,
    outputs: PathBuf,
}

impl Bench<'_> {
    /// Requires that every named test exists and passes while no fault is on. A test that fails anyway proves nothing.
    fn check_without_fault(&self, patches: &[&Patch]) -> Result<()> {
        let mut tests: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (target, names) in patches.iter().flat_map(|patch| &patch.tests) {
            tests.entry(target).or_default().extend(names.iter().map(String::as_str));
        }
        for (target, names) in tests {
            let names: Vec<&str> = names.into_iter().collect();
            match self.run(None, target, &names)? {
                Verdict::Passed(count) if count == names.len() => {}
                Verdict::Passed(count) => bail!(
                    "{target} has only {count} of these {} tests; correct `Caught by:` in faults/*.patch: {}",
                    names.len(),
                    names.join(", ")
                ),
                Verdict::Failed(failed) => {
                    bail!("tests of {target} fail without a fault: {}", failed.join(", "))
                }
                Verdict::Unknown => {
                    bail!("the tests of {target} ended without a result while no fault was on")
                }
            }
        }
        Ok(())
    }

    /// Checks each fault, and returns one message for each that no test caught.
    fn check_all(&self, patches: Vec<&Patch>) -> Result<Vec<String>> {
        let waiting = Mutex::new(VecDeque::from(patches));
        let results = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    loop {
                        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some(patch) = next else { break };
                        let result = self.check_fault(patch);
                        results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                    }
                });
            }
        });
        let results: Result<Vec<_>> =
            results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
        Ok(results?.into_iter().flatten().collect())
    }

    /// Runs the named tests with the fault. Returns a message if all of them pass.
    fn check_fault(&self, patch: &Patch) -> Result<Option<String>> {
        let began = Instant::now();
        let name = &patch.name;
        let (mut caught, mut not_tested) = (Vec::new(), Vec::new());
        for (target, names) in &patch.tests {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            match self.run(Some(name), target, &names)? {
                Verdict::Failed(tests) => {
                    caught.extend(tests.into_iter().map(|test| format!("{target} {test}")));
                }
                Verdict::Passed(_) => not_tested.extend(self.not_tested(name, target)?),
                Verdict::Unknown => {
                    bail!("with the fault `{name}` the tests of {target} ended without a result")
                }
            }
        }
        if let (true, Some(reason)) = (caught.is_empty(), not_tested.first()) {
            out::line(format!("fault {name}: {reason}"));
            return Ok(None);
        }
        if caught.is_empty() {
            return Ok(Some(format!(
                "no test catches the fault `{name}`: {} Restore the test that did, or name another one under \
                 `Caught by:` in faults/{name}.patch",
                patch.breaks
            )));
        }
        let seconds = began.elapsed().as_secs_f64();
        out::line(format!("fault {name}: caught after {seconds:.1} s by {}", caught.join(", ")));
        Ok(None)
    }

    /// Returns the lines in which tests report untested behaviour. In continuous integration there must be none.
    fn not_tested(&self, fault: &str, target: &str) -> Result<Vec<String>> {
        if std::env::var("CI").as_deref() == Ok("true") {
            return Ok(Vec::new());
        }
        let text = fs::read(self.output(Some(fault), target, "stderr"))?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter(|line| line.starts_with(NOT_TESTED)).map(str::to_owned).collect())
    }

    /// Returns the file with a stream of a test program.
    fn output(&self, fault: Option<&str>, target: &str, stream: &str) -> PathBuf {
        self.outputs.join(format!("{}-{target}.{stream}.txt", fault.unwrap_or("none")))
    }

    /// Runs tests of one target by their full names.
    fn run(&self, fault: Option<&str>, target: &str, names: &[&str]) -> Result<Verdict> {
        let suite = self.suites.get(target).with_context(|| format!("there is no test target `{target}`"))?;
        let create =
            |path: &Path| File::create(path).with_context(|| format!("could not write {}", path.display()));
        let output = self.output(fault, target, "stdout");
        let (file, errors) = (create(&output)?, create(&self.output(fault, target, "stderr"))?);
        let mut command = suite.command();
        command.args(["--exact", "--quiet"]).args(names).env(SERVER_URL_VARIABLE, self.server_url);
        command.env_remove(VARIABLE).envs(fault.map(|fault| (VARIABLE, fault)));
        let mut child = command
            .stdout(file)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("could not run the tests of {target}"))?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if began.elapsed() > TIMEOUT {
                child.kill()?;
                child.wait()?;
                let fault = fault
                    .map_or_else(|| "without a fault".to_owned(), |name| format!("with the fault `{name}`"));
                bail!("the tests of {target} did not end within {} s {fault}", TIMEOUT.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        };
        let text = fs::read(&output).with_context(|| format!("could not read {}", output.display()))?;
        let verdict = verdict(&String::from_utf8_lossy(&text));
        let is_consistent = status.success() == matches!(verdict, Verdict::Passed(_));
        Ok(if is_consistent { verdict } else { Verdict::Unknown })
    }
}

fn join(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}
