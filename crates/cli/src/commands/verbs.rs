//! The other word order: `bowline get backups` for `bowline backup get`, and so on. The commands are
//! the same; only their names are found in another way.

use std::{io::Write, process::ExitCode};

use clap::Subcommand;

use super::{backup, location, plugin, restore, schedule, snapshot_location};
use crate::{
    context::Context,
    output::{GetArgs, describe::format::DescribeArgs},
    select::DeleteArgs,
};

/// `bowline create …`.
#[derive(Subcommand)]
pub(crate) enum Create {
    /// Create a backup
    Backup(Box<backup::create::Args>),
    /// Create a restore
    Restore(Box<restore::create::Args>),
    /// Create a schedule
    Schedule(Box<schedule::create::Args>),
    /// Create a backup storage location
    BackupLocation(Box<location::create::Args>),
    /// Create a volume snapshot location
    SnapshotLocation(Box<snapshot_location::create::Args>),
}

/// `bowline get …`.
#[derive(Subcommand)]
pub(crate) enum Get {
    /// Get backups
    #[command(alias = "backup")]
    Backups(GetArgs),
    /// Get restores
    #[command(alias = "restore")]
    Restores(GetArgs),
    /// Get schedules
    #[command(alias = "schedule")]
    Schedules(GetArgs),
    /// Get backup storage locations
    #[command(alias = "backup-location")]
    BackupLocations(location::get::Args),
    /// Get volume snapshot locations
    #[command(alias = "snapshot-location")]
    SnapshotLocations(GetArgs),
    /// Get the plugins of the server
    #[command(alias = "plugin")]
    Plugins(plugin::get::Args),
}

/// `bowline describe …`.
#[derive(Subcommand)]
pub(crate) enum Describe {
    /// Describe backups
    #[command(alias = "backup")]
    Backups(DescribeArgs),
    /// Describe restores
    #[command(alias = "restore")]
    Restores(DescribeArgs),
    /// Describe schedules
    #[command(alias = "schedule")]
    Schedules(schedule::describe::Args),
}

/// `bowline delete …`.
#[derive(Subcommand)]
pub(crate) enum Delete {
    /// Delete backups
    #[command(alias = "backups")]
    Backup(DeleteArgs),
    /// Delete restores
    #[command(alias = "restores")]
    Restore(DeleteArgs),
    /// Delete schedules
    #[command(alias = "schedules")]
    Schedule(DeleteArgs),
    /// Delete backup storage locations
    #[command(alias = "backup-locations")]
    BackupLocation(DeleteArgs),
    /// Delete volume snapshot locations
    #[command(alias = "snapshot-locations")]
    SnapshotLocation(DeleteArgs),
}

pub(crate) async fn create(
    command: Create,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    match command {
        Create::Backup(args) => return backup::create::run(*args, ctx, out).await,
        Create::Restore(args) => return restore::create::run(*args, ctx, out).await,
        Create::Schedule(args) => schedule::create::run(*args, ctx, out).await?,
        Create::BackupLocation(args) => location::create::run(*args, ctx, out).await?,
        Create::SnapshotLocation(args) => snapshot_location::create::run(*args, ctx, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn get(command: Get, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Get::Backups(args) => backup::get::run(args, ctx, out).await,
        Get::Restores(args) => restore::get::run(args, ctx, out).await,
        Get::Schedules(args) => schedule::get::run(args, ctx, out).await,
        Get::BackupLocations(args) => location::get::run(args, ctx, out).await,
        Get::SnapshotLocations(args) => snapshot_location::get::run(args, ctx, out).await,
        Get::Plugins(args) => plugin::get::run(args, ctx, out).await,
    }
}

pub(crate) async fn describe(
    command: Describe,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        Describe::Backups(args) => backup::describe::run(args, ctx, out).await,
        Describe::Restores(args) => restore::describe::run(args, ctx, out).await,
        Describe::Schedules(args) => schedule::describe::run(args, ctx, out).await,
    }
}

pub(crate) async fn delete(
    command: Delete,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        Delete::Backup(args) => backup::delete::run(args, ctx, out).await,
        Delete::Restore(args) => restore::delete::run(args, ctx, out).await,
        Delete::Schedule(args) => schedule::delete::run(args, ctx, out).await,
        Delete::BackupLocation(args) => location::delete::run(args, ctx, out).await,
        Delete::SnapshotLocation(args) => snapshot_location::delete::run(args, ctx, out).await,
    }
}
