//! `dist`: the files of a release.
//!
//! One static binary is packaged as a tarball, a Debian package and the contents of the container images. The output
//! depends only on the sources, the toolchain and the time of the last commit: the same inputs give the same bytes.

mod build;
mod debian;
mod elf;
mod image;
mod licences;
mod packages;
mod sbom;
mod tarball;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::check::frozen::sha256;
use crate::{out, workspace};
use packages::Package;

/// Checksums of the released files, in the format of `sha256sum`.
const CHECKSUMS: &str = "SHA256SUMS";

/// Folders of the repository that a release contains: the source of the book, and example files.
const DOCUMENTS: [&str; 2] = ["docs", "examples"];

/// Options of the command.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// Binary to package; without it, one is built.
    binary: Option<PathBuf>,
    out: PathBuf,
    target: String,
    /// Whether to build a second time in another directory, and compare.
    twice: bool,
    /// Whether to compress fast and accept any binary, for a test.
    is_fast: bool,
}

/// A binary with its version and machine, from which all files are made.
struct Release {
    root: PathBuf,
    version: String,
    /// Target triple of the binary.
    target: String,
    binary: PathBuf,
    /// Packages that the binary contains.
    packages: Vec<Package>,
    /// Time of every packaged file, in seconds since 1970.
    epoch: u64,
    compression: Compression,
}

/// Effort for small files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    Best,
    /// For tests of the packaging.
    Fast,
}

/// Builds and packages a release.
pub(crate) fn dist(arguments: &[&str]) -> Result<ExitCode> {
    let options = Options::parse(arguments)?;
    let root = workspace::root();
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None if options.twice => build::build_twice(&root, &options.target)?,
        None => build::build(&root, &options.target)?,
    };
    let release = Release {
        version: version(&root)?,
        packages: packages::packages(&options.target)?,
        epoch: epoch(&root)?,
        compression: if options.is_fast { Compression::Fast } else { Compression::Best },
        root,
        target: options.target,
        binary,
    };
    release.check_binary()?;
    for file in release.write(&options.out)? {
        out::line(file.display());
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn parse(arguments: &[&str]) -> Result<Self> {
        let mut options = Self {
            binary: None,
            out: workspace::target()?.join("dist"),
            target: packages::host_target()?,
            twice: false,
            is_fast: false,
        };
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{option} needs a value"));
            match *option {
                "--binary" => options.binary = Some(std::path::absolute(value()?)?),
                "--out" => options.out = std::path::absolute(value()?)?,
                "--target" => (*value()?).clone_into(&mut options.target),
                "--twice" => options.twice = true,
                "--fast" => options.is_fast = true,
                _ => bail!("`{option}` is not an option of dist; run `cargo xtask` for help"),
            }
        }
        ensure!(
            !(options.twice && options.binary.is_some()),
            "--twice builds the binary, so it cannot be combined with --binary"
        );
        Ok(options)
    }
}

impl Release {
    /// Name of the tarball without its suffix, and of its only directory.
    fn name(&self) -> String {
        format!("tidemill-{}-{}", self.version, self.target)
    }

    /// Checks that the binary runs everywhere: it needs no shared library and is of this version. Only a package that
    /// was made fast, for a test, may contain another binary.
    fn check_binary(&self) -> Result<()> {
        let shown = self.binary.display();
        let bytes = fs::read(&self.binary).with_context(|| format!("could not read `{shown}`"))?;
        let facts = elf::facts(&bytes).with_context(|| format!("`{shown}` is not a 64-bit ELF binary"))?;
        if !facts.is_static || !facts.is_stripped {
            let finding = format!(
                "`{shown}` is not a release binary (static: {}, stripped: {})",
                facts.is_static, facts.is_stripped
            );
            match self.compression {
                Compression::Best => bail!("{finding}; --fast packages it for a test"),
                Compression::Fast => out::line(format!("warning: {finding}")),
            }
        }
        let said = run(Command::new(&self.binary).arg("--version"))?;
        let wanted = format!("tidemill {}", self.version);
        ensure!(said.trim() == wanted, "`{shown} --version` prints `{}`, not `{wanted}`", said.trim());
        Ok(())
    }

