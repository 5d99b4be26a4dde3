//! The token file of a local server: how the command line of the same user gets access to it.
//!
//! The server stores its token in a directory of its user, under a name that follows from its address. So a client
//! finds the token from the address alone. Every start of a server makes a new token: the token of an ended server,
//! which a client may have sent to another program at the same address, opens nothing. The file is removed when the
//! server ends; the file of a killed server stays until the next server at its address.

use crate::config::Config;
use crate::failure::Failure;
use rustix::fs::{Mode, OFlags};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use tidemill_core::access::Secret;

/// Size that is read of a token file.
const BYTES_MAX: u64 = 1024;
/// Advice for a directory that cannot be used.
const HINT: &str = "set TIDEMILL_SERVER_TOKEN_DIR to a directory of yours, or require tokens with --auth";

/// Returns the directory of the token files: the configured one, or the state directory of the user.
pub(crate) fn directory(config: &Config) -> Result<PathBuf, Failure> {
    if !config.server.token_dir.is_empty() {
        return Ok(PathBuf::from(&config.server.token_dir));
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = crate::environment::state_home().filter(absolute);
    // Asks the user database if HOME is not set, as in a service of the system.
    let home = || std::env::home_dir().filter(absolute).map(|home| home.join(".local/state"));
    state.or_else(home).map(|state| state.join("tidemill")).ok_or_else(|| {
        Failure::usage("there is no directory for the token of the server: HOME is not set").with_hint(HINT)
    })
}

/// Returns the name of a server's files, without its suffix.
fn stem(address: SocketAddr) -> String {
    format!("{}-{}", address.ip().to_canonical(), address.port())
}

/// The token file of a running server.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    /// Page that opens a one-time link, if one was written.
    page: PathBuf,
}

impl TokenFile {
    /// Writes the token of a server that has bound its address.
    pub(crate) fn write(config: &Config, address: SocketAddr, token: &Secret) -> Result<Self, Failure> {
        let directory = directory(config)?;
        let failed = |error: std::io::Error| {
            let shown = directory.display();
            Failure::outage(format!("could not write the token of the server to `{shown}`: {error}"))
                .with_hint(HINT)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed)?;
        check_directory(&directory)?;
        let stem = stem(address);
        let path = directory.join(format!("{stem}.token"));
        write_private(&path, &format!("{}\n", token.reveal())).map_err(failed)?;
        Ok(Self { path, page: directory.join(format!("{stem}.html")) })
    }

