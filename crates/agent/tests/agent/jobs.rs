//! Jobs from their order to their result: what commands get, what they leave, and what is told of it.

use crate::stage::{Ground, agent_id, cancel, inputs, order, until, well};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;
use tidemill_agent::{Ending, Probe};
use tidemill_core::task::{Output, TaskResult};

#[tokio::test]
async fn a_job_gets_its_inputs_and_leaves_its_outputs() {
    let ground = Ground::new().await;
    let agent = ground.agent();
    let script = "mkdir -p 'out dir/ü' && echo hello > 'out dir/ü/part 1.csv' && echo said && echo heard >&2 \
                  && echo 'echo it runs' > run && chmod +x run";
    let mut first = order(&ground, "first", script);
    first["work"]["outputs"] = json!({"parts": "out dir/*/part *.csv", "script": "run"});
    ground.server.order(first);
    assert_eq!(ground.result("first-001").await, well());
    let left = ground.server.result("first-001").unwrap().outputs;
    assert_eq!(left[0].path, "out dir/ü/part 1.csv");
    assert_eq!(left[0].size_bytes, 6);
    assert_eq!(left[0].sha256, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    let mut log = ground.server.log("first-001");
    log.sort();
    assert_eq!(log, ["stderr: heard", "stdout: said"]);

    let script = "cat 'out dir/ü/part 1.csv' && echo more >> 'out dir/ü/part 1.csv' && env && pwd && ./run \
         && ! test -x 'out dir/ü/part 1.csv'";
    let mut second = order(&ground, "second", script);
    second["work"]["inputs"] = inputs("first", Some(agent_id(&ground)), &left);
    second["work"]["env"] = json!({"GREETING": "good day"});
    second["work"]["workdir"] = json!("sub/dir");
    second["work"]["run"] = json!(["sh", "-c", format!("cd ../.. && {script}")]);
    ground.server.order(second);
    assert_eq!(ground.result("second-001").await, well(), "{:?}", ground.server.log("second-001"));
    let log = ground.server.log("second-001");
    assert_eq!(log[0], "stdout: hello");
    for wanted in
        ["GREETING=good day", "TIDEMILL_TASK_ID=second-001", "TIDEMILL_JOB=second", "LANG=C.UTF-8", "it runs"]
    {
        assert!(log.contains(&format!("stdout: {wanted}")), "{wanted}: {log:?}");
    }
    assert!(!log.iter().any(|line| line.contains("CARGO")), "nothing of the agent's environment: {log:?}");
    // What was kept is as it was left: the second job changed a copy.
    let kept = ground.home().join("workspaces/main/first/out dir/ü/part 1.csv");
    assert_eq!(fs::read_to_string(kept).unwrap(), "hello\n");
    ground.until_clean().await;
    let carried = agent.stop().await.unwrap();
    assert_eq!((carried.taken, carried.ended, carried.held), (2, 2, 0));
    assert_eq!(ground.server.known().goodbyes, 1);
}

#[tokio::test]
async fn a_bad_end_is_told_with_its_stages() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    ground.server.order(order(&ground, "bad", "sleep 0.3; echo oh; exit 7"));
    let ended = TaskResult::Ended { exit_code: 7, unmatched: Vec::new(), hint: Vec::new(), message: None };
    assert_eq!(ground.result("bad-001").await, ended);
    for stage in ["preparing", "executing", "error", "executed"] {
        assert!(ground.server.has_stage("bad-001", stage), "{stage}");
    }
    assert_eq!(ground.server.log("bad-001"), ["stdout: oh"]);
    let mut words = order(&ground, "words", "");
    words["work"]["run"] = json!(["no-such-command"]);
    ground.server.order(words);
    let message = Some("the command was not started: `no-such-command` was not found".to_owned());
    let ended = TaskResult::Ended { exit_code: 127, unmatched: Vec::new(), hint: Vec::new(), message };
    assert_eq!(ground.result("words-001").await, ended);
    let mut late = order(&ground, "late", "sleep 1000");
    late["work"]["timeout_secs"] = json!(1);
    ground.server.order(late);
    let message = Some("the command ran longer than 1 s".to_owned());
    let ended = TaskResult::Ended { exit_code: 143, unmatched: Vec::new(), hint: Vec::new(), message };
    assert_eq!(ground.result("late-001").await, ended);
    let mut large = order(&ground, "large", "exec head -c 2000000 /dev/zero > large");
    large["work"]["limits"] = json!({"cpu_secs": null, "memory_bytes": null, "output_bytes": 1_000_000});
    ground.server.order(large);
    let TaskResult::Ended { exit_code, message, .. } = ground.result("large-001").await else { panic!() };
    assert_eq!(exit_code, 128 + 25);
    assert_eq!(message.as_deref(), Some("the command wrote a file of more than 1000000 bytes"));
}

