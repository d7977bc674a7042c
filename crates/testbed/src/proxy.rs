//! A proxy in front of S3 that has bad days on demand. It serves one request per connection, so
//! that every request is seen.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    task::JoinHandle,
};

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// This code and S3 error instead of an answer.
    Refuse(u16, &'static str),
    /// The connection breaks after so many bytes of the request's body.
    CutRequest(usize),
    /// The connection breaks after so many bytes of the answer.
    CutAnswer(usize),
}

/// Which requests meet it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Requests whose first line contains this: `PUT /bucket/backups/b/b.tar.gz`.
    pub on: &'static str,
    /// So many of them.
    pub times: usize,
    /// What goes wrong.
    pub mishap: Mishap,
}

/// The proxy, until it is dropped.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    to: String,
    rules: Mutex<Vec<Rule>>,
}

impl Proxy {
    /// A proxy for the server at this `http://` address.
    pub async fn start(to: &str) -> anyhow::Result<Self> {
        let to = to.strip_prefix("http://").context("not an http address")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            to: to.to_owned(),
            rules: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                // However a connection ends, its client notices.
                tokio::spawn(async move { state.serve(stream).await.ok() });
            }
        });
        Ok(Self {
            address,
            state,
            task,
        })
    }

    /// From now on these rules, and no others.
    pub fn set(&self, rules: &[Rule]) {
        *self.state.rules() = rules.to_vec();
    }

    /// How often rules may still strike.
    #[must_use]
    pub fn left(&self) -> usize {
        self.state.rules().iter().map(|rule| rule.times).sum()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn rules(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, line: &str) -> Option<Mishap> {
        let mut rules = self.rules();
        let rule = rules
            .iter_mut()
            .find(|rule| rule.times > 0 && line.contains(rule.on))?;
        rule.times -= 1;
        Some(rule.mishap)
    }

    async fn serve(&self, client: TcpStream) -> anyhow::Result<()> {
        let (mut from_client, mut to_client) = client.into_split();
        let Some((head, body)) = read_head(&mut from_client).await? else {
            return Ok(());
        };
        let (line, fields) = head.split_once("\r\n").context("not a request")?;
        let mishap = self.meet(line);
        if let Some(Mishap::Refuse(code, error)) = mishap {
            // A client that still sends would not read the answer.
            drain(&mut from_client, fields, body.len()).await?;
            let text = format!("<Error><Code>{error}</Code><Message>by proxy</Message></Error>");
            let answer = format!(
                "HTTP/1.1 {code} {error}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                text.len()
            );
            to_client.write_all(answer.as_bytes()).await?;
            return Ok(());
        }
        let (mut from_server, mut to_server) = TcpStream::connect(&self.to).await?.into_split();
        let head = format!("{line}\r\nConnection: close\r\n{fields}");
        to_server.write_all(head.as_bytes()).await?;
        to_server.write_all(&body).await?;
        let up = match mishap {
            Some(Mishap::CutRequest(bytes)) => bytes.saturating_sub(body.len()),
            _ => usize::MAX,
        };
        let down = match mishap {
            Some(Mishap::CutAnswer(bytes)) => bytes,
            _ => usize::MAX,
        };
        // Whichever direction ends first ends both: the answer does in good days, and the one that
        // is cut in bad ones.
        tokio::select! {
            () = copy(&mut from_client, &mut to_server, up) => {}
            () = copy(&mut from_server, &mut to_client, down) => {}
        }
        Ok(())
    }
}

/// The head of a request, with its empty line, and what came with it of the body.
async fn read_head(from: &mut OwnedReadHalf) -> anyhow::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            return Ok(Some((String::from_utf8(bytes)?, body)));
        }
        if from.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

/// Reads the rest of a body whose length is known.
async fn drain(from: &mut OwnedReadHalf, fields: &str, have: usize) -> anyhow::Result<()> {
    let length = fields.lines().find_map(|field| {
        let (name, value) = field.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then_some(value)?
            .trim()
            .parse()
            .ok()
    });
    let mut left = length.unwrap_or(0_usize).saturating_sub(have);
    let mut part = vec![0; 64 * 1024];
    while left > 0 {
        match from.read(&mut part).await? {
            0 => break,
            n => left = left.saturating_sub(n),
        }
    }
    Ok(())
}

/// Copies until one side is done, or so many bytes. A request that has been sent whole does not end
/// its connection: its answer is to come.
async fn copy(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, mut most: usize) {
    let mut part = vec![0; 64 * 1024];
    while most > 0 {
        match from.read(&mut part).await {
            Ok(n) if n > 0 => {
                let n = n.min(most);
                most -= n;
                if to.write_all(&part[..n]).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::{Mishap, Proxy, Rule};

    async fn ask(proxy: &Proxy) -> String {
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream
            .write_all(b"PUT /b/key HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
            .await
            .unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn mishaps_strike_as_often_as_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut part = [0; 1000];
                let _ = stream.read(&mut part).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
                    .await;
            }
        });
        let proxy = Proxy::start(&to).await.unwrap();
        let rule = |mishap| Rule {
            on: "PUT /b/",
            times: 1,
            mishap,
        };
        proxy.set(&[
            rule(Mishap::Refuse(503, "SlowDown")),
            rule(Mishap::CutAnswer(10)),
        ]);
        assert!(ask(&proxy).await.starts_with("HTTP/1.1 503 SlowDown"));
        assert_eq!(ask(&proxy).await, "HTTP/1.1 2");
        assert_eq!(proxy.left(), 0);
        assert!(ask(&proxy).await.ends_with("fine"));
    }
}