    /// Removes the files. The server must still hold its address, so that they are not those of the next server.
    pub(crate) fn remove(&self) {
        for path in [&self.path, &self.page] {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes a page that opens a link, and returns its path. A link on the command line of a browser would be visible to
/// other users.
pub(crate) fn write_page(config: &Config, address: SocketAddr, url: &str) -> Result<PathBuf, Failure> {
    let path = directory(config)?.join(format!("{}.html", stem(address)));
    let text = format!(
        "<!DOCTYPE html><meta charset=utf-8><meta name=referrer content=no-referrer>\
         <meta http-equiv=refresh content=\"0;url={url}\"><title>Tidemill</title><a href=\"{url}\">Console</a>\n"
    );
    write_private(&path, &text)
        .map_err(|error| Failure::outage(format!("could not write `{}`: {error}", path.display())))?;
    Ok(path)
}

/// Refuses a directory in which other users could replace files.
fn check_directory(directory: &Path) -> Result<(), Failure> {
    let shown = directory.display();
    let found = std::fs::metadata(directory)
        .map_err(|error| Failure::outage(format!("could not read `{shown}`: {error}")))?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(Failure::usage(format!("directory `{shown}` belongs to another user")).with_hint(HINT));
    }
    if found.mode() & 0o022 != 0 {
        return Err(Failure::usage(format!("other users can write to directory `{shown}`"))
            .with_hint(format!("chmod 700 {shown}")));
    }
    Ok(())
}

/// Replaces a file by one that only its owner can read.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // Left by a process that died here.
    let _ = std::fs::remove_file(&temporary);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Returns the token in a file, or `None` if there is no file. The error is a message for the user.
fn read(path: &Path) -> Result<Option<String>, String> {
    let shown = path.display();
    let failed = |error: &dyn std::fmt::Display| format!("could not read the token from `{shown}`: {error}");
    // Follows no link, and does not wait for the writer of a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let found = file.metadata().map_err(|error| failed(&error))?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("the token file `{shown}` is not a file of yours; remove it"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("other users can access the token file `{shown}`; restart the server"));
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(|error| failed(&error))?;
    match text.trim().parse::<Secret>() {
        Ok(token) if token.is_token() => Ok(Some(token.reveal().to_owned())),
        Ok(_) | Err(_) => Err(format!("the file `{shown}` contains no token; restart the server")),
    }
}

/// A server of this machine, with the place of its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalServer {
    /// Address of the server as a URL.
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    token_file: PathBuf,
}

impl LocalServer {
    /// Returns the server of a URL, or `None` if it is not on this machine.
    pub(crate) fn of_url(url: &str, config: &Config) -> Result<Option<Self>, Failure> {
        let Some((scheme, host, port, rest)) = parse(url) else { return Ok(None) };
        let directory = directory(config)?;
        let file = |ip: IpAddr| directory.join(format!("{}.token", stem((ip, port).into())));
        let (ipv4, ipv6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
        let ip = match host {
            Host::Ip(ip) => ip,
            Host::Localhost if !file(ipv4).exists() && file(ipv6).exists() => ipv6,
            Host::Localhost => ipv4,
        };
        let address = SocketAddr::new(ip, port);
        // `localhost` has two addresses, and a server of another user at the other one must not get the token. A
        // certificate proves which server answers.
        let is_ambiguous = host == Host::Localhost && scheme == "http";
        let url = if is_ambiguous { format!("http://{address}{rest}") } else { url.to_owned() };
        Ok(Some(Self { url, address, token_file: file(ip) }))
    }

    /// Reads the token of the server.
    pub(crate) fn token(&self) -> Result<Option<String>, String> {
        read(&self.token_file)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    Ip(IpAddr),
    Localhost,
}

/// Splits the URL of a server on this machine into its scheme, host, port and path.
fn parse(url: &str) -> Option<(&str, Host, u16, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let (authority, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority: http::uri::Authority = authority.parse().ok()?;
    // A user in the address belongs to another form of authentication.
    if authority.as_str().contains('@') {
        return None;
    }
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let host = if name.eq_ignore_ascii_case("localhost") {
        Host::Localhost
    } else {
        Host::Ip(name.parse::<IpAddr>().ok()?.to_canonical()).loopback()?
    };
    Some((scheme, host, authority.port_u16().unwrap_or(default_port), rest))
}

impl Host {
    fn loopback(self) -> Option<Self> {
        match self {
            Self::Ip(ip) => ip.is_loopback().then_some(self),
            Self::Localhost => Some(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn config(directory: &Path) -> Config {
        let mut config = Config::default();
        config.server.token_dir = directory.display().to_string();
        config
    }

    fn token() -> Secret {
        Secret::token([5; 32])
    }

    fn server(url: &str, config: &Config) -> Option<LocalServer> {
        LocalServer::of_url(url, config).unwrap()
    }

    #[test]
    fn client_finds_the_token_from_the_address_alone() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(&folder.path().join("a/b"));
        let address: SocketAddr = "127.0.0.1:7171".parse().unwrap();
        let file = TokenFile::write(&config, address, &token()).unwrap();
        let found = |url: &str| server(url, &config).unwrap().token().unwrap();
        for url in ["http://127.0.0.1:7171", "http://127.0.0.1:7171/", "https://localhost:7171/x"] {
            assert_eq!(found(url).as_deref(), Some(token().reveal()), "{url}");
        }
        for url in ["http://127.0.0.1:7172", "http://127.0.0.2:7171", "http://[::1]:7171"] {
            assert_eq!(found(url), None, "{url}");
        }
        for url in ["http://host:7171", "http://10.0.0.1:7171", "http://ann:x@127.0.0.1:7171", "ftp://x", ""]
        {
            assert_eq!(server(url, &config), None, "{url}");
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder.path().join("a/b")), mode(&file.path)), (0o700, 0o600));
        file.remove();
        assert_eq!(found("http://127.0.0.1:7171"), None);
    }

    #[test]
    fn localhost_is_replaced_by_the_address_of_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let url = |url: &str| server(url, &config).unwrap().url;
        assert_eq!(url("http://localhost:7171/x"), "http://127.0.0.1:7171/x");
        TokenFile::write(&config, "[::1]:7171".parse().unwrap(), &token()).unwrap();
        assert_eq!(url("http://localhost:7171"), "http://[::1]:7171");
        assert_eq!(url("https://localhost:7171"), "https://localhost:7171", "a certificate names it");
        TokenFile::write(&config, "127.0.0.1:7171".parse().unwrap(), &token()).unwrap();
        assert_eq!(url("http://localhost:7171"), "http://127.0.0.1:7171");
    }

    #[test]
    fn file_that_others_can_read_or_own_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.token");
        write_private(&path, token().reveal()).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some(token().reveal()));
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(read(&path).unwrap_err().starts_with("other users can access"), "{mode:o}");
        }
        let link = folder.path().join("link.token");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read(&link).is_err(), "a link is not followed");
        assert!(read(folder.path()).is_err());
        write_private(&path, "secret of something else").unwrap();
        let message = read(&path).unwrap_err();
        assert!(message.contains("contains no token") && !message.contains("secret"), "{message}");
    }

    #[test]
    fn directory_that_others_can_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = TokenFile::write(&config(folder.path()), "127.0.0.1:1".parse().unwrap(), &token());
        assert!(refused.unwrap_err().message.starts_with("other users can write to directory"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
