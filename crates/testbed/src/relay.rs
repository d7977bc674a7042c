//! A way to a server that takes longer than it would: whatever is sent arrives later.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The way, until it is dropped.
pub struct Relay {
    /// Where it begins.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Relay {
    /// A way to `host:port` that takes this much longer; the way back does not.
    pub async fn start(to: &str, delay: Duration) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let to = to.to_owned();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to = to.clone();
                // However a connection ends, both sides notice.
                tokio::spawn(async move { carry(client, &to, delay).await.ok() });
            }
        });
        Ok(Self { address, task })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(client: TcpStream, to: &str, delay: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(to).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::select! {
        done = copy(&mut from_client, &mut to_server, delay) => done,
        done = copy(&mut from_server, &mut to_client, Duration::ZERO) => done,
    }
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    delay: Duration,
) -> std::io::Result<()> {
    let mut part = vec![0; 64 * 1024];
    loop {
        let n = from.read(&mut part).await?;
        if n == 0 {
            return Ok(());
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        to.write_all(&part[..n]).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::Relay;

    #[tokio::test]
    async fn what_is_sent_arrives_later() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut part = [0; 4];
            stream.read_exact(&mut part).await.unwrap();
            stream.write_all(&part).await.unwrap();
        });
        let delay = Duration::from_millis(50);
        let relay = Relay::start(&to, delay).await.unwrap();
        let began = Instant::now();
        let mut stream = TcpStream::connect(relay.address).await.unwrap();
        stream.write_all(b"ping").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "ping");
        assert!(began.elapsed() >= delay);
    }
}
