//! The bad days: what goes wrong, and how a restore has to end.

use std::time::Duration;

use bowline_api::files::backup_suffix;
use bowline_apiserver::{Fault, Rule, When};
use http::Method;
use tar::EntryType;

use super::super::{
    archives::{self, File, file, map},
    stage::on,
};
use crate::proxy::{self, Mishap};

/// ConfigMaps in the backup.
pub(super) const MAPS: usize = 61;
const QUOTA: &str = "configmaps \"m\" is forbidden: exceeded quota: objects, requested: count/configmaps=1, used: count/configmaps=4, limited: count/configmaps=4";
const DENIED: &str =
    "admission webhook \"policy.example.com\" denied the request: secrets are not welcome here";
const INVALID: &str = "Secret \"key\" is invalid: data: Invalid value: \"v\": too short";

/// How a restore has to end.
pub(super) enum End {
    /// As if nothing had happened.
    Completed,
    /// With so many ConfigMaps, and an error that contains this.
    Partly(usize, &'static str),
    /// With this in the reason, and nothing touched.
    Failed(&'static str),
    /// With all objects, and this in the reason.
    Untold(&'static str),
}

/// What is done to a copy of the backup before it is restored.
pub(super) enum Spoilt {
    /// Another archive.
    Archive(Vec<u8>),
    /// The archive's first so many bytes.
    Cut(usize),
    /// A file is not there.
    Without(&'static str),
    /// A file is something else.
    Other(&'static str, Vec<u8>),
    /// The backup says that it is of another format.
    Format(&'static str),
}

/// Days of the API server.
pub(super) fn of_the_api() -> Vec<(&'static str, Vec<Rule>, End)> {
    let create = |kind: &str, when, fault| vec![on(Method::POST, kind, when, fault)];
    let maps = |when, fault| create("/configmaps", when, fault);
    let secrets = |fault| create("/secrets", When::Always, fault);
    let late = Fault::Delay(Duration::from_millis(700));
    let patches = |kind: &str, fault| vec![on(Method::PATCH, kind, When::First(2), fault)];
    let all_but_the_secret = |text| End::Partly(MAPS, text);
    vec![
        (
            "throttled",
            maps(When::First(20), Fault::Throttle(1)),
            End::Completed,
        ),
        (
            "unavailable",
            maps(When::First(20), Fault::Status(503)),
            End::Completed,
        ),
        (
            "stumbling",
            maps(When::First(3), Fault::Status(500)),
            End::Completed,
        ),
        ("slow", maps(When::First(40), late), End::Completed),
        (
            "lost answers",
            maps(When::First(5), Fault::Lost),
            End::Completed,
        ),
        (
            "cut answers",
            maps(When::First(5), Fault::Cut(40)),
            End::Completed,
        ),
        // The first of all requests that create something.
        (
            "a lost namespace",
            create("/api/v1/namespaces", When::First(1), Fault::Lost),
            End::Completed,
        ),
        (
            "lost patches",
            patches("/configmaps/", Fault::Lost),
            End::Completed,
        ),
        (
            "lost phases",
            patches("/restores/", Fault::Lost),
            End::Completed,
        ),
        (
            "phases with 500",
            patches("/restores/", Fault::Status(500)),
            End::Completed,
        ),
        (
            "a bad day all over",
            vec![
                on(Method::GET, "", When::OneIn(4), Fault::Status(503)),
                on(Method::POST, "/api/v1/", When::OneIn(4), Fault::Status(503)),
                on(Method::POST, "/api/v1/", When::OneIn(8), Fault::Lost),
            ],
            End::Completed,
        ),
        (
            "a kind that is always down",
            secrets(Fault::Status(503)),
            all_but_the_secret("/key: injected fault: ServiceUnavailable"),
        ),
        (
            "a kind that always fails",
            secrets(Fault::Status(500)),
            all_but_the_secret("/key: injected fault: InternalError"),
        ),
        (
            "a webhook's no",
            secrets(Fault::Refuse(403, DENIED)),
            all_but_the_secret(DENIED),
        ),
        (
            "an invalid object",
            secrets(Fault::Refuse(422, INVALID)),
            all_but_the_secret(INVALID),
        ),
        (
            "a full quota",
            maps(When::After(4), Fault::Refuse(403, QUOTA)),
            End::Partly(4, QUOTA),
        ),
    ]
}

/// Days of the store.
pub(super) fn of_the_store() -> Vec<(&'static str, Vec<proxy::Rule>, End)> {
    let rule = |on, times, mishap| vec![proxy::Rule { on, times, mishap }];
    let get = |times, mishap| rule(".tar.gz", times, mishap);
    let always = usize::MAX / 2;
    vec![
        (
            "slow down",
            get(3, Mishap::Refuse(503, "SlowDown")),
            End::Completed,
        ),
        (
            "a cut download",
            get(1, Mishap::CutAnswer(2000)),
            End::Completed,
        ),
        (
            "a download that never begins",
            get(always, Mishap::CutAnswer(10)),
            End::Failed("error downloading backup: get backups/"),
        ),
        (
            "no right to read",
            get(always, Mishap::Refuse(403, "AccessDenied")),
            End::Failed("AccessDenied"),
        ),
        (
            "results that are refused at first",
            rule("-results.gz", 2, Mishap::Refuse(503, "SlowDown")),
            End::Completed,
        ),
        (
            "no right to write",
            rule("PUT /", always, Mishap::Refuse(403, "AccessDenied")),
            End::Untold("its files are not in the bucket: put restores/"),
        ),
    ]
}

/// Days of what is in the bucket.
pub(super) fn of_the_bucket() -> anyhow::Result<Vec<(&'static str, Spoilt, End)>> {
    let hostile = |path, kind| {
        let body = map("evil").to_string().into_bytes();
        let body = if kind == EntryType::Regular {
            body
        } else {
            Vec::new()
        };
        archives::with(&[File { path, kind, body }]).map(Spoilt::Archive)
    };
    let regular = EntryType::Regular;
    let m0 = "resources/configmaps/namespaces/shop/m0.json";
    let broken = "resources/configmaps/namespaces/shop/broken.json";
    Ok(vec![
        (
            "no archive",
            Spoilt::Without(backup_suffix::CONTENTS),
            End::Failed(".tar.gz not found"),
        ),
        (
            "no volume info",
            Spoilt::Without(backup_suffix::VOLUME_INFO),
            End::Completed,
        ),
        (
            "a bad volume info",
            Spoilt::Other(backup_suffix::VOLUME_INFO, b"nonsense".to_vec()),
            End::Failed("error fetching volume info: "),
        ),
        (
            "an absolute path",
            hostile("/etc/cron.d/evil", regular)?,
            End::Failed("\"/etc/cron.d/evil\": the path is absolute"),
        ),
        (
            "a path upwards",
            hostile("resources/../../etc/evil", regular)?,
            End::Failed("\"resources/../../etc/evil\": the path leaves the archive"),
        ),
        (
            "a link",
            hostile(
                "resources/configmaps/namespaces/shop/link.json",
                EntryType::Symlink,
            )?,
            End::Failed("link.json\": is a link, which no backup holds"),
        ),
        (
            "an entry twice",
            hostile(m0, regular)?,
            End::Failed("m0.json\": is there twice"),
        ),
        (
            "half an archive",
            Spoilt::Cut(2000),
            End::Failed("the gzip stream is cut short"),
        ),
        (
            "an encrypted archive",
            Spoilt::Archive(b"age-encryption.org/v1\n-> X25519 abc\n".repeat(50)),
            End::Failed("not gzip, or damaged"),
        ),
        (
            "a giant",
            Spoilt::Archive(archives::giant()?),
            End::Failed("giant.json\": has 68157440 bytes, more than the limit of 67108864"),
        ),
        (
            "a bomb",
            Spoilt::Archive(archives::bomb()?),
            End::Failed("unpacks to more than 500 times its size"),
        ),
        (
            "bad JSON",
            Spoilt::Archive(archives::with(&[file(broken, "{\"kind\": ")])?),
            End::Partly(
                1,
                "error decoding \"resources/configmaps/namespaces/shop/broken.json\": EOF while parsing",
            ),
        ),
        (
            "a format to come",
            Spoilt::Format("2.0.0"),
            End::Failed("the backup has format version 2.0.0, and only 1 can be read"),
        ),
    ])
}
