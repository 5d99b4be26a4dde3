//! Tokens, and the record of what people did.

use crate::{Client, Error, query};
use http::Method;
use tidemill_core::access::{Audit, Token};
use tidemill_wire::Page;
use tidemill_wire::access::{ListAudit, ListTokens, NewToken, Session, TokenMade};
use uuid::Uuid;

impl Client {
    /// Makes a token. This is the only time that its secret is seen: the same key and the same request make no other
    /// one, and are refused.
    pub async fn create_token(
        &self,
        new: &NewToken,
        idempotency_key: Option<String>,
    ) -> Result<TokenMade, Error> {
        self.ask(Method::POST, "/v1/tokens".to_owned(), Some(new), idempotency_key).await
    }

    /// Lists tokens, the youngest first.
    pub async fn tokens(&self, asked: &ListTokens) -> Result<Page<Token>, Error> {
        self.get(format!("/v1/tokens{}", query(asked)?)).await
    }

    /// Revokes a token; twice is the same as once.
    pub async fn revoke_token(&self, token: Uuid) -> Result<Token, Error> {
        self.ask(Method::DELETE, format!("/v1/tokens/{token}"), None::<&()>, None).await
    }

    /// What people did, the latest first.
    pub async fn audit(&self, asked: &ListAudit) -> Result<Page<Audit>, Error> {
        self.get(format!("/v1/audit{}", query(asked)?)).await
    }

    /// Who the server takes the caller for, and what their session is.
    pub async fn session(&self) -> Result<Session, Error> {
        self.get("/v1/session".to_owned()).await
    }
}
