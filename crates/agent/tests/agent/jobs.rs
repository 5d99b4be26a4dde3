//! Jobs from their order to their result: inputs, environment, outputs, logs and reports.

use crate::fixture::{Fixture, agent_id, cancel, inputs, order, success, until};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;
use tidemill_agent::{ExitPolicy, Probe};
use tidemill_core::task::{Output, TaskResult};

#[tokio::test]
async fn job_gets_its_inputs_and_produces_outputs() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent();
    let script = "mkdir -p 'out dir/ü' && echo hello > 'out dir/ü/part 1.csv' && echo said && echo heard >&2 \
                  && echo 'echo it runs' > run && chmod +x run";
    let mut first = order(&fixture, "first", script);
    first["work"]["outputs"] = json!({"parts": "out dir/*/part *.csv", "script": "run"});
    fixture.server.order(first);
    assert_eq!(fixture.result("first-001").await, success());
    let left = fixture.server.result("first-001").unwrap().outputs;
    assert_eq!(left[0].path, "out dir/ü/part 1.csv");
    assert_eq!(left[0].size_bytes, 6);
    assert_eq!(left[0].sha256, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    let mut log = fixture.server.log("first-001");
    log.sort();
    assert_eq!(log, ["stderr: heard", "stdout: said"]);

    let script = "cat 'out dir/ü/part 1.csv' && echo more >> 'out dir/ü/part 1.csv' && env && pwd && ./run \
         && ! test -x 'out dir/ü/part 1.csv'";
    let mut second = order(&fixture, "second", script);
    second["work"]["inputs"] = inputs("first", Some(agent_id(&fixture)), &left);
    second["work"]["env"] = json!({"GREETING": "good day"});
    second["work"]["workdir"] = json!("sub/dir");
    second["work"]["run"] = json!(["sh", "-c", format!("cd ../.. && {script}")]);
    fixture.server.order(second);
    assert_eq!(fixture.result("second-001").await, success(), "{:?}", fixture.server.log("second-001"));
    let log = fixture.server.log("second-001");
    assert_eq!(log[0], "stdout: hello");
    for wanted in
        ["GREETING=good day", "TIDEMILL_TASK_ID=second-001", "TIDEMILL_JOB=second", "LANG=C.UTF-8", "it runs"]
    {
        assert!(log.contains(&format!("stdout: {wanted}")), "{wanted}: {log:?}");
    }
    assert!(
        !log.iter().any(|line| line.contains("CARGO")),
        "the command must not inherit the agent's environment: {log:?}"
    );
    // The retained output is unchanged: the second job changed a copy.
    let retained = fixture.agent_dir().join("workspaces/main/first/out dir/ü/part 1.csv");
    assert_eq!(fs::read_to_string(retained).unwrap(), "hello\n");
    fixture.until_clean().await;
    let summary = agent.stop().await.unwrap();
    assert_eq!((summary.taken, summary.ended, summary.held), (2, 2, 0));
    assert_eq!(fixture.server.state().retired, 1);
}

#[tokio::test]
async fn failed_commands_are_reported_with_their_stages() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    fixture.server.order(order(&fixture, "bad", "sleep 0.3; echo oh; exit 7"));
    let ended = TaskResult::Ended { exit_code: 7, unmatched: Vec::new(), hint: Vec::new(), message: None };
    assert_eq!(fixture.result("bad-001").await, ended);
    for stage in ["preparing", "executing", "error", "executed"] {
        assert!(fixture.server.has_stage("bad-001", stage), "{stage}");
    }
    assert_eq!(fixture.server.log("bad-001"), ["stdout: oh"]);
    let mut words = order(&fixture, "words", "");
    words["work"]["run"] = json!(["no-such-command"]);
    fixture.server.order(words);
    let message = Some("the command was not started: `no-such-command` was not found".to_owned());
    let ended = TaskResult::Ended { exit_code: 127, unmatched: Vec::new(), hint: Vec::new(), message };
    assert_eq!(fixture.result("words-001").await, ended);
    let mut late = order(&fixture, "late", "sleep 1000");
    late["work"]["timeout_secs"] = json!(1);
    fixture.server.order(late);
    let message = Some("the command ran longer than 1 s".to_owned());
    let ended = TaskResult::Ended { exit_code: 143, unmatched: Vec::new(), hint: Vec::new(), message };
    assert_eq!(fixture.result("late-001").await, ended);
    let mut large = order(&fixture, "large", "exec head -c 2000000 /dev/zero > large");
    large["work"]["limits"] = json!({"cpu_secs": null, "memory_bytes": null, "output_bytes": 1_000_000});
    fixture.server.order(large);
    let TaskResult::Ended { exit_code, message, .. } = fixture.result("large-001").await else { panic!() };
    assert_eq!(exit_code, 128 + 25);
    assert_eq!(message.as_deref(), Some("the command wrote a file of more than 1000000 bytes"));
}

