//! What restic says: lines of JSON on its output, and complaints, in JSON or not, beside it.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

use crate::Problem;

/// How many files are remembered that restic complained about.
const COMPLAINTS: usize = 10_000;
/// How many of its other lines.
const LINES: usize = 20;

/// Bytes in all and bytes done, if a line says them; before restic knows, it does not.
pub(super) fn status(line: &[u8]) -> Option<(u64, u64)> {
    #[derive(Deserialize)]
    struct Status {
        message_type: String,
        #[serde(default)]
        total_bytes: u64,
        #[serde(default)]
        bytes_done: u64,
    }
    let status: Status = serde_json::from_slice(line).ok()?;
    (status.message_type == "status" && status.bytes_done > 0)
        .then_some((status.total_bytes, status.bytes_done))
}

/// The end of a backup.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct Summary {
    pub(super) total_files_processed: u64,
    pub(super) total_bytes_processed: u64,
    pub(super) data_added: u64,
    snapshot_id: Option<String>,
}

impl Summary {
    /// The id of the snapshot; old versions do not say it.
    pub(super) fn snapshot(&self) -> Option<&str> {
        self.snapshot_id.as_deref().filter(|id| !id.is_empty())
    }
}

/// A summary, if a line is one.
pub(super) fn summary(line: &[u8]) -> Option<Summary> {
    let value: Value = serde_json::from_slice(line).ok()?;
    if value["message_type"] != "summary" {
        return None;
    }
    serde_json::from_value(value).ok()
}

/// What `stats` says of a snapshot.
#[derive(Debug, Deserialize, PartialEq)]
pub(super) struct Stats {
    pub(super) total_size: u64,
    #[serde(default)]
    pub(super) total_file_count: u64,
    /// How many it has looked at; old versions do not say it.
    snapshots_count: Option<u64>,
}

impl Stats {
    /// Whether there was no such snapshot, which to restic is no failure.
    pub(super) fn is_of_nothing(&self) -> bool {
        self.snapshots_count == Some(0)
    }
}

/// The size of a snapshot, if a line says it.
pub(super) fn stats(line: &[u8]) -> Option<Stats> {
    serde_json::from_slice(line).ok()
}

/// The id of the only snapshot of a list.
pub(super) fn only_snapshot(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Snapshot {
        id: String,
    }
    let list: Option<Vec<Snapshot>> = serde_json::from_slice(line).ok()?;
    match list.unwrap_or_default().as_mut_slice() {
        [only] => Some(std::mem::take(&mut only.id)),
        _ => None,
    }
}

/// A file that restic could do nothing with.
#[derive(Debug, Clone, PartialEq)]
struct Complaint {
    item: String,
    reason: String,
    is_gone: bool,
}

/// What restic has said beside its output.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    files: Vec<Complaint>,
    lines: VecDeque<String>,
    /// The last words of newer versions.
    fatal: Option<String>,
}

impl Complaints {
    /// Hears a line.
    pub(super) fn hear(&mut self, line: &str) {
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        let object: Option<Value> = serde_json::from_str(line).ok().filter(Value::is_object);
        match object {
            Some(object) if object["message_type"] == "exit_error" => {
                self.fatal = object["message"].as_str().map(str::to_owned);
            }
            // What the scanner cannot read matters only if the archiver cannot either.
            Some(object) if object["message_type"] == "error" && object["during"] == "scan" => {}
            Some(object) if object["message_type"] == "error" => self.file(of_object(&object)),
            _ => match line.strip_prefix("ignoring error for ").and_then(of_text) {
                Some(complaint) => self.file(complaint),
                None => {
                    self.lines.push_back(line.to_owned());
                    if self.lines.len() > LINES {
                        self.lines.pop_front();
                    }
                }
            },
        }
    }

    fn file(&mut self, complaint: Complaint) {
        if self.files.len() < COMPLAINTS {
            self.files.push(complaint);
        }
    }

    /// What could not be read or written in a folder, and what was gone when its turn came; each
    /// file once, by its path in the folder.
    pub(super) fn problems(&self, folder: &Path) -> (Vec<Problem>, Vec<Problem>) {
        let folders = [folder.to_owned(), real(folder)];
        let mut files = BTreeMap::new();
        for file in &self.files {
            let path = folders
                .iter()
                .find_map(|folder| Path::new(&file.item).strip_prefix(folder).ok())
                .unwrap_or_else(|| Path::new(&file.item));
            let path = path.to_string_lossy();
            let path = path.trim_start_matches("./").trim_start_matches('/');
            files.entry(path.to_owned()).or_insert(file);
        }
        let (gone, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|(_, f)| f.is_gone);
        let problem = |(path, file): (String, &Complaint)| Problem {
            path,
            reason: file.reason.clone(),
        };
        (
            others.into_iter().map(problem).collect(),
            gone.into_iter().map(problem).collect(),
        )
    }

