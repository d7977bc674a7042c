//! The server: takes a request apart, finds the resource, and hands it to whoever answers.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    delete, discovery,
    fault::{self, Fault, Faults, Rule},
    lifecycle, patch, read,
    registry::{Registry, ResourceType},
    request::{self, Form, Query, Target},
    status::{Result, Status},
    store::{Key, ResourceId, Store},
    watch, write,
};

/// The largest body that is read.
const MOST: usize = 3 * 1024 * 1024;

/// The body of an answer: whole, or a stream of events.
pub type AnswerBody = BoxBody<Bytes, BoxError>;
/// Why a body could not be read or sent to its end.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A Kubernetes API over objects in memory. Clones share everything.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    registry: RwLock<Registry>,
    pub(crate) pages: Mutex<read::Pages>,
    faults: Mutex<Faults>,
    /// What goes into `kube-root-ca.crt`.
    pub(crate) root_ca: String,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new("")
    }
}

impl ApiServer {
    /// A server with the namespaces that every cluster has. `root_ca` is what pods would trust.
    #[must_use]
    pub fn new(root_ca: &str) -> Self {
        let server = Self {
            inner: Arc::new(Inner {
                store: Store::default(),
                registry: RwLock::new(Registry::new()),
                pages: Mutex::default(),
                faults: Mutex::default(),
                root_ca: root_ca.to_owned(),
            }),
        };
        lifecycle::first_objects(&server.inner);
        server
    }

    /// Answers a request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<AnswerBody>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let faults = self.meet_faults(&parts);
        for fault in &faults {
            if let Fault::Delay(time) = fault {
                tokio::time::sleep(*time).await;
            }
        }
        if let Some(response) = faults.iter().find_map(|fault| fault::instead(*fault)) {
            return response;
        }
        let answer = match read_body(body).await {
            Ok(body) => self.inner.clone().handle(&parts, &body),
            Err(status) => Err(status),
        };
        let response = answer.unwrap_or_else(Answer::from).into_response();
        let cut = faults.iter().find_map(|fault| match fault {
            Fault::Cut(after) => Some(*after),
            Fault::Lost => Some(0),
            _ => None,
        });
        match cut {
            Some(after) => fault::cut(response, after),
            None => response,
        }
    }

    fn meet_faults(&self, parts: &http::request::Parts) -> Vec<Fault> {
        let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let mut faults = self
            .inner
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        faults.meet(&parts.method, path)
    }

    /// Makes requests go wrong from now on, by these rules only; chance is drawn from the seed.
    pub fn set_faults(&self, rules: Vec<Rule>, seed: u64) {
        let mut faults = self
            .inner
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *faults = Faults::new(rules, seed);
    }

    /// Puts an object in as it is, without asking whether it is valid: for loading what a real
    /// server once gave out. It keeps its uid and times, and gets a new resourceVersion.
    pub fn load(&self, object: &Value) -> Result<()> {
        lifecycle::load(&self.inner, object)
    }

    /// Forgets history, as a compaction does: watches and pages from before get `410 Gone`.
    pub fn compact(&self) {
        self.inner.store.write().compact();
        self.inner.pages().clear();
    }

    /// How many objects there are.
    #[must_use]
    pub fn object_count(&self) -> usize {
        let state = self.inner.store.read();
        state
            .resources()
            .iter()
            .map(|id| state.objects(id).len())
            .sum()
    }
}

impl<B> tower_service::Service<Request<B>> for ApiServer
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future =
        Pin<Box<dyn Future<Output = std::result::Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(request).await) })
    }
}

async fn read_body<B>(body: B) -> Result<Bytes>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, MOST).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Status::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {MOST}"),
        )),
        Err(error) => Err(Status::bad_request(format!("error reading body: {error}"))),
    }
}

/// An answer before it is bytes on a wire.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: AnswerBody,
    pub(crate) warnings: Vec<String>,
    pub(crate) content_type: &'static str,
}

impl Answer {
    pub(crate) fn bytes(code: u16, body: impl Into<Bytes>) -> Self {
        let body = Full::new(body.into())
            .map_err(|never| match never {})
            .boxed();
        Self {
            code,
            body,
            warnings: Vec::new(),
            content_type: "application/json",
        }
    }

    pub(crate) fn value(code: u16, value: &Value) -> Self {
        Self::bytes(code, serde_json::to_vec(value).unwrap_or_default())
    }

    pub(crate) fn into_response(self) -> Response<AnswerBody> {
        let mut response = Response::new(self.body);
        *response.status_mut() =
            StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers: &mut HeaderMap = response.headers_mut();
        if !self.content_type.is_empty() {
            let content_type = HeaderValue::from_static(self.content_type);
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-cache, private"),
        );
        for warning in self.warnings {
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                headers.append(header::WARNING, value);
            }
        }
        response
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self::value(status.code, &status.to_value())
    }
}

/// One request about objects, taken apart.
pub(crate) struct Call {
    pub(crate) server: Arc<Inner>,
    pub(crate) resource: ResourceType,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) form: Form,
    pub(crate) manager: String,
    pub(crate) content_type: String,
    pub(crate) now: Timestamp,
    pub(crate) dry_run: bool,
}

impl Call {
    pub(crate) fn id(&self) -> &ResourceId {
        &self.resource.id
    }