#[tokio::test]
async fn unmatched_pattern_is_reported_with_a_hint() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    let mut job = order(&fixture, "typo", "echo x > repport.csv; ln -s /etc/passwd link.csv; touch fine.txt");
    job["work"]["outputs"] = json!({"report": "report.csv", "link": "link.csv", "fine": "*.txt"});
    fixture.server.order(job);
    let TaskResult::Ended { exit_code, unmatched, hint, .. } = fixture.result("typo-001").await else {
        panic!()
    };
    assert_eq!(
        (exit_code, unmatched),
        (0, vec!["link (link.csv)".to_owned(), "report (report.csv)".to_owned()])
    );
    assert_eq!(hint, ["link.csv (a symbolic link)", "repport.csv"]);
}

#[tokio::test]
async fn output_of_a_gigabyte_is_retained() {
    const GIGABYTE: i64 = 1 << 30;
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    let mut job = order(&fixture, "large", "truncate -s 1G large.bin && echo end >> large.bin");
    job["work"]["outputs"] = json!({"large": "*.bin"});
    fixture.server.order(job);
    assert_eq!(fixture.result("large-001").await, success());
    let left = fixture.server.result("large-001").unwrap().outputs;
    assert_eq!(left[0].size_bytes, GIGABYTE + 4);
    assert!(fixture.server.has_stage("large-001", "finalizing"));
    let retained = fs::metadata(fixture.agent_dir().join("workspaces/main/large/large.bin")).unwrap();
    assert_eq!(retained.len(), 1024 * 1024 * 1024 + 4);
}

/// Tries reported paths for reading and for writing.
#[tokio::test]
async fn paths_outside_of_the_directory_are_rejected() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    until("the agent is registered", || !fixture.server.state().registered.is_empty()).await;
    let me = agent_id(&fixture);
    fs::write(fixture.path("outside"), "x").unwrap();
    let retained = fixture.agent_dir().join("workspaces/main/made");
    fs::create_dir_all(&retained).unwrap();
    symlink(fixture.path("outside"), retained.join("link")).unwrap();
    for (path, job) in [("../../../../outside", "climbs"), ("/etc/passwd", "absolute"), ("link", "link")] {
        let output = Output {
            name: "x".to_owned(),
            path: path.to_owned(),
            size_bytes: 1,
            sha256: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881".to_owned(),
            url: None,
        };
        let mut order = order(&fixture, job, "touch %ran");
        order["work"]["inputs"] = inputs("made", Some(me), &[output]);
        fixture.server.order(order);
        let result = fixture.result(&format!("{job}-001")).await;
        assert!(matches!(result, TaskResult::Failed { fatal: true, .. }), "{result:?}");
    }
    let mut climbing = order(&fixture, "workdir", "touch %ran");
    climbing["work"]["workdir"] = json!("../../../elsewhere");
    fixture.server.order(climbing);
    let result = fixture.result("workdir-001").await;
    assert!(matches!(result, TaskResult::Failed { fatal: true, .. }), "{result:?}");
    assert!(!fixture.path("ran").exists() && !fixture.path("elsewhere").exists());
}

