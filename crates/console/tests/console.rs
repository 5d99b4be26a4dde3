//! The console, as it is served: every page over a real socket, and the important ones in a real browser.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

#[path = "console/attention.rs"]
mod attention;
#[path = "console/bounds.rs"]
mod bounds;
#[path = "console/browser.rs"]
mod browser;
#[path = "console/driver.rs"]
mod driver;
#[path = "console/escaping.rs"]
mod escaping;
#[path = "console/fast.rs"]
mod fast;
#[path = "console/forms.rs"]
mod forms;
#[path = "console/furnish.rs"]
mod furnish;
#[path = "console/graphs.rs"]
mod graphs;
#[path = "console/house.rs"]
mod house;
#[path = "console/live.rs"]
mod live;
#[path = "console/pages.rs"]
mod pages;
#[path = "console/site.rs"]
mod site;
#[path = "console/syncs.rs"]
mod syncs;
