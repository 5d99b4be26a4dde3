//! The conformance suite: each case runs once per interface, on a database of its own.

mod postgres {
    tidemill_testkit::conformance! { tidemill_testkit::interface::Kind::Postgres }
    tidemill_testkit::conformance_of_databases! { tidemill_testkit::interface::Kind::Postgres }
    tidemill_testkit::conformance_of_engine! { tidemill_testkit::interface::Kind::Postgres }
    tidemill_testkit::conformance_of_postgres! { tidemill_testkit::interface::Kind::Postgres }
    tidemill_testkit::conformance_of_connections! { tidemill_testkit::interface::Kind::Postgres }
}

mod pgbouncer {
    tidemill_testkit::conformance! { tidemill_testkit::interface::Kind::Pgbouncer }
    tidemill_testkit::conformance_of_databases! { tidemill_testkit::interface::Kind::Pgbouncer }
    tidemill_testkit::conformance_of_engine! { tidemill_testkit::interface::Kind::Pgbouncer }
    tidemill_testkit::conformance_of_postgres! { tidemill_testkit::interface::Kind::Pgbouncer }
    tidemill_testkit::conformance_of_connections! { tidemill_testkit::interface::Kind::Pgbouncer }
}

mod sqlite {
    tidemill_testkit::conformance! { tidemill_testkit::interface::Kind::Sqlite }
    tidemill_testkit::conformance_of_databases! { tidemill_testkit::interface::Kind::Sqlite }
    tidemill_testkit::conformance_of_engine! { tidemill_testkit::interface::Kind::Sqlite }
}

mod sql {
    tidemill_testkit::conformance! { tidemill_testkit::interface::Kind::Sql }
    tidemill_testkit::conformance_of_databases! { tidemill_testkit::interface::Kind::Sql }
    tidemill_testkit::conformance_of_postgres! { tidemill_testkit::interface::Kind::Sql }
}

mod http_postgres {
    tidemill_testkit::conformance! {
        tidemill_testkit::interface::OverHttp(tidemill_testkit::interface::Kind::Postgres)
    }
}

mod http_sqlite {
    tidemill_testkit::conformance! {
        tidemill_testkit::interface::OverHttp(tidemill_testkit::interface::Kind::Sqlite)
    }
}

/// An unlisted case would never run.
#[test]
fn every_case_is_listed() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let list = std::fs::read_to_string(source.join("conformance.rs")).unwrap();
    let mut cases = 0;
    for file in std::fs::read_dir(source.join("conformance")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
            let name = line.split('(').next().unwrap();
            assert!(list.contains(&format!(" {name},\n")), "{name} is on no list in conformance.rs");
            cases += 1;
        }
    }
    assert!(cases > 100, "only {cases} cases were found");
}
