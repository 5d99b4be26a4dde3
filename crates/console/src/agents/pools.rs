//! Pools: how much of some jobs runs at once, over all graphs.

use crate::act;
use crate::text::says;
use crate::visitor::Visitor;
use crate::way_back::kept;
use crate::words::{bar, count};
use http::Method;
use maud::{Markup, html};
use tidemill_core::graph::definition::DATABASE_POOL;
use tidemill_core::graph::record::PoolRecord;
use tidemill_core::limits::{POOL_NAME_BYTES_MAX, WEIGHT_MAX};
use tidemill_core::shell::command;

/// The panel.
pub(super) fn panel(visitor: &Visitor, pools: &[PoolRecord]) -> Markup {
    // Pools are everybody's: a caller of one project may not change them.
    let acts = visitor.may(Method::PUT, "/v1/pools/{pool}") && visitor.caller.project.is_none();
    html! {
        section.panel #pools {
            header { h2 { "Pools" } span.dim.small { "how much of their jobs runs at once, by weight" } }
            div #pool-list data-live { (list(visitor, pools, acts)) }
            @if acts {
                form.filters method="post" action="/pools" {
                    (act::hidden(visitor))
                    label.field { "Name" input type="text" name="name" required maxlength=(POOL_NAME_BYTES_MAX)
                        pattern="[A-Za-z0-9._\\-]+" value=[kept(visitor, "name")]; }
                    label.field { "Size" input type="number" name="size" required min="0" max=(WEIGHT_MAX)
                        value=[kept(visitor, "size")]; }
                    button.main type="submit" { "Set the size" }
                }
                div.in { (act::commands(&[command(["pool", "set", "NAME", "SIZE"])])) }
            }
        }
    }
}

fn list(visitor: &Visitor, pools: &[PoolRecord], acts: bool) -> Markup {
    html! {
        @if pools.is_empty() { p.empty { "There is no pool: jobs are bounded by the room of agents alone." } }
        @else { div.scroll { table {
            thead { tr { th { "Pool" } th.num { "Runs" } th.num { "Size" } th {} @if acts { th {} } } }
            tbody { @for pool in pools {
                tr data-key=(pool.name) {
                    td { (says(&pool.name)) }
                    td.num.warn[pool.used >= i64::from(pool.size)] { (count(pool.used)) }
                    td.num { (count(i64::from(pool.size))) }
                    td { span.slim { (bar(pool.used, i64::from(pool.size), "Taken", "")) } }
                    @if acts { td.acts {
                        @if pool.name != DATABASE_POOL {
                            (act::button(visitor, "/pools/remove", &[("name", &pool.name)], "Remove", ""))
                            (act::commands(&[command(["pool", "remove", &pool.name])]))
                        }
                    } }
                }
            } }
        } } }
    }
}
