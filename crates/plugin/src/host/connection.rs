//! gRPC to one process: one connection, which is not made again.

use std::task::{Context, Poll};

use futures::{FutureExt, Stream, future::BoxFuture};
use http::{Uri, uri::PathAndQuery};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::{TcpStream, UnixStream};
use tonic::{Request, Status, Streaming, body::Body, client::Grpc};
use tonic_prost::ProstCodec;

use super::launch::Address;
use crate::wire::Method;

/// Nobody asks for it, but HTTP wants a host.
const HOST: &str = "http://unused";

/// A way to a process.
#[derive(Clone)]
pub(super) struct Connection {
    sender: SendRequest<Body>,
}

impl Connection {
    pub(super) async fn open(address: &Address) -> Result<Self, String> {
        match address {
            Address::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => Self::over(TokioIo::new(stream)).await,
                Err(error) => Err(format!("connect to {}: {error}", path.display())),
            },
            Address::Tcp(at) => match TcpStream::connect(at).await {
                Ok(stream) => Self::over(TokioIo::new(stream)).await,
                Err(error) => Err(format!("connect to {at}: {error}")),
            },
        }
    }

    async fn over<T>(io: T) -> Result<Self, String>
    where
        T: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    {
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let shaken = builder.clone().adaptive_window(true).handshake(io).await;
        let (sender, driver) = shaken.map_err(|error| error.to_string())?;
        // Ends with the last sender, or with the process.
        tokio::spawn(async move { drop(driver.await) });
        Ok(Self { sender })
    }

    async fn grpc(&self) -> Result<Grpc<Self>, Status> {
        let grpc = Grpc::with_origin(self.clone(), Uri::from_static(HOST));
        let mut grpc = grpc.max_decoding_message_size(usize::MAX);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }

    pub(super) async fn unary<Q, S>(&self, method: Method<Q, S>, request: Q) -> Result<S, Status>
    where
        Q: Message + 'static,
        S: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method.path);
        let mut grpc = self.grpc().await?;
        let answer = grpc.unary(Request::new(request), path, codec::<Q, S>());
        Ok(answer.await?.into_inner())
    }

    /// Many requests, one answer.
    pub(super) async fn upload<Q, S>(
        &self,
        method: Method<Q, S>,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<S, Status>
    where
        Q: Message + 'static,
        S: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method.path);
        let mut grpc = self.grpc().await?;
        let answer = grpc.client_streaming(Request::new(requests), path, codec::<Q, S>());
        Ok(answer.await?.into_inner())
    }

    /// One request, many answers.
    pub(super) async fn download<Q, S>(
        &self,
        method: Method<Q, S>,
        request: Q,
    ) -> Result<Streaming<S>, Status>
    where
        Q: Message + 'static,
        S: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method.path);
        let mut grpc = self.grpc().await?;
        let answers = grpc.server_streaming(Request::new(request), path, codec::<Q, S>());
        Ok(answers.await?.into_inner())
    }
}

fn codec<Q, S>() -> ProstCodec<Q, S> {
    ProstCodec::new()
}

impl tower_service::Service<http::Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.sender.send_request(request).boxed()
    }
}
