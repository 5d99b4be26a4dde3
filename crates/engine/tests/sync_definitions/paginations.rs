//! Each kind of pagination: full, incremental and full after removals.

use tidemill_core::feed::RunType;
use tidemill_supplier::{Change, ChangeKind, RestKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::RestFixture;

const ITEMS: u32 = 320;

/// Full, incremental with changes of every sort, and full after removals: the table equals the source each time.
async fn follow_the_source(kind: Kind, pagination: RestKind) {
    let fixture = RestFixture::open(kind, pagination, ITEMS).await;
    let roles = fixture.base.roles();
    let full = fixture.sync(false).await;
    assert_eq!(full.run_type, RunType::Full);
    fixture.check_equal().await;

    let source = &fixture.base.supplier.handle;
    for (change, count) in [(ChangeKind::Price, 40), (ChangeKind::Add, 15), (ChangeKind::Sell, 10)] {
        source.change(&Change::random(change, count, 3)).expect("the source changes");
    }
    let incremental = fixture.sync(false).await;
    assert_eq!(incremental.run_type, RunType::Incremental);
    fixture.check_equal().await;

    source.change(&Change::random(ChangeKind::Remove, 12, 5)).expect("the source changes");
    fixture.sync(true).await;
    fixture.check_equal().await;
    roles.stop().await;
}

macro_rules! paginations {
    ($($name:ident: $pagination:ident),+ $(,)?) => {
        $(pub(crate) async fn $name(kind: Kind) {
            follow_the_source(kind, RestKind::$pagination).await;
        })+
    };
}

paginations! {
    single_page_equals_the_source: SinglePage,
    page_number_equals_the_source: PageNumber,
    offset_equals_the_source: Offset,
    cursor_equals_the_source: Cursor,
    json_link_equals_the_source: JsonLink,
    header_cursor_equals_the_source: HeaderCursor,
    header_url_equals_the_source: HeaderUrl,
    header_link_equals_the_source: HeaderLink,
    keyset_equals_the_source: Keyset,
    graphql_offset_equals_the_source: GraphqlOffset,
    graphql_connection_equals_the_source: GraphqlConnection,
}
