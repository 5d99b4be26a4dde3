//! Access tokens and the audit log.

use crate::{Client, Error, query};
use http::Method;
use tidemill_core::access::{AuditRecord, Token};
use tidemill_core::audit::{AuditHead, SealedBatch};
use tidemill_wire::Page;
use tidemill_wire::access::{
    ListAudit, ListSeals, ListTokens, ListUnsealed, NewToken, NewTokenResponse, Session, SignInLink,
};
use uuid::Uuid;

impl Client {
    /// Creates a token. Only this response contains its secret, so a repeated request with the same key is refused.
    pub async fn create_token(
        &self,
        new: &NewToken,
        idempotency_key: Option<String>,
    ) -> Result<NewTokenResponse, Error> {
        self.request(Method::POST, "/v1/tokens".to_owned(), Some(new), idempotency_key).await
    }

    /// Lists tokens, newest first.
    pub async fn tokens(&self, params: &ListTokens) -> Result<Page<Token>, Error> {
        self.get(format!("/v1/tokens{}", query(params)?)).await
    }

    /// Revokes a token. Revoking it again has no effect.
    pub async fn revoke_token(&self, token: Uuid) -> Result<Token, Error> {
        self.request(Method::DELETE, format!("/v1/tokens/{token}"), None::<&()>, None).await
    }

    /// Lists audit entries, newest first.
    pub async fn audit(&self, params: &ListAudit) -> Result<Page<AuditRecord>, Error> {
        self.get(format!("/v1/audit{}", query(params)?)).await
    }

    /// Returns the head of the audit log's hash chain.
    pub async fn audit_head(&self) -> Result<AuditHead, Error> {
        self.get("/v1/audit/head".to_owned()).await
    }

    /// Lists seals of the audit log with their entries, oldest first.
    pub async fn audit_seals(&self, params: &ListSeals) -> Result<Page<SealedBatch>, Error> {
        self.get(format!("/v1/audit/seals{}", query(params)?)).await
    }

    /// Lists audit entries that are not sealed yet, oldest first.
    pub async fn unsealed_audit(&self, params: &ListUnsealed) -> Result<Page<AuditRecord>, Error> {
        self.get(format!("/v1/audit/unsealed{}", query(params)?)).await
    }

    /// Creates a link that signs in to the console of a local server once.
    pub async fn create_sign_in_link(&self) -> Result<SignInLink, Error> {
        self.request(Method::POST, "/v1/session/links".to_owned(), None::<&()>, None).await
    }

    /// Returns the caller's identity and the state of its session.
    pub async fn session(&self) -> Result<Session, Error> {
        self.get("/v1/session".to_owned()).await
    }
}
