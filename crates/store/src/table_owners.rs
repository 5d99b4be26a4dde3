//! Rows of `feed_tables`: which feed writes which table of a user.
//!
//! Two feeds write the same table only if their rows cannot meet. Each feed has one row, with its table and the part of
//! its key that keeps it apart from other feeds. A transaction that writes the table holds that row, so a definition
//! changes it before or after the transaction.

use crate::codec::Columns;
use crate::target_table::table_key;
use crate::tx::{FromColumns, Tx, on};
use crate::{Error, FeedTables, Refusal, RefusalCode, Store, catalog};
use tidemill_core::feed::Feed;
use tidemill_core::feed_definition::target::{TableName, Target};
use tidemill_core::table_claim::TableClaim;

/// A feed with the table that it writes.
struct TableOwner {
    feed: String,
    project_id: String,
    table: String,
    /// `None` if it cannot be read: then nothing keeps the feed apart from others.
    claim: Option<TableClaim>,
}

impl FromColumns for TableOwner {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            feed: row.text("feed")?,
            project_id: row.text("project_id")?,
            table: row.text("table_name")?,
            claim: serde_json::from_str(&row.text("claim")?).ok(),
        })
    }
}

impl Tx<'_> {
    /// Makes a feed an owner of the table of its definition, and releases the table that it had before. Refuses a table
    /// whose rows another feed may write. The caller has locked the feed.
    ///
    /// The rows in a released table stay there: the feed neither updates nor deletes them any more.
    pub async fn claim_table(&mut self, feed: &Feed, into: &Target) -> Result<(), Error> {
        let (table, claim) = (table_key(&self.context.schema, &into.table), TableClaim::of(into));
        let is_owner = self
            .table_owner(&feed.feed)
            .await?
            .is_some_and(|owner| owner.table == table && owner.claim.as_ref() == Some(&claim));
        if !is_owner {
            // The lock is kept until the commit, so another feed that claims the table finds this one.
            on!(self, catalog::FEED_TABLE_LOCK, [], execute, "lock the owners of tables")?;
        }
        if let Some(refusal) = self.table_conflict(feed, into).await? {
            return Err(Error::Refused(refusal));
        }
        if !is_owner {
            let claim = serde_json::to_string(&claim).unwrap_or_default();
            let binds = (feed.feed.as_str(), table.as_str(), claim.as_str());
            on!(self, catalog::FEED_TABLE_PUT, [binds.0, binds.1, binds.2], execute, "claim a table")?;
        }
        Ok(())
    }

    /// Keeps the table of a feed from being claimed by other feeds until the transaction ends. Fails if the feed does
    /// not own it, so that no row of another feed is overwritten or deleted.
    pub async fn hold_table(&mut self, tables: &FeedTables) -> Result<(), Error> {
        let Some(target) = &tables.target else { return Ok(()) };
        let owner: Option<TableOwner> =
            on!(self, catalog::FEED_TABLE_HOLD, [tables.feed.as_str()], fetch_optional, "hold a table")?
                .record("hold a table")?;
        let table = table_key(&self.context.schema, &target.name);
        if owner.is_some_and(|owner| owner.table == table && owner.claim.as_ref() == Some(&target.claim)) {
            return Ok(());
        }
        Err(Error::Refused(Refusal {
            code: RefusalCode::BadValue,
            message: format!(
                "feed `{}` no longer writes the table `{}` with this definition; start a new sync",
                tables.feed, target.name
            ),
            hint: Some(format!("tidemill feed sync {} --full", tables.feed)),
        }))
    }

    async fn table_owner(&mut self, feed: &str) -> Result<Option<TableOwner>, Error> {
        on!(self, catalog::FEED_TABLE_GET, [feed], fetch_optional, "read the owner of a table")?
            .record("read the owner of a table")
    }

    /// Returns why a feed may not write a table, if another feed owns it.
    async fn table_conflict(&mut self, feed: &Feed, into: &Target) -> Result<Option<Refusal>, Error> {
        let (table, claim) = (table_key(&self.context.schema, &into.table), TableClaim::of(into));
        let binds = (table.as_str(), feed.feed.as_str());
        let others: Vec<TableOwner> = on!(
            self,
            catalog::FEED_TABLE_OTHERS,
            [binds.0, binds.1],
            fetch_all,
            "read the owners of a table"
        )?
        .records("read the owners of a table")?;
        let meets = |other: &TableOwner| !other.claim.as_ref().is_some_and(|other| claim.is_disjoint(other));
        // A feed of the same project is named first: the message can say which.
        let mut found: Vec<TableOwner> = others.into_iter().filter(meets).collect();
        found.sort_by_key(|other| other.project_id != feed.project_id);
        Ok(found.first().map(|other| refusal(feed, &into.table, other)))
    }
}

impl Store {
    /// Returns why a feed may not write a table, if another feed owns it.
    pub async fn table_conflict(&self, feed: &Feed, into: &Target) -> Result<Option<Refusal>, Error> {
        let (feed, into) = (feed.clone(), into.clone());
        self.read(move |mut tx| Box::pin(async move { tx.table_conflict(&feed, &into).await })).await
    }
}

/// A project does not learn the names of other projects' feeds.
fn refusal(feed: &Feed, table: &TableName, other: &TableOwner) -> Refusal {
    let owner = if other.project_id == feed.project_id {
        format!("feed `{}`", other.feed)
    } else {
        "a feed of another project".to_owned()
    };
    let message = format!(
        "{owner} already writes the table `{table}`: rows of feed `{}` with the same key would overwrite and delete \
         its rows",
        feed.feed
    );
    let hint = "name another table in `into.table`, or add a column with a different `constant` to the \
                `into.primary_key` of each feed";
    Refusal { code: RefusalCode::KeyConflict, message, hint: Some(hint.to_owned()) }
}
