//! What it means when restic fails: exit codes of newer versions, texts of older ones.

use crate::Error;

/// How a run went wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault<'a> {
    /// Which command of restic.
    pub(super) command: &'a str,
    /// Its exit code; none when a signal ended it.
    pub(super) code: Option<i32>,
    /// Everything it said.
    pub(super) said: &'a str,
    /// The end of it, in a line.
    pub(super) last_words: &'a str,
    /// The repository, as it may be shown.
    pub(super) repository: &'a str,
    /// The snapshot that the command named.
    pub(super) snapshot: Option<&'a str>,
}

impl Fault<'_> {
    /// What to tell.
    pub(super) fn error(self) -> Error {
        let says = |text: &str| self.said.contains(text);
        let repository = || self.repository.to_owned();
        match self.code {
            Some(10) => return Error::NoRepository(repository()),
            Some(11) => return Error::Locked(self.last_words.to_owned()),
            Some(12) => return Error::WrongPassword(repository()),
            _ => {}
        }
        if says("wrong password or no key found") {
            return Error::WrongPassword(repository());
        }
        if says("repository is already locked") {
            return Error::Locked(self.last_words.to_owned());
        }
        // The question is asked whatever kept restic from the repository: no rights, no network.
        if says("Is there a repository at the following location?")
            && [
                "no such file",
                "does not exist",
                "doesn't exist",
                "not found",
            ]
            .iter()
            .any(|words| says(words))
        {
            return Error::NoRepository(repository());
        }
        if let Some(snapshot) = self.snapshot
            && (says("no matching ID found") || says("multiple IDs with prefix"))
        {
            return Error::NoSnapshot(snapshot.to_owned());
        }
        let command = self.command;
        let end = match self.code {
            Some(code) => format!("restic {command} ended with exit code {code}"),
            None => format!("restic {command} was killed"),
        };
        Error::Program(match self.last_words {
            "" => end,
            words => format!("{end}: {words}"),
        })
    }
}

/// A repository's name without the password that it may hold.
pub(super) fn shown(repository: &str) -> String {
    let Some((scheme, rest)) = repository.split_once("://") else {
        return repository.to_owned();
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    match host.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{host}/{path}"),
        None => repository.to_owned(),
    }
}

/// A text without secrets. Short ones stay: they would be found everywhere.
pub(super) fn hide<'a>(text: &str, secrets: impl Iterator<Item = &'a str>) -> String {
    secrets
        .filter(|secret| secret.len() >= 6)
        .fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(code: Option<i32>, said: &str) -> String {
        let lines: Vec<&str> = said.lines().collect();
        let fault = Fault {
            command: "backup",
            code,
            said,
            last_words: &lines.join("; "),
            repository: "/r",
            snapshot: Some("abc"),
        };
        fault.error().to_string()
    }

    #[test]
    fn codes_and_older_texts_mean_the_same() {
        let absent = "unable to open config file: stat /r/config: no such file or directory\n\
            Is there a repository at the following location?\n/r";
        let denied = "unable to open config file: Stat: Access Denied.\n\
            Is there a repository at the following location?\ns3:h/b";
        let locked =
            "unable to create lock in backend: repository is already locked by PID 7 on vm";
        for (code, said, expected) in [
            (Some(10), "", "there is no repository at /r"),
            (Some(1), absent, "there is no repository at /r"),
            (
                Some(1),
                "unable to open config file: Stat: The specified key does not exist.\n\
                 Is there a repository at the following location?\ns3:h/b",
                "there is no repository at /r",
            ),
            (
                Some(1),
                denied,
                "restic backup ended with exit code 1: unable to open config file: Stat: Access \
                 Denied.; Is there a repository at the following location?; s3:h/b",
            ),
            (Some(12), "x", "wrong password for the repository at /r"),
            (
                Some(1),
                "wrong password or no key found",
                "wrong password for the repository at /r",
            ),
            (
                Some(1),
                "no matching ID found for prefix \"abc\"",
                "no single snapshot abc in the repository",
            ),
            (Some(2), "", "restic backup ended with exit code 2"),
            (None, "out", "restic backup was killed: out"),
        ] {
            assert_eq!(text(code, said), expected);
        }
        for code in [1, 11] {
            let expected = format!("the repository is locked: {locked}");
            assert_eq!(text(Some(code), locked), expected);
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        for (repository, expected) in [
            ("/srv/r", "/srv/r"),
            ("s3:http://h:9000/b/r", "s3:http://h:9000/b/r"),
            ("rest:https://me:hush@h/r/x", "rest:https://h/r/x"),
        ] {
            assert_eq!(shown(repository), expected);
        }
        let secrets = ["", "a", "hush-hush"];
        assert_eq!(
            hide("a key hush-hush is bad", secrets.into_iter()),
            "a key *** is bad"
        );
    }
}
