//! Test fixture: a supplier on a free port and a client.

use serde_json::{Value, json};
use std::sync::Once;
use tidemill_supplier::{Config, RunningSupplier, STANDARD_SELECTION, Supplier};

/// The default filters of the pipeline, without a range.
pub(crate) fn default_query() -> Value {
    json!({"availability": ["AVAILABLE"], "has_image": true, "has_v360": true, "hide_memo": true,
        "excludeFairPoorCuts": true, "sizes": {"from": 0.4, "to": 15.01}})
}

/// A document for a page, with the filters and the offset as variables.
pub(crate) fn page_document(selection: &str) -> String {
    format!(
        "query Page($token: String!, $query: DiamondQuery, $offset: Int, $limit: Int) {{ \
         as(token: $token) {{ diamonds_by_query(query: $query, offset: $offset, limit: $limit, \
         order: {{type: createdAt, direction: ASC}}) {{ total_count items {{ {selection} }} }} }} }}"
    )
}

pub(crate) const COUNT: &str = "query Count($token: String!, $query: DiamondQuery) { as(token: $token) { \
    diamonds_by_query_count(query: $query) } }";

/// A supplier and a client with a token.
pub(crate) struct SupplierFixture {
    pub(crate) supplier: RunningSupplier,
    pub(crate) http: reqwest::Client,
    pub(crate) token: String,
}

pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Message of the first GraphQL error; empty if there is none.
    pub(crate) fn error(&self) -> String {
        self.json()["errors"][0]["message"].as_str().unwrap_or_default().to_owned()
    }
}

pub(crate) fn http() -> reqwest::Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    reqwest::Client::builder().no_proxy().build().unwrap()
}

impl SupplierFixture {
    pub(crate) async fn new(config: Config) -> Self {
        let supplier = Supplier::bind(config).await.unwrap().spawn();
        let mut fixture = Self { supplier, http: http(), token: String::new() };
        fixture.token = fixture.login("any user", "any password").await.unwrap();
        fixture
    }

    pub(crate) async fn stones(stones: u32) -> Self {
        Self::new(Config { stones, ..Config::default() }).await
    }

    pub(crate) async fn post(&self, path: &str, body: String) -> reqwest::Result<HttpResponse> {
        let url = format!("http://{}{path}", self.supplier.local_addr);
        let response =
            self.http.post(url).header("content-type", "application/json").body(body).send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(HttpResponse { status, headers, text: response.text().await? })
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        let url = format!("http://{}{path}", self.supplier.local_addr);
        let response = self.http.get(url).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        HttpResponse { status, headers, text: response.text().await.unwrap() }
    }

    pub(crate) async fn query(&self, query: &str, variables: Value) -> HttpResponse {
        self.post("/api/diamonds", json!({"query": query, "variables": variables}).to_string()).await.unwrap()
    }

    pub(crate) async fn login(&self, username: &str, password: &str) -> Result<String, String> {
        let document = "query($u: String!, $p: String!) { authenticate { \
            username_and_password(username: $u, password: $p) { token } } }";
        let response = self.query(document, json!({"u": username, "p": password})).await;
        let token = response.json()["data"]["authenticate"]["username_and_password"]["token"].clone();
        token.as_str().map(str::to_owned).ok_or_else(|| response.error())
    }

    pub(crate) async fn count(&self, query: &Value) -> u64 {
        let response = self.query(COUNT, json!({"token": self.token, "query": query})).await;
        let count = response.json()["data"]["as"]["diamonds_by_query_count"].as_u64();
        count.unwrap_or_else(|| panic!("{}", response.text))
    }

    pub(crate) async fn raw_page(&self, query: &Value, offset: u64, limit: u64) -> HttpResponse {
        let variables = json!({"token": self.token, "query": query, "offset": offset, "limit": limit});
        self.query(&page_document(STANDARD_SELECTION), variables).await
    }

    pub(crate) async fn page(&self, query: &Value, offset: u64, limit: u64) -> Vec<Value> {
        let response = self.raw_page(query, offset, limit).await;
        let page = response.json()["data"]["as"]["diamonds_by_query"].clone();
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{}", response.text)).clone();
        assert_eq!(page["total_count"], items.len(), "total_count is not the length of the page");
        items
    }

    /// Reads all stones of a query, page by page.
    pub(crate) async fn all(&self, query: &Value) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let page = self.page(query, all.len() as u64, 50).await;
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    pub(crate) async fn admin(&self, path: &str, body: Value) -> Value {
        let response = self.post(&format!("/admin/{path}"), body.to_string()).await.unwrap();
        assert_eq!(response.status, 200, "{}", response.text);
        response.json()
    }
}

/// Ids of the stones of a page.
pub(crate) fn ids(items: &[Value]) -> Vec<String> {
    items.iter().map(|item| item["diamond"]["id"].as_str().unwrap().to_owned()).collect()
}
