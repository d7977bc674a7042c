//! `bowline version`: ours, and the server's if it answers.

use std::io::Write;

use bowline_api::Duration;

use crate::{context::Context, flags, server_status};

/// The Velero whose language we speak; its servers are as good as ours.
const SPOKEN: &str = "v1.18.3";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long to wait for the server to answer
    #[arg(long, default_value = "5s", value_parser = flags::span, value_name = "DURATION")]
    timeout: Duration,

    /// Do not ask the server
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    client_only: bool,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = match args.client_only {
        true => None,
        false => Some(ctx.client().await?),
    };
    let ours = concat!("v", env!("CARGO_PKG_VERSION"));
    let commit = option_env!("BOWLINE_GIT_COMMIT").unwrap_or("-");
    writeln!(out, "Client:\n\tVersion: {ours}\n\tGit commit: {commit}")?;
    let Some(client) = client else {
        return Ok(());
    };
    let timeout = args.timeout.to_std().map_err(Clone::clone)?;
    match server_status::ask(client, &ctx.namespace, timeout).await {
        Ok(answer) => {
            let theirs = answer.status.unwrap_or_default().server_version;
            let theirs = theirs.unwrap_or_default();
            writeln!(out, "Server:\n\tVersion: {theirs}")?;
            if let Some(outdated) = outdated(ours, &theirs) {
                writeln!(
                    out,
                    "# WARNING: the client version does not match the server version. Please \
                     update {outdated}"
                )?;
            }
        }
        Err(error) => writeln!(out, "<error getting server version: {error:#}>")?,
    }
    Ok(())
}

/// Which side is older, if they do not belong together.
fn outdated(ours: &str, theirs: &str) -> Option<&'static str> {
    let major_minor = |version: &str| -> Option<(u64, u64)> {
        let mut parts = version.strip_prefix('v')?.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let (ours, theirs, spoken) = (major_minor(ours), major_minor(theirs), major_minor(SPOKEN));
    if theirs == ours || theirs == spoken {
        return None;
    }
    match ours > theirs {
        true => Some("server"),
        false => Some("client"),
    }
}

#[cfg(test)]
mod tests {
    use super::outdated;

    #[test]
    fn servers_of_our_version_and_of_the_velero_we_speak_are_current() {
        for (theirs, wanted) in [
            ("v0.2.9", None),
            ("v1.18.0", None),
            ("v0.1.0", Some("server")),
            ("v1.19.0", Some("client")),
            ("main", Some("server")),
        ] {
            assert_eq!(outdated("v0.2.0", theirs), wanted, "{theirs}");
        }
    }
}
