//! How long hooks hold a pod: from just before its first command until just after its last.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Exec, Output};

/// When the first command in a pod began, and when the last ended.
#[derive(Debug, Default)]
pub(crate) struct Window(Mutex<Option<(Instant, Instant)>>);

impl Window {
    /// How long that was; none if no command ran.
    pub(crate) fn length(&self) -> Option<Duration> {
        let window = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.map(|(first, last)| last.duration_since(first))
    }

    /// A command begins or ends now.
    fn note(&self) {
        let now = Instant::now();
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.get_or_insert((now, now)).1 = now;
    }
}

/// Runs commands, and notes when.
pub(crate) struct Timed<'a> {
    pub(crate) exec: &'a dyn Exec,
    pub(crate) window: &'a Window,
}

#[async_trait]
impl Exec for Timed<'_> {
    async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        command: &[String],
    ) -> Result<Output, String> {
        self.window.note();
        let _end = AtEnd(self.window);
        self.exec.exec(namespace, pod, container, command).await
    }
}

/// A command that took too long is dropped, which ends it too.
struct AtEnd<'a>(&'a Window);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.note();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many seconds as the command says.
    struct Slow;

    #[async_trait]
    impl Exec for Slow {
        async fn exec(
            &self,
            _: &str,
            _: &str,
            _: &str,
            command: &[String],
        ) -> Result<Output, String> {
            let seconds = command[0].parse().map_err(|_| "no number".to_owned())?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(Output {
                stdout: String::new(),
                stderr: String::new(),
                result: Ok(()),
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_is_from_the_first_command_to_the_end_of_the_last() {
        let window = Window::default();
        let timed = Timed {
            exec: &Slow,
            window: &window,
        };
        assert_eq!(window.length(), None);
        let run = async |seconds: &str| {
            let command = [seconds.to_owned()];
            let running = timed.exec("shop", "web", "main", &command);
            let _ = tokio::time::timeout(Duration::from_secs(10), running).await;
        };
        run("2").await;
        assert_eq!(window.length(), Some(Duration::from_secs(2)));
        tokio::time::sleep(Duration::from_secs(5)).await;
        run("1").await;
        assert_eq!(window.length(), Some(Duration::from_secs(8)));
        // One that fails at once, and one that is given up.
        run("x").await;
        assert_eq!(window.length(), Some(Duration::from_secs(8)));
        run("60").await;
        assert_eq!(window.length(), Some(Duration::from_secs(18)));
    }
}
