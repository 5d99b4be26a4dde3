//! The project's own commands: `cargo xtask test | faults | fuzz | deploy | clients | check | dist | generate | docs |
//! bench | screenshots | soak | stress`.

mod check;
mod clients;
mod deploy;
mod deploy_files;
mod dist;
mod docs;
mod faults;
mod fuzz;
mod generate;
mod out;
mod setup;
mod stress;
mod suites;
mod test;
mod venv;
mod versions;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
Usage: cargo xtask <command>

  test [-- <filter and options of libtest>]
             install missing programs and run every test of the workspace
  faults [<name>]
             check that the tests catch each fault of faults/*.patch, or the named one
  fuzz       fuzz the API from its OpenAPI document, as `test` does
  deploy     check the files of deploy/ for Kubernetes and Helm, as `test` does
  clients    lint the OpenAPI document and check the generated clients on a server, as `test` does
  check      check generated files, dependencies between crates, SQL files and texts
  dist [--out <folder>] [--target <triple>] [--binary <file>] [--twice] [--fast]
             build the static binary, and write tarball, Debian package and contents of the images to
             dist/ in the target directory; --binary packages that binary, --twice compares two builds,
             --fast compresses less and accepts any binary, for a test
  generate   write the generated files
  docs       check the links of the documentation and build the book in target/book
  bench <name> [<options>]
             run a benchmark
  screenshots <folder>
             write a picture of every console page to a folder
  soak [--minutes <N>]
             run the long simulations, by default 10 minutes each, and then `versions`
  versions [<major>]...
             run the conformance suite on PostgreSQL 15 to 18, or on the named versions
  stress [--passes <N>] [--busy <N>] [-- <parts of names of tests>]
             run time-dependent tests, or those that match, by default 20 times beside 2 busy processes
";

/// Exit code for wrong usage; 1 is any other failure.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            out::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<ExitCode> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["test"] => test::test(&[]),
        ["test", "--", libtest @ ..] => test::test(libtest),
        ["faults"] => test::faults(None),
        ["faults", name] => test::faults(Some(name)),
        ["fuzz"] => fuzz::fuzz().map(|()| ExitCode::SUCCESS),
        ["deploy"] => test::deploy(),
        ["clients"] => clients::command(),
        ["check"] => check::check(),
        ["dist", options @ ..] => dist::dist(options),
        ["generate"] => generate::generate(),
        ["docs"] => docs::build(),
        ["bench", name, options @ ..] => test::bench(name, options),
        ["screenshots", folder] => test::screenshots(folder),
        ["versions", majors @ ..] => versions::test(majors),
        ["stress", options @ ..] => stress::stress(options),
        [stress::BUSY] => stress::busy(),
        ["soak"] => test::soak(10),
        ["soak", "--minutes", minutes] if minutes.parse::<u32>().is_ok_and(|minutes| minutes > 0) => {
            test::soak(minutes.parse()?)
        }
        _ => {
            out::line(USAGE.trim_end());
            Ok(ExitCode::from(EXIT_USAGE))
        }
    }
}
