//! Headless browser driven over WebDriver: Debian's chromium and chromedriver.
//!
//! The protocol is JSON over HTTP and the tests need about ten calls, so this is a small client of our own.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_testkit::cluster::find_on_path;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Number of concurrent browsers. More than cores, because tests mostly wait.
const BROWSERS: u32 = 2;
static BROWSER_PERMITS: Semaphore = Semaphore::const_new(BROWSERS as usize);
/// Idle browsers. Tests reuse them, because starting one takes seconds.
static IDLE_BROWSERS: Mutex<Vec<BrowserProcess>> = Mutex::new(Vec::new());
/// Time limit for an expected change of the page.
const TIMEOUT: Duration = Duration::from_mins(1);
/// WebDriver's key of an element reference.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// WebDriver codes of keys without a character.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
const WINDOW: &str = "--window-size=1280,900";
/// Maximum height of a screenshot, in pixels.
const SCREENSHOT_HEIGHT_MAX: f64 = 6_000.0;

/// Shell script that starts the driver (`$1`) and reads the browser's process id. When its input is closed, because the
/// test process has ended in any way, it stops both and removes the browser's profile (`$2`).
const SUPERVISOR_SCRIPT: &str = r#"
"$1" --port=0 & driver=$!
read -r browser
read -r end
if [ -n "$browser" ]; then kill "$browser"; fi
for turn in 1 2 3 4 5 6 7 8 9; do kill -0 "$browser" && sleep 0.1; done
kill "$driver"
wait "$driver"
rm -rf "$2"
"#;

/// Options of a browser.
pub(crate) struct BrowserOptions {
    pub(crate) script: bool,
    /// Whether no other browser may run at the same time.
    pub(crate) exclusive: bool,
}

impl Default for BrowserOptions {
    fn default() -> Self {
        Self { script: true, exclusive: false }
    }
}

/// A driver and its browser. Both end when this is dropped, or with the test process.
struct BrowserProcess {
    session: String,
    /// Held for its input: the script notices when it is closed.
    _supervisor: Child,
}

impl BrowserProcess {
    async fn start(http: &reqwest::Client) -> Self {
        let missing = "is missing; `cargo xtask test` installs chromium and chromium-driver where it may";
        let driver = find_on_path("chromedriver").unwrap_or_else(|| panic!("chromedriver {missing}"));
        let chromium = find_on_path("chromium").unwrap_or_else(|| panic!("chromium {missing}"));
        let profile = profile();
        let mut supervisor = Command::new("/bin/sh")
            .args(["-c", SUPERVISOR_SCRIPT, "supervisor"])
            .args([&driver, &profile])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the driver starts");
        let base = format!(
            "http://127.0.0.1:{}/session",
            port(supervisor.stdout.take().expect("the driver's output"))
        );
        let response = http.post(&base).json(&capabilities(&chromium, &profile)).send().await;
        let response: Value = response.expect("the driver responds").json().await.expect("a JSON response");
        let session = &response["value"];
        let id = session["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {response}"));
        let process = &session["capabilities"]["goog:processID"];
        let input = supervisor.stdin.as_mut().expect("the script's input");
        writeln!(input, "{}", process.as_i64().expect("the browser's process id"))
            .expect("the script reads it");
        Self { session: format!("{base}/{id}"), _supervisor: supervisor }
    }

    /// Resets the browser for the next test: new tab, no cookies, empty log. Returns `None` if it does not respond;
    /// then the script ends it.
    async fn reset(self, http: &reqwest::Client) -> Option<Self> {
        let at = |path: &str| format!("{}{path}", self.session);
        let switch_to = |handle: &Value| send(http.post(at("/window")).json(&json!({"handle": handle})));
        let old = send(http.get(at("/window/handles"))).await.ok()?;
        let fresh = send(http.post(at("/window/new")).json(&json!({"type": "tab"}))).await.ok()?;
        for handle in old.as_array().into_iter().flatten() {
            switch_to(handle).await.ok()?;
            send(http.delete(at("/window"))).await.ok()?;
        }
        switch_to(&fresh["handle"]).await.ok()?;
        let forget = json!({"cmd": "Network.clearBrowserCookies", "params": {}});
        send(http.post(at("/goog/cdp/execute")).json(&forget)).await.ok()?;
        send(http.post(at("/se/log")).json(&json!({"type": "browser"}))).await.ok()?;
        Some(self)
    }
}

