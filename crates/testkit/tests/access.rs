//! Who gets in, and where: every route with every kind of caller, and what tokens, sessions and the record promise.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

#[path = "access/commits.rs"]
mod commits;
#[path = "access/foreign.rs"]
mod foreign;
#[path = "access/ground.rs"]
mod ground;
#[path = "access/record.rs"]
mod record;
#[path = "access/rows.rs"]
mod rows;
#[path = "access/secrets.rs"]
mod secrets;
#[path = "access/sessions.rs"]
mod sessions;
#[path = "access/streams.rs"]
mod streams;
#[path = "access/table.rs"]
mod table;
#[path = "access/tokens.rs"]
mod tokens;

/// Makes a test of each case on each store.
macro_rules! cases {
    ($($topic:ident: $($case:ident),+ $(,)?;)+) => {
        /// The name of every case that is on the list.
        const LISTED: &[&str] = &[$($(stringify!($case)),+),+];
        mod postgres { cases! { @store Postgres, $($topic: $($case),+;)+ } }
        mod sqlite { cases! { @store Sqlite, $($topic: $($case),+;)+ } }
    };
    (@store $kind:ident, $($topic:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test]
            async fn $case() {
                let ground = crate::ground::Ground::open(tidemill_testkit::door::Kind::$kind).await;
                crate::$topic::$case(&ground).await;
                ground.stage.close().await;
            }
        )+)+
    };
}

cases! {
    table:
        every_route_lets_in_the_roles_of_its_row_and_no_other,
        no_route_lets_in_a_token_that_is_missing_expired_revoked_or_garbage;
    foreign:
        to_another_project_everything_reads_as_if_it_did_not_exist,
        a_worker_is_out_of_reach_for_other_projects,
        a_feed_does_not_take_the_schedule_of_another_project,
        an_admin_of_one_project_gives_nobody_more_than_they_have,
        asking_again_for_another_projects_claim_gives_nothing,
        an_agent_belongs_to_the_token_that_it_came_with,
        a_probe_of_one_project_stops_nobody,
        an_agent_moves_to_another_token_only_from_its_own_directory;
    tokens:
        revocation_bites_at_once_here_and_within_five_seconds_elsewhere,
        a_token_ends_at_its_time,
        a_token_that_is_asked_for_twice_is_made_once,
        the_last_use_is_written_at_most_once_a_minute,
        the_first_admin_is_made_once_however_many_ask,
        tokens_are_listed_page_by_page,
        a_source_of_unknown_tokens_has_to_wait,
        what_is_over_is_pruned;
    sessions:
        the_cookie_cannot_be_read_by_scripts_or_sent_by_other_sites,
        a_change_by_cookie_needs_the_csrf_token,
        a_session_ends_with_its_time_its_sign_out_and_its_token,
        a_token_has_only_so_many_sessions,
        failed_sign_ins_have_to_wait,
        another_site_can_neither_sign_in_nor_use_an_open_door;
    streams:
        a_stream_ends_at_once_when_its_token_is_revoked_here,
        a_stream_ends_soon_when_its_token_is_revoked_elsewhere_or_expires,
        a_stream_ends_when_its_reader_signs_out;
    secrets:
        no_secret_is_in_the_database_the_log_or_the_record;
    record:
        what_people_changed_is_on_record_and_nothing_else,
        what_no_path_names_is_named_on_record,
        the_record_is_read_page_by_page_and_does_not_change,
        another_token_for_an_agent_is_on_record;
    commits:
        what_cannot_be_put_on_record_is_not_done,
        what_was_asked_twice_is_on_record_once;
}

/// A case that is on no list would never run, and nobody would notice.
#[test]
fn every_case_is_on_the_list() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/access");
    let mut cases = 0;
    for file in std::fs::read_dir(folder).expect("the folder is read") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("the file is read");
        let cases_of = text.lines().filter_map(|line| line.strip_prefix("pub(crate) async fn "));
        for name in cases_of.filter_map(|line| line.strip_suffix("(ground: &Ground) {")) {
            assert!(LISTED.contains(&name), "{name} is on no list in access.rs");
            cases += 1;
        }
    }
    assert_eq!(cases, LISTED.len());
}
