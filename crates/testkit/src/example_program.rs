//! Programs that tests start: examples of a crate, which a plain `cargo test` builds next to its tests.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

/// Returns the path of an example of the package at `directory`. Fails if the program is out of date, because with a
/// filter `cargo test` does not build examples; the error says what to run.
pub fn example_path(package: &str, directory: &str, name: &str) -> io::Result<PathBuf> {
    let test = std::env::current_exe()?;
    // The test is target/<profile>/deps/<test>.
    let profile =
        test.parent().and_then(Path::parent).ok_or_else(|| io::Error::other("the test has no folder"))?;
    let program = profile.join("examples").join(name);
    let built = fs::metadata(&program).and_then(|about| about.modified()).ok();
    let directory = Path::new(directory);
    let written = newest(&directory.join("src"))?.max(newest(&directory.join("examples"))?);
    if built < written {
        let advice = format!("run `cargo build --package {package} --example {name}`");
        let path = program.display();
        return Err(io::Error::other(format!("{path} is missing or out of date: {advice}")));
    }
    Ok(program)
}

/// Returns the modification time of the newest file in a directory.
fn newest(directory: &Path) -> io::Result<Option<SystemTime>> {
    let mut newest = None;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let written = if path.is_dir() { self::newest(&path)? } else { Some(path.metadata()?.modified()?) };
        newest = newest.max(written);
    }
    Ok(newest)
}
