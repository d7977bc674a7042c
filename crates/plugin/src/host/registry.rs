//! Which plugins there are: each program of a folder is asked once.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::{StreamExt, stream};
use tokio::time::timeout;

use super::{Settings, call};
use crate::{
    Error, Result,
    kinds::Kind,
    wire::{Empty, PluginIdentifier, auxiliary},
};

/// Programs that are asked at the same time.
const PARALLEL: usize = 4;
/// How long a program that runs may take to say what it has.
const LIST: Duration = Duration::from_secs(60);
/// What a provider's name is short for.
const PREFIX: &str = "velero.io/";

/// A plugin of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its name: `velero.io/aws`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
}

/// A program, or one of its plugins, that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The program.
    pub program: PathBuf,
    /// Why not.
    pub reason: String,
}

/// All plugins.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    troubles: Vec<Trouble>,
}

impl Registry {
    /// Asks all programs below a folder. One that is of no use costs no more than that.
    pub async fn read(folder: &Path, settings: &Settings) -> Self {
        let (programs, mut troubles) = programs(folder);
        let lists: Vec<_> = stream::iter(programs)
            .map(|program| async {
                let list = list(&program, settings).await;
                (program, list)
            })
            .buffered(PARALLEL)
            .collect()
            .await;
        let mut registry = Self::default();
        for (program, list) in lists {
            match list {
                Ok(list) => registry.add(&program, list),
                Err(error) => troubles.push(Trouble {
                    program,
                    reason: error.to_string(),
                }),
            }
        }
        registry.troubles.extend(troubles);
        registry
    }

    fn add(&mut self, program: &Path, list: Vec<PluginIdentifier>) {
        for PluginIdentifier { kind, name, .. } in list {
            match self.accept(&kind, &name, program) {
                Ok(kind) => self.entries.push(Entry {
                    kind,
                    name,
                    program: program.to_owned(),
                }),
                Err(error) => self.troubles.push(Trouble {
                    program: program.to_owned(),
                    reason: error.to_string(),
                }),
            }
        }
    }

    fn accept(&self, kind: &str, name: &str, program: &Path) -> Result<Kind> {
        let kind: Kind = kind.parse()?;
        check_name(name)?;
        match self.find(kind, name) {
            Some(other) => Err(Error::Other(format!(
                "unable to register plugin (kind={kind}, name={name}, command={}) because another \
                 plugin is already registered for this kind and name (command={})",
                program.display(),
                other.program.display()
            ))),
            None => Ok(kind),
        }
    }

    /// A plugin, by its name or, for `velero.io/aws`, by `aws`.
    #[must_use]
    pub fn find(&self, kind: Kind, name: &str) -> Option<&Entry> {
        let full = format!("{PREFIX}{name}");
        let name = if name.contains('/') { name } else { &full };
        self.entries
            .iter()
            .find(|entry| entry.kind == kind && entry.name == name)
    }

    /// All plugins, in the order in which actions run.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Forgets those that somebody does not want.
    pub fn retain(&mut self, wanted: impl FnMut(&Entry) -> bool) {
        self.entries.retain(wanted);
    }

    /// What cannot be used.
    #[must_use]
    pub fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }
}

async fn list(program: &Path, settings: &Settings) -> Result<Vec<PluginIdentifier>> {
    let asked = call::once(program, settings, async |connection| {
        let answer = timeout(LIST, connection.unary(auxiliary::LIST, Empty {}));
        match answer.await {
            Ok(answer) => Ok(answer?.plugins),
            Err(_) => Err(Error::Other(format!(
                "plugin {} does not say what it has within {} s",
                program.display(),
                LIST.as_secs()
            ))),
        }
    });
    asked.await
}

/// `vendor.domain/name`
fn check_name(name: &str) -> Result<()> {
    let is_word = |text: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_part = |part: &str| {
            part.starts_with(inner)
                && part.ends_with(inner)
                && part.chars().all(|c| inner(c) || c == '-')
        };
        text.len() <= 253 && text.split('.').all(is_part)
    };
    match name.split_once('/') {
        Some((domain, rest)) if is_word(domain) && !rest.is_empty() && !rest.contains('/') => {
            Ok(())
        }
        _ => Err(Error::Other(format!(
            "{name:?} is not the name of a plugin, which is domain/name"
        ))),
    }
}

/// The programs below a folder, by path, and what looks like one and cannot be run. No folder is no
/// trouble.
fn programs(folder: &Path) -> (Vec<PathBuf>, Vec<Trouble>) {
    let (mut found, mut troubles) = (Vec::new(), Vec::new());
    walk(folder, &mut found, &mut troubles);
    (found, troubles)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>, troubles: &mut Vec<Trouble>) {
    let mut note = |program: &Path, reason: String| {
        troubles.push(Trouble {
            program: program.to_owned(),
            reason,
        });
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => return note(folder, error.to_string()),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        match fs::metadata(&path) {
            Ok(facts) if facts.is_dir() => walk(&path, found, troubles),
            Ok(facts) if facts.permissions().mode() & 0o111 != 0 => found.push(path),
            Ok(_) => troubles.push(Trouble {
                program: path,
                reason: "it is not executable".to_owned(),
            }),
            Err(error) => troubles.push(Trouble {
                program: path,
                reason: error.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_domain() {
        for name in ["velero.io/aws", "example.com/a_B", "x/y"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "aws",
            "/aws",
            "velero.io/",
            "a/b/c",
            "Velero.io/aws",
            "-x.io/a",
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_first_of_a_name_counts_and_odd_kinds_are_named() {
        let mut registry = Registry::default();
        let plugin = |kind: &str, name: &str| PluginIdentifier {
            command: String::new(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        registry.add(
            Path::new("/p/a"),
            vec![plugin("ObjectStore", "velero.io/aws")],
        );
        let second = vec![
            plugin("ObjectStore", "velero.io/aws"),
            plugin("VolumeSnapshotter", "velero.io/aws"),
            plugin("Teapot", "velero.io/tea"),
        ];
        registry.add(Path::new("/p/b"), second);
        let found = registry.find(Kind::ObjectStore, "aws").unwrap();
        assert_eq!(found.program, Path::new("/p/a"));
        assert_eq!(registry.entries().len(), 2);
        let reasons: Vec<&str> = registry.troubles().iter().map(|t| &*t.reason).collect();
        assert!(reasons[0].contains("(command=/p/a)"), "{reasons:?}");
        assert_eq!(reasons[1], "invalid plugin kind: Teapot");
        assert!(registry.find(Kind::ObjectStore, "other.io/aws").is_none());
    }

    #[test]
    fn programs_are_found_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        put("b", 0o755);
        put("a/z", 0o700);
        put("a.txt", 0o644);
        let (found, troubles) = programs(folder.path());
        let names = found
            .iter()
            .map(|path| path.strip_prefix(folder.path()).unwrap());
        assert_eq!(
            names.collect::<Vec<_>>(),
            [Path::new("a/z"), Path::new("b")]
        );
        assert_eq!(troubles.len(), 1);
        assert_eq!(programs(&folder.path().join("none")).0.len(), 0);
    }
}