#[tokio::test]
async fn a_pattern_that_matches_nothing_is_told_with_a_hint() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    let mut job = order(&ground, "typo", "echo x > repport.csv; ln -s /etc/passwd link.csv; touch fine.txt");
    job["work"]["outputs"] = json!({"report": "report.csv", "link": "link.csv", "fine": "*.txt"});
    ground.server.order(job);
    let TaskResult::Ended { exit_code, unmatched, hint, .. } = ground.result("typo-001").await else {
        panic!()
    };
    assert_eq!(
        (exit_code, unmatched),
        (0, vec!["link (link.csv)".to_owned(), "report (report.csv)".to_owned()])
    );
    assert_eq!(hint, ["link.csv (a symbolic link)", "repport.csv"]);
}

#[tokio::test]
async fn a_gigabyte_is_measured_and_kept() {
    const GIGABYTE: i64 = 1 << 30;
    let ground = Ground::new().await;
    let _agent = ground.agent();
    let mut job = order(&ground, "large", "truncate -s 1G large.bin && echo end >> large.bin");
    job["work"]["outputs"] = json!({"large": "*.bin"});
    ground.server.order(job);
    assert_eq!(ground.result("large-001").await, well());
    let left = ground.server.result("large-001").unwrap().outputs;
    assert_eq!(left[0].size_bytes, GIGABYTE + 4);
    assert!(ground.server.has_stage("large-001", "finalizing"));
    let kept = fs::metadata(ground.home().join("workspaces/main/large/large.bin")).unwrap();
    assert_eq!(kept.len(), 1024 * 1024 * 1024 + 4);
}

/// Shows that paths that others report cannot lead out of a directory, neither when they are read nor when
/// written.
#[tokio::test]
async fn paths_that_climb_are_refused() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    until("it is there", || !ground.server.known().registered.is_empty()).await;
    let me = agent_id(&ground);
    fs::write(ground.path("outside"), "x").unwrap();
    let kept = ground.home().join("workspaces/main/made");
    fs::create_dir_all(&kept).unwrap();
    symlink(ground.path("outside"), kept.join("link")).unwrap();
    for (path, job) in [("../../../../outside", "climbs"), ("/etc/passwd", "absolute"), ("link", "link")] {
        let output = Output {
            name: "x".to_owned(),
            path: path.to_owned(),
            size_bytes: 1,
            sha256: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881".to_owned(),
            url: None,
        };
        let mut order = order(&ground, job, "touch %ran");
        order["work"]["inputs"] = inputs("made", Some(me), &[output]);
        ground.server.order(order);
        let result = ground.result(&format!("{job}-001")).await;
        assert!(matches!(result, TaskResult::Failed { fatal: true, .. }), "{result:?}");
    }
    let mut climbing = order(&ground, "workdir", "touch %ran");
    climbing["work"]["workdir"] = json!("../../../elsewhere");
    ground.server.order(climbing);
    let result = ground.result("workdir-001").await;
    assert!(matches!(result, TaskResult::Failed { fatal: true, .. }), "{result:?}");
    assert!(!ground.path("ran").exists() && !ground.path("elsewhere").exists());
}

#[tokio::test]
async fn what_is_not_known_is_tolerated_and_told() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    ground.server.order(json!({"nonsense": true}));
    ground.server.order(json!({"task_id": "../up", "kind": "RUNJOB", "job_id": "x"}));
    ground.server.order(json!({"task_id": "x-001", "kind": "DANCE", "job_id": "x", "tempo": 3}));
    let version = env!("CARGO_PKG_VERSION");
    let message = format!("this agent, version {version}, does not know tasks of kind DANCE: upgrade it");
    assert_eq!(ground.result("x-001").await, TaskResult::Failed { fatal: true, elsewhere: false, message });
    let mut job = order(&ground, "new", "true");
    job["work"]["gpu"] = json!(2);
    ground.server.order(job);
    assert_eq!(ground.result("new-001").await, well());
    assert_eq!(ground.server.result("new-001").unwrap().unknown, ["work.gpu"]);
}

