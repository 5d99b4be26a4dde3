//! The matrix of roles, routes and projects. The table `matrix.tsv` states the expected answer of every cell.
//!
//! Tokens of all projects are in `roles.rs`, and invalid tokens too. These cases add tokens of one project, of the one
//! that owns the items and of another one, and tokens of machines with several projects.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use serde_json::Value;
use tidemill_api::Permission;
use tidemill_core::access::Role;
use tidemill_engine::clock::host_now;
use tidemill_testkit::interface::Kind;

use crate::fixture::{AccessFixture, Reply};
use crate::roles::{nothing, register_agent, things};
use crate::route_list::{Row, Things, Who, Whose, rows};

const TABLE: &str = include_str!("matrix.tsv");
const FILE: &str = "crates/api/tests/access/matrix.tsv";
/// Resources outside of Tidemill's own tables.
const RESOURCES: [&str; 5] = ["environment", "files", "network", "tables", "agents"];
/// Parts of a request that name a project.
const NAMED_BY: [&str; 5] = ["path", "query", "body", "token", "-"];
/// On PostgreSQL one cell of this many is requested, because a cell is slower there; on SQLite all are. The seed
/// selects the first one: as many consecutive seeds request every cell.
const SAMPLE: usize = 6;
/// The projects of the tokens. The items belong to `shop`: tokens without it reach none of them.
const PROJECTS: [&[&str]; 2] = [&["shop"], &["bank"]];
/// The projects of tokens of machines, which may have several.
const MACHINE_PROJECTS: [&[&str]; 4] = [&["shop"], &["bank"], &["mint", "shop"], &["bank", "mint"]];

/// A row of the table.
struct Policy {
    permission: Option<Permission>,
    whose: Whose,
    /// Whether a token of the project itself is admitted although others are refused.
    admits_own: bool,
    reaches: Vec<&'static str>,
}

fn permission(word: &str) -> Option<Permission> {
    Some(match word {
        "public" => return None,
        "read" => Permission::Read,
        "read_or_work" => Permission::ReadOrWork,
        "work" => Permission::Work,
        "agent" => Permission::Agent,
        "operate" => Permission::Operate,
        "admin" => Permission::Admin,
        "anyone" => Permission::Anyone,
        other => panic!("{FILE}: `{other}` is not a permission"),
    })
}

fn word(permission: Option<Permission>) -> &'static str {
    match permission {
        None => "public",
        Some(Permission::Read) => "read",
        Some(Permission::ReadOrWork) => "read_or_work",
        Some(Permission::Work) => "work",
        Some(Permission::Agent) => "agent",
        Some(Permission::Operate) => "operate",
        Some(Permission::Admin) => "admin",
        Some(Permission::Anyone) => "anyone",
    }
}

fn policies() -> BTreeMap<String, Policy> {
    let mut found = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts: Vec<&'static str> = line.split('\t').collect();
        let [method, path, permitted, subject, named_by, reaches] = parts[..] else {
            panic!("{FILE}: `{line}` has {} columns and needs six", parts.len())
        };
        let whose = match subject {
            "project" => Whose::Projects,
            "part" => Whose::Parts,
            "installation" | "own" => Whose::Alls,
            "signature" => Whose::Signers,
            "none" => Whose::Nobodys,
            other => panic!("{FILE}: `{other}` is not a subject: {line}"),
        };
        assert!(NAMED_BY.contains(&named_by), "{FILE}: `{named_by}` names no project: {line}");
        let is_named = matches!(subject, "project" | "part" | "own" | "signature");
        assert_eq!(is_named, named_by != "-", "{FILE}: state how the request names its project: {line}");
        let reaches: Vec<_> = reaches.split(',').filter(|word| *word != "none").collect();
        let unknown: Vec<_> = reaches.iter().filter(|word| !RESOURCES.contains(word)).collect();
        assert!(unknown.is_empty(), "{FILE}: {unknown:?} are not among {RESOURCES:?}: {line}");
        let policy =
            Policy { permission: permission(permitted), whose, admits_own: subject == "own", reaches };
        assert!(found.insert(format!("{method} {path}"), policy).is_none(), "{FILE}: two rows: {line}");
    }
    found
}

fn key(row: &Row) -> String {
    format!("{} {}", row.method, row.path)
}

