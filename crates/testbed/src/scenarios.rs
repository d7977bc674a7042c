//! The promises, one story each.

mod beds;
mod crds;
mod pods;
mod velero;

use crate::{
    Mode,
    run::{Play, Scenario},
};

/// Every scenario, in the order they run.
pub const ALL: &[Scenario] = &[
    api("crds-cover-velero", |scene| {
        Box::pin(crds::cover_velero(scene))
    }),
    api("crds-are-accepted", |scene| {
        Box::pin(crds::are_accepted(scene))
    }),
    api("newer-objects-survive", |scene| {
        Box::pin(crds::newer_objects_survive(scene))
    }),
    api("beds-side-by-side", |scene| {
        Box::pin(beds::side_by_side(scene))
    }),
    api("velero-as-a-process", |scene| {
        Box::pin(velero::as_a_process(scene))
    }),
    node("pods-run", |scene| Box::pin(pods::run(scene))),
    node("velero-in-the-cluster", |scene| {
        Box::pin(velero::in_the_cluster(scene))
    }),
];

const fn api(name: &'static str, play: Play) -> Scenario {
    Scenario {
        name,
        on: Mode::Api,
        play,
    }
}

const fn node(name: &'static str, play: Play) -> Scenario {
    Scenario {
        name,
        on: Mode::Node,
        play,
    }
}
