//! One suite, every door: each case runs once per door, on a database of its own.

mod postgres {
    tidemill_testkit::conformance! { tidemill_testkit::door::Kind::Postgres }
    tidemill_testkit::conformance_of_engine! { tidemill_testkit::door::Kind::Postgres }
    tidemill_testkit::conformance_of_postgres! { tidemill_testkit::door::Kind::Postgres }
}

mod pgbouncer {
    tidemill_testkit::conformance! { tidemill_testkit::door::Kind::Pgbouncer }
    tidemill_testkit::conformance_of_engine! { tidemill_testkit::door::Kind::Pgbouncer }
    tidemill_testkit::conformance_of_postgres! { tidemill_testkit::door::Kind::Pgbouncer }
}

mod sqlite {
    tidemill_testkit::conformance! { tidemill_testkit::door::Kind::Sqlite }
    tidemill_testkit::conformance_of_engine! { tidemill_testkit::door::Kind::Sqlite }
}

mod sql {
    tidemill_testkit::conformance! { tidemill_testkit::door::Kind::Sql }
    tidemill_testkit::conformance_of_postgres! { tidemill_testkit::door::Kind::Sql }
}
