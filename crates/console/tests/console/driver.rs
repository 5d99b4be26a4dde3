//! A real browser without a screen, driven over WebDriver: Debian's chromium and its driver.
//!
//! A small client of our own: the protocol is JSON over HTTP, and the tests need ten of its calls.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_testkit::cluster::find_on_path;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Browsers at once: they wait more than they work.
const BROWSERS: u32 = 2;
static SEATS: Semaphore = Semaphore::const_new(BROWSERS as usize);
/// Browsers that nobody has just now. The tests hand them on, because to start one takes seconds.
static KEPT: Mutex<Vec<Running>> = Mutex::new(Vec::new());
/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_mins(1);
/// How WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// The keys that have no letter, as WebDriver names them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
/// The size of its window.
const WINDOW: &str = "--window-size=1280,900";
/// The tallest part of a page that a picture shows, in pixels.
const PICTURE_HEIGHT_MAX: f64 = 6_000.0;

/// Starts the driver (`$1`), is told which process its browser is, and ends both when whoever started it has ended, in
/// whatever way; then the folder of the browser (`$2`) goes.
const KEEPER: &str = r#"
"$1" --port=0 & driver=$!
read -r browser
read -r end
if [ -n "$browser" ]; then kill "$browser"; fi
for turn in 1 2 3 4 5 6 7 8 9; do kill -0 "$browser" && sleep 0.1; done
kill "$driver"
wait "$driver"
rm -rf "$2"
"#;

/// What a browser is like.
pub(crate) struct Wish {
    pub(crate) script: bool,
    /// Whether there is no other one meanwhile.
    pub(crate) alone: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Self { script: true, alone: false }
    }
}

/// A driver and its browser. Both end when this is dropped, or with the process.
struct Running {
    session: String,
    /// Held for its input, whose end it notices.
    _keeper: Child,
}

impl Running {
    async fn start(http: &reqwest::Client) -> Self {
        let missing = "is missing; `cargo xtask test` installs it where it may: chromium, chromium-driver";
        let driver = find_on_path("chromedriver").unwrap_or_else(|| panic!("chromedriver {missing}"));
        let chromium = find_on_path("chromium").unwrap_or_else(|| panic!("chromium {missing}"));
        let profile = profile();
        let mut keeper = Command::new("/bin/sh")
            .args(["-c", KEEPER, "keeper"])
            .args([&driver, &profile])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the driver starts");
        let base = format!("http://127.0.0.1:{}/session", port(keeper.stdout.take().expect("its output")));
        let answer = http.post(&base).json(&wanted(&chromium, &profile)).send().await;
        let answer: Value = answer.expect("the driver answers").json().await.expect("an answer");
        let session = &answer["value"];
        let id = session["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}"));
        let process = &session["capabilities"]["goog:processID"];
        let input = keeper.stdin.as_mut().expect("its input");
        writeln!(input, "{}", process.as_i64().expect("the browser's process")).expect("the keeper listens");
        Self { session: format!("{base}/{id}"), _keeper: keeper }
    }

    /// The same, with nothing of whoever had it before: what was set for a tab goes with the tab. Nothing where it does
    /// not answer any more; then its keeper ends it.
    async fn cleared(self, http: &reqwest::Client) -> Option<Self> {
        let at = |path: &str| format!("{}{path}", self.session);
        let look_at = |handle: &Value| said(http.post(at("/window")).json(&json!({"handle": handle})));
        let old = said(http.get(at("/window/handles"))).await.ok()?;
        let fresh = said(http.post(at("/window/new")).json(&json!({"type": "tab"}))).await.ok()?;
        for handle in old.as_array().into_iter().flatten() {
            look_at(handle).await.ok()?;
            said(http.delete(at("/window"))).await.ok()?;
        }
        look_at(&fresh["handle"]).await.ok()?;
        let forget = json!({"cmd": "Network.clearBrowserCookies", "params": {}});
        said(http.post(at("/goog/cdp/execute")).json(&forget)).await.ok()?;
        said(http.post(at("/se/log")).json(&json!({"type": "browser"}))).await.ok()?;
        Some(self)
    }
}

/// What the driver is asked for.
fn wanted(chromium: &Path, profile: &Path) -> Value {
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

/// A folder for a browser, in memory where there is one. The keeper removes it.
fn profile() -> PathBuf {
    let memory = tempfile::Builder::new().prefix("tidemill-browser-").tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).expect("a folder").keep()
}

/// A browser, for as long as a test has it.
pub(crate) struct Browser {
    http: reqwest::Client,
    /// There until it is handed on.
    running: Option<Running>,
    session: String,
    /// Held for the others, who wait.
    _seat: SemaphorePermit<'static>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).extend(self.running.take());
    }
}

impl Browser {
    /// Takes a browser as somebody new: with one tab, and without a cookie of whoever had it before.
    pub(crate) async fn open(wish: &Wish) -> Self {
        let seats = if wish.alone { BROWSERS } else { 1 };
        let seat = SEATS.acquire_many(seats).await.expect("the seats are never closed");
        let http = crate::house::http().timeout(Duration::from_mins(1)).build().expect("a client");
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let running = match kept {
            Some(running) => running.cleared(&http).await,
            None => None,
        };
        let running = match running {
            Some(running) => running,
            None => Running::start(&http).await,
        };
        let session = running.session.clone();
        let browser = Self { http, running: Some(running), session, _seat: seat };
        if !wish.script {
            browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
        }
        browser
    }

    async fn call(&self, path: &str, body: Option<Value>) -> Result<Value, Value> {
        let url = format!("{}{path}", self.session);
        said(match body {
            Some(body) => self.http.post(url).json(&body),
            None => self.http.get(url),
        })
        .await
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

    /// Writes a picture of the page, with what lies below the window too.
    pub(crate) async fn photograph(&self, file: &Path) {
        let size = self.devtools("Page.getLayoutMetrics", json!({})).await["cssContentSize"].take();
        let height = size["height"].as_f64().expect("a height").min(PICTURE_HEIGHT_MAX);
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1});
        let wanted = json!({"format": "webp", "quality": 80, "captureBeyondViewport": true, "clip": clip});
        let picture = self.devtools("Page.captureScreenshot", wanted).await;
        let bytes = decoded(picture["data"].as_str().expect("a picture"));
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

    /// Lets the page believe that the window is so large, which may be less than a window can be.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub(crate) async fn press(&self, keys: &str) {
        let strokes = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()})));
        let strokes: Vec<Value> = strokes.collect();
        let keyboard = json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]});
        self.call("/actions", Some(keyboard)).await.unwrap_or_else(|error| panic!("{keys:?}: {error}"));
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

    /// Waits until the browser complains of something.
    pub(crate) async fn complains(&self, of: &str) {
        let (began, mut heard) = (Instant::now(), Vec::new());
        while !heard.iter().any(|line: &String| line.contains(of)) {
            assert!(began.elapsed() < PATIENCE, "nothing of {of:?} on {}: {heard:?}", self.url().await);
            heard.extend(self.complaints(&[]).await);
        }
    }
}

/// What the driver says to a request, or what is wrong with it.
async fn said(request: reqwest::RequestBuilder) -> Result<Value, Value> {
    let answer = request.send().await.map_err(|error| json!(error.to_string()))?;
    let ok = answer.status().is_success();
    let mut answer: Value = answer.json().await.map_err(|error| json!(error.to_string()))?;
    let value = answer["value"].take();
    if ok { Ok(value) } else { Err(value) }
}

/// The port that a driver says it listens on.
fn port(output: ChildStdout) -> u16 {
    for line in BufReader::new(output).lines() {
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
