//! The graphs of `examples/graphs`, as a reader runs them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tidemill_core::RunId;
use tidemill_core::run::RunState;

use super::ground::Site;
use crate::stage::{Stage, on_both};

on_both!(the_pipeline_hands_files_on, the_fan_comes_together_again, the_deploy_is_bounded_and_has_its_secret);

fn submit(site: &Site<'_>, name: &str) -> RunId {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs").join(name);
    site.submit(&fs::read_to_string(file).expect("the example is there"))
}

fn the_pipeline_hands_files_on(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let run = submit(&site, "pipeline.graph.yaml");
    assert_eq!(site.until_ended(&run), RunState::Success, "{:?}", site.codes(&run));
    assert_eq!(stage.ok(&["graph", "logs", run.as_str(), "load"]).trim(), "turnover 30300");
    site.check(&run);
}

fn the_fan_comes_together_again(stage: &Stage) {
    let site = Site::start(stage);
    let _agents = [site.agent("ann", &["--capacity", "8"])];
    let run = submit(&site, "fan.graph.yaml");
    assert_eq!(site.until_ended(&run), RunState::Success, "{:?}", site.codes(&run));
    assert_eq!(stage.ok(&["graph", "logs", run.as_str(), "join"]).trim(), "2686700");
    let shown = stage.json(&["graph", "show", run.as_str()]);
    assert_eq!(shown["graph"]["counts"]["succeeded"], serde_json::json!(22));
    site.check(&run);
}

fn the_deploy_is_bounded_and_has_its_secret(stage: &Stage) {
    let site = Site::start(stage);
    let secrets = stage.write("secrets.env", "DEPLOY_TOKEN=let-me-in\n");
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    stage.ok(&["pool", "set", "deploys", "1"]);
    // Outputs cross from one agent to the other through a place that both reach.
    let shared = stage.path("store");
    fs::create_dir(&shared).expect("a folder is made");
    let store = format!("file://{}", shared.display());
    let _plain = site.agent("plain", &["--capacity", "1", "--store", &store]);
    let secrets = secrets.display().to_string();
    let _agent = site.agent("deployer", &["--label", "deploy", "--secrets", &secrets, "--store", &store]);
    let run = submit(&site, "build-test-deploy.graph.yaml");
    assert_eq!(site.until_ended(&run), RunState::Success, "{:?}", site.codes(&run));
    let tests = site.job(&run, "browser-tests");
    assert_eq!(tests["job"]["tasks"], serde_json::json!(2), "{tests}");
    assert!(stage.ok(&["graph", "logs", run.as_str(), "deploy"]).contains("deployed"));
    site.check(&run);
}
