//! Syncs of servers from the package registries, with roles that are killed in the middle: the table equals the
//! storage of the server, row by row, on each store.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]
#![expect(clippy::print_stdout, reason = "the shared fixture prints why a role starts again")]

#[path = "sync_servers/cases.rs"]
mod cases;
#[path = "sync_servers/fixture.rs"]
mod fixture;
#[path = "sync_faults/fixture.rs"]
#[expect(dead_code, reason = "the cases of other faults use the rest")]
mod roles;

tidemill_testkit::on_both! {
    worker_threads = 4;
    cases::json_server_by_page_number_equals_the_table,
    cases::json_server_by_position_equals_the_table,
    cases::json_server_by_link_header_equals_the_table,
    cases::datasette_by_cursor_equals_the_table,
    cases::datasette_by_next_url_equals_the_table,
    cases::datasette_by_key_equals_the_table,
    cases::postgraphile_by_connection_equals_the_table,
    cases::postgraphile_by_position_equals_the_table,
}