    /// Writes all files of the release, and returns their paths.
    fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
        let sbom = folder.join(format!("{}.cdx.json", self.name()));
        fs::write(&sbom, sbom::document(self))?;
        let stage = folder.join("stage");
        recreate(&stage)?;
        let tree = stage.join(self.name());
        self.stage(&tree, &sbom)?;
        let tarball = folder.join(format!("{}.tar.gz", self.name()));
        tarball::pack(&tree, &tarball, self)?;
        let package = debian::package(self, &tree, &stage, folder)?;
        image::write(&self.binary, &folder.join("image"))?;
        fs::remove_dir_all(&stage)?;
        let checksums = folder.join(CHECKSUMS);
        let files = vec![tarball, package, sbom];
        fs::write(&checksums, checksum_lines(&files)?)?;
        Ok([files, vec![checksums]].concat())
    }

    /// Writes the contents of the tarball, from which the Debian package is made as well.
    fn stage(&self, tree: &Path, sbom: &Path) -> Result<()> {
        let create = |name: &str| {
            let folder = tree.join(name);
            fs::create_dir_all(&folder).map(|()| folder)
        };
        let (completions, pages, units) = (create("completions")?, create("man/man1")?, create("systemd")?);
        copy(&self.binary, &tree.join("tidemill"), 0o755)?;
        for (shell, name) in [("bash", "tidemill.bash"), ("zsh", "_tidemill"), ("fish", "tidemill.fish")] {
            let script = run(Command::new(&self.binary).args(["completions", shell]))?;
            fs::write(completions.join(name), script)?;
        }
        run(Command::new(&self.binary).arg("man").arg(&pages))?;
        for unit in units_of(&self.root)? {
            copy(&unit, &units.join(workspace::file_name(&unit)), 0o644)?;
        }
        copy(&self.root.join("deploy/debian/tidemill.toml"), &tree.join("tidemill.toml"), 0o644)?;
        for name in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            copy(&self.root.join(name), &tree.join(name), 0o644)?;
        }
        for name in DOCUMENTS {
            copy_tree(&self.root.join(name), &tree.join(name))?;
        }
        copy(sbom, &tree.join("sbom.cdx.json"), 0o644)?;
        fs::write(tree.join("THIRD-PARTY-LICENSES.txt"), licences::document(&self.packages)?)?;
        Ok(())
    }
}

/// Returns the systemd units of the repository, sorted.
fn units_of(root: &Path) -> Result<Vec<PathBuf>> {
    let mut units = workspace::files(&root.join("deploy/systemd"))?;
    units.retain(|path| workspace::has_extension(path, "service"));
    Ok(units)
}

/// Returns the version of the workspace.
fn version(root: &Path) -> Result<String> {
    let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let version =
        manifest["workspace"]["package"]["version"].as_str().context("the workspace has no version")?;
    Ok(version.to_owned())
}

/// Returns the time of the packaged files: `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn epoch(root: &Path) -> Result<u64> {
    if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        return text.parse().with_context(|| format!("SOURCE_DATE_EPOCH is `{text}`, which is not a number"));
    }
    let text = run(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))
        .context("there is no last commit; set SOURCE_DATE_EPOCH")?;
    text.trim().parse().context("git printed no time")
}

/// Returns one line for each file: its checksum and its name.
fn checksum_lines(files: &[PathBuf]) -> Result<String> {
    let mut text = String::new();
    for path in files {
        let bytes = fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
        let _ = writeln!(text, "{}  {}", sha256(&bytes), workspace::file_name(path));
    }
    Ok(text)
}

/// Copies a file and sets its mode, which the umask would change.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("could not copy {} to {}", from.display(), to.display()))?;
    set_mode(to, mode)
}

/// Copies all files below a directory. Programs stay executable.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for file in workspace::files(from)? {
        let copied = to.join(file.strip_prefix(from)?);
        let folder = copied.parent().context("the file has no directory")?;
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
        let is_program = fs::metadata(&file)?.permissions().mode() & 0o111 != 0;
        copy(&file, &copied, if is_program { 0o755 } else { 0o644 })?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("could not change the mode of {}", path.display()))
}

/// Creates an empty directory, without the contents of an earlier run.
fn recreate(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("could not remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))
}

/// Runs a program, which must succeed, and returns its standard output.
fn run(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("could not run {shown}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{shown} failed: {}", errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests;
