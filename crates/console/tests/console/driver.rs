//! A real browser without a screen, driven over WebDriver: Debian's chromium and its driver.
//!
//! A small client of our own: the protocol is JSON over HTTP, and the tests need ten of its calls.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tidemill_testkit::cluster::find_on_path;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Browsers at once: each wants a processor of its own.
static SEATS: Semaphore = Semaphore::const_new(1);
/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(20);
/// How WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// What a browser is like.
pub(crate) struct Wish {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) script: bool,
    pub(crate) dark: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Self { width: 1_280, height: 900, script: true, dark: false }
    }
}

/// A browser.
pub(crate) struct Browser {
    http: reqwest::Client,
    session: String,
    driver: Child,
    _profile: TempDir,
    _seat: SemaphorePermit<'static>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A driver that is killed leaves its browser behind: the session is ended first, and waited for.
        let _ = self.quit();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// Ends the session, and with it the browser.
    fn quit(&self) -> std::io::Result<()> {
        let (host, path) = self.session.trim_start_matches("http://").split_once('/').unwrap_or_default();
        let mut stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "DELETE /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    }

    /// Opens one.
    pub(crate) async fn open(wish: &Wish) -> Self {
        let seat = SEATS.acquire().await.expect("the seats are never closed");
        let missing = "is missing; `cargo xtask test` installs it where it may: chromium, chromium-driver";
        let program = find_on_path("chromedriver").unwrap_or_else(|| panic!("chromedriver {missing}"));
        let chromium = find_on_path("chromium").unwrap_or_else(|| panic!("chromium {missing}"));
        let profile = tempfile::tempdir().expect("a folder");
        let mut driver = Command::new(program)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the driver starts");
        let port = port(&mut driver);
        let http = crate::house::http().timeout(Duration::from_mins(1)).build().expect("a client");
        let mut arguments = vec![
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-quic".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
            format!("--window-size={},{}", wish.width, wish.height),
        ];
        if wish.dark {
            arguments.push("--force-dark-mode".to_owned());
            arguments.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        let scripts = if wish.script { 1 } else { 2 };
        let prefs = json!({"profile.managed_default_content_settings.javascript": scripts});
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": chromium, "args": arguments, "prefs": prefs},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let base = format!("http://127.0.0.1:{port}/session");
        let answer = http.post(&base).json(&wanted).send().await.expect("the driver answers");
        let answer: Value = answer.json().await.expect("an answer");
        let id = answer["value"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("no session: {answer}"))
            .to_owned();
        let session = format!("{base}/{id}");
        Self { http, session, driver, _profile: profile, _seat: seat }
    }

    async fn call(&self, path: &str, body: Option<Value>) -> Result<Value, Value> {
        let url = format!("{}{path}", self.session);
        let request = match body {
            Some(body) => self.http.post(url).json(&body),
            None => self.http.get(url),
        };
        let answer = request.send().await.expect("the driver answers");
        let ok = answer.status().is_success();
        let value = answer.json::<Value>().await.expect("an answer")["value"].take();
        if ok { Ok(value) } else { Err(value) }
    }

    pub(crate) async fn go(&self, url: &str) {
        self.call("/url", Some(json!({"url": url}))).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    pub(crate) async fn url(&self) -> String {
        self.call("/url", None).await.expect("an address").as_str().unwrap_or_default().to_owned()
    }

    async fn find(&self, css: &str) -> Option<String> {
        let found = self.call("/element", Some(json!({"using": "css selector", "value": css}))).await.ok()?;
        found[ELEMENT].as_str().map(str::to_owned)
    }

    /// An element, once it is there.
    async fn element(&self, css: &str) -> String {
        let began = Instant::now();
        loop {
            if let Some(found) = self.find(css).await {
                return found;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{css} is not on {}: {}",
                self.url().await,
                self.source().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Clicks on an element, once it is there and can be clicked on.
    pub(crate) async fn click(&self, css: &str) {
        let began = Instant::now();
        loop {
            let element = self.element(css).await;
            match self.call(&format!("/element/{element}/click"), Some(json!({}))).await {
                Ok(_) => return,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{css}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn write(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        let written = self.call(&format!("/element/{element}/value"), Some(json!({"text": text}))).await;
        written.unwrap_or_else(|error| panic!("{css}: {error}"));
    }

    /// What an element says.
    pub(crate) async fn text(&self, css: &str) -> String {
        let element = self.element(css).await;
        let text = self.call(&format!("/element/{element}/text"), None).await;
        text.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Waits until an element says something.
    pub(crate) async fn sees(&self, css: &str, wanted: &str) {
        let began = Instant::now();
        loop {
            let text = self.text(css).await;
            if text.contains(wanted) {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{css} says {text:?} on {}, and not {wanted:?}",
                self.url().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until an element no longer says something.
    pub(crate) async fn lacks(&self, css: &str, unwanted: &str) {
        let began = Instant::now();
        while self.text(css).await.contains(unwanted) {
            assert!(began.elapsed() < PATIENCE, "{css} still says {unwanted:?} on {}", self.url().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs a script of the test's own.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let done = self.call("/execute/sync", Some(json!({"script": script, "args": []}))).await;
        done.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    pub(crate) async fn source(&self) -> String {
        let source = self.call("/source", None).await;
        source.ok().and_then(|source| source.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// What the browser complained about, but for what the test itself brought about.
    pub(crate) async fn complaints(&self, expected: &[&str]) -> Vec<String> {
        let said = self.call("/se/log", Some(json!({"type": "browser"}))).await.expect("a log");
        let lines = said.as_array().cloned().unwrap_or_default();
        let lines = lines.iter().filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG");
        let lines = lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        lines.filter(|line| !expected.iter().any(|part| line.contains(part))).collect()
    }

    /// Fails where the browser refused to run or style something, or a script of ours failed.
    pub(crate) async fn is_content(&self) {
        assert_eq!(self.complaints(&[]).await, Vec::<String>::new(), "on {}", self.url().await);
    }

    /// Writes a picture of the page.
    pub(crate) async fn photograph(&self, file: &Path) {
        let picture = self.call("/screenshot", None).await.expect("a picture");
        let bytes = decoded(picture.as_str().unwrap_or_default());
        std::fs::write(file, bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// Opens another tab, and looks at it: the one before is hidden.
    pub(crate) async fn another_tab(&self) -> String {
        let made = self.call("/window/new", Some(json!({"type": "tab"}))).await.expect("a tab");
        let handle = made["handle"].as_str().unwrap_or_default().to_owned();
        self.look_at(&handle).await;
        handle
    }

    pub(crate) async fn look_at(&self, tab: &str) {
        self.call("/window", Some(json!({"handle": tab}))).await.expect("the tab is there");
    }

    pub(crate) async fn resize(&self, width: u32, height: u32) {
        self.call("/window/rect", Some(json!({"width": width, "height": height}))).await.expect("a size");
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let ask = json!({"cmd": command, "params": parameters});
        self.call("/goog/cdp/execute", Some(ask)).await.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Begins to count how long the page keeps its processor busy.
    pub(crate) async fn measure(&self) {
        self.devtools("Performance.enable", json!({"timeDomain": "threadTicks"})).await;
    }

    /// For how many milliseconds the tasks of the page have kept a processor busy. Whatever else the machine does is
    /// not counted.
    pub(crate) async fn busy_millis(&self) -> f64 {
        let counted = self.devtools("Performance.getMetrics", json!({})).await;
        let tasks =
            counted["metrics"].as_array().into_iter().flatten().find(|one| one["name"] == "TaskDuration");
        tasks.and_then(|tasks| tasks["value"].as_f64()).expect("the time of tasks is counted") * 1_000.0
    }

    /// Lets the reader's system ask for dark pages, or for light ones.
    pub(crate) async fn darken(&self, dark: bool) {
        let wanted = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": wanted}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// How many pixels of the page lie beyond the right edge of the window.
    pub(crate) async fn overflow(&self) -> i64 {
        let script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        self.run(script).await.as_i64().unwrap_or(i64::MAX)
    }
}

/// The port that a driver says it listens on.
fn port(driver: &mut Child) -> u16 {
    let said = BufReader::new(driver.stdout.take().expect("its output"));
    for line in said.lines() {
        let line = line.expect("a line");
        if let Some((_, port)) = line.rsplit_once("started successfully on port ") {
            return port.trim_end_matches('.').parse().expect("a port");
        }
    }
    panic!("the driver ended before it said where it listens");
}

/// Base64, as WebDriver sends pictures.
fn decoded(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(value).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        let [_, one, two, three] = bits.to_be_bytes();
        bytes.extend([one, two, three].iter().take(four.len() * 3 / 4));
    }
    bytes
}

#[test]
fn pictures_are_decoded() {
    assert_eq!(decoded("aGVsbG8="), b"hello");
    assert_eq!(decoded("aGVsbG8h"), b"hello!");
    assert_eq!(decoded("/+8="), [0xff, 0xef]);
}
