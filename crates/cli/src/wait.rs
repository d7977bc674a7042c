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
use futures::{Stream, StreamExt, pin_mut, stream};
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
    output::pace::Transfer,
    say,
    select::Kind,
};
use display::Display;

/// A kind that the server works on until it is over.
pub(crate) trait Work: Kind + Send + 'static {
    /// The copies of pod volumes that are part of it.
    type Volume: Volume;
    /// What plugins do with snapshots for it.
    type PluginVolume: Volume;
    /// The movements of snapshots' data for it.
    type Movement: Volume;

    /// How far it is.
    fn step(&self) -> Step;
}

/// A kind that copies one volume.
pub(crate) trait Volume: Kind + Send + 'static {
    /// The label that says which work a copy is part of.
    const OF: &'static str;

    /// How far it is.
    fn transfer(&self) -> Transfer;
}

/// The copies of volumes by the kinds and names of their objects.
type Volumes = BTreeMap<(&'static str, String), Transfer>;

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
    let volumes = stream::select_all([
        changes::<K, K::Volume>(&api, name).boxed(),
        changes::<K, K::PluginVolume>(&api, name).boxed(),
        changes::<K, K::Movement>(&api, name).boxed(),
    ]);
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
            News::Volume(change) => change.apply(&mut volumes),
        }
        if let Some(step) = &step {
            display.show(step, &volumes, out)?;
        }
    }
    bail!("the watch of {name} ended")
}

/// What is heard while waiting.
enum News<K> {
    Work(watcher::Result<Event<K>>),
    Volume(Change),
}

/// What happened to the copies of a kind.
enum Change {
    Seen(&'static str, String, Transfer),
    Gone(&'static str, String),
    /// They are told anew, all of them.
    Anew(&'static str),
    Nothing,
}

/// The copies of volumes that are part of the work of this name, as they come and go.
fn changes<K: Work, V: Volume>(api: &Api<K>, name: &str) -> impl Stream<Item = Change> + use<K, V> {
    let client = api.clone().into_client();
    let api: Api<V> = match api.namespace() {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let labels = format!("{}={}", V::OF, label_value(name));
    watcher::watcher(api, watcher::Config::default().labels(&labels))
        .default_backoff()
        .map(Change::of)
}

impl Change {
    /// Whoever may not see copies, or has no such kind, sees the work without them.
    fn of<V: Volume>(event: watcher::Result<Event<V>>) -> Self {
        match event {
            Ok(Event::Apply(volume) | Event::InitApply(volume)) => {
                Self::Seen(V::KIND, volume.name_any(), volume.transfer())
            }
            Ok(Event::Delete(volume)) => Self::Gone(V::KIND, volume.name_any()),
            Ok(Event::Init) => Self::Anew(V::KIND),
            Ok(Event::InitDone) | Err(_) => Self::Nothing,
        }
    }

    fn apply(self, volumes: &mut Volumes) {
        match self {
            Self::Seen(kind, name, transfer) => drop(volumes.insert((kind, name), transfer)),
            Self::Gone(kind, name) => drop(volumes.remove(&(kind, name))),
            Self::Anew(kind) => volumes.retain(|(of, _), _| *of != kind),
            Self::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::pace::State;

    #[test]
    fn a_kind_that_is_told_anew_leaves_the_others_alone() {
        let transfer = Transfer {
            label: "v".to_owned(),
            state: State::Moving,
            done: 1,
            total: 2,
            since: None,
        };
        let seen = |kind, name: &str| Change::Seen(kind, name.to_owned(), transfer.clone());
        let mut volumes = Volumes::new();
        for (change, wanted) in [
            (seen("Pod", "a"), vec![("Pod", "a")]),
            (seen("Plugin", "a"), vec![("Plugin", "a"), ("Pod", "a")]),
            (Change::Nothing, vec![("Plugin", "a"), ("Pod", "a")]),
            (Change::Anew("Plugin"), vec![("Pod", "a")]),
            (Change::Gone("Plugin", "a".to_owned()), vec![("Pod", "a")]),
            (Change::Gone("Pod", "a".to_owned()), vec![]),
        ] {
            change.apply(&mut volumes);
            let found: Vec<(&str, &str)> = volumes
                .keys()
                .map(|(kind, name)| (*kind, name.as_str()))
                .collect();
            assert_eq!(found, wanted);
        }
    }
}
