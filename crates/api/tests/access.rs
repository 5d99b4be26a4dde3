//! Access control: every route with every kind of caller, and the guarantees of tokens, sessions and the audit log.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]
#![expect(clippy::print_stdout, reason = "the seed repeats a failure")]

#[path = "access/audit.rs"]
mod audit;
#[path = "access/audit_commits.rs"]
mod audit_commits;
#[path = "access/audit_outcomes.rs"]
mod audit_outcomes;
#[path = "access/audit_seals.rs"]
mod audit_seals;
#[path = "access/fixture.rs"]
mod fixture;
#[path = "access/holders.rs"]
mod holders;
#[path = "access/local.rs"]
mod local;
#[path = "access/matrix.rs"]
mod matrix;
#[path = "access/other_projects.rs"]
mod other_projects;
#[path = "access/roles.rs"]
mod roles;
#[path = "access/route_list.rs"]
mod route_list;
#[path = "access/secrets.rs"]
mod secrets;
#[path = "access/sessions.rs"]
mod sessions;
#[path = "access/streams.rs"]
mod streams;
#[path = "access/tokens.rs"]
mod tokens;

/// Makes a test of each case on each store.
macro_rules! cases {
    ($($topic:ident: $($case:ident),+ $(,)?;)+) => {
        /// The names of all listed cases.
        const LISTED: &[&str] = &[$($(stringify!($case)),+),+];
        mod postgres { cases! { @store Postgres, $($topic: $($case),+;)+ } }
        mod sqlite { cases! { @store Sqlite, $($topic: $($case),+;)+ } }
    };
    (@store $kind:ident, $($topic:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test]
            async fn $case() {
                let fixture = crate::fixture::AccessFixture::open(tidemill_testkit::interface::Kind::$kind).await;
                crate::$topic::$case(&fixture).await;
                fixture.base.close().await;
            }
        )+)+
    };
}

cases! {
    roles:
        every_route_admits_exactly_its_roles,
        no_route_admits_missing_expired_revoked_or_malformed_tokens;
    matrix:
        every_route_answers_tokens_of_projects_as_stated;
    other_projects:
        other_projects_get_not_found_for_everything,
        worker_is_invisible_to_other_projects,
        feed_cannot_take_a_schedule_of_another_project,
        run_reveals_nothing_about_a_feed_of_another_project,
        project_admin_cannot_grant_more_than_its_own_access,
        repeated_claim_of_another_project_returns_nothing,
        agent_is_bound_to_its_first_token,
        project_probe_cannot_set_site_flags,
        agent_changes_token_only_with_its_directory_secret;
    holders:
        lease_belongs_to_the_token_that_claimed_it,
        lease_without_a_token_is_not_a_tokens,
        report_of_another_claim_is_stale,
        report_requires_worker_and_epoch,
        graph_and_sync_runs_accept_no_report,
        claims_and_workers_of_tokens_are_separate,
        agent_token_works_for_one_directory,
        concurrent_registrations_bind_one_agent,
        replaced_agent_secret_is_refused,
        copied_agent_directory_is_refused_while_the_agent_lives,
        agent_cannot_report_tasks_of_another_agent,
        agent_token_names_its_projects,
        stolen_token_of_a_person_has_its_scope_and_its_end,
        stolen_session_cookie_is_no_token_and_ends;
    tokens:
        revocation_applies_here_at_once_and_elsewhere_in_five_seconds,
        token_expires_at_its_time,
        repeated_token_request_makes_one_token,
        last_use_is_written_at_most_once_a_minute,
        concurrent_first_admin_requests_make_one_token,
        tokens_are_listed_in_pages,
        unseen_token_works_after_unknown_ones_of_its_source,
        unseen_token_works_after_unknown_ones_of_many_sources,
        ended_sessions_tokens_and_audit_rows_are_pruned;
    sessions:
        session_cookie_is_http_only_and_same_site,
        change_by_cookie_requires_the_csrf_token,
        session_ends_on_expiry_sign_out_and_token_revocation,
        sessions_per_token_are_limited,
        sign_in_works_after_failed_ones_of_its_source,
        cross_site_requests_are_refused;
    local:
        local_server_admits_only_its_own_token,
        one_time_link_opens_one_session,
        unrecorded_sign_in_keeps_the_link;
    streams:
        stream_ends_at_once_if_its_token_is_revoked_on_this_server,
        stream_ends_soon_if_its_token_expires_or_is_revoked_elsewhere,
        stream_ends_when_its_reader_signs_out;
    secrets:
        secrets_are_absent_from_database_log_and_audit;
    audit:
        every_change_and_no_read_is_audited,
        audit_entry_names_created_and_implied_subjects,
        audit_log_is_paged_and_immutable,
        change_of_agent_token_is_audited;
    audit_commits:
        change_without_audit_entry_is_rolled_back,
        repeated_request_is_audited_once,
        repeated_operation_on_a_run_is_audited_once;
    audit_outcomes:
        every_change_is_recorded_once_with_actor_and_source,
        refused_reports_are_recorded_once_per_route_and_minute,
        refused_changes_are_never_recorded_as_applied,
        hook_name_of_another_project_is_recorded_as_refused,
        cancelling_through_finish_is_audited,
        hook_delivery_and_schedule_fire_are_audited,
        retried_call_has_one_entry;
    audit_seals:
        seals_cover_all_entries_and_verify,
        manipulated_entries_are_named,
        entry_that_commits_late_is_sealed_later,
        concurrent_and_failed_sealing_leave_one_chain,
        retention_removes_whole_seals_and_keeps_the_anchor;
}

/// An unlisted case would never run.
#[test]
fn every_case_is_listed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/access");
    let mut cases = 0;
    for file in std::fs::read_dir(folder).expect("the folder is read") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("the file is read");
        let cases_of = text.lines().filter_map(|line| line.strip_prefix("pub(crate) async fn "));
        for name in cases_of.filter_map(|line| line.strip_suffix("(fixture: &AccessFixture) {")) {
            assert!(LISTED.contains(&name), "{name} is on no list in access.rs");
            cases += 1;
        }
    }
    assert_eq!(cases, LISTED.len());
}
