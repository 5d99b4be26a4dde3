//! Every route with every role, and with what is no token.

use http::StatusCode;
use tidemill_core::access::Role;
use tidemill_testkit::door::{at, new_run_id, request};
use uuid::Uuid;

use crate::ground::{Ask, Ground, ask};
use crate::rows::{Row, Things, Who, rows};

impl Row {
    /// The request of a row.
    pub(crate) fn ask(&self, things: &Things) -> Ask {
        let path = format!("{}{}", things.path(self.path), (self.query)(things));
        let body = (self.body)(things);
        let ask = ask(&self.method, &path);
        if body.is_null() { ask } else { ask.body(&body) }
    }
}

/// Things of the project `shop`, made anew.
pub(crate) async fn things(ground: &Ground) -> Things {
    let (token, _) = ground.make(Role::Viewer, Some("shop"), None).await;
    Things {
        project: "shop".to_owned(),
        run: ground.stage.queue(request(), at(0)).await.to_string(),
        worker: Uuid::new_v4().to_string(),
        token: token.token_id.to_string(),
    }
}

/// Things that do not exist.
pub(crate) fn nothing() -> Things {
    Things {
        project: "nope".to_owned(),
        run: new_run_id(at(0)).to_string(),
        worker: Uuid::new_v4().to_string(),
        token: Uuid::new_v4().to_string(),
    }
}

pub(crate) async fn every_route_lets_in_the_roles_of_its_row_and_no_other(ground: &Ground) {
    for role in Role::ALL {
        let secret = ground.secret(*role, None).await;
        for row in rows() {
            let reply = row.ask(&things(ground).await).token(&secret).at(&ground.door).await;
            let asked = format!("{role}: {} {}: {reply:?}", row.method, row.path);
            match row.who {
                Who::Roles(roles) if !roles.contains(role) => {
                    assert_eq!(
                        (reply.status, reply.code().as_str()),
                        (StatusCode::FORBIDDEN, "forbidden"),
                        "{asked}"
                    );
                }
                Who::Roles(_) => {
                    let refused =
                        [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];
                    assert!(!refused.contains(&reply.status) && !reply.status.is_server_error(), "{asked}");
                }
                Who::Everybody => assert_ne!(reply.status, StatusCode::FORBIDDEN, "{asked}"),
            }
        }
    }
}

pub(crate) async fn no_route_lets_in_a_token_that_is_missing_expired_revoked_or_garbage(ground: &Ground) {
    let (_, expired) = ground.make(Role::Admin, None, Some(10)).await;
    let (revoked, revoked_secret) = ground.make(Role::Admin, None, None).await;
    ground.engine.revoke_token(revoked.token_id, None, "ann").await.expect("it is revoked");
    ground.wait(10);
    let unknown = format!("tm_{}", "0".repeat(64));
    let bearer = |secret: &str| Some(format!("Bearer {secret}"));
    let callers = [
        (None, "unauthenticated"),
        (bearer(expired.reveal()), "token_expired"),
        (bearer(revoked_secret.reveal()), "token_revoked"),
        (bearer(&unknown), "unauthenticated"),
        (bearer("garbage"), "unauthenticated"),
        (bearer(&ground.admin[..20]), "unauthenticated"),
        (Some(format!("Basic {}", ground.admin)), "unauthenticated"),
        (Some(ground.admin.clone()), "unauthenticated"),
    ];
    let things = things(ground).await;
    for row in rows() {
        for (shown, code) in &callers {
            let mut ask = row.ask(&things);
            if let Some(shown) = shown {
                ask = ask.header("authorization", shown);
            }
            let reply = ask.at(&ground.door).await;
            let asked = format!("{} {} with {code}: {reply:?}", row.method, row.path);
            match row.who {
                Who::Roles(_) => {
                    assert_eq!(
                        (reply.status, reply.code().as_str()),
                        (StatusCode::UNAUTHORIZED, *code),
                        "{asked}"
                    );
                    assert_eq!(reply.header("www-authenticate"), "Bearer", "{asked}");
                }
                // What is open does not look at tokens; signing in looks at the one in its body.
                Who::Everybody if row.path == "/openapi.json" => {
                    assert_eq!(reply.status, StatusCode::OK, "{asked}");
                }
                Who::Everybody => assert_eq!(reply.code(), "unauthenticated", "{asked}"),
            }
        }
    }
    // What nobody knows is told in the same words, whatever it is.
    let told =
        async |shown: &str| ask(&http::Method::GET, "/v1/info").token(shown).at(&ground.door).await.body;
    assert_eq!(told(&unknown).await, told("garbage").await);
}
