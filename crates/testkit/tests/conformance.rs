//! One suite, every door: each case runs once per door, on a database of its own.

mod postgres {
    tidemill_testkit::conformance! { tidemill_testkit::door::Kind::Postgres }
    tidemill_testkit::conformance_of_engine! { tidemill_testkit::door::Kind::Postgres }
    tidemill_testkit::conformance_of_postgres! { tidemill_testkit::door::Kind::Postgres }
    tidemill_testkit::conformance_of_connections! { tidemill_testkit::door::Kind::Postgres }
}

mod pgbouncer {
    tidemill_testkit::conformance! { tidemill_testkit::door::Kind::Pgbouncer }
    tidemill_testkit::conformance_of_engine! { tidemill_testkit::door::Kind::Pgbouncer }
    tidemill_testkit::conformance_of_postgres! { tidemill_testkit::door::Kind::Pgbouncer }
    tidemill_testkit::conformance_of_connections! { tidemill_testkit::door::Kind::Pgbouncer }
}

mod sqlite {
    tidemill_testkit::conformance! { tidemill_testkit::door::Kind::Sqlite }
    tidemill_testkit::conformance_of_engine! { tidemill_testkit::door::Kind::Sqlite }
}

mod sql {
    tidemill_testkit::conformance! { tidemill_testkit::door::Kind::Sql }
    tidemill_testkit::conformance_of_postgres! { tidemill_testkit::door::Kind::Sql }
}

mod http_postgres {
    tidemill_testkit::conformance! { tidemill_testkit::door::OverHttp(tidemill_testkit::door::Kind::Postgres) }
}

mod http_sqlite {
    tidemill_testkit::conformance! { tidemill_testkit::door::OverHttp(tidemill_testkit::door::Kind::Sqlite) }
}

/// A case that is on no list would never run, and nobody would notice.
#[test]
fn every_case_is_on_the_list() {
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
