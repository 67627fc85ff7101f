//! The interface without hosts, which needs no privileges.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Method, Request, header};
use http_body_util::BodyExt as _;
use lab::scenario::Scenario;
use tower::ServiceExt as _;

use super::*;

/// An empty world.
pub(crate) fn nothing() -> (Scenario, Arc<emu::World>) {
    let plan = emu::Plan {
        hosts: Vec::new(),
        links: Vec::new(),
        hubs: Vec::new(),
        routes: Vec::new(),
        group_routes: Vec::new(),
        seed: 1,
        memory: 1 << 20,
        uplink: None,
    };
    let text = "seed = 1\nlinks = [{ from = \"near\", to = \"far\" }]\ntransfers = []";
    let mut scenario = Scenario::parse(text, "test").unwrap();
    scenario.links.clear();
    (scenario, Arc::new(emu::World::start(&plan).unwrap()))
}

fn world() -> Router {
    let (scenario, world) = nothing();
    router(Arc::new(State::new("nothing", None, &scenario, emu::Bounds::default(), None, world)))
}

async fn ask(router: &Router, method: Method, path: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let is_stream = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.to_str().unwrap().starts_with("text/event-stream"));
    if is_stream {
        return (status, String::new());
    }
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn openapi_document_describes_every_response() {
    let router = world();
    let (_, document) = ask(&router, Method::GET, "/openapi.json", "").await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let body: BTreeSet<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(body.len(), 13);
    let mut methods = 0;
    for path in body {
        let concrete = path.replace("{link}", "near:far").replace("{id}", "1");
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let described = &document["paths"][&path][method.as_str().to_lowercase()];
            let (status, body) = ask(&router, method.clone(), &concrete, "{}").await;
            let answers = status != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(described.is_object(), answers, "{method} {path}: {status}");
            methods += usize::from(answers);
            // Its responses are described, too.
            let rejection =
                [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::CONFLICT].contains(&status);
            let known = described["responses"].get(status.as_str()).is_some();
            assert!(!answers || known || rejection, "{method} {path}: {status} {body}");
        }
    }
    assert_eq!(methods, 21);
    let (status, body) = ask(&router, Method::GET, "/nowhere", "").await;
    assert_eq!((status, body.contains("/openapi.json")), (StatusCode::NOT_FOUND, true));
}

#[tokio::test]
async fn requests_are_checked_and_bounded() {
    let router = world();
    for (path, body, expected) in [
        ("/commands", "", StatusCode::BAD_REQUEST),
        ("/commands", "[1]", StatusCode::UNPROCESSABLE_ENTITY),
        ("/commands", r#"{"host": "near"}"#, StatusCode::UNPROCESSABLE_ENTITY),
        (
            "/commands",
            r#"{"host": "near", "argv": [], "user": 1}"#,
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        ("/commands", r#"{"host": "near", "argv": ["true"]}"#, StatusCode::NOT_FOUND),
        ("/transfers", r#"{"from": "near"}"#, StatusCode::UNPROCESSABLE_ENTITY),
        ("/transfers", r#"{"from": "near", "to": "far"}"#, StatusCode::NOT_FOUND),
        ("/capture", r#"{"folder": "here"}"#, StatusCode::UNPROCESSABLE_ENTITY),
        ("/capture", r#"{"folder": "/x", "file_size": "5"}"#, StatusCode::UNPROCESSABLE_ENTITY),
        ("/links/near:far/outages", r#"{"for": "1 s"}"#, StatusCode::NOT_FOUND),
    ] {
        let (status, body) = ask(&router, Method::POST, path, body).await;
        assert_eq!(status, expected, "{path} {body}: {body}");
        assert!(serde_json::from_str::<Problem>(&body).is_ok(), "{body}");
    }
    let long = format!("{{\"host\": \"{}\", \"argv\": []}}", "x".repeat(BODY_MAX));
    let (status, _) = ask(&router, Method::POST, "/commands", &long).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    for path in ["/commands/x", "/transfers/x", "/transfers/7"] {
        let (status, body) = ask(&router, Method::GET, path, "").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    }
}

#[tokio::test]
async fn an_empty_world_is_reported() {
    let router = world();
    let (status, body) = ask(&router, Method::GET, "/world", "").await;
    let body: World = serde_json::from_str(&body).unwrap();
    assert_eq!((status, body.name.as_str(), body.hosts.len()), (StatusCode::OK, "nothing", 0));
    let (status, metrics) = ask(&router, Method::GET, "/metrics", "").await;
    assert_eq!(status, StatusCode::OK);
    assert!(metrics.contains("slowlight_no_memory_packets_total 0"), "{metrics}");
    assert!(metrics.trim_end().ends_with("# EOF"), "{metrics}");
}
