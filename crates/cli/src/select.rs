//! Which objects a command is about: by name, by label, or all.

use std::{
    fmt::Debug,
    io::{self, BufRead, Write},
};

use anyhow::{bail, ensure};
use bowline_api::VeleroResource;
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client,
    api::{ListParams, ObjectList},
};

use crate::{
    cluster::{Plain, all_or_error, is_not_found},
    context::Context,
    flags::{
        self,
        selector::{Selector, to_query},
    },
    say,
};

/// Names, or else a selector, or else everything; for commands that only look.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Shown {
    /// Names; without any, all
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Only those that this label selector matches
    #[arg(short = 'l', long)]
    pub(crate) selector: Option<Selector>,
}

/// Names, a selector, or `--all`, exactly one of them; for commands that change things.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Chosen {
    /// Names
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// All there are
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    all: bool,

    /// Those that this label selector matches
    #[arg(short = 'l', long)]
    selector: Option<Selector>,
}

/// What every kind of ours is.
pub(crate) trait Kind:
    VeleroResource + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + Debug
{
}

impl<K> Kind for K where
    K: VeleroResource + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + Debug
{
}

/// Objects, and the revision of their list if it was one.
pub(crate) struct Found<K> {
    /// The objects.
    pub(crate) objects: Vec<K>,
    /// The list's revision.
    pub(crate) resource_version: Option<String>,
}

impl Shown {
    /// The objects; the first name that does not exist is an error.
    pub(crate) async fn find<K: Kind>(
        &self,
        client: &Client,
        namespace: &str,
    ) -> anyhow::Result<Found<K>> {
        self.find_in(&Api::namespaced(client.clone(), namespace), None)
            .await
    }

    /// The same, but without names from all namespaces, which is how schedules are listed.
    pub(crate) async fn find_anywhere<K: Kind>(
        &self,
        client: &Client,
        namespace: &str,
    ) -> anyhow::Result<Found<K>> {
        let everywhere = Api::all(client.clone());
        self.find_in(
            &Api::namespaced(client.clone(), namespace),
            Some(&everywhere),
        )
        .await
    }

    async fn find_in<K: Kind>(
        &self,
        named: &Api<K>,
        listed: Option<&Api<K>>,
    ) -> anyhow::Result<Found<K>> {
        if self.names.is_empty() {
            let all = list(listed.unwrap_or(named), self.selector.as_ref()).await?;
            return Ok(Found {
                objects: all.items,
                resource_version: all.metadata.resource_version,
            });
        }
        let mut objects = Vec::new();
        for name in &self.names {
            ensure!(!name.is_empty(), "resource name may not be empty");
            objects.push(named.get(name).await.plain()?);
        }
        Ok(Found {
            objects,
            resource_version: None,
        })
    }
}

impl Chosen {
    /// Whether exactly one way of choosing was used.
    pub(crate) fn check(&self, kind: &str) -> anyhow::Result<()> {
        let ways = [!self.names.is_empty(), self.all, self.selector.is_some()];
        if ways.iter().filter(|used| **used).count() != 1 {
            bail!(
                "you must specify exactly one of: specific {kind} name(s), the --all flag, \
                 or the --selector flag"
            );
        }
        let has_names = self.names.iter().all(|name| !name.is_empty());
        ensure!(has_names, "resource name may not be empty");
        Ok(())
    }

    /// The objects, and what became of names that were not found.
    pub(crate) async fn find<K: Kind>(
        &self,
        client: &Client,
        namespace: &str,
    ) -> anyhow::Result<(Vec<K>, Vec<anyhow::Error>)> {
        let api: Api<K> = Api::namespaced(client.clone(), namespace);
        if self.names.is_empty() {
            let all = list(&api, self.selector.as_ref()).await?;
            return Ok((all.items, Vec::new()));
        }
        let (mut objects, mut errors) = (Vec::new(), Vec::new());
        for name in &self.names {
            match api.get(name).await.plain() {
                Ok(object) => objects.push(object),
                Err(error) => errors.push(error),
            }
        }
        Ok((objects, errors))
    }
}

/// Objects with these labels. That they cannot be had is worth a word, not the end.
pub(crate) async fn labelled<K: Kind>(
    ctx: &Context,
    client: &Client,
    labels: &str,
    what: &str,
) -> Vec<K> {
    let api: Api<K> = Api::namespaced(client.clone(), &ctx.namespace);
    let params = ListParams::default().labels(labels);
    match api.list(&params).await {
        Ok(list) => list.items,
        // A cluster without the kind has no objects of it.
        Err(error) if is_not_found(&error) => Vec::new(),
        failed => {
            if let Err(error) = failed.plain() {
                say(&format!("error getting {what}: {error:#}"));
            }
            Vec::new()
        }
    }
}

