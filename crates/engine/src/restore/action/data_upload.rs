//! `velero.io/dataupload`: a DataUpload says where the data of a claim is, and is read with that; it is
//! not restored itself.

use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Change, Executed};
use crate::{action::Refused, movement::UPLOADS};

pub(super) const ACTION: Change = Change {
    name: "velero.io/dataupload",
    kinds: &[UPLOADS],
    concerns: |_| true,
    change,
};

fn change(object: Value, _: &Value, _: &Restore) -> Result<Executed, Refused> {
    Ok(Executed {
        object,
        skip: true,
        ..Executed::default()
    })
}
