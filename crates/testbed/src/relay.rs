//! A way to a server that takes longer than it would: whatever is sent arrives later.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

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
        Self::between(Ipv4Addr::LOCALHOST.into(), to, [delay, Duration::ZERO]).await
    }

    /// A way from an address of this machine to `host:port` that takes this much longer, and so
    /// does the way back. As a part has to arrive before the next one leaves, there is a most that
    /// goes through a connection.
    pub async fn narrow(from: IpAddr, to: &str, delay: Duration) -> anyhow::Result<Self> {
        Self::between(from, to, [delay, delay]).await
    }

    async fn between(from: IpAddr, to: &str, delays: [Duration; 2]) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((from, 0)).await?;
        let address = listener.local_addr()?;
        let to = to.to_owned();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to = to.clone();
                // However a connection ends, both sides notice.
                tokio::spawn(async move { carry(client, &to, delays).await.ok() });
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

async fn carry(client: TcpStream, to: &str, [there, back]: [Duration; 2]) -> std::io::Result<()> {
    let server = TcpStream::connect(to).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::select! {
        done = copy(&mut from_client, &mut to_server, there) => done,
        done = copy(&mut from_server, &mut to_client, back) => done,
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
    use std::{
        net::Ipv4Addr,
        time::{Duration, Instant},
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::Relay;

    const DELAY: Duration = Duration::from_millis(50);

    /// How long it takes to be answered, at least.
    async fn asked(relay: &Relay) -> Duration {
        let began = Instant::now();
        let mut stream = TcpStream::connect(relay.address).await.unwrap();
        stream.write_all(b"ping").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "ping");
        began.elapsed()
    }

    #[tokio::test]
    async fn what_is_sent_arrives_later() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut part = [0; 4];
                stream.read_exact(&mut part).await.unwrap();
                stream.write_all(&part).await.unwrap();
            }
        });
        let relay = Relay::start(&to, DELAY).await.unwrap();
        assert!(asked(&relay).await >= DELAY);
        let here = Ipv4Addr::LOCALHOST.into();
        let relay = Relay::narrow(here, &to, DELAY).await.unwrap();
        assert!(asked(&relay).await >= 2 * DELAY);
    }
}
