//! Requests to the handlers of their paths.

use std::{
    any::Any,
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream::BoxStream};
use hyper::body::Incoming;
use prost::Message;
use tonic::{Request, Response, Status, Streaming, body::Body, server::Grpc};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::{
    Error, Result,
    error::{self, Code},
    wire::Method,
};

type Handler = Box<dyn Fn(http::Request<Incoming>) -> Answer + Send + Sync>;
type Answer = BoxFuture<'static, http::Response<Body>>;

/// All paths.
#[derive(Default)]
pub(super) struct Router {
    handlers: HashMap<&'static str, Handler>,
}

impl Router {
    pub(super) fn answer(&self, request: http::Request<Incoming>) -> Answer {
        let path = request.uri().path();
        if let Some(handler) = self.handlers.get(path) {
            return handler(request);
        }
        let (service, method) = path
            .trim_start_matches('/')
            .split_once('/')
            .unwrap_or((path, ""));
        let prefix = format!("/{service}/");
        let is_known = self.handlers.keys().any(|path| path.starts_with(&prefix));
        let message = if is_known {
            format!("unknown method {method} for service {service}")
        } else {
            format!("unknown service {service}")
        };
        let status = Status::unimplemented(message);
        async move { status.into_http() }.boxed()
    }

    /// One request, one answer.
    pub(super) fn unary<Q, S, F, Fut>(&mut self, method: Method<Q, S>, handler: F)
    where
        Q: Message + Default + 'static,
        S: Message + Default + 'static,
        F: Fn(Q) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let handle = move |request| {
            let handler = Arc::clone(&handler);
            let call = Call(Box::new(move |request: Request<Q>| {
                let answer = handler(request.into_inner());
                careful(answer)
                    .map(|answer| answer.map(Response::new))
                    .boxed()
            }));
            async move { grpc::<Q, S>().unary(call, request).await }.boxed()
        };
        self.handlers.insert(method.path, Box::new(handle));
    }

    /// Many requests, one answer.
    pub(super) fn upload<Q, S, F, Fut>(&mut self, method: Method<Q, S>, handler: F)
    where
        Q: Message + Default + 'static,
        S: Message + Default + 'static,
        F: Fn(BoxStream<'static, Result<Q>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let handle = move |request| {
            let handler = Arc::clone(&handler);
            let call = Call(Box::new(move |request: Request<Streaming<Q>>| {
                let requests = request.into_inner().map(|part| part.map_err(Error::from));
                let answer = handler(requests.boxed());
                careful(answer)
                    .map(|answer| answer.map(Response::new))
                    .boxed()
            }));
            async move { grpc::<Q, S>().client_streaming(call, request).await }.boxed()
        };
        self.handlers.insert(method.path, Box::new(handle));
    }

    /// One request, many answers.
    pub(super) fn download<Q, S, F, Fut, Parts>(&mut self, method: Method<Q, S>, handler: F)
    where
        Q: Message + Default + 'static,
        S: Message + Default + 'static,
        F: Fn(Q) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Parts>> + Send + 'static,
        Parts: Stream<Item = Result<S>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let handle = move |request| {
            let handler = Arc::clone(&handler);
            let call = Call(Box::new(move |request: Request<Q>| {
                let answer = handler(request.into_inner());
                careful(answer)
                    .map(|answer| {
                        let parts = answer?.map(|part| part.map_err(|error| error.to_wire()));
                        Ok(Response::new(parts.boxed()))
                    })
                    .boxed()
            }));
            async move { grpc::<Q, S>().server_streaming(call, request).await }.boxed()
        };
        self.handlers.insert(method.path, Box::new(handle));
    }
}

fn grpc<Q: Message + Default + 'static, S: Message + 'static>() -> Grpc<ProstCodec<S, Q>> {
    Grpc::new(ProstCodec::new()).max_decoding_message_size(usize::MAX)
}

/// A panic is an answer too, as Velero's plugins give it.
async fn careful<S>(answer: impl Future<Output = Result<S>>) -> Result<S, Status> {
    let error = match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(answer) => return answer.map_err(|error| error.to_wire()),
        Err(panic) => Error::Status(error::Status {
            code: Code::Aborted,
            message: format!("plugin panicked: {}", words(&*panic)),
            place: None,
        }),
    };
    Err(error.to_wire())
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a word")
}

/// A function as what tonic calls.
struct Call<Q, S>(Function<Q, S>);

type Function<Q, S> = Box<dyn Fn(Q) -> BoxFuture<'static, Result<S, Status>> + Send>;

impl<Q, S> Service<Q> for Call<Q, S> {
    type Response = S;
    type Error = Status;
    type Future = BoxFuture<'static, Result<S, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        (self.0)(request)
    }
}
