//! `velero.io/init-restore-hook`: init containers of hooks go before those that a pod has.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Executed, RestoreItemAction, pod::PODS};
use crate::{action::Refused, restore::hooks::SpecHooks};

pub(super) struct Action(Arc<SpecHooks>);

impl Action {
    pub(super) fn new(hooks: Arc<SpecHooks>) -> Self {
        Self(hooks)
    }
}

#[async_trait]
impl RestoreItemAction for Action {
    fn name(&self) -> &str {
        "velero.io/init-restore-hook"
    }

    fn applies_to(&self, kind: &str, pod: &Value) -> bool {
        kind == PODS && self.0.may_have_init(pod)
    }

    async fn execute(
        &self,
        mut object: Value,
        _: &Value,
        restore: &Restore,
    ) -> Result<Executed, Refused> {
        self.0.add_init(&mut object, restore).map_err(Refused)?;
        Ok(object.into())
    }
}