fn capabilities(chromium: &Path, profile: &Path) -> Value {
    let profile = format!("--user-data-dir={}", profile.display());
    let arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-extensions",
        "--disable-sync",
        "--hide-scrollbars",
        profile.as_str(),
        WINDOW,
    ];
    json!({"capabilities": {"alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": chromium, "args": arguments},
        "goog:loggingPrefs": {"browser": "ALL"},
    }}})
}

/// Creates a profile directory, in memory if possible. The script removes it.
fn profile() -> PathBuf {
    let memory = tempfile::Builder::new().prefix("tidemill-browser-").tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).expect("a profile directory").keep()
}

/// A browser that a test uses.
pub(crate) struct Browser {
    http: reqwest::Client,
    /// `None` after it was returned to the idle browsers.
    running: Option<BrowserProcess>,
    session: String,
    /// Permit that limits concurrent browsers.
    _permit: SemaphorePermit<'static>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        IDLE_BROWSERS.lock().unwrap_or_else(PoisonError::into_inner).extend(self.running.take());
    }
}

impl Browser {
    /// Takes a browser with one empty tab and no cookies.
    pub(crate) async fn open(options: &BrowserOptions) -> Self {
        let permits = if options.exclusive { BROWSERS } else { 1 };
        let permit = BROWSER_PERMITS.acquire_many(permits).await.expect("the semaphore is never closed");
        let http = crate::server::http().timeout(Duration::from_mins(1)).build().expect("an HTTP client");
        let idle = IDLE_BROWSERS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let running = match idle {
            Some(running) => running.reset(&http).await,
            None => None,
        };
        let running = match running {
            Some(running) => running,
            None => BrowserProcess::start(&http).await,
        };
        let session = running.session.clone();
        let browser = Self { http, running: Some(running), session, _permit: permit };
        if !options.script {
            browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
        }
        browser
    }

    async fn call(&self, path: &str, body: Option<Value>) -> Result<Value, Value> {
        let url = format!("{}{path}", self.session);
        send(match body {
            Some(body) => self.http.post(url).json(&body),
            None => self.http.get(url),
        })
        .await
    }

