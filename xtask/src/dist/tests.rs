//! Tests of the packaging, with the binary of the test build.

use super::*;

use std::collections::BTreeSet;

use serde_json::Value;

/// Packages the binary of this build to a folder.
fn package(folder: &Path) -> Vec<PathBuf> {
    let target = packages::host_target().unwrap();
    let built = workspace::target().unwrap().join("tidemill");
    assert!(built.exists(), "{} does not exist; run `cargo build` first", built.display());
    let binary = folder.join("binary");
    run(Command::new("strip").arg("--strip-all").arg("-o").arg(&binary).arg(built)).unwrap();
    let root = workspace::root();
    let release = Release {
        version: version(&root).unwrap(),
        packages: packages::packages(&target).unwrap(),
        epoch: 1_700_000_000,
        compression: Compression::Fast,
        root,
        target,
        binary,
    };
    release.check_binary().unwrap();
    release.write(&folder.join("out")).unwrap()
}

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn release_of_one_binary_is_complete_and_reproducible() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = package(one.path());
    let again = package(two.path());
    for (file, other) in files.iter().zip(&again) {
        assert_eq!(file.file_name(), other.file_name());
        assert!(bytes(file) == bytes(other), "{} differs between two runs", file.display());
    }
    let [tarball, deb, sbom, sums] = files.as_slice() else { panic!("{files:?}") };
    run(Command::new("sha256sum")
        .args(["--check", "--strict"])
        .arg(sums)
        .current_dir(one.path().join("out")))
    .unwrap();
    check_tarball(tarball, one.path());
    check_package(deb);
    check_bill(&serde_json::from_slice(&bytes(sbom)).unwrap());
}

fn check_tarball(tarball: &Path, folder: &Path) {
    run(Command::new("tar")
        .args(["--extract", "--gzip", "--file"])
        .arg(tarball)
        .arg("--directory")
        .arg(folder))
    .unwrap();
    let name = workspace::file_name(tarball);
    let tree = folder.join(name.strip_suffix(".tar.gz").unwrap());
    let read = |name: &str| String::from_utf8(bytes(&tree.join(name))).unwrap();
    assert!(run(Command::new(tree.join("tidemill")).arg("--help")).unwrap().contains("demo"));
    for (completion, part) in
        [("tidemill.bash", "complete -F"), ("_tidemill", "#compdef"), ("tidemill.fish", "complete -c")]
    {
        assert!(read(&format!("completions/{completion}")).contains(part), "{completion}");
    }
    assert!(read("man/man1/tidemill.1").contains(".TH"));
    assert!(read("systemd/tidemill-server.service").contains("ExecStart=/usr/bin/tidemill server"));
    let licences = read("THIRD-PARTY-LICENSES.txt");
    for package in ["tokio ", "ring ", "libsqlite3-sys ", "rustls "] {
        assert!(licences.lines().any(|line| line.starts_with(package) && line.contains(": ")), "{package}");
    }
    assert!(licences.contains("Permission is hereby granted") && licences.contains("Apache License"));
    assert!(!licences.contains("proptest "), "tests are not in the binary");
    run(Command::new(tree.join("tidemill")).args(["config", "check"]).current_dir(&tree)).unwrap();
    let example = "examples/feeds/cursor.yaml";
    run(Command::new(tree.join("tidemill")).args(["feed", "check", example]).current_dir(&tree)).unwrap();
    assert!(read("docs/install.md").contains("The first five minutes"));
}

fn check_package(deb: &Path) {
    let field = |name: &str| run(Command::new("dpkg-deb").arg("--field").arg(deb).arg(name)).unwrap();
    assert_eq!(field("Package").trim(), "tidemill");
    assert_eq!(format!("{}\n", env!("CARGO_PKG_VERSION")), field("Version"));
    let contents = run(Command::new("dpkg-deb").arg("--contents").arg(deb)).unwrap();
    for (mode, path) in [
        ("-rwxr-xr-x root/root", " ./usr/bin/tidemill"),
        ("-rw-r----- root/root", " ./etc/tidemill/tidemill.toml"),
        ("-rw-r--r-- root/root", " ./usr/lib/systemd/system/tidemill-agent.service"),
        ("-rw-r--r-- root/root", " ./usr/share/man/man1/tidemill-run-queue.1.gz"),
        ("drwxr-xr-x root/root", " ./usr/share/doc/tidemill/"),
        ("-rw-r--r-- root/root", " ./usr/share/doc/tidemill/docs/install.md"),
        ("-rw-r--r-- root/root", " ./usr/share/doc/tidemill/examples/feeds/cursor.yaml"),
    ] {
        assert!(
            contents.lines().any(|line| line.starts_with(mode) && line.ends_with(path)),
            "{path}: {contents}"
        );
    }
}

/// Checks that the bill names the binary, that references are unique, and that each of them is defined.
fn check_bill(bill: &Value) {
    assert_eq!(bill["metadata"]["component"]["name"], "tidemill");
    let components = bill["components"].as_array().unwrap();
    let own = &bill["metadata"]["component"];
    let refs: BTreeSet<&str> =
        components.iter().chain([own]).map(|component| component["bom-ref"].as_str().unwrap()).collect();
    assert_eq!(refs.len(), components.len() + 1);
    assert!(refs.iter().any(|url| url.starts_with("pkg:cargo/libsqlite3-sys@")), "{refs:?}");
    assert!(
        !refs.iter().any(|url| url.contains("/serde_derive@")),
        "a procedural macro is not in the binary"
    );
    for node in bill["dependencies"].as_array().unwrap() {
        for on in node["dependsOn"].as_array().unwrap() {
            assert!(refs.contains(on.as_str().unwrap()), "{on}");
        }
    }
    let third_party = components.iter().filter(|component| component["hashes"].is_array());
    for component in third_party {
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
}

/// The binary of the test build is neither static nor stripped, so it can be packaged for a test only.
#[test]
fn binary_that_is_no_release_is_refused() {
    let mut release = Release {
        root: workspace::root(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        target: packages::host_target().unwrap(),
        binary: workspace::target().unwrap().join("tidemill"),
        packages: Vec::new(),
        epoch: 0,
        compression: Compression::Best,
    };
    let refusal = release.check_binary().unwrap_err().to_string();
    assert!(refusal.contains("is not a release binary (static: false, stripped: false)"), "{refusal}");
    release.compression = Compression::Fast;
    release.check_binary().unwrap();
}

#[test]
fn options_are_checked() {
    let options = Options::parse(&["--twice", "--target", "aarch64-unknown-linux-gnu"]).unwrap();
    assert!(options.twice && options.binary.is_none());
    assert_eq!(options.target, "aarch64-unknown-linux-gnu");
    let error = |arguments: &[&str]| Options::parse(arguments).unwrap_err().to_string();
    assert_eq!(error(&["--binary"]), "--binary needs a value");
    assert!(error(&["--static"]).contains("`--static` is not an option"));
    assert!(error(&["--binary", "x", "--twice"]).starts_with("--twice builds the binary"));
}