#[tokio::test]
async fn unknown_fields_and_kinds_are_reported() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    fixture.server.order(json!({"nonsense": true}));
    fixture.server.order(json!({"task_id": "../up", "kind": "RUNJOB", "job_id": "x"}));
    fixture.server.order(json!({"task_id": "x-001", "kind": "DANCE", "job_id": "x", "tempo": 3}));
    let version = env!("CARGO_PKG_VERSION");
    let message = format!("this agent (version {version}) does not support tasks of kind DANCE: upgrade it");
    assert_eq!(fixture.result("x-001").await, TaskResult::Failed { fatal: true, elsewhere: false, message });
    let mut job = order(&fixture, "new", "true");
    job["work"]["gpu"] = json!(2);
    fixture.server.order(job);
    assert_eq!(fixture.result("new-001").await, success());
    assert_eq!(fixture.server.result("new-001").unwrap().unknown, ["work.gpu"]);
}

#[tokio::test]
async fn secrets_reach_the_command_but_no_log_or_disk() {
    let fixture = Fixture::new().await;
    let path = fixture.path("secrets");
    fs::write(&path, "# for jobs\nKEY=open-sesame\nOTHER=not-requested\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = fixture.settings();
    settings.secrets = Some(path.clone());
    let _agent = fixture.agent_with(settings);
    let script = "test \"$KEY\" = open-'ses'ame && echo \"the key is $KEY\" && test -z \"$OTHER\" \
                  && touch %running && while ! test -e %go; do sleep 0.02; done";
    let mut job = order(&fixture, "secret", script);
    job["work"]["secrets"] = json!(["KEY"]);
    fixture.server.order(job);
    until("it runs", || fixture.path("running").exists()).await;
    let found = std::process::Command::new("grep")
        .args(["-r", "open-sesame"])
        .arg(fixture.agent_dir())
        .output()
        .unwrap();
    assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
    fs::write(fixture.path("go"), "").unwrap();
    assert_eq!(fixture.result("secret-001").await, success());
    assert_eq!(fixture.server.log("secret-001"), ["stdout: the key is •••"]);
    let mut missing = order(&fixture, "missing", "touch %ran");
    missing["work"]["secrets"] = json!(["NOBODY_HAS_IT"]);
    fixture.server.order(missing);
    let message = "this agent has no secret `NOBODY_HAS_IT`; add it to the file of --secrets".to_owned();
    // Another agent may have it.
    let failed = TaskResult::Failed { fatal: true, elsewhere: true, message };
    assert_eq!(fixture.result("missing-001").await, failed);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut open = order(&fixture, "open", "touch %ran");
    open["work"]["secrets"] = json!(["KEY"]);
    fixture.server.order(open);
    let TaskResult::Failed { elsewhere: true, message, .. } = fixture.result("open-001").await else {
        panic!()
    };
    assert!(message.contains("can be read by others"), "{message}");
    assert!(!fixture.path("ran").exists());
}

/// A changed file and a URL outside of the store are rejected.
#[tokio::test]
async fn agents_share_outputs_through_a_store() {
    let (one, other) = (Fixture::new().await, Fixture::new().await);
    let store = format!("file://{}", one.path("store").display());
    let mut settings = one.settings();
    settings.store = Some(store.clone());
    let _one = one.agent_with(settings);
    let mut made = order(&one, "made", "mkdir 'a b'; echo x > 'a b/ü.csv'");
    made["work"]["outputs"] = json!({"all": "*/*.csv"});
    one.server.order(made);
    assert_eq!(one.result("made-001").await, success());
    let mut left = one.server.result("made-001").unwrap().outputs;
    assert!(left[0].url.as_ref().unwrap().starts_with(&store));

    let mut settings = other.settings();
    settings.store = Some(store);
    let _other = other.agent_with(settings);
    let mut needs = order(&other, "needs", "cat 'a b/ü.csv'");
    needs["work"]["inputs"] = inputs("made", Some(agent_id(&one)), &left);
    other.server.order(needs);
    assert_eq!(other.result("needs-001").await, success());
    assert_eq!(other.server.log("needs-001"), ["stdout: x"]);

    left[0].sha256 = "0".repeat(64);
    let mut changed = order(&other, "changed", "touch %ran");
    changed["work"]["inputs"] = inputs("made", None, &left);
    other.server.order(changed);
    let TaskResult::Failed { fatal: true, elsewhere: false, message } = other.result("changed-001").await
    else {
        panic!()
    };
    assert!(message.contains("was changed after that job"), "{message}");
    left[0].url = Some("file:///etc/passwd".to_owned());
    let mut foreign = order(&other, "foreign", "touch %ran");
    foreign["work"]["inputs"] = inputs("made", None, &left);
    other.server.order(foreign);
    let TaskResult::Failed { fatal: true, elsewhere: false, message } = other.result("foreign-001").await
    else {
        panic!()
    };
    assert!(message.contains("not in the store"), "{message}");
    assert!(!other.path("ran").exists());
}

/// The failure is retryable, and the message names the missing option.
#[tokio::test]
async fn input_in_a_store_needs_an_agent_with_a_store() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    let output = Output {
        name: "x".to_owned(),
        path: "x.csv".to_owned(),
        size_bytes: 1,
        sha256: "0".repeat(64),
        url: Some("s3://bucket/main/made-001/x.csv".to_owned()),
    };
    let mut job = order(&fixture, "needs", "touch %ran");
    job["work"]["inputs"] = inputs("made", None, &[output]);
    fixture.server.order(job);
    let why = "output `x.csv` of job `made` is in a store, but this agent has none: start it with --store";
    let failed = TaskResult::Failed { fatal: false, elsewhere: false, message: why.to_owned() };
    assert_eq!(fixture.result("needs-001").await, failed);
    assert!(!fixture.path("ran").exists());
}