    pub(crate) async fn go(&self, url: &str) {
        self.call("/url", Some(json!({"url": url}))).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    pub(crate) async fn url(&self) -> String {
        self.call("/url", None).await.expect("a URL").as_str().unwrap_or_default().to_owned()
    }

    async fn find(&self, css: &str) -> Option<String> {
        let found = self.call("/element", Some(json!({"using": "css selector", "value": css}))).await.ok()?;
        found[ELEMENT].as_str().map(str::to_owned)
    }

    /// Waits for an element.
    async fn element(&self, css: &str) -> String {
        let started = Instant::now();
        loop {
            if let Some(found) = self.find(css).await {
                return found;
            }
            assert!(
                started.elapsed() < TIMEOUT,
                "no element {css} on {}: {}",
                self.url().await,
                self.source().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Clicks on an element as soon as it is clickable.
    pub(crate) async fn click(&self, css: &str) {
        let started = Instant::now();
        loop {
            let element = self.element(css).await;
            match self.call(&format!("/element/{element}/click"), Some(json!({}))).await {
                Ok(_) => return,
                Err(error) => assert!(started.elapsed() < TIMEOUT, "{css}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn type_text(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        let written = self.call(&format!("/element/{element}/value"), Some(json!({"text": text}))).await;
        written.unwrap_or_else(|error| panic!("{css}: {error}"));
    }

    /// Text of an element.
    pub(crate) async fn text(&self, css: &str) -> String {
        let element = self.element(css).await;
        let text = self.call(&format!("/element/{element}/text"), None).await;
        text.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Waits until an element contains a text.
    pub(crate) async fn wait_for_text(&self, css: &str, wanted: &str) {
        let started = Instant::now();
        loop {
            let text = self.text(css).await;
            if text.contains(wanted) {
                return;
            }
            assert!(
                started.elapsed() < TIMEOUT,
                "{css} on {} contains {text:?} instead of {wanted:?}",
                self.url().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until an element no longer contains a text.
    pub(crate) async fn wait_for_no_text(&self, css: &str, unwanted: &str) {
        let started = Instant::now();
        while self.text(css).await.contains(unwanted) {
            assert!(started.elapsed() < TIMEOUT, "{css} still contains {unwanted:?} on {}", self.url().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs a script in the page.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let done = self.call("/execute/sync", Some(json!({"script": script, "args": []}))).await;
        done.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    pub(crate) async fn source(&self) -> String {
        let source = self.call("/source", None).await;
        source.ok().and_then(|source| source.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Errors and warnings in the browser's console, except for expected ones.
    pub(crate) async fn console_errors(&self, expected: &[&str]) -> Vec<String> {
        let log = self.call("/se/log", Some(json!({"type": "browser"}))).await.expect("the browser log");
        let lines = log.as_array().cloned().unwrap_or_default();
        let lines = lines.iter().filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG");
        let lines = lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        lines.filter(|line| !expected.iter().any(|part| line.contains(part))).collect()
    }

    /// Fails if the browser's console contains any error, such as a policy violation or a script error.
    pub(crate) async fn assert_no_errors(&self) {
        assert_eq!(self.console_errors(&[]).await, Vec::<String>::new(), "on {}", self.url().await);
    }

    /// Saves a screenshot of the whole page.
    pub(crate) async fn screenshot(&self, file: &Path) {
        let size = self.devtools("Page.getLayoutMetrics", json!({})).await["cssContentSize"].take();
        let height = size["height"].as_f64().expect("a height").min(SCREENSHOT_HEIGHT_MAX);
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1});
        let wanted = json!({"format": "webp", "quality": 80, "captureBeyondViewport": true, "clip": clip});
        let image = self.devtools("Page.captureScreenshot", wanted).await;
        let bytes = decode_base64(image["data"].as_str().expect("image data"));
        std::fs::write(file, bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// Opens another tab and switches to it.
    pub(crate) async fn another_tab(&self) -> String {
        let made = self.call("/window/new", Some(json!({"type": "tab"}))).await.expect("a new tab");
        let handle = made["handle"].as_str().unwrap_or_default().to_owned();
        self.switch_to(&handle).await;
        handle
    }

    pub(crate) async fn switch_to(&self, tab: &str) {
        self.call("/window", Some(json!({"handle": tab}))).await.expect("the tab exists");
    }

    /// Emulates a window size, which may be smaller than a real window can be.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Presses keys one after the other.
    pub(crate) async fn press(&self, keys: &str) {
        let strokes = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()})));
        let strokes: Vec<Value> = strokes.collect();
        let keyboard = json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]});
        self.call("/actions", Some(keyboard)).await.unwrap_or_else(|error| panic!("{keys:?}: {error}"));
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let command_body = json!({"cmd": command, "params": parameters});
        self.call("/goog/cdp/execute", Some(command_body))
            .await
            .unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Starts to measure the processor time of the page.
    pub(crate) async fn measure(&self) {
        self.devtools("Performance.enable", json!({"timeDomain": "threadTicks"})).await;
    }

    /// Processor time of the page's tasks in milliseconds, independent of other load on the machine.
    pub(crate) async fn busy_millis(&self) -> f64 {
        let counted = self.devtools("Performance.getMetrics", json!({})).await;
        let tasks =
            counted["metrics"].as_array().into_iter().flatten().find(|one| one["name"] == "TaskDuration");
        tasks.and_then(|tasks| tasks["value"].as_f64()).expect("the metric TaskDuration") * 1_000.0
    }

    /// Emulates a system setting for dark or light pages.
    pub(crate) async fn set_dark_mode(&self, dark: bool) {
        let wanted = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": wanted}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// Waits for an error in the browser's console.
    pub(crate) async fn wait_for_error(&self, of: &str) {
        let (started, mut errors) = (Instant::now(), Vec::new());
        while !errors.iter().any(|line: &String| line.contains(of)) {
            assert!(started.elapsed() < TIMEOUT, "no error with {of:?} on {}: {errors:?}", self.url().await);
            errors.extend(self.console_errors(&[]).await);
        }
    }
}

/// Sends a WebDriver request and returns its value or its error.
async fn send(request: reqwest::RequestBuilder) -> Result<Value, Value> {
    let response = request.send().await.map_err(|error| json!(error.to_string()))?;
    let ok = response.status().is_success();
    let mut response: Value = response.json().await.map_err(|error| json!(error.to_string()))?;
    let value = response["value"].take();
    if ok { Ok(value) } else { Err(value) }
}

/// Reads the port from the driver's output.
fn port(output: ChildStdout) -> u16 {
    for line in BufReader::new(output).lines() {
        let line = line.expect("a line of output");
        if let Some((_, port)) = line.rsplit_once("started successfully on port ") {
            return port.trim_end_matches('.').parse().expect("a port number");
        }
    }
    panic!("the driver ended before it printed its port");
}

fn decode_base64(text: &str) -> Vec<u8> {
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
fn screenshots_are_decoded_from_base64() {
    assert_eq!(decode_base64("aGVsbG8="), b"hello");
    assert_eq!(decode_base64("aGVsbG8h"), b"hello!");
    assert_eq!(decode_base64("/+8="), [0xff, 0xef]);
}
