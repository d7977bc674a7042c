//! Movements of the data of CSI snapshots, into the bucket and back. What Velero tells of them comes from
//! the bucket's file, when they are over; this is what they are doing.

use bowline_api::{
    names::DATA_MOVER,
    v1::{DataMoveProgress, DataPathPhase},
    v2alpha1::{DataDownload, DataUpload},
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::live::Live;
use crate::output::pace::{State, Transfer};

/// The movement of one snapshot's data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Movement {
    /// `namespace/name` of the claim.
    claim: String,
    /// What its object is, for people and for programs, and the object's name.
    kind: (&'static str, &'static str),
    name: String,
    mover: String,
    /// The node that does it; empty while not known.
    pub(crate) node: String,
    pub(crate) phase: DataPathPhase,
    message: String,
    started: Option<Timestamp>,
    done: i64,
    /// Zero while not known.
    total: i64,
}

impl From<&DataUpload> for Movement {
    fn from(object: &DataUpload) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        let progress = status.progress.unwrap_or_default();
        Self {
            claim: format!("{}/{}", spec.source_namespace, spec.source_pvc),
            kind: ("Data Upload", "dataUpload"),
            name: object.name_any(),
            mover: mover(spec.datamover.as_deref()),
            node: status.node.unwrap_or_default(),
            phase: or_new(status.phase),
            message: status.message.unwrap_or_default(),
            started: status.start_timestamp.map(|time| time.0),
            done: progress.bytes_done.unwrap_or_default(),
            total: total(&progress, None),
        }
    }
}

impl From<&DataDownload> for Movement {
    fn from(object: &DataDownload) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        let (target, progress) = (&spec.target_volume, status.progress.unwrap_or_default());
        Self {
            claim: format!("{}/{}", target.namespace, target.pvc),
            kind: ("Data Download", "dataDownload"),
            name: object.name_any(),
            mover: mover(spec.datamover.as_deref()),
            node: status.node.unwrap_or_default(),
            phase: or_new(status.phase),
            message: status.message.unwrap_or_default(),
            started: status.start_timestamp.map(|time| time.0),
            done: progress.bytes_done.unwrap_or_default(),
            total: total(&progress, spec.snapshot_size),
        }
    }
}

/// Who moves data, as people know it.
pub(crate) fn mover(name: Option<&str>) -> String {
    let name = name.filter(|name| !name.is_empty());
    name.unwrap_or(DATA_MOVER).to_owned()
}

fn or_new(phase: Option<DataPathPhase>) -> DataPathPhase {
    let known = phase.filter(|phase| !phase.as_str().is_empty());
    known.unwrap_or(DataPathPhase::New)
}

/// Bytes in all; before it begins, those of the snapshot.
fn total(progress: &DataMoveProgress, snapshot: Option<i64>) -> i64 {
    let told = progress.total_bytes.filter(|bytes| *bytes > 0);
    told.or(snapshot).unwrap_or_default()
}

/// Those that Velero's words do not tell of: all while the work goes on; later those that did not come
/// to a good end.
pub(crate) fn worth_telling(mut movements: Vec<Movement>, is_over: bool) -> Vec<Movement> {
    movements.retain(|movement| !is_over || movement.phase != DataPathPhase::Completed);
    movements
}

