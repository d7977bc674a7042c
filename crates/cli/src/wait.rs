//! Work that is given to the server: it is submitted, and then waited for if that is wanted. Waiting
//! shows bars on a terminal, and a line now and then in a pipe.

mod display;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use anyhow::bail;
use bowline_api::names::label_value;
use futures::{StreamExt, pin_mut, stream};
use kube::{
    Api, ResourceExt,
    api::PostParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};

use crate::{
    cluster::{Hinted, Plain},
    context::Context,
    output::describe::pods::PodVolume,
    say,
    select::Kind,
};
use display::Display;

/// A kind that the server works on until it is over.
pub(crate) trait Work: Kind + Send + 'static {
    /// The copies of pod volumes that are part of it.
    type Volume: Volume;

    /// How far it is.
    fn step(&self) -> Step;
}

/// A kind that copies one pod volume.
pub(crate) trait Volume: Kind + Send + 'static {
    /// The label that says which work a copy is part of.
    const OF: &'static str;

    /// How far it is.
    fn copy(&self) -> PodVolume;
}

/// The copies of pod volumes by the names of their objects.
type Volumes = BTreeMap<String, PodVolume>;

/// How far a piece of work is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// Where it stands, as a word.
    pub(crate) phase: String,
    /// Items done.
    pub(crate) done: u64,
    /// Items in all; zero while not known.
    pub(crate) total: u64,
    /// Warnings so far, as far as the server tells.
    pub(crate) warnings: u64,
    /// Errors so far, as far as the server tells.
    pub(crate) errors: u64,
    /// What is being done, where the server tells.
    pub(crate) stage: String,
    /// Whether it is over.
    pub(crate) is_over: bool,
}

impl Step {
    /// What went wrong so far: `, 3 warnings, 1 error`.
    fn troubles(&self) -> String {
        let mut text = String::new();
        for (count, what) in [(self.warnings, "warning"), (self.errors, "error")] {
            let plural = if count == 1 { "" } else { "s" };
            if count > 0 {
                let _ = write!(text, ", {count} {what}{plural}");
            }
        }
        text
    }
}

/// A number of a status; what is missing or makes no sense counts as none.
pub(crate) fn count(number: Option<i64>) -> u64 {
    number
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or_default()
}

/// Creates the object, and says so. With `wait`, the exit code tells how the work ended, for scripts.
pub(crate) async fn submit<K: Work>(
    api: Api<K>,
    object: &K,
    wait: bool,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let (name, kind, noun) = (object.name_any(), K::KIND, K::KIND.to_lowercase());
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let hint = format!(
                "`bowline {noun} describe {name}` shows the one that is there; names are used once"
            );
            return Err(Hinted::error(status.message, hint));
        }
        other => other.map(drop).plain()?,
    }
    writeln!(out, "{kind} request \"{name}\" submitted successfully.")?;
    if !wait {
        writeln!(
            out,
            "Run `bowline {noun} describe {name}` or `bowline {noun} logs {name}` for more details."
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "Waiting for {noun} to complete. You may safely press ctrl-c to stop waiting - your {noun} \
         will continue in the background."
    )?;
    out.flush()?;
    let is_terminal = ctx.is_terminal && std::io::stderr().is_terminal();
    let phase = until_over(api, &name, is_terminal, out).await?.step().phase;
    writeln!(
        out,
        "\n{kind} completed with status: {phase}. You may check for more information using the \
         commands `bowline {noun} describe {name}` and `bowline {noun} logs {name}`."
    )?;
    Ok(match phase.as_str() {
        "Completed" => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Shows steps until the last; the object in its last state comes back.
pub(crate) async fn until_over<K: Work>(
    api: Api<K>,
    name: &str,
    is_terminal: bool,
    out: &mut dyn Write,
) -> anyhow::Result<K> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let volumes = volumes_of(&api, name);
    let events = watcher::watcher(api, config).default_backoff();
    let news = stream::select(events.map(News::Work), volumes.map(News::Volume));
    pin_mut!(news);
    let mut display = Display::new(is_terminal);
    let (mut step, mut volumes) = (None, Volumes::new());
    let mut last_error = String::new();
    while let Some(news) = news.next().await {
        match news {
            News::Work(Ok(Event::Apply(object) | Event::InitApply(object))) => {
                let now = object.step();
                if now.is_over {
                    display.clear();
                    return Ok(object);
                }
                step = Some(now);
            }
            News::Work(Ok(Event::Delete(_))) => {
                display.clear();
                bail!("{name} was deleted before it was finished");
            }
            News::Work(Ok(Event::Init | Event::InitDone)) => {}
            News::Work(Err(error)) => {
                // The watch begins anew by itself; saying so once per cause is enough.
                let text = error.to_string();
                if text != last_error {
                    say(&format!("watch interrupted, trying again: {text}"));
                    last_error = text;
                }
            }
            News::Volume(event) => note(&mut volumes, event),
        }
        if let Some(step) = &step {
            display.show(step, &volumes, out)?;
        }
    }
    bail!("the watch of {name} ended")
}

/// What is heard while waiting.
enum News<K, V> {
    Work(watcher::Result<Event<K>>),
    Volume(watcher::Result<Event<V>>),
}

/// The copies of pod volumes that are part of the work of this name, as they come and go.
fn volumes_of<K: Work>(
    api: &Api<K>,
    name: &str,
) -> impl futures::Stream<Item = watcher::Result<Event<K::Volume>>> + use<K> {
    let client = api.clone().into_client();
    let api: Api<K::Volume> = match api.namespace() {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let labels = format!("{}={}", K::Volume::OF, label_value(name));
    watcher::watcher(api, watcher::Config::default().labels(&labels)).default_backoff()
}

/// Takes in what happened to a copy. Whoever may not see copies sees the work without them.
fn note<V: Volume>(volumes: &mut Volumes, event: watcher::Result<Event<V>>) {
    match event {
        Ok(Event::Apply(volume) | Event::InitApply(volume)) => {
            volumes.insert(volume.name_any(), volume.copy());
        }
        Ok(Event::Delete(volume)) => {
            volumes.remove(&volume.name_any());
        }
        Ok(Event::Init) => volumes.clear(),
        Ok(Event::InitDone) | Err(_) => {}
    }
}
