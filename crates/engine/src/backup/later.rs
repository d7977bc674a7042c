//! Work that takes long and that no list waits for: pods whose volumes are copied.

use std::sync::Arc;

use tokio::{sync::mpsc, task::JoinSet};

use super::{block::Member, item::Run, pod_volumes::Decided};
use crate::log::About;

/// Something that is done beside the lists.
pub(super) enum Later {
    /// A pod that is in the archive; its volumes are to be copied.
    Pod(Box<Decided>),
    /// Objects of which some have volumes to copy: the whole block.
    Block(Vec<Member>),
}

/// What there is to do later, and what is being done. It ends when this is dropped.
pub(super) struct Queue {
    waiting: mpsc::UnboundedReceiver<Later>,
    tasks: JoinSet<()>,
}

impl Queue {
    pub(super) fn new() -> (mpsc::UnboundedSender<Later>, Self) {
        let (sender, waiting) = mpsc::unbounded_channel();
        let queue = Self {
            waiting,
            tasks: JoinSet::new(),
        };
        (sender, queue)
    }

    /// Works while something else is done, until that is over.
    pub(super) async fn beside<T>(&mut self, run: &Arc<Run>, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                Some(later) = self.waiting.recv() => self.start(run, later),
                Some(ended) = self.tasks.join_next() => tell(run, ended),
            }
        }
    }

    /// Works until nothing is left, not even what comes meanwhile.
    pub(super) async fn work_off(&mut self, run: &Arc<Run>) {
        loop {
            while let Ok(later) = self.waiting.try_recv() {
                self.start(run, later);
            }
            if self.tasks.is_empty() {
                return;
            }
            tokio::select! {
                Some(later) = self.waiting.recv() => self.start(run, later),
                Some(ended) = self.tasks.join_next() => tell(run, ended),
            }
        }
    }

    fn start(&mut self, run: &Arc<Run>, later: Later) {
        let run = Arc::clone(run);
        self.tasks.spawn(async move {
            match later {
                Later::Pod(decided) => run.begin_beside(&decided).await,
                Later::Block(members) => run.together(members).await,
            }
        });
    }
}

fn tell(run: &Run, ended: Result<(), tokio::task::JoinError>) {
    if let Err(panic) = ended {
        let about = About::default().because(panic);
        run.log.error("Copying volumes ended unexpectedly", &about);
    }
}