impl Live for Movement {
    fn label(&self) -> &str {
        &self.claim
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn phase(&self) -> &str {
        self.phase.as_str()
    }

    fn message(&self) -> &str {
        &self.message
    }

    fn transfer(&self) -> Transfer {
        Transfer {
            label: self.claim.clone(),
            state: match &self.phase {
                DataPathPhase::InProgress => State::Moving,
                phase if phase.is_over() => State::Over,
                _ => State::Waiting,
            },
            done: self.done,
            total: self.total,
            since: self.started,
        }
    }

    fn facts(&self) -> Vec<(&str, &str)> {
        let mut facts = vec![
            (self.kind.0, self.name.as_str()),
            ("Data Mover", &self.mover),
        ];
        if !self.node.is_empty() {
            facts.push(("Node", &self.node));
        }
        facts
    }

    fn keys(&self) -> Map<String, Value> {
        let mut keys = Map::from_iter([
            ("claim".to_owned(), json!(self.claim)),
            (self.kind.1.to_owned(), json!(self.name)),
            ("dataMover".to_owned(), json!(self.mover)),
        ]);
        if !self.node.is_empty() {
            keys.insert("node".to_owned(), json!(self.node));
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::output::{
        describe::{
            Colour, Describer,
            live::{structured, text},
        },
        time::Clock,
    };

    const MIB: i64 = 1024 * 1024;

    fn clock() -> Clock {
        Clock {
            now: "2026-11-15T03:30:00Z".parse().unwrap(),
            zone: TimeZone::UTC,
        }
    }

    fn upload(claim: &str, mover: &str, status: Value) -> Movement {
        let object: DataUpload = serde_json::from_value(json!({
            "metadata": {"name": format!("b-{claim}")},
            "spec": {"sourceNamespace": "shop", "sourcePVC": claim, "datamover": mover},
            "status": status,
        }))
        .unwrap();
        Movement::from(&object)
    }

    fn some() -> Vec<Movement> {
        let moving = |done: i64| {
            json!({
                "phase": "InProgress", "node": "n1", "startTimestamp": "2026-11-15T03:29:50Z",
                "progress": {"totalBytes": 300 * MIB, "bytesDone": done},
            })
        };
        vec![
            upload("new", "bowline", json!(null)),
            upload(
                "waits",
                "bowline",
                json!({"phase": "Prepared", "node": "n2"}),
            ),
            upload("fast", "bowline", moving(100 * MIB)),
            upload("slow", "bowline", moving(50 * MIB)),
            upload(
                "lost",
                "",
                json!({"phase": "Failed", "node": "n1", "message": "data path backup failed: no room\nat all"}),
            ),
            upload(
                "done",
                "bowline",
                json!({"phase": "Completed", "node": "n1", "progress": {"totalBytes": MIB, "bytesDone": MIB}}),
            ),
        ]
    }

    fn described(movements: &[Movement], details: bool) -> String {
        let clock = clock();
        let mut d = Describer::new(Colour::Off, &clock);
        text(&mut d, 1, "Data Uploads", movements, details);
        d.finish()
    }

    #[test]
    fn without_details_phases_are_counted_and_those_under_way_added_up() {
        assert_eq!(
            described(&some(), false),
            "  Data Uploads (specify --details for more information):\n\
             \x20   Completed:    1\n\
             \x20   Failed:       1\n\
             \x20   In Progress:  2 (25.00%) [150.00 MiB of 600.00 MiB, 15.00 MiB/s, 30s left]\n\
             \x20   Prepared:     1\n\
             \x20   New:          1\n"
        );
    }

    #[test]
    fn with_details_each_is_told() {
        assert_eq!(
            described(&some()[1..5], true),
            "  Data Uploads:\n\
             \x20   shop/fast:\n\
             \x20     Data Upload:  b-fast\n\
             \x20     Data Mover:   bowline\n\
             \x20     Node:         n1\n\
             \x20     Phase:        InProgress\n\
             \x20     Progress:     33.33% (100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left)\n\
             \x20   shop/lost:\n\
             \x20     Data Upload:  b-lost\n\
             \x20     Data Mover:   velero\n\
             \x20     Node:         n1\n\
             \x20     Phase:        Failed\n\
             \x20     Message:      data path backup failed: no room\n\
             \x20   shop/slow:\n\
             \x20     Data Upload:  b-slow\n\
             \x20     Data Mover:   bowline\n\
             \x20     Node:         n1\n\
             \x20     Phase:        InProgress\n\
             \x20     Progress:     16.67% (50.00 MiB of 300.00 MiB, 5.00 MiB/s, 50s left)\n\
             \x20   shop/waits:\n\
             \x20     Data Upload:  b-waits\n\
             \x20     Data Mover:   bowline\n\
             \x20     Node:         n2\n\
             \x20     Phase:        Prepared\n"
        );
    }

    #[test]
    fn programs_get_numbers() {
        let movements = &some()[..3];
        let now = clock().now;
        assert_eq!(
            structured(movements, false, now),
            json!({"phases": {"New": 1, "Prepared": 1, "In Progress": 1}})
        );
        assert_eq!(
            structured(movements, true, now)["volumes"][0],
            json!({
                "claim": "shop/fast", "dataUpload": "b-fast", "dataMover": "bowline", "node": "n1",
                "phase": "InProgress", "bytesDone": 100 * MIB, "totalBytes": 300 * MIB,
                "percentage": 33.33, "bytesPerSecond": 10 * MIB, "secondsLeft": 20,
            })
        );
        assert_eq!(
            structured(movements, true, now)["volumes"][1],
            json!({
                "claim": "shop/new", "dataUpload": "b-new", "dataMover": "bowline",
                "phase": "New", "bytesDone": 0, "totalBytes": 0,
            })
        );
    }

    #[test]
    fn a_download_is_as_large_as_its_snapshot_until_it_begins() {
        let of = |status: Value| {
            let object: DataDownload = serde_json::from_value(json!({
                "metadata": {"name": "r-1"},
                "spec": {
                    "targetVolume": {"namespace": "shop-2", "pvc": "data", "pv": ""},
                    "datamover": "bowline", "snapshotID": "s", "snapshotSize": 300,
                },
                "status": status,
            }))
            .unwrap();
            let transfer = Movement::from(&object).transfer();
            (
                transfer.label,
                transfer.state,
                transfer.done,
                transfer.total,
            )
        };
        let claim = "shop-2/data".to_owned();
        for (status, state, done, total) in [
            (json!(null), State::Waiting, 0, 300),
            (json!({"phase": "Accepted"}), State::Waiting, 0, 300),
            (
                json!({"phase": "InProgress", "progress": {}}),
                State::Moving,
                0,
                300,
            ),
            (
                json!({"phase": "InProgress", "progress": {"totalBytes": 400, "bytesDone": 7}}),
                State::Moving,
                7,
                400,
            ),
            (json!({"phase": "Canceled"}), State::Over, 0, 300),
        ] {
            assert_eq!(of(status), (claim.clone(), state, done, total));
        }
    }

    #[test]
    fn when_the_work_is_over_only_troubles_are_told() {
        let names = |is_over: bool| -> Vec<String> {
            let told = worth_telling(some(), is_over);
            told.into_iter().map(|movement| movement.claim).collect()
        };
        assert_eq!(names(false).len(), 6);
        let left = ["new", "waits", "fast", "slow", "lost"];
        assert_eq!(names(true), left.map(|claim| format!("shop/{claim}")));
    }
}
