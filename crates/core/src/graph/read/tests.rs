//! Tests of valid graphs, and of every error with its message.

use super::*;
use crate::graph::definition::{Command, Limits, OnAgentLost};
use std::fmt::Write as _;

/// Returns the errors of a text, one per line, with hints.
fn errors_of(text: &str) -> String {
    let errors = parse(text).expect_err("the text is invalid");
    let lines = errors.iter().map(|error| match &error.hint {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the errors of one job, which begins in line 3.
fn job_errors(lines: &str) -> String {
    let mut text = "version: 1\njobs:\n  a:\n".to_owned();
    for line in lines.lines() {
        let _ = writeln!(text, "    {line}");
    }
    errors_of(&text)
}

#[test]
fn graph_with_every_key_is_parsed() {
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
    limits: {memory: 2GiB, processes: 64, cpu: 150%, cpu-time: 1h, file-size: 50MiB}
";
    let graph = parse(text).expect("the graph is valid");
    assert_eq!(graph.name.as_deref(), Some("nightly figures"));
    let names: Vec<_> = graph.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["extract", "load"], "sorted after its needs");
    let (extract, load) = (&graph.jobs[0], &graph.jobs[1]);
    assert_eq!(extract.run, Command::Shell("set -e\npython3 extract.py\n".to_owned()));
    assert_eq!(extract.on_agent_lost, OnAgentLost::RerunAfter(300));
    assert_eq!((extract.timeout_secs, extract.retries), (Some(600), 2));
    let expected = Limits {
        memory_bytes: Some(2 << 30),
        processes: Some(64),
        cpu_percent: Some(150),
        cpu_secs: Some(3_600),
        output_bytes: Some(50 << 20),
    };
    assert_eq!(extract.limits, expected);
    assert_eq!(
        extract.limits.describe(),
        ["memory 2GiB", "processes 64", "cpu 150%", "cpu-time 1h", "file-size 50MiB"]
    );
    assert_eq!(load.limits, Limits::default());
    assert_eq!(extract.env["STAGE"], "prod");
    assert_eq!((load.env["STAGE"].as_str(), load.env["EMPTY"].as_str()), ("test", ""));
    assert!(load.uses_database());
    let restored: Graph = serde_json::from_value(serde_json::to_value(&graph).unwrap()).unwrap();
    assert_eq!(restored, graph);
}

#[test]
fn all_errors_are_reported_in_file_order() {
    let text =
        "jobs:\n  a:\n    run: x\n    nedes: [b]\n  b:\n    needs: [c]\n  c d:\n    run: x\n    weight: 0\n";
    let expected = [
        "1:1: `version` is missing (write `version: 1` at the top)",
        "4:5: `nedes` is not a key of a job (did you mean `needs`?)",
        "5:3: job `b` has no `run` (write `run: COMMAND` below its name)",
        "7:3: `c d` is not a valid job name (use letters, digits, `-`, `_` and `.`, at most 64, beginning with a \
         letter or digit)",
        "9:13: `weight` is `0`; it must be a whole number between 1 and 1000",
    ];
    assert_eq!(errors_of(text), expected.join("\n"));
}

/// Errors outside of jobs.
#[test]
fn invalid_files_are_rejected_with_a_hint() {
    let cases = [
        ("", "1:1: the file is empty (begin with `version: 1` and `jobs:`)"),
        ("- a", "1:1: a graph must be a mapping (begin with `version: 1` and `jobs:`)"),
        ("version: 2\njobs: {a: {run: x}}", "1:10: unsupported version (write `version: 1`)"),
        ("version: 1", "1:1: `jobs` is missing (write `jobs:` and below it a job, such as `build:`)"),
        ("version: 1\njobs: [a]", "2:7: `jobs` is a list; it must be a mapping (write `name:` for each job)"),
        ("version: 1\njobs: {}", "2:7: `jobs` is empty (write `name:` for each job)"),
        (
            "version: 1\njobs: {a: {run: x}}\njbos: 1",
            "3:1: `jbos` is not a key of a graph (did you mean `jobs`?)",
        ),
        (
            "version: 1\njobs: {a: {run: x}}\ncolour: red",
            "3:1: `colour` is not a key of a graph (the keys are version, name, workspace, env, jobs)",
        ),
        (
            "version: 1\njobs:\n  a: {run: x}\n  a: {run: y}",
            "4:3: duplicate key `a`; first used in line 3 (remove one of them)",
        ),
        (
            "version: 1\nworkspace: ../up\njobs: {a: {run: x}}",
            "2:12: `../up` is not a valid workspace name (use letters, digits, `-`, `_` and `.`, at most 64, \
             beginning with a letter or digit)",
        ),
        (
            "version: 1\njobs: {a: &x {run: x}}",
            "2:11: an anchor (`&name`) is not allowed here (write the value out)",
        ),
        ("version: 1\njobs: {a: {run: !sh x}}", "2:17: a tag (`!name`) is not allowed here (remove it)"),
        (
            "version: 1\njobs: {a: {run: x}}\n---\nversion: 1",
            "3:1: the file contains more than one document (write one graph per file)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(errors_of(text), expected, "{text:?}");
    }
    assert!(errors_of("version: 1\njobs: {a: {run: x}").contains("this is not YAML"));
    let named = |count: usize| format!("version: 1\nname: {}\njobs: {{a: {{run: x}}}}", "ö".repeat(count));
    assert_eq!(errors_of(&named(129)), "2:7: `name` has 129 characters; at most 128 are allowed");
    assert!(super::parse(&named(128)).is_ok());
    let escape = "version: 1\nname: \"a\\e[31m\"\njobs: {a: {run: x}}";
    assert_eq!(errors_of(escape), "2:7: `name` contains the control character U+001B (remove it)");
}

/// Errors of one job: its lines, and the message. `NAMES` stands for the common hint about names.
#[rustfmt::skip]
const BAD_JOBS: &[(&str, &str)] = &[
    ("run:", "4:8: `run` is empty"),
    ("run: []", "4:10: `run` is an empty list (name a program and its arguments)"),
    ("run: {a: b}", "4:10: `run` is a mapping; it must be text or a list (write `run: COMMAND`)"),
    ("run: x\nneeds: {b: c}", "5:12: `needs` is a mapping; it must be a list (write `[one, two]`)"),
    ("run: x\nneeds: a", "5:12: job `a` needs itself (remove it)"),
    ("run: x\nneeds: [b]", "5:13: job `a` needs `b`, which does not exist (add that job, or remove the need)"),
    ("run: x\noutputs: [t]", "5:14: `outputs` is a list; it must be a mapping (write `name: path/*.csv`)"),
    ("run: x\noutputs: {t: /etc/x}",
     "5:18: the pattern `/etc/x` is not relative (use a path relative to the job's directory)"),
    ("run: x\noutputs: {t: ../x}", "5:18: the pattern `../x` leaves the job's directory (remove `..`)"),
    ("run: x\noutputs: {t: 'a/**/b'}",
     "5:18: the pattern `a/**/b` contains `**` (`*` matches one name; write `a/*/b` for one directory level)"),
    ("run: x\noutputs: {t: 'a?'}",
     "5:18: the pattern `a?` contains `?`, `[`, `]`, `{` or `}` (the only wildcard is `*`)"),
    ("run: x\noutputs: {'my table': a}", "5:15: `my table` is not a valid output name (NAMES)"),
    ("run: x\nenv: [A]", "5:10: `env` is a list; it must be a mapping (write `NAME: value`)"),
    ("run: x\nenv: {1A: b}",
     "5:11: `1A` is not a valid variable name (use letters, digits and `_`, not beginning with a digit)"),
    ("run: x\nenv: {TIDEMILL_RUN: b}", "5:11: `TIDEMILL_RUN` is set by Tidemill (choose another name)"),
    ("run: x\nenv: {A: [b]}", "5:14: the value of `A` must be text"),
    ("run: x\nenv: {A: b}\nsecrets: [A]",
     "6:15: `A` is both a variable and a secret (remove it from `env`)"),
    ("run: x\ntimeout: soon",
     "5:14: `soon` is not a duration (write a number and a unit, such as 90s, 10m, 2h or 1d)"),
    ("run: x\ntimeout: 0", "5:14: `timeout` is 0 (omit it for no limit)"),
    ("run: x\ntimeout: 400d", "5:14: `400d` is not a duration (at most 365d are allowed)"),
    ("run: x\nretries: -1", "5:14: `retries` is `-1`; it must be a whole number between 0 and 100"),
    ("run: x\nretries: 1.5", "5:14: `retries` is `1.5`; it must be a whole number between 0 and 100"),
    ("run: x\nweight: 5000", "5:13: `weight` is `5000`; it must be a whole number between 1 and 1000"),
    ("run: x\npool: a b", "5:11: `a b` is not a valid pool name (NAMES)"),
    ("run: x\nworkdir: /tmp",
     "5:14: the workdir `/tmp` is not relative (use a path relative to the job's directory)"),
    ("run: x\non-agent-lost: panic",
     "5:20: unknown value `panic` for `on-agent-lost` (write `wait`, or `rerun after 5m`)"),
    ("run: x\non-agent-lost: rerun after 2s",
     "5:20: `rerun after` must be at least 10 s (write `rerun after 1m` or more)"),
    ("run: x\nlimits: {ram: 1}",
     "5:14: `ram` is not a key of limits (the keys are memory, processes, cpu, cpu-time, file-size)"),
    ("run: x\nlimits: {memory: 512}",
     "5:22: `memory` is 512 bytes; at least 1048576 are required (write a number and a unit, such as 512MiB)"),
    ("run: x\nlimits: {processes: 0}",
     "5:25: `processes` is `0`; it must be a whole number between 1 and 4194304"),
    ("run: x\nlimits: {cpu: 0%}", "5:19: `cpu` is 0 (omit it for no limit)"),
    ("run: x\nlimits: {cpu: 1h}",
     "5:19: `1h` is not a CPU share (write a percentage of one processor such as 150%, or a number of processors; \
      for CPU time, use `cpu-time`)"),
    ("run: x\nlimits: {cpu: 2000}", "5:19: `2000` is not a CPU share (at most 100000% are allowed)"),
    ("run: x\nlimits: {cpu-time: 0}", "5:24: `cpu-time` is 0 (omit it for no limit)"),
    ("run: x\nlimits: {memory: lots}",
     "5:22: `lots` is not a size (write a number and a unit, such as 512MiB or 2GiB)"),
];

#[test]
fn invalid_jobs_are_rejected_with_a_hint() {
    for (lines, expected) in BAD_JOBS {
        assert_eq!(job_errors(lines), expected.replace("NAMES", NAME_HINT), "{lines:?}");
    }
}

#[test]
fn circular_dependency_lists_its_jobs() {
    let text = "version: 1\njobs:\n  a: {run: x, needs: [c]}\n  b: {run: x, needs: [a]}\n  \
                c: {run: x, needs: [b]}\n  d: {run: x}\n";
    let expected = "3:3: circular dependency: a → c → b → a (remove one of the needs)";
    assert_eq!(errors_of(text), expected);
}

#[test]
fn two_jobs_with_the_same_output_are_rejected() {
    let text = "version: 1\njobs:\n  a: {run: x, outputs: {t: o.csv}}\n  b: {run: x, outputs: {u: o.csv}}\n";
    let expected = "4:28: `o.csv` is already an output of job `a` (give each output its own path)";
    assert_eq!(errors_of(text), expected);
}

#[test]
fn duplicate_need_is_rejected() {
    let text = "version: 1\njobs:\n  a: {run: x}\n  b: {run: x, needs: [a, a]}\n";
    assert_eq!(errors_of(text), "4:26: job `b` needs `a` twice (remove one of them)");
}

#[test]
fn long_chain_is_parsed_and_too_many_jobs_are_rejected() {
    let mut chain = "version: 1\njobs:\n  j0: {run: x}\n".to_owned();
    for number in 1..5_000 {
        let _ = writeln!(chain, "  j{number}: {{run: x, needs: [j{}]}}", number - 1);
    }
    assert_eq!(parse(&chain).expect("the graph is valid").jobs.len(), 5_000);
    let mut flat = "version: 1\njobs:\n".to_owned();
    for number in 0..=GRAPH_JOBS_MAX {
        let _ = writeln!(flat, "  j{number}: {{run: x}}");
    }
    assert_eq!(errors_of(&flat), "3:3: there are 50001 jobs; at most 50000 are allowed");
}

/// Linux rejects a command with a variable of 128 KiB or more, or with too large an environment.
#[test]
fn too_large_environment_is_rejected() {
    let of = |value: usize| format!("run: x\nenv: {{A: {}}}", "v".repeat(value));
    let large = job_errors(&of(200_000));
    let expected = "5:14: the variable `A` is 200003 bytes long; at most 131072 are allowed (write the value to a \
                    file, and name the file in the variable)";
    assert_eq!(large, expected);
    assert!(
        parse(&format!("version: 1\njobs:\n  a: {{run: x, env: {{A: {}}}}}\n", "v".repeat(131_069))).is_ok()
    );
    assert!(job_errors(&of(131_070)).contains("131073 bytes"));
    // The variables of the file and of the job count together.
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
    assert_eq!(errors_of(&text), expected);
}

#[test]
fn documented_limits_match_the_code() {
    use crate::limits;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/graphs.md");
    let page = std::fs::read_to_string(path).expect("docs/graphs.md is readable");
    let (_, section) = page.split_once("## Limits of a file").expect("the section `Limits of a file` exists");
    let section = section.split("\n## ").next().expect("split yields at least one part");
    let documented: Vec<(&str, &str)> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .filter(|(what, _)| *what != "what" && !what.starts_with("---"))
        .collect();
    let kib = |bytes: usize| format!("{} KiB", bytes / 1024);
    let mib = |bytes: usize| format!("{} MiB", bytes / 1024 / 1024);
    let expected = [
        ("the file", mib(limits::GRAPH_BYTES_MAX)),
        ("levels of nesting in the file", limits::DEFINITION_DEPTH_MAX.to_string()),
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
        ("`timeout`, `limits: {cpu-time: …}` and `rerun after`", format!("{}d", limits::GRAPH_DAYS_MAX)),
        ("`rerun after`, at least", format!("{}s", limits::RERUN_AFTER_SECS_MIN)),
        ("`retries`", limits::RETRIES_MAX.to_string()),
        ("`weight`", format!("1 to {}", limits::JOB_WEIGHT_MAX)),
        ("`limits: {memory: …}`, at least", mib(usize::try_from(limits::JOB_MEMORY_BYTES_MIN).unwrap())),
        ("`limits: {processes: …}`", format!("1 to {}", limits::JOB_PROCESSES_MAX)),
        ("`limits: {cpu: …}`", format!("1% to {}%", limits::JOB_CPU_PERCENT_MAX)),
        ("output of a command that is kept", mib(usize::try_from(limits::TASK_LOG_BYTES_MAX).unwrap())),
    ];
    let expected: Vec<(&str, &str)> = expected.iter().map(|(what, bound)| (*what, bound.as_str())).collect();
    assert_eq!(documented, expected);
}
