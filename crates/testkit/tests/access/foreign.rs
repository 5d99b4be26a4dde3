//! One project's tokens and another project's things.

use http::StatusCode;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::access::Role;
use tidemill_store::EventPage;

use crate::ground::Ground;
use crate::rows::{Who, Whose, rows};
use crate::table::{nothing, things};

/// Every route, asked about a thing of another project and about one that does not exist: the two answers are the same
/// to the byte, but for the names that the caller gave. Nothing is left behind at the other project.
pub(crate) async fn to_another_project_everything_reads_as_if_it_did_not_exist(ground: &Ground) {
    let bank = ground.secret(Role::Admin, Some("bank")).await;
    let lists = ["/v1/runs", "/v1/tokens", "/v1/audit"];
    let mut before = Vec::new();
    for list in lists {
        before.push(ground.get(list, &bank).await.body);
    }
    let (theirs, none) = (things(ground).await, nothing());
    let shop = ground.secret(Role::Admin, Some("shop")).await;
    assert_eq!(ground.get(&theirs.path("/v1/runs/{run}"), &shop).await.status, StatusCode::OK);
    let told = ground.post("/v1/runs", &shop, &json!({"project": "shop", "env": "staging"})).await;
    assert_eq!(told.status, StatusCode::CREATED, "{told:?}");

    let run: RunId = theirs.run.parse().expect("an id");
    let page = || EventPage { after: 0, limit: 100 };
    let events = ground.stage.store.events(run.clone(), page()).await.expect("events");
    for row in rows().iter().filter(|row| row.whose == Whose::Projects) {
        assert!(matches!(row.who, Who::Roles(roles) if roles.contains(&Role::Admin)), "{}", row.path);
        let of_theirs = row.ask(&theirs).token(&bank).at(&ground.door).await;
        let of_nothing = row.ask(&none).token(&bank).at(&ground.door).await;
        let asked = format!("{} {}: {of_theirs:?}", row.method, row.path);
        assert_eq!(of_theirs.status, of_nothing.status, "{asked}");
        assert_eq!(of_theirs.headers, of_nothing.headers, "{asked}");
        assert_eq!(theirs.hidden_in(&of_theirs.body), none.hidden_in(&of_nothing.body), "{asked}");
        let found_nothing = of_theirs.status == StatusCode::NOT_FOUND || row.path == "/v1/claims";
        assert!(found_nothing, "{asked}");
        // Without naming the project, the lists are what they were.
        assert!(!of_theirs.body.contains("staging"), "{asked}");
    }
    for (list, before) in lists.iter().zip(before) {
        assert_eq!(ground.get(list, &bank).await.body, before, "{list}");
    }
    assert_eq!(ground.stage.store.events(run, page()).await.expect("events"), events);
}

pub(crate) async fn an_admin_of_one_project_gives_nobody_more_than_they_have(ground: &Ground) {
    let bank = ground.secret(Role::Admin, Some("bank")).await;
    let made = ground.post("/v1/tokens", &bank, &json!({"name": "ci", "role": "admin"})).await;
    assert_eq!((made.status, &made.json()["token"]["project_id"]), (StatusCode::CREATED, &json!("bank")));
    let other = json!({"name": "ci", "role": "viewer", "project": "shop"});
    let refused = ground.post("/v1/tokens", &bank, &other).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::NOT_FOUND, "unknown_project"));
    // The one with all projects is none of theirs either.
    let (all, _) = ground.make(Role::Viewer, None, None).await;
    let path = format!("/v1/tokens/{}", all.token_id);
    let reply = crate::ground::ask(&http::Method::DELETE, &path).token(&bank).at(&ground.door).await;
    assert_eq!((reply.status, reply.code().as_str()), (StatusCode::NOT_FOUND, "unknown_token"));
}

/// The id of a claim makes asking again the same as asking once. It must not give another project's runs away.
pub(crate) async fn asking_again_for_another_projects_claim_gives_nothing(ground: &Ground) {
    let (shop, bank) =
        (ground.secret(Role::Worker, Some("shop")).await, ground.secret(Role::Worker, Some("bank")).await);
    let theirs = things(ground).await;
    let asked = json!({"worker": "w", "request_id": "asked"});
    let claimed = async |secret: &str| ground.post("/v1/claims", secret, &asked).await.json()["runs"].clone();
    let first = claimed(&shop).await;
    assert_eq!(first[0]["run_id"], json!(theirs.run));
    assert_eq!(claimed(&shop).await, first);
    assert_eq!(claimed(&bank).await, json!([]));
}
