//! `bowline completion`: scripts that complete commands in a shell.

use std::io::Write;

use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// bash, zsh or fish
    #[arg(value_parser = shell)]
    shell: Shell,
}

fn shell(name: &str) -> Result<Shell, String> {
    match name {
        "bash" => Ok(Shell::Bash),
        "zsh" => Ok(Shell::Zsh),
        "fish" => Ok(Shell::Fish),
        _ => Err("Invalid shell specified, specify bash, zsh, or fish".to_owned()),
    }
}

pub(crate) fn run(
    args: &Args,
    mut program: clap::Command,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "bowline", &mut script);
    out.write_all(&script)?;
    Ok(())
}
