//! Panel of pools, which limit the concurrent jobs over all graphs.

use crate::form_return::previous_value;
use crate::forms;
use crate::page_context::PageContext;
use crate::text::safe;
use crate::widgets::{bar, count};
use http::Method;
use maud::{Markup, html};
use tidemill_core::graph::definition::DATABASE_POOL;
use tidemill_core::graph::record::PoolRecord;
use tidemill_core::limits::{POOL_NAME_BYTES_MAX, WEIGHT_MAX};
use tidemill_core::shell::command;

pub(super) fn panel(context: &PageContext, pools: &[PoolRecord]) -> Markup {
    // Pools are shared: a caller of one project may not change them.
    let acts = context.may(Method::PUT, "/v1/pools/{pool}") && context.caller.sees_all_projects();
    html! {
        section.panel #pools {
            header { h2 { "Pools" } span.dim.small { "limits on concurrent jobs, by weight" } }
            div #pool-list data-live { (list(context, pools, acts)) }
            @if acts {
                form.filters method="post" action="/pools" {
                    (forms::hidden(context))
                    label.field { "Name" input type="text" name="name" required maxlength=(POOL_NAME_BYTES_MAX)
                        pattern="[A-Za-z0-9._\\-]+" value=[previous_value(context, "name")]; }
                    label.field { "Size" input type="number" name="size" required min="0" max=(WEIGHT_MAX)
                        value=[previous_value(context, "size")]; }
                    button.main type="submit" { "Set size" }
                }
                div.in { (forms::commands(&[command(["pool", "set", "NAME", "SIZE"])])) }
            }
        }
    }
}

fn list(context: &PageContext, pools: &[PoolRecord], acts: bool) -> Markup {
    html! {
        @if pools.is_empty() { p.empty { "There are no pools. Only the capacity of agents limits jobs." } }
        @else { div.scroll { table {
            thead { tr { th { "Pool" } th.num { "Used" } th.num { "Size" } th {} @if acts { th {} } } }
            tbody { @for pool in pools {
                tr data-key=(pool.name) {
                    td { (safe(&pool.name)) }
                    td.num.warn[pool.used >= i64::from(pool.size)] { (count(pool.used)) }
                    td.num { (count(i64::from(pool.size))) }
                    td { span.slim { (bar(pool.used, i64::from(pool.size), "Used", "")) } }
                    @if acts { td.acts {
                        @if pool.name != DATABASE_POOL {
                            (forms::button(context, "/pools/remove", &[("name", &pool.name)], "Remove", ""))
                            (forms::commands(&[command(["pool", "remove", &pool.name])]))
                        }
                    } }
                }
            } }
        } } }
    }
}
