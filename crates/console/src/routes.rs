//! Routes of the console, with the list of their addresses: a router cannot be asked for its routes.

use crate::Console;
use axum::Router;
use axum::handler::Handler;
use axum::routing::{get, post};
use http::Method;

/// Routes with their list.
pub(crate) struct Routes {
    router: Router<Console>,
    list: Vec<(Method, &'static str)>,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), list: Vec::new() }
    }

    /// Adds a page to the router and to the list.
    pub(crate) fn get<H, T>(mut self, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Console>,
        T: 'static,
    {
        self.list.push((Method::GET, path));
        Self { router: self.router.route(path, get(handler)), ..self }
    }

    /// Adds a form to the router and to the list.
    pub(crate) fn post<H, T>(mut self, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Console>,
        T: 'static,
    {
        self.list.push((Method::POST, path));
        Self { router: self.router.route(path, post(handler)), ..self }
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.list.extend(other.list);
        Self { router: self.router.merge(other.router), ..self }
    }

    pub(crate) fn into_router(self) -> Router<Console> {
        self.router
    }

    pub(crate) fn into_list(self) -> Vec<(Method, &'static str)> {
        self.list
    }
}
