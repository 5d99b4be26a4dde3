//! Agents whose clocks are an hour ahead or behind: timeouts and loss detection still work.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tidemill_core::RunId;
use tidemill_core::run::RunState;
use tidemill_engine::clock::host_now;

use super::fixture::{GraphFixture, graph};
use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until_within};
use crate::process::{Process, is_alive, run};

on_both!(agents_with_skewed_clocks_run_jobs, dead_agent_with_skewed_clock_is_given_up);

/// Library that adds an offset to the wall clock of a process. Monotonic clocks are not changed.
const CLOCK_LIBRARY: &str = "#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long off(void) { const char *secs = getenv(\"CLOCK_OFF\"); return secs ? atol(secs) : 0; }
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += off();
    return failed;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
";

/// Compiles the library. A C compiler is available, because SQLite is compiled, too.
fn build_library(fixture: &Fixture) -> PathBuf {
    let (source, library) = (fixture.write("off.c", CLOCK_LIBRARY), fixture.path("off.so"));
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    run(&mut compile).ok();
    library
}

/// Starts an agent whose clock differs by `off` seconds.
fn agent(graphs: &GraphFixture<'_>, name: &str, off: i64, options: &[&str]) -> Process {
    let library = build_library(graphs.fixture);
    let skew_clock = |command: &mut Command| {
        command.env("LD_PRELOAD", &library).env("CLOCK_OFF", off.to_string());
    };
    let mut date = Command::new("date");
    date.arg("+%s");
    skew_clock(&mut date);
    let message: i64 = run(&mut date).ok().trim().parse().expect("seconds");
    assert!(
        (message - host_now().timestamp() - off).abs() < 60,
        "the clock is not {off} s off, but {}",
        message - host_now().timestamp()
    );
    let mut command = graphs.agent_command(name, &graphs.url);
    command.args(options);
    skew_clock(&mut command);
    let agent = Process::start(graphs.fixture, name, &mut command);
    wait_until_within("the agent uses the library", TIMEOUT, || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", agent.pid())).unwrap_or_default();
        maps.contains("off.so").then_some(())
    });
    agent
}

/// Duration of a job in seconds, by the clock of the server.
fn duration(graphs: &GraphFixture<'_>, run: &RunId, job: &str) -> f64 {
    let moments = graphs.job(run, job)["job"].clone();
    let at = |name: &str| -> chrono::DateTime<chrono::Utc> {
        moments[name].as_str().expect("a time").parse().expect("a time")
    };
    let (started, ended) = (at("started_at"), at("ended_at"));
    let now = host_now();
    assert!((now - ended).num_seconds().abs() < 600, "{job} ended at {ended}, and it is {now}");
    (ended - started).as_seconds_f64()
}

fn agents_with_skewed_clocks_run_jobs(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _early = agent(&graphs, "early", 3_600, &["--label", "early", "--capacity", "4"]);
    let _late = agent(&graphs, "late", -3_600, &["--label", "late", "--capacity", "4"]);
    let run = graphs.submit(&graph(&[
        graphs.step("made", &[], "echo one > made.txt", "labels: [early]\noutputs: {made: made.txt}"),
        graphs.step("steady", &[], "sleep 3", "labels: [late]\ntimeout: 60s\non-agent-lost: rerun after 10s"),
        graphs.step("slow", &[], "sleep 60", "labels: [early]\ntimeout: 2s"),
        graphs.step("slower", &[], "sleep 60", "labels: [late]\ntimeout: 2s"),
        graphs.step("after", &["steady"], "true", "labels: [early]"),
    ]));
    assert_eq!(graphs.wait_for_end(&run), RunState::Failed, "two of its jobs time out");
    graphs.check(&run);
    let codes = graphs.codes(&run);
    for name in ["made", "steady", "after"] {
        assert_eq!(codes[name], "succeeded", "{codes:?}");
        assert_eq!(graphs.ledger().count(&format!("begin {name} ")), 1, "{:?}", graphs.ledger());
    }
    for slow in ["slow", "slower"] {
        let why = fixture.ok(&["job", "why", &format!("{run}/{slow}")]);
        assert!(why.contains("ran longer than 2 s"), "{why}");
        let secs = duration(&graphs, &run, slow);
        assert!((1.0..50.0).contains(&secs), "{slow} took {secs} s");
    }
}

/// The agent is killed: another one runs the job after its `on-agent-lost` time, and not before.
fn dead_agent_with_skewed_clock_is_given_up(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut early = agent(&graphs, "early", 3_600, &[]);
    let work = "if [ \"$TIDEMILL_ATTEMPT\" = 1 ]; then sleep 120; fi";
    let run = graphs.submit(&graph(&[graphs.step("long", &[], work, "on-agent-lost: rerun after 10s")]));
    graphs.wait_for_line("begin long 1 ");
    let command = graphs.ledger().pid("long");
    early.kill();
    let _late = agent(&graphs, "late", -3_600, &[]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    assert!(!is_alive(command), "the first command is dead before the second starts");
    graphs.check(&run);
    let ledger = graphs.ledger();
    assert_eq!((ledger.count("begin long 1 "), ledger.count("begin long 2 ")), (1, 1), "{ledger:?}");
}