#[test]
fn matrix_has_exactly_one_row_for_each_route() {
    let mut policies = policies();
    let requests: BTreeMap<String, Row> = rows().into_iter().map(|row| (key(&row), row)).collect();
    let mut problems = Vec::new();
    for endpoint in tidemill_api::endpoints() {
        let (name, permitted) = (format!("{} {}", endpoint.method, endpoint.path), word(endpoint.permission));
        let Some(policy) = policies.remove(&name) else {
            problems.push(format!(
                "route {name} has no row; decide who may reach what, and add to {FILE}: {}\t{}\t{permitted}\t\
                 SUBJECT\tNAMED BY\tREACHES",
                endpoint.method, endpoint.path
            ));
            continue;
        };
        if policy.permission != endpoint.permission {
            problems.push(format!("route {name} admits {permitted}, and {FILE} says otherwise"));
        }
        let Some(row) = requests.get(&name) else {
            problems.push(format!("route {name} has no request in route_list.rs"));
            continue;
        };
        let agrees = match (row.who, policy.permission) {
            (Who::Roles(roles), Some(permission)) => {
                let set = |roles: &[Role]| roles.iter().map(|role| role.as_str()).collect::<BTreeSet<_>>();
                set(roles) == set(permission.roles())
            }
            (Who::Everybody(_), None) => true,
            (Who::Roles(_), None) | (Who::Everybody(_), Some(_)) => false,
        };
        if !agrees || row.whose != policy.whose {
            problems.push(format!("route_list.rs and {FILE} disagree about route {name}"));
        }
    }
    problems.extend(policies.keys().map(|name| format!("{FILE} has a row for {name}, which is no route")));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Viewers, workers and agents cannot make the server use its environment, its files, the network or agents. A webhook
/// without a token is signed instead.
#[test]
fn only_operators_and_admins_make_the_server_reach_out() {
    for (name, policy) in policies().iter().filter(|(_, policy)| !policy.reaches.is_empty()) {
        let allowed = match policy.permission {
            Some(Permission::Operate | Permission::Admin) => !name.starts_with("GET "),
            Some(
                Permission::Read
                | Permission::ReadOrWork
                | Permission::Work
                | Permission::Agent
                | Permission::Anyone,
            ) => false,
            None => policy.whose == Whose::Signers,
        };
        assert!(allowed, "{name} reaches {:?}, and its callers must not choose that", policy.reaches);
    }
}

/// Adds the names of all fields of a schema, and the references that it follows, each once.
fn fields(schema: &Value, document: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                let reference = value.as_str().filter(|_| name == "$ref");
                if let Some(reference) = reference.filter(|reference| found.insert((*reference).to_owned())) {
                    let target = document.pointer(reference.trim_start_matches('#'));
                    fields(target.unwrap_or(&Value::Null), document, found);
                }
                if let (true, Some(properties)) = (name == "properties", value.as_object()) {
                    found.extend(properties.keys().cloned());
                }
                fields(value, document, found);
            }
        }
        Value::Array(members) => members.iter().for_each(|member| fields(member, document, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A body that names an environment variable, an address to call or a place to write states so in the table. The
/// definition of a feed names all of them in its text.
#[test]
fn routes_that_accept_names_of_resources_state_their_reach() {
    let document = tidemill_api::document();
    let mut checked = 0;
    for (name, policy) in policies() {
        let (method, path) = name.split_once(' ').unwrap_or_default();
        let body = &document["paths"][path][method.to_lowercase()]["requestBody"];
        let mut found = BTreeSet::new();
        fields(body, document, &mut found);
        for field in &found {
            let resources: &[&str] = match field.as_str() {
                "definition" => &["environment", "network", "tables"],
                "endpoint" | "copy_url" => &["network"],
                field if field.ends_with("_env") => &["environment"],
                _ => continue,
            };
            for resource in resources {
                checked += 1;
                assert!(
                    policy.reaches.contains(resource),
                    "{name} takes `{field}`: state {resource} in {FILE}"
                );
            }
        }
    }
    assert!(checked >= 9, "only {checked} fields were found; the document may have changed");
}

/// The expected answer of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// 403: the role or the project of the token.
    Forbidden,
    /// 404, as for an item that does not exist.
    Hidden,
    /// The caller's part, which is empty or has no effect here.
    OwnPart,
    /// Any answer of the route itself.
    Allowed,
}

fn class(policy: &Policy, role: Role, project: &str) -> Option<Class> {
    let admits = policy.permission?.roles().contains(&role);
    Some(match (admits, policy.whose, project) {
        (true, Whose::Alls, "shop") if policy.admits_own => Class::Allowed,
        (false, _, _) | (true, Whose::Alls, _) => Class::Forbidden,
        (true, Whose::Projects, "bank") => Class::Hidden,
        (true, Whose::Parts, "bank") => Class::OwnPart,
        (true, Whose::Projects | Whose::Parts | Whose::Nobodys | Whose::Signers, _) => Class::Allowed,
    })
}

fn check(class: Class, reply: &Reply, cell: &str) {
    let code = reply.code();
    match class {
        Class::Forbidden => {
            assert_eq!((reply.status, code.as_str()), (StatusCode::FORBIDDEN, "forbidden"), "{cell}");
        }
        Class::Hidden => assert_eq!(reply.status, StatusCode::NOT_FOUND, "{cell}"),
        Class::OwnPart => assert!(reply.status.is_success(), "{cell}"),
        Class::Allowed => {
            let refused = [
                StatusCode::UNAUTHORIZED,
                StatusCode::FORBIDDEN,
                StatusCode::NOT_FOUND,
                StatusCode::TOO_MANY_REQUESTS,
            ];
            assert!(!refused.contains(&reply.status) && !reply.status.is_server_error(), "{cell}");
        }
    }
}

/// Returns the seed of the sample: `TIDEMILL_SEED`, or one of the clock. It is printed.
fn seed() -> usize {
    let chosen = std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = chosen.unwrap_or_else(|| host_now().timestamp_subsec_micros() as usize);
    println!("seed: TIDEMILL_SEED={seed}");
    seed
}

/// Creates items of the shop, with an agent that works for the shop alone.
async fn things_of_shop(fixture: &AccessFixture) -> Things {
    // A token of role agent works for one agent.
    let agent = fixture.secret(Role::Agent, Some("shop")).await;
    things_with_agent(fixture, &agent).await
}

/// Creates items of the shop, with an agent of this token.
async fn things_with_agent(fixture: &AccessFixture, agent: &str) -> Things {
    let mut made = things(fixture).await;
    register_agent(fixture, &mut made, agent).await;
    made
}

pub(crate) async fn every_route_answers_tokens_of_projects_as_stated(fixture: &AccessFixture) {
    let policies = policies();
    let shared = things_of_shop(fixture).await;
    // Identical responses need names of equal length.
    let none = Things { rule: "9".repeat(shared.rule.len()), ..nothing() };
    let every = if fixture.base.kind == Kind::Sqlite { 1 } else { SAMPLE };
    let (mut number, mut requested) = (seed() % every, 0);
    fixture.base.store.create_project("mint", Vec::new(), None).await.expect("a project is created");
    for role in Role::ALL {
        for projects in if role.is_machine() { &MACHINE_PROJECTS[..] } else { &PROJECTS[..] } {
            let project = if projects.contains(&"shop") { "shop" } else { "bank" };
            let mut secret = fixture.secret_of(*role, projects).await;
            for row in rows() {
                let Some(class) = policies.get(&key(&row)).and_then(|policy| class(policy, *role, project))
                else {
                    continue;
                };
                number += 1;
                if number % every != 0 {
                    continue;
                }
                requested += 1;
                // Only an admitted caller can change anything, and then the item is its own.
                let changes = class == Class::Allowed && row.method != Method::GET;
                if changes && row.is_agents() && *role == Role::Agent {
                    secret = fixture.secret_of(*role, projects).await;
                }
                let things = match (changes, row.whose, project) {
                    (true, Whose::Nobodys, "bank") => nothing(),
                    (true, _, _) if row.is_agents() => things_with_agent(fixture, &secret).await,
                    (true, _, _) => things_of_shop(fixture).await,
                    (false, _, _) => shared.clone(),
                };
                let reply = row.ask(&things).token(&secret).at(&fixture.interface).await;
                let cell = format!("{role} of {projects:?}: {}: {class:?}: {reply:?}", key(&row));
                check(class, &reply, &cell);
                if class == Class::Hidden {
                    let missing = row.ask(&none).token(&secret).at(&fixture.interface).await;
                    assert_eq!((reply.status, &reply.headers), (missing.status, &missing.headers), "{cell}");
                    assert_eq!(things.hidden_in(&reply.body), none.hidden_in(&missing.body), "{cell}");
                }
            }
        }
    }
    assert!(requested * every > 1_000, "only {requested} cells were requested");
}
