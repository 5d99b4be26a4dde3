//! Tests that the graphs of `examples/graphs` succeed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tidemill_core::RunId;
use tidemill_core::run::RunState;

use super::fixture::GraphFixture;
use crate::fixture::{Fixture, on_both};

on_both!(
    pipeline_example_passes_files,
    fan_example_joins_its_branches,
    deploy_example_uses_its_pool_and_secret
);

fn submit(graphs: &GraphFixture<'_>, name: &str) -> RunId {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs").join(name);
    graphs.submit(&fs::read_to_string(file).expect("the example exists"))
}

fn pipeline_example_passes_files(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let run = submit(&graphs, "pipeline.graph.yaml");
    assert_eq!(graphs.wait_for_end(&run), RunState::Success, "{:?}", graphs.codes(&run));
    assert_eq!(fixture.ok(&["graph", "logs", run.as_str(), "load"]).trim(), "turnover 30300");
    graphs.check(&run);
}

fn fan_example_joins_its_branches(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agents = [graphs.agent("ann", &["--capacity", "8"])];
    let run = submit(&graphs, "fan.graph.yaml");
    assert_eq!(graphs.wait_for_end(&run), RunState::Success, "{:?}", graphs.codes(&run));
    assert_eq!(fixture.ok(&["graph", "logs", run.as_str(), "join"]).trim(), "2686700");
    let shown = fixture.json(&["graph", "show", run.as_str()]);
    assert_eq!(shown["graph"]["counts"]["succeeded"], serde_json::json!(22));
    graphs.check(&run);
}

fn deploy_example_uses_its_pool_and_secret(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let secrets = fixture.write("secrets.env", "DEPLOY_TOKEN=let-me-in\n");
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    fixture.ok(&["pool", "set", "deploys", "1"]);
    // Both agents use the same store to exchange outputs.
    let shared = fixture.path("store");
    fs::create_dir(&shared).expect("the directory is created");
    let store = format!("file://{}", shared.display());
    let _plain = graphs.agent("plain", &["--capacity", "1", "--store", &store]);
    let secrets = secrets.display().to_string();
    let _agent = graphs.agent("deployer", &["--label", "deploy", "--secrets", &secrets, "--store", &store]);
    let run = submit(&graphs, "build-test-deploy.graph.yaml");
    assert_eq!(graphs.wait_for_end(&run), RunState::Success, "{:?}", graphs.codes(&run));
    let tests = graphs.job(&run, "browser-tests");
    assert_eq!(tests["job"]["tasks"], serde_json::json!(2), "{tests}");
    assert!(fixture.ok(&["graph", "logs", run.as_str(), "deploy"]).contains("deployed"));
    graphs.check(&run);
}
