//! Agents whose clocks are an hour off, ahead or behind: they wait, give up and are given up as everybody else.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tidemill_core::RunId;
use tidemill_core::run::RunState;
use tidemill_engine::clock::host_now;

use super::ground::{Site, graph};
use crate::process::{Process, is_alive, run};
use crate::stage::{PATIENCE, Stage, on_both, until_within};

on_both!(agents_an_hour_off_work_as_others_do, an_agent_an_hour_off_is_given_up_when_it_dies);

/// What a process asks for the time of day, with some seconds added. Time that only passes is left alone.
const OFF: &str = "#define _GNU_SOURCE
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

/// Builds what puts clocks off. The C compiler that SQLite is built with is there.
fn built(stage: &Stage) -> PathBuf {
    let (source, library) = (stage.write("off.c", OFF), stage.path("off.so"));
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    run(&mut compile).ok();
    library
}

/// An agent whose clock is so many seconds off.
fn agent(site: &Site<'_>, name: &str, off: i64, options: &[&str]) -> Process {
    let library = built(site.stage);
    let put_off = |command: &mut Command| {
        command.env("LD_PRELOAD", &library).env("CLOCK_OFF", off.to_string());
    };
    let mut date = Command::new("date");
    date.arg("+%s");
    put_off(&mut date);
    let told: i64 = run(&mut date).ok().trim().parse().expect("seconds");
    assert!(
        (told - host_now().timestamp() - off).abs() < 60,
        "the clock is not {off} s off, but {}",
        told - host_now().timestamp()
    );
    let mut command = site.agent_command(name, &site.url);
    command.args(options);
    put_off(&mut command);
    let agent = Process::start(site.stage, name, &mut command);
    until_within("the agent has its clock", PATIENCE, || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", agent.pid())).unwrap_or_default();
        maps.contains("off.so").then_some(())
    });
    agent
}

/// The seconds that the command of a job ran, as the server saw it.
fn took(site: &Site<'_>, run: &RunId, job: &str) -> f64 {
    let moments = site.job(run, job)["job"].clone();
    let at = |name: &str| -> chrono::DateTime<chrono::Utc> {
        moments[name].as_str().expect("a time").parse().expect("a time")
    };
    let (started, ended) = (at("started_at"), at("ended_at"));
    let now = host_now();
    assert!((now - ended).num_seconds().abs() < 600, "{job} ended at {ended}, and it is {now}");
    (ended - started).as_seconds_f64()
}

fn agents_an_hour_off_work_as_others_do(stage: &Stage) {
    let site = Site::start(stage);
    let _early = agent(&site, "early", 3_600, &["--label", "early", "--capacity", "4"]);
    let _late = agent(&site, "late", -3_600, &["--label", "late", "--capacity", "4"]);
    let run = site.submit(&graph(&[
        site.step("made", &[], "echo one > made.txt", "labels: [early]\noutputs: {made: made.txt}"),
        site.step("steady", &[], "sleep 3", "labels: [late]\ntimeout: 60s\non-agent-lost: rerun after 10s"),
        site.step("slow", &[], "sleep 60", "labels: [early]\ntimeout: 2s"),
        site.step("slower", &[], "sleep 60", "labels: [late]\ntimeout: 2s"),
        site.step("after", &["steady"], "true", "labels: [early]"),
    ]));
    assert_eq!(site.until_ended(&run), RunState::Failed, "two of its jobs are out of time");
    site.check(&run);
    let codes = site.codes(&run);
    for good in ["made", "steady", "after"] {
        assert_eq!(codes[good], "succeeded", "{codes:?}");
        assert_eq!(site.ledger().count(&format!("begin {good} ")), 1, "{:?}", site.ledger());
    }
    for slow in ["slow", "slower"] {
        let why = stage.ok(&["job", "why", &format!("{run}/{slow}")]);
        assert!(why.contains("ran longer than 2 s"), "{why}");
        let secs = took(&site, &run, slow);
        assert!((1.0..50.0).contains(&secs), "{slow} took {secs} s");
    }
}

/// The agent is killed with its supervisor: after the time that the job allows, and not before, another one runs it.
fn an_agent_an_hour_off_is_given_up_when_it_dies(stage: &Stage) {
    let site = Site::start(stage);
    let mut early = agent(&site, "early", 3_600, &[]);
    let work = "if [ \"$TIDEMILL_ATTEMPT\" = 1 ]; then sleep 120; fi";
    let run = site.submit(&graph(&[site.step("long", &[], work, "on-agent-lost: rerun after 10s")]));
    site.until_written("begin long 1 ");
    let command = site.ledger().pid("long");
    early.kill();
    let _late = agent(&site, "late", -3_600, &[]);
    assert_eq!(site.until_ended(&run), RunState::Success);
    assert!(!is_alive(command), "the first command is dead before the second begins");
    site.check(&run);
    let ledger = site.ledger();
    assert_eq!((ledger.count("begin long 1 "), ledger.count("begin long 2 ")), (1, 1), "{ledger:?}");
}
