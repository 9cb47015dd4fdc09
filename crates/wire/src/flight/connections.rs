//! The connections of gRPC's clients: HTTP/2 by hyper, with bodies that consist of many pieces of memory.
//!
//! tonic's own server takes bodies of one piece at a time. Each piece becomes a frame and a system call of its own, which
//! wakes the client, or has to be copied to others first. Here a message with rows is one chunk of a body, however many
//! buffers it consists of, and each system call sends several buffers in place.

use std::net::TcpStream;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::door::Door;
use super::message::Message;
use super::statements::Answer;
use super::{FlightConfig, KEEPALIVE};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// How connections are served.
#[derive(Clone)]
pub(super) struct Connections {
    http: http2::Builder<TokioExecutor>,
    tls: Option<TlsAcceptor>,
}

impl Connections {
    pub fn new(config: &FlightConfig) -> Connections {
        // More calls would be refused, except for those that need no place.
        let most_calls = config.max_statements + config.max_transactions + 32;
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .max_concurrent_streams(u32::try_from(most_calls).unwrap_or(u32::MAX))
            .keep_alive_interval(KEEPALIVE)
            // Flow-control windows for what clients send: large enough to keep a fast local link busy.
            .initial_stream_window_size(8 << 20)
            .initial_connection_window_size(16 << 20)
            .max_frame_size(1 << 20);
        let tls = config.tls.as_ref().map(|tls| TlsAcceptor::from(tls.for_grpc()));
        Connections { http, tls }
    }

    /// Serves the connections that it is given until it is stopped, and then until clients have read their last messages.
    pub async fn serve(
        self,
        door: Door,
        mut dealt: mpsc::UnboundedReceiver<TcpStream>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let (stop, stopping) = watch::channel(());
        let mut serving = JoinSet::new();
        loop {
            let stream = tokio::select! {
                _ = &mut stopped => break,
                Some(_) = serving.join_next() => continue,
                stream = dealt.recv() => stream,
            };
            let Some(stream) = stream else { break };
            // Each is registered with the runtime that serves it.
            let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { continue };
            serving.spawn(self.clone().connection(door.clone(), stream, stopping.clone()));
        }
        drop((dealt, stop));
        while serving.join_next().await.is_some() {}
    }

    async fn connection(self, door: Door, stream: tokio::net::TcpStream, mut stopping: watch::Receiver<()>) {
        let peer = stream.connect_info();
        match &self.tls {
            None => self.converse(door, stream, peer, stopping).await,
            Some(tls) => {
                let stream = tokio::select! {
                    _ = stopping.changed() => return,
                    stream = tokio::time::timeout(HANDSHAKE, tls.accept(stream)) => stream,
                };
                // A client that fails the handshake has gone, or will.
                if let Ok(Ok(stream)) = stream {
                    self.converse(door, stream, peer, stopping).await;
                }
            }
        }
    }

    async fn converse(
        &self,
        door: Door,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: TcpConnectInfo,
        mut stopping: watch::Receiver<()>,
    ) {
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            door.clone().answer(request)
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let mut is_notified = false;
        loop {
            tokio::select! {
                // An error of the connection is visible to the client, or caused by it.
                _ = &mut connection => return,
                _ = stopping.changed(), if !is_notified => {
                    is_notified = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// The body of a reply.
pub(super) enum Reply {
    Call(Body),
    Rows(Answer),
}

impl http_body::Body for Reply {
    type Data = Message;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Message>, Status>>> {
        match self.get_mut() {
            Reply::Call(body) => {
                let next = Pin::new(body).poll_frame(context);
                next.map_ok(|frame| frame.map_data(|bytes: Bytes| Message::from(bytes)))
            }
            Reply::Rows(answer) => answer.poll(context).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Call(body) => body.is_end_stream(),
            Reply::Rows(answer) => answer.has_ended(),
        }
    }
}
