//! Parts that all requests to a node share.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use bp::agent::RequestError;
use bp::codec::bp7::Eid;

use super::Shared;
use crate::http::Refusal;

pub(super) type Running = State<Arc<Shared>>;
pub(super) type Queried<T> = Result<Query<T>, QueryRejection>;
pub(super) type Answer<T> = Result<T, Refusal>;

pub(super) fn query<T>(request: Queried<T>) -> Answer<T> {
    let Query(request) = request.map_err(|rejection| Refusal::wrong(rejection.body_text()))?;
    Ok(request)
}

pub(super) fn eid(key: &str, text: &str) -> Answer<Eid> {
    text.parse().map_err(|error| Refusal::wrong(format!("{key}: {error}")))
}

/// Parses an endpoint: in full, or a service of this node.
pub(super) fn endpoint(node: &Eid, text: &str) -> Answer<Eid> {
    node.endpoint(text).map_err(|error| Refusal::wrong(format!("endpoint: {error}")))
}

pub(super) fn refused(error: RequestError) -> Refusal {
    let status = match error {
        RequestError::Full => StatusCode::INSUFFICIENT_STORAGE,
        RequestError::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        RequestError::NotReady => StatusCode::SERVICE_UNAVAILABLE,
        RequestError::Taken => StatusCode::CONFLICT,
        RequestError::NoBundle | RequestError::NoDelivery => StatusCode::NOT_FOUND,
        RequestError::NoDestination | RequestError::NotOurs | RequestError::Conflict(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    Refusal::new(status, error.to_string())
}
