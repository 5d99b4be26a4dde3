//! Projects, flags, schedules, rules, statistics.

use crate::fixture::{ApiFixture, refused};
use serde_json::{Value, json};
use tidemill_core::project::FlagName;
use tidemill_testkit::interface::{Kind, at, request};
use tidemill_wire::projects::{ClearFlag, Pause, PutProject, SetFlag};
use tidemill_wire::rules::{ImportRules, NewRule, SampleStone};
use tidemill_wire::schedules::{PauseSchedule, PutSchedule};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a request is read")
}

pub(crate) async fn projects_are_created_listed_paused_and_resumed(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let put = PutProject { environments: vec!["dev".to_owned(), "live".to_owned()] };
    let made = api.admin.put_project("mine", &put).await.expect("a project is made");
    assert!(made.created);
    let more = PutProject { environments: vec!["test".to_owned()] };
    let made = api.admin.put_project("mine", &more).await.expect("an environment is added");
    assert_eq!(
        (made.created, made.environments),
        (true, vec!["dev".to_owned(), "live".into(), "test".into()])
    );
    assert!(!api.admin.put_project("mine", &more).await.expect("it is there").created);
    let listed = api.admin.projects().await.expect("projects are listed").items;
    let names: Vec<&str> = listed.iter().map(|project| project.project_id.as_str()).collect();
    assert_eq!(names, ["bank", "mine", "shop"]);

    let pause = Pause { note: Some("a move".to_owned()), until_at: Some(at(600)) };
    let flag = api.admin.pause_project("mine", &pause).await.expect("it is paused");
    assert_eq!((flag.scope.as_str(), flag.set_by.as_deref()), ("project:mine", Some("ann")));
    let held = api.admin.project("mine").await.expect("a project").paused;
    assert_eq!(held, Some(flag));
    assert!(api.admin.resume_project("mine").await.expect("it continues").resumed);
    assert!(!api.admin.resume_project("mine").await.expect("it went on before").resumed);
    let bad = PutProject { environments: vec!["Live".to_owned()] };
    assert_eq!(refused(api.admin.put_project("mine", &bad).await), (422, "invalid".to_owned()));
}

pub(crate) async fn flags_are_set_and_cleared(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let set =
        |scope: &str| SetFlag { flag: FlagName::Paused, scope: scope.to_owned(), note: None, until_at: None };
    for scope in ["lane:ops", "project:shop"] {
        api.admin.set_flag(&set(scope)).await.expect("a flag is set");
    }
    let flags = api.admin.flags().await.expect("flags are listed").items;
    assert_eq!(
        flags.iter().map(|flag| flag.scope.as_str()).collect::<Vec<_>>(),
        ["lane:ops", "project:shop"]
    );
    let clear = ClearFlag { flag: FlagName::Paused, scope: "lane:ops".to_owned() };
    assert!(api.admin.clear_flag(&clear).await.expect("a flag is cleared").resumed);
    assert!(!api.admin.clear_flag(&clear).await.expect("it was off").resumed);
    assert_eq!(refused(api.admin.set_flag(&set("project:none")).await), (404, "unknown_project".to_owned()));
    assert_eq!(refused(api.admin.set_flag(&set("feed:none")).await), (404, "unknown_feed".to_owned()));
    assert_eq!(refused(api.admin.set_flag(&set("everything")).await), (422, "invalid".to_owned()));
}

pub(crate) async fn schedules_are_stored_paused_resumed_and_removed(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let put: PutSchedule =
        read(json!({"cron": "30 2 * * *", "request": {"project": "shop", "env": "staging"}}));
    let stored = api.admin.put_schedule("nightly", &put).await.expect("a schedule is stored");
    assert_eq!((stored.time_zone.as_str(), stored.project_id.as_str()), ("UTC", "shop"));
    let pause = PauseSchedule { note: Some("a move".to_owned()) };
    let paused = api.admin.pause_schedule("nightly", &pause).await.expect("it is paused");
    assert_eq!((paused.paused_at, paused.paused_note.as_deref()), (Some(at(0)), Some("a move")));
    let resumed = api.admin.resume_schedule("nightly").await.expect("it continues");
    assert!(resumed.paused_at.is_none() && resumed.next_fire_at.is_some());
    assert_eq!(api.admin.schedules().await.expect("schedules are listed").items, [resumed]);
    let nowhere: PutSchedule =
        read(json!({"cron": "30 2 * * *", "request": {"project": "shop", "env": "none"}}));
    let refusal = refused(api.admin.put_schedule("nightly", &nowhere).await);
    assert_eq!(refusal, (404, "unknown_environment".to_owned()));
    api.admin.remove_schedule("nightly").await.expect("it is removed");
    assert!(api.admin.schedules().await.expect("schedules are listed").items.is_empty());
}

pub(crate) async fn rules_are_added_tested_imported_and_removed(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let rule: NewRule = read(json!({"markup": 11_500, "shapes": ["round"], "points_min": 100, "rating": 7}));
    let added = api.admin.add_rule(&rule, None).await.expect("a rule is added");
    assert_eq!((added.priority, added.active, added.points_min), (100, true, Some(100)));
    let stone: SampleStone = read(json!({"feed": "any", "price": 200_000, "points": 125}));
    let priced = api.admin.test_rules(&stone).await.expect("a stone is priced");
    assert_eq!((priced.retail_price, priced.rule_id), (230_000, Some(added.rule_id)));
    let small = SampleStone { points: 50, ..stone };
    let other = api.admin.test_rules(&small).await.expect("a stone is priced").rule_id;
    assert_ne!(other, Some(added.rule_id), "it is too small for that rule");
    let import: ImportRules = read(json!({"rules": [{"markup": 1}, {"markup": 2}], "replace": true}));
    let numbers = api.admin.import_rules(&import, None).await.expect("rules are imported").added;
    let listed = api.admin.rules().await.expect("rules are listed").items;
    assert_eq!(listed.iter().map(|rule| rule.rule_id).collect::<Vec<_>>(), numbers);
    api.admin.remove_rule(numbers[0]).await.expect("a rule is removed");
    assert_eq!(refused(api.admin.remove_rule(numbers[0]).await), (404, "unknown_rule".to_owned()));
    assert_eq!(api.admin.rules().await.expect("rules are listed").items.len(), 1);
}

pub(crate) async fn statistics_count_only_visible_runs(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    api.base.queue(request(), at(0)).await;
    api.base.queue(request(), at(0)).await;
    assert_eq!(api.admin.stats().await.expect("numbers").queued_count, 2);
    assert_eq!(api.of_project("shop").admin.stats().await.expect("numbers").queued_count, 2);
    let bank = api.of_project("bank").admin.stats().await.expect("numbers");
    assert_eq!((bank.queued_count, bank.ready_count, bank.active.len()), (0, 0, 0));
}