#[tokio::test]
async fn draining_agent_exits_when_it_holds_no_task() {
    let fixture = Fixture::new().await;
    fixture.server.order(order(&fixture, "last", "sleep 0.5; echo done >> %done"));
    let mut settings = fixture.settings();
    settings.exit_policy = ExitPolicy::Drained;
    let summary = fixture.agent_with(settings).ended().await.unwrap();
    assert_eq!((summary.ended, summary.held), (1, 0));
    assert_eq!(fixture.read("done"), "done\n");
    assert!(fixture.server.state().registered[0].draining);
    assert_eq!(fixture.server.state().retired, 1);
}

#[tokio::test]
async fn probe_result_is_reported() {
    let fixture = Fixture::new().await;
    let mut settings = fixture.settings();
    let command = format!("cat {} 2>/dev/null && exit 3; exit 0", fixture.path("maintenance").display());
    settings.probe = Some(Probe { command, every: Duration::from_millis(200) });
    let _agent = fixture.agent_with(settings);
    until("no maintenance is reported", || {
        fixture.server.state().probes.last().is_some_and(|probe| !probe.maintenance)
    })
    .await;
    fs::write(fixture.path("maintenance"), "until eight\n").unwrap();
    until("maintenance is reported", || {
        let state = fixture.server.state();
        let last = state.probes.last().unwrap();
        last.maintenance && last.note.as_deref() == Some("until eight")
    })
    .await;
}

#[tokio::test]
async fn repeated_order_is_executed_once() {
    let fixture = Fixture::new().await;
    fixture.server.state().repeats_orders = true;
    let _agent = fixture.agent();
    fixture.server.order(order(&fixture, "once", "echo ran >> %ran; sleep 1"));
    assert_eq!(fixture.result("once-001").await, success());
    assert_eq!(fixture.read("ran"), "ran\n");
    fixture.server.order(cancel("once"));
    assert_eq!(fixture.result("once-001-cancel").await, TaskResult::Stopped);
}