/// Shows that secrets reach the command, and nothing else: not the log, not the disk, not the order.
#[tokio::test]
async fn secrets_reach_the_command_alone() {
    let ground = Ground::new().await;
    let path = ground.path("secrets");
    fs::write(&path, "# for jobs\nKEY=open-sesame\nOTHER=not-asked-for\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = ground.settings();
    settings.secrets = Some(path.clone());
    let _agent = ground.agent_with(settings);
    let script = "test \"$KEY\" = open-'ses'ame && echo \"the key is $KEY\" && test -z \"$OTHER\" \
                  && touch %running && while ! test -e %go; do sleep 0.02; done";
    let mut job = order(&ground, "secret", script);
    job["work"]["secrets"] = json!(["KEY"]);
    ground.server.order(job);
    until("it runs", || ground.path("running").exists()).await;
    let found =
        std::process::Command::new("grep").args(["-r", "open-sesame"]).arg(ground.home()).output().unwrap();
    assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
    fs::write(ground.path("go"), "").unwrap();
    assert_eq!(ground.result("secret-001").await, well());
    assert_eq!(ground.server.log("secret-001"), ["stdout: the key is •••"]);
    let mut missing = order(&ground, "missing", "touch %ran");
    missing["work"]["secrets"] = json!(["NOBODY_HAS_IT"]);
    ground.server.order(missing);
    let message = "this agent has no secret `NOBODY_HAS_IT`".to_owned();
    // Another agent may have it.
    let failed = TaskResult::Failed { fatal: true, elsewhere: true, message };
    assert_eq!(ground.result("missing-001").await, failed);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut open = order(&ground, "open", "touch %ran");
    open["work"]["secrets"] = json!(["KEY"]);
    ground.server.order(open);
    let TaskResult::Failed { elsewhere: true, message, .. } = ground.result("open-001").await else {
        panic!()
    };
    assert!(message.contains("can be read by others"), "{message}");
    assert!(!ground.path("ran").exists());
}

/// Shows that what one agent left reaches another through a store, and that it is what was left.
#[tokio::test]
async fn agents_share_outputs_through_a_store() {
    let (one, other) = (Ground::new().await, Ground::new().await);
    let store = format!("file://{}", one.path("store").display());
    let mut settings = one.settings();
    settings.store = Some(store.clone());
    let _one = one.agent_with(settings);
    let mut made = order(&one, "made", "mkdir 'a b'; echo x > 'a b/ü.csv'");
    made["work"]["outputs"] = json!({"all": "*/*.csv"});
    one.server.order(made);
    assert_eq!(one.result("made-001").await, well());
    let mut left = one.server.result("made-001").unwrap().outputs;
    assert!(left[0].url.as_ref().unwrap().starts_with(&store));

    let mut settings = other.settings();
    settings.store = Some(store);
    let _other = other.agent_with(settings);
    let mut needs = order(&other, "needs", "cat 'a b/ü.csv'");
    needs["work"]["inputs"] = inputs("made", Some(agent_id(&one)), &left);
    other.server.order(needs);
    assert_eq!(other.result("needs-001").await, well());
    assert_eq!(other.server.log("needs-001"), ["stdout: x"]);

    left[0].sha256 = "0".repeat(64);
    let mut changed = order(&other, "changed", "touch %ran");
    changed["work"]["inputs"] = inputs("made", None, &left);
    other.server.order(changed);
    let TaskResult::Failed { fatal: true, elsewhere: false, message } = other.result("changed-001").await
    else {
        panic!()
    };
    assert!(message.contains("changed since"), "{message}");
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

/// Shows that a job that an agent cannot carry out as it was started may go to another, and that the error says what to
/// start this one with.
#[tokio::test]
async fn an_agent_without_a_store_leaves_the_job_to_another() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    let output = Output {
        name: "x".to_owned(),
        path: "x.csv".to_owned(),
        size_bytes: 1,
        sha256: "0".repeat(64),
        url: Some("s3://bucket/main/made-001/x.csv".to_owned()),
    };
    let mut job = order(&ground, "needs", "touch %ran");
    job["work"]["inputs"] = inputs("made", None, &[output]);
    ground.server.order(job);
    let why = "`x.csv`, which `made` left, is in a store, and this agent has none: start it with --store";
    let failed = TaskResult::Failed { fatal: false, elsewhere: false, message: why.to_owned() };
    assert_eq!(ground.result("needs-001").await, failed);
    assert!(!ground.path("ran").exists());
}

#[tokio::test]
async fn an_agent_that_drains_ends_when_it_holds_nothing() {
    let ground = Ground::new().await;
    ground.server.order(order(&ground, "last", "sleep 0.5; echo done >> %done"));
    let mut settings = ground.settings();
    settings.ending = Ending::Drained;
    let carried = ground.agent_with(settings).ended().await.unwrap();
    assert_eq!((carried.ended, carried.held), (1, 0));
    assert_eq!(ground.wrote("done"), "done\n");
    assert!(ground.server.known().registered[0].draining);
    assert_eq!(ground.server.known().goodbyes, 1);
}

#[tokio::test]
async fn a_probe_is_told() {
    let ground = Ground::new().await;
    let mut settings = ground.settings();
    let command = format!("cat {} 2>/dev/null && exit 3; exit 0", ground.path("maintenance").display());
    settings.probe = Some(Probe { command, every: Duration::from_millis(200) });
    let _agent = ground.agent_with(settings);
    until("all is well", || ground.server.known().probes.last().is_some_and(|probe| !probe.maintenance))
        .await;
    fs::write(ground.path("maintenance"), "until eight\n").unwrap();
    until("there is maintenance", || {
        let known = ground.server.known();
        let last = known.probes.last().unwrap();
        last.maintenance && last.note.as_deref() == Some("until eight")
    })
    .await;
}

/// Shows that an order which comes again and again is carried out once, and so is an order to stop.
#[tokio::test]
async fn the_same_order_twice_is_one() {
    let ground = Ground::new().await;
    ground.server.known().repeats = true;
    let _agent = ground.agent();
    ground.server.order(order(&ground, "once", "echo ran >> %ran; sleep 1"));
    assert_eq!(ground.result("once-001").await, well());
    assert_eq!(ground.wrote("ran"), "ran\n");
    ground.server.order(cancel("once"));
    assert_eq!(ground.result("once-001-cancel").await, TaskResult::Stopped);
}