    /// The object that the path names.
    pub(crate) fn key(&self) -> Key {
        Key {
            namespace: self.target.namespace.clone().unwrap_or_default(),
            name: self.target.name.clone().unwrap_or_default(),
        }
    }

    pub(crate) fn subresource(&self) -> &str {
        self.target.subresource.as_deref().unwrap_or_default()
    }

    pub(crate) fn not_found(&self, name: &str) -> Status {
        not_found(&self.resource, name)
    }
}

pub(crate) fn not_found(resource: &ResourceType, name: &str) -> Status {
    Status {
        details: Some(details(resource, name)),
        ..Status::new(
            404,
            "NotFound",
            format!("{} \"{name}\" not found", resource.qualified()),
        )
    }
}

/// What a `Status` says an error is about.
pub(crate) fn details(resource: &ResourceType, name: &str) -> Value {
    let mut details = serde_json::json!({ "kind": resource.plural() });
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !resource.group().is_empty() {
        details["group"] = resource.group().into();
    }
    details
}

impl Inner {
    pub(crate) fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn registry_mut(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pages(&self) -> std::sync::MutexGuard<'_, read::Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(self: Arc<Self>, parts: &http::request::Parts, body: &Bytes) -> Result<Answer> {
        let path = parts.uri.path();
        let Some(mut target) = Target::parse(path) else {
            return discovery::answer(&self, parts);
        };
        let mut query = Query::of(&parts.uri);
        let resource = self
            .registry()
            .find(&target.group, &target.version, &target.plural)
            .cloned();
        let Some(resource) = resource else {
            let built_in = crate::schema::BUILT_IN.has_group(&target.group);
            if !built_in && !self.registry().has_version(&target.group, &target.version) {
                return Ok(discovery::nothing());
            }
            return Err(no_such_page());
        };
        if target.namespace.is_some() && !resource.namespaced {
            return Err(no_such_page());
        }
        let old_way = path
            .split('/')
            .nth(if target.group.is_empty() { 3 } else { 4 })
            == Some("watch");
        if old_way && let Some(name) = target.name.take() {
            query = query.selecting(&format!("metadata.name={name}"));
        }
        let watch = parts.method == Method::GET && (query.is_true("watch") || old_way);
        let verb = request::verb(
            &parts.method,
            target.name.is_some(),
            watch && target.name.is_none(),
        );
        check_verb(&resource, &target, verb)?;
        query.check_numbers()?;
        let call = Call {
            server: self,
            form: request::form(&parts.headers, matches!(verb, "list" | "deletecollection"))?,
            manager: request::manager(&parts.headers, &query),
            content_type: content_type(&parts.headers),
            now: Timestamp::now(),
            dry_run: query.dry_run(options_kind(verb))?,
            resource,
            target,
            query,
        };
        let mut answer = match verb {
            "get" => read::get(&call),
            "list" => read::list(&call),
            "watch" => watch::start(&call),
            "create" => write::create(&call, body),
            "update" => write::update(&call, body),
            "patch" => patch::patch(&call, body),
            "delete" => delete::one(&call, body),
            _ => delete::many(&call, body),
        }?;
        let custom = call.resource.custom.as_ref();
        answer
            .warnings
            .extend(custom.and_then(|custom| custom.deprecation.clone()));
        Ok(answer)
    }
}

/// Whether a resource takes this verb at this place; if not, the refusal.
fn check_verb(resource: &ResourceType, target: &Target, verb: &str) -> Result<()> {
    // Discovery lists these as the real server does, but there is nobody to ask.
    const NOBODY: [&str; 6] = ["log", "exec", "attach", "portforward", "proxy", "token"];
    let allowed = match &target.subresource {
        Some(sub) if NOBODY.contains(&sub.split('/').next().unwrap_or_default()) => {
            return Err(no_such_page());
        }
        Some(sub) => match resource.subresources.get(sub) {
            Some(verbs) => verbs.iter().any(|v| v == verb),
            None if resource.custom.is_some() => {
                let name = target.name.as_deref().unwrap_or_default();
                return Err(not_found(resource, name));
            }
            None => return Err(no_such_page()),
        },
        // Creating needs a collection, changing an object.
        None => {
            let named = target.name.is_some();
            let in_place = match verb {
                "create" => !named && resource.namespaced == target.namespace.is_some(),
                "update" | "patch" => named,
                _ => true,
            };
            in_place && resource.verbs.iter().any(|v| v == verb)
        }
    };
    match allowed {
        true => Ok(()),
        false => Err(not_allowed(resource, verb, target.subresource.is_some())),
    }
}

/// What the options of a request are called in refusals.
fn options_kind(verb: &str) -> &'static str {
    match verb {
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        "delete" | "deletecollection" => "DeleteOptions",
        _ => "CreateOptions",
    }
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The answer for resources that a known version does not have.
pub(crate) fn no_such_page() -> Status {
    Status {
        details: Some(serde_json::json!({})),
        ..Status::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }
}

fn not_allowed(resource: &ResourceType, verb: &str, subresource: bool) -> Status {
    if resource.custom.is_some() && subresource {
        return Status {
            details: Some(details(resource, "")),
            ..Status::new(
                405,
                "MethodNotAllowed",
                format!(
                    "{verb} is not supported on resources of kind \"{}\"",
                    resource.qualified()
                ),
            )
        };
    }
    Status {
        details: Some(serde_json::json!({})),
        ..Status::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }
}
