//! The project's own commands: `cargo xtask test | check | generate | bench | soak | stress`.

mod broken;
mod check;
mod fuzz;
mod generate;
mod out;
mod setup;
mod stress;
mod suites;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
Usage: cargo xtask <command>

  test [-- <filter and options of libtest>]
             set up everything and run every test of the workspace
  fuzz       fuzz the API from its own document, as `test` does
  check      generated files, arrows between crates, SQL files, tidiness
  generate   write the generated files
  bench <name> [<options>]
             run a benchmark
  screenshots <folder>
             write a picture of every page of the console to a folder, as the browser tests see it
  soak [--minutes <N>]
             run the long simulations, 10 minutes each unless told otherwise
  stress [--passes <N>] [--busy <N>] [-- <parts of names of tests>]
             run the tests that depend on time 20 times beside 2 busy processes, or the tests that are named
";

/// Wrong use of a command; 1 is any other failure.
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
        ["fuzz"] => fuzz::fuzz().map(|()| ExitCode::SUCCESS),
        ["check"] => check::check(),
        ["generate"] => generate::generate(),
        ["bench", name, options @ ..] => test::bench(name, options),
        ["screenshots", folder] => test::screenshots(folder),
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
