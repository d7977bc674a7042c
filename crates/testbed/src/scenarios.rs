//! The promises, one story each.

mod archives;
mod beds;
mod command_lines;
mod conformance;
mod crds;
mod csi;
mod every_volume;
mod exchange;
mod faults;
mod hooks;
mod killed;
mod looking;
mod movement;
mod plugins;
mod pod_volumes;
mod pods;
mod progress;
mod rehearsal;
mod restic_program;
mod snapshots;
mod stores;
mod velero;

use crate::{
    Mode,
    run::{Play, Scenario},
};

const API: &[Mode] = &[Mode::Api];
const NODE: &[Mode] = &[Mode::Node];
/// Whatever needs the API alone plays on our own server too.
const BOTH: &[Mode] = &[Mode::Embedded, Mode::Api];

/// Every scenario, in the order they run.
pub const ALL: &[Scenario] = &[
    on(API, "crds-cover-velero", |scene| {
        Box::pin(crds::cover_velero(scene))
    }),
    on(BOTH, "crds-are-accepted", |scene| {
        Box::pin(crds::are_accepted(scene))
    }),
    on(BOTH, "newer-objects-survive", |scene| {
        Box::pin(crds::newer_objects_survive(scene))
    }),
    on(API, "conformance", |scene| {
        Box::pin(conformance::is_as_recorded(scene))
    }),
    on(API, "beds-side-by-side", |scene| {
        Box::pin(beds::side_by_side(scene))
    }),
    on(BOTH, "velero-as-a-process", |scene| {
        Box::pin(velero::as_a_process(scene))
    }),
    on(&[Mode::Embedded], "backup-faults", |scene| {
        Box::pin(faults::are_survived(scene))
    }),
    on(&[Mode::Embedded], "restore-faults", |scene| {
        Box::pin(faults::restore::are_survived(scene))
    }),
    on(&[Mode::Embedded], "stores-behave", |scene| {
        Box::pin(stores::behave(scene))
    }),
    on(&[Mode::Embedded], "restic-program", |scene| {
        Box::pin(restic_program::copies(scene))
    }),
    on(&[Mode::Embedded], "aws-plugin", |scene| {
        Box::pin(plugins::aws::keeps_a_backup(scene))
    }),
    on(&[Mode::Embedded], "bad-plugins", |scene| {
        Box::pin(plugins::bad::are_survived(scene))
    }),
    on(API, "velero-run-plugins", |scene| {
        Box::pin(plugins::run_plugins::is_a_plugin(scene))
    }),
    on(API, "same-archives", |scene| {
        Box::pin(archives::same(scene))
    }),
    on(API, "restored-four-ways", |scene| {
        Box::pin(exchange::four_ways(scene))
    }),
    on(API, "rehearsals-come-true", |scene| {
        Box::pin(rehearsal::comes_true(scene))
    }),
    on(API, "restore-progress", |scene| {
        Box::pin(progress::is_told(scene))
    }),
    on(API, "velero-cli-on-ours", |scene| {
        Box::pin(command_lines::velero_on_ours(scene))
    }),
    on(API, "our-cli-on-velero", |scene| {
        Box::pin(command_lines::ours_on_velero(scene))
    }),
    on(API, "killed-in-the-middle", |scene| {
        Box::pin(killed::in_the_middle(scene))
    }),
    on(API, "restore-killed", |scene| {
        Box::pin(killed::restore::in_the_middle(scene))
    }),
    on(API, "two-servers", |scene| {
        Box::pin(killed::two_servers(scene))
    }),
    on(BOTH, "native-snapshots", |scene| {
        Box::pin(snapshots::come_back(scene))
    }),
    on(API, "our-plugin-under-velero", |scene| {
        Box::pin(snapshots::under_velero::works(scene))
    }),
    on(API, "snapshots-synced", |scene| {
        Box::pin(snapshots::shared::are_synced(scene))
    }),
    on(BOTH, "snapshots-killed", |scene| {
        Box::pin(snapshots::killed::in_the_middle(scene))
    }),
    on(API, "plain-plugin", |scene| {
        Box::pin(plugins::plain::is_as_good(scene))
    }),
    on(API, "telling-plugin", |scene| {
        Box::pin(plugins::plain::telling::is_heard(scene))
    }),
    on(BOTH, "beside-velero", |scene| {
        Box::pin(killed::beside_velero(scene))
    }),
    on(API, "csi-sanity", |scene| {
        Box::pin(csi::sanity::is_kept(scene))
    }),
    on(API, "csi-works", |scene| Box::pin(csi::works(scene))),
    on(API, "csi-both-ways", |scene| {
        Box::pin(csi::exchange::both_ways(scene))
    }),
    on(API, "csi-killed", |scene| {
        Box::pin(csi::killed::in_the_middle(scene))
    }),
    on(NODE, "pods-run", |scene| Box::pin(pods::run(scene))),
    on(NODE, "csi-in-pods", |scene| {
        Box::pin(csi::pods::work(scene))
    }),
    on(NODE, "data-moves", |scene| {
        Box::pin(movement::comes_back(scene))
    }),
    on(NODE, "moves-killed", |scene| {
        Box::pin(movement::killed::in_the_middle(scene))
    }),
    on(NODE, "moves-canceled", |scene| {
        Box::pin(movement::killed::are_canceled(scene))
    }),
    on(NODE, "moves-die", |scene| {
        Box::pin(movement::places::each(scene))
    }),
    on(NODE, "move-faults", |scene| {
        Box::pin(movement::faults::are_named(scene))
    }),
    on(NODE, "hooks-run-in-pods", |scene| {
        Box::pin(hooks::run_in_pods(scene))
    }),
    on(NODE, "frozen-for-a-moment", |scene| {
        Box::pin(snapshots::frozen::for_a_moment(scene))
    }),
    on(NODE, "every-volume", |scene| {
        Box::pin(every_volume::is_told(scene))
    }),
    on(NODE, "velero-in-the-cluster", |scene| {
        Box::pin(velero::in_the_cluster(scene))
    }),
    on(NODE, "pod-volumes", |scene| {
        Box::pin(pod_volumes::come_back(scene))
    }),
    on(NODE, "both-uploaders", |scene| {
        Box::pin(pod_volumes::uploaders::share(scene))
    }),
    on(NODE, "velero-restores-our-volumes", |scene| {
        Box::pin(pod_volumes::velero::restores_ours(scene))
    }),
    on(NODE, "restic-era", |scene| {
        Box::pin(pod_volumes::era::is_restored(scene))
    }),
    on(NODE, "volumes-killed", |scene| {
        Box::pin(pod_volumes::killed::in_the_middle(scene))
    }),
    on(NODE, "volume-faults", |scene| {
        Box::pin(pod_volumes::faults::are_named(scene))
    }),
];

const fn on(modes: &'static [Mode], name: &'static str, play: Play) -> Scenario {
    Scenario {
        name,
        on: modes,
        play,
    }
}
