//! Good graphs, and every kind of bad one with the sentence that it earns.

use super::*;
use crate::graph::definition::{Command, OnAgentLost};
use std::fmt::Write as _;

/// The faults of a text, as a person reads them.
fn faults(text: &str) -> String {
    let faults = parse(text).expect_err("it is not sound");
    let lines = faults.iter().map(|fault| match &fault.hint {
        Some(hint) => format!("{fault} ({hint})"),
        None => fault.to_string(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The faults of one job, which begins in line 3.
fn of_job(lines: &str) -> String {
    let mut text = "version: 1\njobs:\n  a:\n".to_owned();
    for line in lines.lines() {
        let _ = writeln!(text, "    {line}");
    }
    faults(&text)
}

#[test]
fn a_whole_graph_is_read() {
    let text = r"
version: 1
name: nightly figures
workspace: figures
env: {STAGE: prod}
jobs:
  load:
    run: [python3, load.py, --fast]
    needs: [extract]
    env: {STAGE: test, EMPTY: }
    pool: database
    weight: 2
  extract:
    run: |
      set -e
      python3 extract.py
    outputs:
      table: out/*.csv
    secrets: [API_KEY]
    timeout: 10m
    retries: 2
    workdir: src
    labels: [linux]
    on-agent-lost: rerun after 5m
    limits: {cpu: 1h, memory: 2GiB, output: 50MiB}
";
    let graph = parse(text).expect("it is sound");
    assert_eq!(graph.name.as_deref(), Some("nightly figures"));
    let names: Vec<_> = graph.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["extract", "load"], "after what it needs");
    let (extract, load) = (&graph.jobs[0], &graph.jobs[1]);
    assert_eq!(extract.run, Command::Shell("set -e\npython3 extract.py\n".to_owned()));
    assert_eq!(extract.on_agent_lost, OnAgentLost::RerunAfter(300));
    assert_eq!((extract.timeout_secs, extract.retries), (Some(600), 2));
    assert_eq!(extract.limits.memory_bytes, Some(2 << 30));
    assert_eq!(extract.env["STAGE"], "prod");
    assert_eq!((load.env["STAGE"].as_str(), load.env["EMPTY"].as_str()), ("test", ""));
    assert!(load.uses_database());
    let kept: Graph = serde_json::from_value(serde_json::to_value(&graph).unwrap()).unwrap();
    assert_eq!(kept, graph);
}

#[test]
fn every_fault_is_said_at_once_in_the_order_of_the_file() {
    let text =
        "jobs:\n  a:\n    run: x\n    nedes: [b]\n  b:\n    needs: [c]\n  c d:\n    run: x\n    weight: 0\n";
    let expected = [
        "1:1: `version` is missing (write `version: 1` at the top)",
        "4:5: `nedes` is no key of a job (is `needs` meant?)",
        "5:3: job `b` has no `run` (write `run: COMMAND` below its name)",
        "7:3: `c d` is no name for a job (use letters, digits, `-`, `_` and `.`, at most 64, beginning with a \
         letter or digit)",
        "9:13: `weight` is `0`; it must be a whole number between 1 and 1000",
    ];
    assert_eq!(faults(text), expected.join("\n"));
}

/// What is wrong with a file as a whole.
#[test]
fn bad_files() {
    let cases = [
        ("", "1:1: the file is empty (begin with `version: 1` and `jobs:`)"),
        ("- a", "1:1: a graph is a mapping (begin with `version: 1` and `jobs:`)"),
        ("version: 2\njobs: {a: {run: x}}", "1:10: this version is not known (write `version: 1`)"),
        ("version: 1", "1:1: `jobs` is missing (write `jobs:` and below it a job, such as `build:`)"),
        ("version: 1\njobs: [a]", "2:7: `jobs` is a list; it must be a mapping (write `name:` for each job)"),
        ("version: 1\njobs: {}", "2:7: there is no job (write `name:` for each job)"),
        ("version: 1\njobs: {a: {run: x}}\njbos: 1", "3:1: `jbos` is no key of a graph (is `jobs` meant?)"),
        (
            "version: 1\njobs: {a: {run: x}}\ncolour: red",
            "3:1: `colour` is no key of a graph (it has version, name, workspace, env, jobs)",
        ),
        (
            "version: 1\njobs:\n  a: {run: x}\n  a: {run: y}",
            "4:3: `a` stands here a second time; the first is in line 3 (keep one of them)",
        ),
        (
            "version: 1\nworkspace: ../up\njobs: {a: {run: x}}",
            "2:12: `../up` is no name for a workspace (use letters, digits, `-`, `_` and `.`, at most 64, \
             beginning with a letter or digit)",
        ),
        (
            "version: 1\njobs: {a: &x {run: x}}",
            "2:11: an anchor (`&name`) is not allowed here (write the value out)",
        ),
        ("version: 1\njobs: {a: {run: !sh x}}", "2:17: a tag (`!name`) is not allowed here (leave it out)"),
        (
            "version: 1\njobs: {a: {run: x}}\n---\nversion: 1",
            "3:1: the file holds more than one document (write one graph per file)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(faults(text), expected, "{text:?}");
    }
    assert!(faults("version: 1\njobs: {a: {run: x}").contains("this is not YAML"));
    let named = |count: usize| format!("version: 1\nname: {}\njobs: {{a: {{run: x}}}}", "ö".repeat(count));
    assert_eq!(faults(&named(129)), "2:7: `name` has 129 characters; at most 128 are allowed");
    assert!(super::parse(&named(128)).is_ok());
}

/// What is wrong with one job: its lines, and what is said. `NAMES` stands for the hint that all names share.
#[rustfmt::skip]
const BAD_JOBS: &[(&str, &str)] = &[
    ("run:", "4:8: `run` is empty"),
    ("run: []", "4:10: `run` is an empty list (name a program and its arguments)"),
    ("run: {a: b}", "4:10: `run` is a mapping; it must be text or a list (write `run: COMMAND`)"),
    ("run: x\nneeds: {b: c}", "5:12: `needs` is a mapping; it must be a list (write `[one, two]`)"),
    ("run: x\nneeds: a", "5:12: job `a` needs itself (leave it out)"),
    ("run: x\nneeds: [b]", "5:13: job `a` needs `b`, which does not exist (add that job, or leave it out)"),
    ("run: x\noutputs: [t]", "5:14: `outputs` is a list; it must be a mapping (write `name: path/*.csv`)"),
    ("run: x\noutputs: {t: /etc/x}",
     "5:18: the pattern `/etc/x` is not relative (paths begin within the job's directory)"),
    ("run: x\noutputs: {t: ../x}", "5:18: the pattern `../x` climbs out of the job's directory (leave out `..`)"),
    ("run: x\noutputs: {t: 'a/**/b'}",
     "5:18: the pattern `a/**/b` contains `**` (`*` stands for one name; write `a/*/b` for a directory between)"),
    ("run: x\noutputs: {t: 'a?'}",
     "5:18: the pattern `a?` contains `?`, `[`, `]`, `{` or `}` (only `*` stands for something else)"),
    ("run: x\noutputs: {'my table': a}", "5:15: `my table` is no name for an output (NAMES)"),
    ("run: x\nenv: [A]", "5:10: `env` is a list; it must be a mapping (write `NAME: value`)"),
    ("run: x\nenv: {1A: b}",
     "5:11: `1A` is no name for a variable (use letters, digits and `_`, not beginning with a digit)"),
    ("run: x\nenv: {TIDEMILL_RUN: b}", "5:11: `TIDEMILL_RUN` is set by Tidemill (choose another name)"),
    ("run: x\nenv: {A: [b]}", "5:14: the value of `A` must be text"),
    ("run: x\nenv: {A: b}\nsecrets: [A]",
     "6:15: `A` is a variable and a secret (keep it a secret, and leave it out of `env`)"),
    ("run: x\ntimeout: soon",
     "5:14: `soon` is no length of time (write a number and a unit, such as 90s, 10m, 2h or 1d)"),
    ("run: x\ntimeout: 0", "5:14: `timeout` is 0 (leave it out where there is no bound)"),
    ("run: x\ntimeout: 400d", "5:14: `400d` is no length of time (at most 365d are allowed)"),
    ("run: x\nretries: -1", "5:14: `retries` is `-1`; it must be a whole number between 0 and 100"),
    ("run: x\nretries: 1.5", "5:14: `retries` is `1.5`; it must be a whole number between 0 and 100"),
    ("run: x\nweight: 5000", "5:13: `weight` is `5000`; it must be a whole number between 1 and 1000"),
    ("run: x\npool: a b", "5:11: `a b` is no name for a pool (NAMES)"),
    ("run: x\nworkdir: /tmp",
     "5:14: the workdir `/tmp` is not relative (paths begin within the job's directory)"),
    ("run: x\non-agent-lost: panic",
     "5:20: `panic` is not what can become of a job whose agent is lost (write `wait`, or `rerun after 5m`)"),
    ("run: x\non-agent-lost: rerun after 2s",
     "5:20: an agent may be silent for less than 10 s (write `rerun after 1m`, or more)"),
    ("run: x\nlimits: {ram: 1}", "5:14: `ram` is no key of limits (it has cpu, memory, output)"),
    ("run: x\nlimits: {memory: lots}",
     "5:22: `lots` is no amount (write a number and a unit, such as 512MiB or 2GiB)"),
];

#[test]
fn bad_jobs() {
    for (lines, expected) in BAD_JOBS {
        assert_eq!(of_job(lines), expected.replace("NAMES", NAME_HINT), "{lines:?}");
    }
}

#[test]
fn a_circle_is_shown_as_one() {
    let text = "version: 1\njobs:\n  a: {run: x, needs: [c]}\n  b: {run: x, needs: [a]}\n  \
                c: {run: x, needs: [b]}\n  d: {run: x}\n";
    let expected = "3:3: these jobs need each other in a circle: a → c → b → a (take one of the needs out)";
    assert_eq!(faults(text), expected);
}

#[test]
fn two_jobs_cannot_leave_the_same_output() {
    let text = "version: 1\njobs:\n  a: {run: x, outputs: {t: o.csv}}\n  b: {run: x, outputs: {u: o.csv}}\n";
    let expected = "4:28: `o.csv` is an output of job `a` as well (give each output a path of its own)";
    assert_eq!(faults(text), expected);
}

#[test]
fn a_need_twice_is_said() {
    let text = "version: 1\njobs:\n  a: {run: x}\n  b: {run: x, needs: [a, a]}\n";
    assert_eq!(faults(text), "4:26: job `b` needs `a` twice (once is enough)");
}

#[test]
fn a_long_chain_is_read_and_too_many_jobs_are_refused() {
    let mut chain = "version: 1\njobs:\n  j0: {run: x}\n".to_owned();
    for number in 1..5_000 {
        let _ = writeln!(chain, "  j{number}: {{run: x, needs: [j{}]}}", number - 1);
    }
    assert_eq!(parse(&chain).expect("it is sound").jobs.len(), 5_000);
    let mut flat = "version: 1\njobs:\n".to_owned();
    for number in 0..=GRAPH_JOBS_MAX {
        let _ = writeln!(flat, "  j{number}: {{run: x}}");
    }
    assert_eq!(faults(&flat), "3:3: there are 50001 jobs; at most 50000 are allowed");
}

/// Linux refuses a command with a variable of 128 KiB or more, or with too much environment in all.
#[test]
fn environment_that_cannot_be_executed_is_a_fault() {
    let of = |value: usize| format!("run: x\nenv: {{A: {}}}", "v".repeat(value));
    let large = of_job(&of(200_000));
    let expected = "5:14: the variable `A` is 200003 bytes long; at most 131072 are allowed (write the value to a \
                    file, and name the file in the variable)";
    assert_eq!(large, expected);
    assert!(
        parse(&format!("version: 1\njobs:\n  a: {{run: x, env: {{A: {}}}}}\n", "v".repeat(131_069))).is_ok()
    );
    assert!(of_job(&of(131_070)).contains("131073 bytes"));
    // Those of the file and of the job count together.
    let many = |name: &str, count: usize| {
        (0..count)
            .map(|number| format!("{name}{number}: {}", "v".repeat(100_000)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let text =
        format!("version: 1\nenv: {{{}}}\njobs:\n  a: {{run: x, env: {{{}}}}}\n", many("A", 6), many("B", 6));
    let expected = "4:3: the environment of job `a` is 1200048 bytes long; at most 1048576 are allowed (write large \
                    values to files, and name the files in variables)";
    assert_eq!(faults(&text), expected);
}

/// Shows that the limits of a file in the documentation are those of the code.
#[test]
fn documented_limits_are_those_of_the_code() {
    use crate::limits;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/graphs.md");
    let page = std::fs::read_to_string(path).expect("the page is read");
    let (_, section) = page.split_once("## Limits of a file").expect("it has a section of limits");
    let section = section.split("\n## ").next().expect("a section");
    let told: Vec<(&str, &str)> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .filter(|(what, _)| *what != "what" && !what.starts_with("---"))
        .collect();
    let kib = |bytes: usize| format!("{} KiB", bytes / 1024);
    let mib = |bytes: usize| format!("{} MiB", bytes / 1024 / 1024);
    let expected = [
        ("the file", mib(limits::GRAPH_BYTES_MAX)),
        ("levels of nesting in the file", limits::GRAPH_DEPTH_MAX.to_string()),
        ("jobs", limits::GRAPH_JOBS_MAX.to_string()),
        ("`name` of the file", format!("{} characters", limits::GRAPH_NAME_CHARS_MAX)),
        (
            "names of jobs, outputs, pools, labels and workspaces",
            format!("{} bytes", limits::GRAPH_WORD_BYTES_MAX),
        ),
        ("`run`", kib(limits::COMMAND_BYTES_MAX)),
        ("`needs` of a job", limits::NEEDS_MAX.to_string()),
        ("a pattern or path", format!("{} bytes", limits::PATTERN_BYTES_MAX)),
        ("files that match the outputs of a job", limits::OUTPUTS_MAX.to_string()),
        ("the name of a variable", format!("{} bytes", limits::VARIABLE_NAME_BYTES_MAX)),
        ("a variable, with its name", kib(limits::VARIABLE_BYTES_MAX)),
        ("the variables of a job in all", mib(limits::ENVIRONMENT_BYTES_MAX)),
        ("`timeout`, `limits: {cpu: …}` and `rerun after`", format!("{}d", limits::GRAPH_DAYS_MAX)),
        ("`rerun after`, at least", format!("{}s", limits::RERUN_AFTER_SECS_MIN)),
        ("`retries`", limits::RETRIES_MAX.to_string()),
        ("`weight`", format!("1 to {}", limits::JOB_WEIGHT_MAX)),
        ("output of a command that is kept", mib(usize::try_from(limits::TASK_LOG_BYTES_MAX).unwrap())),
    ];
    let expected: Vec<(&str, &str)> = expected.iter().map(|(what, bound)| (*what, bound.as_str())).collect();
    assert_eq!(told, expected);
}