    /// All that was said that is not about single files.
    pub(super) fn all(&self) -> String {
        let lines = self.lines.iter().map(String::as_str);
        let lines: Vec<_> = lines.chain(self.fatal.as_deref()).collect();
        lines.join("\n")
    }

    /// The last words, in a line.
    pub(super) fn last_words(&self) -> String {
        let file;
        let text = match (&self.fatal, self.lines.is_empty(), self.files.last()) {
            (Some(fatal), _, _) => fatal.lines().collect(),
            (None, true, Some(last)) => {
                file = format!("{}: {}", last.item, last.reason);
                vec![file.as_str()]
            }
            (None, _, _) => self.lines.iter().map(String::as_str).collect(),
        };
        let text: Vec<_> = text
            .into_iter()
            .map(|line| line.trim().trim_start_matches("Fatal: "))
            .filter(|line| !line.is_empty())
            .collect();
        text[text.len().saturating_sub(4)..].join("; ")
    }
}

fn real(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// Newer versions have a text; older ones whatever the error was made of in their memory.
fn of_object(object: &Value) -> Complaint {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let error = &object["error"];
    let item = text(&object["item"]).or_else(|| text(&error["Path"]));
    let item = item.unwrap_or_default();
    let number = error["Err"].as_i64().and_then(|n| i32::try_from(n).ok());
    let reason = text(&error["message"])
        .or_else(|| text(error))
        .or_else(|| text(&error["Err"]))
        .or_else(|| {
            let reason = io::Error::from_raw_os_error(number?);
            Some(match text(&error["Op"]) {
                Some(action) => format!("{action}: {reason}"),
                None => reason.to_string(),
            })
        })
        .unwrap_or_else(|| "restic does not say why".to_owned());
    let reason = reason.strip_prefix(&format!("{item}: ")).unwrap_or(&reason);
    Complaint {
        is_gone: reason.to_lowercase().contains("no such file or directory"),
        reason: reason.to_owned(),
        item,
    }
}

fn of_text(text: &str) -> Option<Complaint> {
    let (item, reason) = text.split_once(": ")?;
    Some(Complaint {
        item: item.to_owned(),
        reason: reason.to_owned(),
        is_gone: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &[u8] = br#"{"message_type":"summary","files_new":2,"files_changed":0,"files_unmodified":0,"dirs_new":0,"dirs_changed":0,"dirs_unmodified":0,"data_blobs":4,"tree_blobs":1,"data_added":3000833,"data_added_packed":3000831,"total_files_processed":2,"total_bytes_processed":3000003,"total_duration":1.128537641,"backup_start":"2026-11-15T22:55:08.347829791Z","backup_end":"2026-11-15T22:55:09.476367442Z","snapshot_id":"fac113b9f8477791dd1bb4e2071e02f9522aa3b033a8a79305e84b9099b65806"}"#;

    #[test]
    fn lines_without_bytes_say_nothing() {
        for (line, expected) in [
            (
                r#"{"message_type":"status","percent_done":0,"total_files":1,"total_bytes":21424504832}"#,
                None,
            ),
            (
                r#"{"message_type":"status","action":"scan_finished","item":"","duration":0.219241873,"data_size":49461329920,"metadata_size":0,"total_files":10}"#,
                None,
            ),
            (
                r#"{"message_type":"status","percent_done":0.0003815984736061056,"total_files":10,"total_bytes":49461329920,"bytes_done":18874368,"current_files":["/file1","/file3"]}"#,
                Some((49_461_329_920, 18_874_368)),
            ),
            (
                r#"{"message_type":"status","percent_done":0.8601258065408601,"total_files":2,"files_done":1,"total_bytes":3000003,"bytes_done":2580380,"current_files":["/a"]}"#,
                Some((3_000_003, 2_580_380)),
            ),
            ("open repository", None),
            (r#"{"message_type":"status","bytes_do"#, None),
            (r#"{"message_type":"verbose_status","bytes_done":7}"#, None),
        ] {
            assert_eq!(status(line.as_bytes()), expected, "{line}");
        }
        assert_eq!(status(SUMMARY), None);
    }

    #[test]
    fn summaries_name_the_snapshot_or_not() {
        let found = summary(SUMMARY).unwrap();
        assert_eq!(
            (
                found.total_files_processed,
                found.total_bytes_processed,
                found.data_added
            ),
            (2, 3_000_003, 3_000_833)
        );
        assert!(found.snapshot().unwrap().starts_with("fac113b9f8"));
        let old = br#"{"message_type":"summary","total_bytes_processed":5,"snapshot_id":""}"#;
        assert_eq!(summary(old).unwrap().snapshot(), None);
        assert_eq!(
            summary(br#"{"message_type":"status","bytes_done":1}"#),
            None
        );
    }

    #[test]
    fn sizes_and_snapshots_are_found() {
        let line = br#"{"total_size":3000003,"total_file_count":2,"snapshots_count":1}"#;
        let found = stats(line).unwrap();
        assert_eq!(
            (found.total_size, found.is_of_nothing()),
            (3_000_003, false)
        );
        let none = br#"{"total_size":0,"snapshots_count":0}"#;
        assert!(stats(none).unwrap().is_of_nothing());
        let seed = br#"{"total_size":10558111744,"total_file_count":11}"#;
        assert!(!stats(seed).unwrap().is_of_nothing());
        assert_eq!(stats(b"stats for all snapshots"), None);

        let one = br#"[{"time":"2026-11-15T22:55:08.347829791Z","tree":"396060f4","paths":["/tmp/src"],"hostname":"velero","tags":["a=b"],"id":"fac113b9f847","short_id":"fac113b9"}]"#;
        assert_eq!(only_snapshot(one).as_deref(), Some("fac113b9f847"));
        for other in ["null", "[]", r#"[{"id":"a"},{"id":"b"}]"#, "x"] {
            assert_eq!(only_snapshot(other.as_bytes()), None, "{other}");
        }
    }

    fn heard(lines: &[&str]) -> Complaints {
        let mut complaints = Complaints::default();
        lines.iter().for_each(|line| complaints.hear(line));
        complaints
    }

    fn shown(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_are_named_once_in_every_spelling() {
        let complaints = heard(&[
            r#"{"message_type":"error","error":{"message":"/rp/src/closedfile: open closedfile: permission denied"},"during":"archival","item":"/rp/src/closedfile"}"#,
            r#"{"message_type":"error","error":{"message":"openfile for readdirnames failed: open /rp/src/sub/closed: permission denied"},"during":"scan","item":"/rp/src/sub/closed"}"#,
            r#"{"message_type":"error","error":{"message":"openfile for readdirnames failed: open sub/closed: permission denied"},"during":"archival","item":"sub/closed"}"#,
            r#"{"message_type":"error","error":{"message":"lstat /rp/src/x: no such file or directory"},"during":"archival","item":"/rp/src/x"}"#,
            r#"{"message_type":"error","error":{"Op":"open","Path":"/rp/src/old","Err":13},"during":"archival","item":"/rp/src/old"}"#,
            r#"{"message_type":"error","error":{"Op":"lstat","Path":"/rp/src/gone","Err":2},"during":"archival","item":"/rp/src/gone"}"#,
            r#"{"message_type":"error","error":{},"during":"archival","item":"/rp/src/older"}"#,
            r#"{"message_type":"error","error":{},"during":"archival","item":"/rp/src/older"}"#,
            r#"{"message_type":"exit_error","code":3,"message":"Warning: at least one source file could not be read"}"#,
        ]);
        let (unreadable, gone) = complaints.problems(Path::new("/rp/src"));
        assert_eq!(
            shown(&unreadable),
            [
                "closedfile: open closedfile: permission denied",
                "old: open: Permission denied (os error 13)",
                "older: restic does not say why",
                "sub/closed: openfile for readdirnames failed: open sub/closed: permission denied",
            ]
        );
        assert_eq!(
            shown(&gone),
            [
                "gone: lstat: No such file or directory (os error 2)",
                "x: lstat /rp/src/x: no such file or directory",
            ]
        );
    }

    #[test]
    fn restores_complain_in_plain_words() {
        let complaints = heard(&[
            "ignoring error for /b: remove /tmp/rp/t/b: directory not empty",
            "",
            "Fatal: There were 1 errors",
        ]);
        let (problems, _) = complaints.problems(Path::new("/tmp/rp/t"));
        assert_eq!(
            shown(&problems),
            ["b: remove /tmp/rp/t/b: directory not empty"]
        );
        assert_eq!(complaints.last_words(), "There were 1 errors");
    }

    #[test]
    fn last_words_are_few() {
        let many: Vec<String> = (0..30).map(|n| format!("line {n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let error = r#"{"message_type":"error","error":{},"during":"archival","item":"/f"}"#;
        let fatal = r#"{"message_type":"exit_error","code":1,"message":"Fatal: unable to save snapshot: snapshot is empty"}"#;
        for (lines, expected) in [
            (&many[..], "line 26; line 27; line 28; line 29"),
            (&[error, "Fatal: wrong"], "wrong"),
            (&[error], "/f: restic does not say why"),
            (
                &["unrelated", fatal],
                "unable to save snapshot: snapshot is empty",
            ),
            (&[], ""),
        ] {
            assert_eq!(heard(lines).last_words(), expected);
        }
    }
}