async fn list<K: Kind>(api: &Api<K>, selector: Option<&Selector>) -> anyhow::Result<ObjectList<K>> {
    let mut params = ListParams::default();
    if let Some(selector) = selector {
        params = params.labels(&to_query(&selector.0));
    }
    api.list(&params).await.plain()
}

/// The flags of `delete`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    chosen: Chosen,

    /// Do not ask
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    confirm: bool,
}

impl DeleteArgs {
    /// Asks if need be, then finds what to delete. Nothing at all if the answer is no; a word about
    /// it if there is nothing to delete.
    pub(crate) async fn confirmed<K: Kind>(
        &self,
        kind: &str,
        ctx: &Context,
        client: &Client,
        out: &mut dyn Write,
    ) -> anyhow::Result<(Vec<K>, Vec<anyhow::Error>)> {
        let Some((objects, errors)) = self.asked(kind, ctx, client, out).await? else {
            return Ok((Vec::new(), Vec::new()));
        };
        if objects.is_empty() {
            writeln!(out, "No {kind}s found")?;
            return Ok((Vec::new(), Vec::new()));
        }
        Ok((objects, errors))
    }

    /// The same, but a name that is not found is an error, before anything is deleted.
    pub(crate) async fn confirmed_and_found<K: Kind>(
        &self,
        kind: &str,
        ctx: &Context,
        client: &Client,
        out: &mut dyn Write,
    ) -> anyhow::Result<Vec<K>> {
        let Some((objects, errors)) = self.asked(kind, ctx, client, out).await? else {
            return Ok(Vec::new());
        };
        all_or_error(errors)?;
        if objects.is_empty() {
            writeln!(out, "No {kind}s found")?;
        }
        Ok(objects)
    }

    /// What was found, and what was not; nothing at all if the answer is no.
    async fn asked<K: Kind>(
        &self,
        kind: &str,
        ctx: &Context,
        client: &Client,
        out: &mut dyn Write,
    ) -> anyhow::Result<Option<(Vec<K>, Vec<anyhow::Error>)>> {
        self.chosen.check(kind)?;
        if !self.confirm && !ask("", out, &mut io::stdin().lock())? {
            return Ok(None);
        }
        let found = self.chosen.find(client, &ctx.namespace).await?;
        Ok(Some(found))
    }
}

/// Asks until the answer is yes or no, each time with a warning. No answer is a no.
pub(crate) fn ask(
    warning: &str,
    out: &mut dyn Write,
    answers: &mut dyn BufRead,
) -> anyhow::Result<bool> {
    loop {
        write!(out, "{warning}Are you sure you want to continue (Y/N)? ")?;
        out.flush()?;
        let mut answer = String::new();
        match answers.read_line(&mut answer) {
            Ok(_) if answer.ends_with('\n') => {}
            Ok(_) => {
                say("error reading user input: EOF");
                return Ok(false);
            }
            Err(error) => {
                say(&format!("error reading user input: {error}"));
                return Ok(false);
            }
        }
        match answer.trim() {
            "y" | "Y" => return Ok(true),
            "n" | "N" => return Ok(false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_repeated_until_it_is_answered() {
        const QUESTION: &str = "Are you sure you want to continue (Y/N)? ";
        for (answers, wanted, asked) in [
            ("y\n", true, 1),
            ("Y\n", true, 1),
            ("maybe\nn\n", false, 2),
            ("", false, 1),
            ("y", false, 1),
        ] {
            let mut out = Vec::new();
            let answer = ask("", &mut out, &mut answers.as_bytes()).unwrap();
            assert_eq!(answer, wanted, "{answers:?}");
            assert_eq!(String::from_utf8(out).unwrap(), QUESTION.repeat(asked));
        }
    }

    #[test]
    fn exactly_one_way_to_choose() {
        let names = Chosen {
            names: vec!["a".to_owned()],
            ..Default::default()
        };
        let all = Chosen {
            all: true,
            ..Default::default()
        };
        let both = Chosen {
            all: true,
            ..names.clone()
        };
        assert!(names.check("backup").is_ok());
        assert!(all.check("backup").is_ok());
        assert_eq!(
            both.check("backup").unwrap_err().to_string(),
            "you must specify exactly one of: specific backup name(s), the --all flag, or the --selector flag"
        );
        assert!(Chosen::default().check("backup").is_err());
    }
}
