//! The language of the conformance scripts: cases of steps, read from text.
//!
//! A case begins with `== claim`; steps are parted by lines of `--`. A step is a request, a watch, or
//! one of a few directives. See `conformance/README.md` for how to write them.

use anyhow::{Context, bail, ensure};

/// One claim, and the steps that show it.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) title: String,
    /// Why the embedded server is allowed to answer otherwise here.
    pub(super) differs: Option<String>,
    pub(super) steps: Vec<Step>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A request whose answer is kept.
    Ask(Ask),
    /// A request that has to succeed, and whose answer is of no interest.
    Do(Ask),
    /// A watch: its events are kept.
    Watch {
        ask: Ask,
        /// Stops after so many events; otherwise at the end of the stream.
        until: Option<usize>,
        unordered: bool,
    },
    /// Keeps a value of the last answer under a name.
    Save { name: String, path: String },
    /// Asks until the answer is as said.
    Wait { path: String, until: Until },
    /// Creates the CustomResourceDefinition in a data file and waits until its kinds are served.
    Kind(String),
    /// Of the last answer, keeps only the items of a list that have this text at this path.
    Only {
        list: String,
        path: String,
        text: String,
    },
    /// Of the last answer, keeps only these paths.
    Keep(Vec<String>),
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

/// What a `wait` waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Until {
    /// 200.
    Found,
    /// 404.
    Gone,
    /// The value at the path is this text.
    Equals { path: String, text: String },
}

/// Reads a script.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    let mut blocks = text.split("\n== ");
    // What stands before the first case is a remark.
    let first = blocks.next().unwrap_or_default();
    for block in first.strip_prefix("== ").into_iter().chain(blocks) {
        let (title, rest) = block.split_once('\n').unwrap_or((block, ""));
        let title = title.trim().to_owned();
        ensure!(
            cases.iter().all(|case| case.title != title),
            "two cases are called {title:?}"
        );
        let case = parse_case(&title, rest).with_context(|| format!("case {title:?}"))?;
        cases.push(case);
    }
    Ok(cases)
}

fn parse_case(title: &str, rest: &str) -> anyhow::Result<Case> {
    let mut differs = None;
    let mut steps = Vec::new();
    let mut lines: Vec<&str> = Vec::new();
    for line in rest.lines().chain(["--"]) {
        if let Some(reason) = line.strip_prefix("differs: ")
            && steps.is_empty()
            && lines.is_empty()
        {
            differs = Some(reason.trim().to_owned());
        } else if line.trim_end() == "--" {
            while lines.last().is_some_and(|line| line.trim().is_empty()) {
                lines.pop();
            }
            if let Some((head, body)) = lines.split_first() {
                steps.push(parse_step(head, body).with_context(|| format!("step {head:?}"))?);
            }
            lines.clear();
        } else if !(lines.is_empty() && (line.trim().is_empty() || line.starts_with('#'))) {
            lines.push(line);
        }
    }
    ensure!(!steps.is_empty(), "no steps");
    Ok(Case {
        title: title.to_owned(),
        differs,
        steps,
    })
}

fn parse_step(head: &str, lines: &[&str]) -> anyhow::Result<Step> {
    let words: Vec<&str> = head.split_whitespace().collect();
    let own = |text: &str| text.to_owned();
    Ok(match words.as_slice() {
        ["save", name, path] => Step::Save {
            name: own(name),
            path: own(path),
        },
        ["kind", file] => Step::Kind(own(file)),
        ["keep", paths @ ..] => Step::Keep(paths.iter().map(|path| own(path)).collect()),
        ["only", list, condition] => {
            let (path, text) = condition.split_once('=').context("only LIST PATH=TEXT")?;
            Step::Only {
                list: own(list),
                path: own(path),
                text: own(text),
            }
        }
        ["wait", "GET", path, "until", until @ ..] => Step::Wait {
            path: own(path),
            until: match until {
                ["found"] => Until::Found,
                ["gone"] => Until::Gone,
                [path, "=", text] => Until::Equals {
                    path: own(path),
                    text: own(text),
                },
                _ => bail!("until what?"),
            },
        },
        ["WATCH", path, rest @ ..] => {
            let (until, unordered) = match rest {
                [] => (None, false),
                ["until", count, "events"] => (Some(count.parse()?), false),
                ["until", count, "events", "unordered"] => (Some(count.parse()?), true),
                _ => bail!("WATCH PATH [until N events [unordered]]"),
            };
            Step::Watch {
                ask: ask("GET", path, lines),
                until,
                unordered,
            }
        }
        ["do", method, path] => Step::Do(ask(method, path, lines)),
        [
            method @ ("GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" | "HEAD"),
            path,
        ] => Step::Ask(ask(method, path, lines)),
        _ => bail!("neither a request nor a directive"),
    })
}

fn ask(method: &str, path: &str, lines: &[&str]) -> Ask {
    let is_header = |line: &&str| {
        let (name, value) = line.split_once(": ").unwrap_or_default();
        !value.is_empty()
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
    };
    let count = lines.iter().take_while(|line| is_header(line)).count();
    let headers = lines[..count]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let body = lines[count..].join("\n").trim().to_owned();
    Ask {
        method: method.to_owned(),
        path: path.to_owned(),
        headers,
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_into_cases_and_steps() {
        let text = "# remark\n\n== one\ndiffers: because\nPOST /a\n{\"x\":1}\n--\nPATCH /a\nContent-Type: t\n\n[]\n\n== two\nsave rv .metadata.x\n--\nwait GET /a until .a = b\n--\nWATCH /w until 2 events\n";
        let cases = parse(text).unwrap();
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].differs.as_deref(), Some("because"));
        let Step::Ask(patch) = &cases[0].steps[1] else {
            panic!("{:?}", cases[0].steps[1])
        };
        assert_eq!(patch.headers, [("Content-Type".to_owned(), "t".to_owned())]);
        assert_eq!(patch.body, "[]");
        assert_eq!(cases[1].steps.len(), 3);
    }

    #[test]
    fn a_step_that_says_nothing_known_is_refused() {
        assert!(parse("== one\nFETCH /a\n").is_err());
        assert!(parse("== one\n").is_err());
        assert!(parse("== one\nGET /a\n\n== one\nGET /a\n").is_err());
        assert!(parse("== one\nwait GET /a until maybe\n").is_err());
    }
}
