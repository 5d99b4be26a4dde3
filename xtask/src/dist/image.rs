//! The root file system of the server image, which the Containerfile copies.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::{copy, recreate, set_mode};

/// User and group of the container.
const ACCOUNTS: [(&str, &str); 2] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/:/bin/false\ntidemill:x:65532:65532:tidemill:/var/lib/tidemill:/bin/false\n",
    ),
    ("etc/group", "root:x:0:\ntidemill:x:65532:\n"),
];

/// Writes the files. `COPY --chown` gives the data directory to the user of the container.
pub(super) fn write(binary: &Path, folder: &Path) -> Result<()> {
    recreate(folder)?;
    for name in ["root/usr/bin", "root/etc", "root/tmp", "data"] {
        fs::create_dir_all(folder.join(name))?;
    }
    copy(binary, &folder.join("root/usr/bin/tidemill"), 0o755)?;
    for (name, text) in ACCOUNTS {
        let path = folder.join("root").join(name);
        fs::write(&path, text)?;
        set_mode(&path, 0o644)?;
    }
    set_mode(&folder.join("root/tmp"), 0o1777)
}
