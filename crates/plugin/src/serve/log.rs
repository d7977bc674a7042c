//! What a plugin says: lines of JSON on its standard error, as hosts read them.

use std::{env, fmt, io::Write as _};

use serde_json::{Map, Value};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Says everything from now on, down to the level of `--log-level`, which hosts hand on.
pub(super) fn start() {
    let args: Vec<String> = env::args().collect();
    // The host may be in the same process; then it has a log already.
    let _ = tracing::subscriber::set_global_default(Lines {
        level: level(&args),
    });
}

fn level(args: &[String]) -> Level {
    let said = super::flag(args, "log-level");
    match said.unwrap_or("info") {
        "trace" => Level::TRACE,
        "debug" => Level::DEBUG,
        "warn" | "warning" => Level::WARN,
        "error" | "fatal" | "panic" => Level::ERROR,
        _ => Level::INFO,
    }
}

/// One line for each event; spans are not told.
struct Lines {
    level: Level,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_own =
            !metadata.target().starts_with("h2") && !metadata.target().starts_with("hyper");
        *metadata.level() <= self.level && is_own
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let mut line = fields.0;
        let message = line.remove("message").unwrap_or_default();
        line.insert("@message".to_owned(), message);
        let level = match *event.metadata().level() {
            Level::TRACE | Level::DEBUG => "debug",
            Level::INFO => "info",
            Level::WARN => "warn",
            Level::ERROR => "error",
        };
        line.insert("@level".to_owned(), level.into());
        if let (Some(file), Some(at)) = (event.metadata().file(), event.metadata().line()) {
            line.insert("logSource".to_owned(), format!("{file}:{at}").into());
            line.insert("@logSourceSetBy".to_owned(), "plugin".into());
        }
        // Nobody is there to hear that nobody hears.
        let _ = writeln!(std::io::stderr().lock(), "{}", Value::Object(line));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_says_how_much_it_wants_to_hear() {
        for (args, expected) in [
            (&["p"][..], Level::INFO),
            (&["p", "--log-level=debug"], Level::DEBUG),
            (&["p", "--log-level", "warning"], Level::WARN),
            (&["p", "--log-levels=x", "--other"], Level::INFO),
            (
                &["p", "--log-level=debug", "--log-level=error"],
                Level::ERROR,
            ),
        ] {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(level(&args), expected, "{args:?}");
        }
    }
}
