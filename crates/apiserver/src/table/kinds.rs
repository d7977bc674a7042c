//! The columns of the built-in resources, one table: what each is called, its
//! type, whether only `-o wide` shows it, and where its value comes from.
//!
//! Values that take more than one field of the object are in `calc`.

use super::calc::{self, NONE, UNSET};
use super::pods::{self, Pod};
use super::{UNKNOWN, network, since};
use Cell::{
    Bool, Count, Each, Filled, Int, Json, Labels, Now, Or, Selector, Since, String as Calc, Text,
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A column of a built-in resource.
#[derive(Debug)]
pub(crate) struct Field {
    /// Empty for a cell the real server sends without a column.
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) format: &'static str,
    pub(super) priority: i64,
    pub(super) cell: Cell,
}

/// Where a cell's value comes from; places are JSON pointers.
#[derive(Debug)]
pub(super) enum Cell {
    /// The text there, or nothing.
    Text(&'static str),
    /// The text there, or this when nothing is set.
    Or(&'static str, &'static str),
    /// The text there, or this when it is empty.
    Filled(&'static str, &'static str),
    Int(&'static str),
    Bool(&'static str, bool),
    /// How many entries the list or map has.
    Count(&'static str),
    Since(&'static str),
    /// What the containers, a list, are called.
    Each(&'static str, &'static str),
    Labels(&'static str),
    Selector(&'static str),
    String(fn(&Value) -> String),
    Now(fn(&Value, Timestamp) -> String),
    Json(fn(&Value) -> Value),
}

impl Cell {
    pub(super) fn show(&self, object: &Value, now: Timestamp) -> Value {
        match self {
            Text(place) => json!(text(object, place)),
            Or(place, missing) => match at(object, place) {
                Some(value) => json!(plain(value)),
                None => json!(missing),
            },
            Filled(place, missing) => match text(object, place) {
                empty if empty.is_empty() => json!(missing),
                value => json!(value),
            },
            Int(place) => json!(int(object, place)),
            Bool(place, missing) => {
                json!(
                    at(object, place)
                        .and_then(Value::as_bool)
                        .unwrap_or(*missing)
                )
            }
            Count(place) => json!(count(object, place)),
            Since(place) => json!(age(object, place, now)),
            Each(place, key) => json!(join(items(object, place), key, ",")),
            Labels(place) => json!(calc::labels(object, place)),
            Selector(place) => json!(calc::selector(object, place, NONE, "<error>")),
            Calc(value) => json!(value(object)),
            Now(value) => json!(value(object, now)),
            Json(value) => value(object),
        }
    }
}

/// What is there, unless null.
pub(super) fn at<'a>(object: &'a Value, place: &str) -> Option<&'a Value> {
    object.pointer(place).filter(|value| !value.is_null())
}

/// The text of what is there, or nothing.
pub(super) fn text(object: &Value, place: &str) -> String {
    at(object, place).map(plain).unwrap_or_default()
}

/// The text of a scalar; quantities and ports may be numbers.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => String::new(),
    }
}

/// The number there, or zero.
pub(super) fn int(object: &Value, place: &str) -> i64 {
    at(object, place)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// The list there, or an empty one.
pub(super) fn items<'a>(object: &'a Value, place: &str) -> &'a [Value] {
    at(object, place)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// How many entries the list or map there has.
pub(super) fn count(object: &Value, place: &str) -> usize {
    match at(object, place) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    }
}

/// How long ago the time there is.
pub(super) fn age(object: &Value, place: &str, now: Timestamp) -> String {
    match text(object, place).parse() {
        Ok(then) => since(then, now),
        Err(_) => UNKNOWN.to_owned(),
    }
}

/// One field of every item, in a row.
pub(super) fn join(items: &[Value], key: &str, between: &str) -> String {
    let values: Vec<String> = items.iter().map(|item| text(item, key)).collect();
    values.join(between)
}

const fn field(
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: i64,
    cell: Cell,
) -> Field {
    Field {
        name,
        kind,
        format,
        priority,
        cell,
    }
}

const fn string(name: &'static str, cell: Cell) -> Field {
    field(name, "string", "", 0, cell)
}

const fn wide(name: &'static str, cell: Cell) -> Field {
    field(name, "string", "", 1, cell)
}

const fn integer(name: &'static str, cell: Cell) -> Field {
    field(name, "integer", "", 0, cell)
}

const fn boolean(name: &'static str, cell: Cell) -> Field {
    field(name, "boolean", "", 0, cell)
}

const NAME: Field = field("Name", "string", "name", 0, Text("/metadata/name"));
const AGE: Field = string("Age", Since("/metadata/creationTimestamp"));
const CONTAINERS: Field = wide(
    "Containers",
    Each("/spec/template/spec/containers", "/name"),
);
const IMAGES: Field = wide("Images", Each("/spec/template/spec/containers", "/image"));
const SELECTOR: Field = wide("Selector", Selector("/spec/selector"));

/// The columns of a built-in resource.
pub(super) fn fields(group: &str, resource: &str) -> &'static [Field] {
    KINDS
        .iter()
        .find(|kind| kind.0 == group && kind.1 == resource)
        .map_or(DEFAULT, |kind| kind.2)
}

static DEFAULT: &[Field] = &[
    NAME,
    field(
        "Created At",
        "date",
        "",
        0,
        Or("/metadata/creationTimestamp", "0001-01-01T00:00:00Z"),
    ),
];

const DESIRED: Field = integer("Desired", Int("/spec/replicas"));
const CURRENT: Field = integer("Current", Int("/status/replicas"));
const READY_OF_ALL: Field = string(
    "Ready",
    Calc(|o| {
        let (ready, all) = (int(o, "/status/readyReplicas"), int(o, "/spec/replicas"));
        format!("{ready}/{all}")
    }),
);
const PARAM_KIND: Field = string(
    "ParamKind",
    Calc(|o| calc::pair_in(o, "/spec/paramKind", ["/apiVersion", "/kind"], UNSET)),
);
const READY: Field = integer("Ready", Int("/status/readyReplicas"));

/// Writes the table, one resource after the other.
macro_rules! kinds {
    ($($($group:literal $resource:literal),+: $fields:tt;)*) => {
        pub(super) static KINDS: &[(&str, &str, &[Field])] = &[$($(($group, $resource, &$fields)),+),*];
    };
}

kinds! {
    "" "componentstatuses": [
        NAME,
        string("Status", Calc(calc::component_status)),
        string("Message", Calc(|o| calc::condition_text(o, "/conditions", "Healthy", "/message"))),
        string("Error", Calc(|o| calc::condition_text(o, "/conditions", "Healthy", "/error"))),
    ];
    "" "configmaps": [
        NAME,
        string("Data", Json(|o| json!(count(o, "/data") + count(o, "/binaryData")))),
        AGE,
    ];
    "" "endpoints": [NAME, string("Endpoints", Calc(network::endpoints)), AGE];
    "" "events", "events.k8s.io" "events": [
        string("Last Seen", Now(calc::event_last)),
        string("Type", Text("/type")),
        string("Reason", Text("/reason")),
        string("Object", Calc(calc::event_object)),
        wide("Subobject", Calc(|o| {
            calc::first_text(o, &["/involvedObject/fieldPath", "/regarding/fieldPath"])
        })),
        wide("Source", Calc(calc::event_source)),
        string("Message", Calc(calc::event_message)),
        wide("First Seen", Now(calc::event_first)),
        wide("Count", Json(calc::event_count)),
        field("Name", "string", "name", 1, Text("/metadata/name")),
    ];
    "" "namespaces": [NAME, string("Status", Text("/status/phase")), AGE];
    "" "nodes": [
        NAME,
        string("Status", Calc(calc::node_status)),
        string("Roles", Calc(calc::node_roles)),
        AGE,
        string("Version", Text("/status/nodeInfo/kubeletVersion")),
        wide("Internal-IP", Calc(|o| calc::node_address(o, "InternalIP"))),
        wide("External-IP", Calc(|o| calc::node_address(o, "ExternalIP"))),
        wide("OS-Image", Filled("/status/nodeInfo/osImage", UNKNOWN)),
        wide("Kernel-Version", Filled("/status/nodeInfo/kernelVersion", UNKNOWN)),
        wide("Container-Runtime", Filled("/status/nodeInfo/containerRuntimeVersion", UNKNOWN)),
    ];
    "" "persistentvolumeclaims": [
        NAME,
        string("Status", Calc(calc::volume_phase)),
        string("Volume", Text("/spec/volumeName")),
        string("Capacity", Calc(|o| {
            calc::bound(o, |o| calc::quantity(o, "/status/capacity/storage", "0"))
        })),
        string("Access Modes", Calc(|o| {
            calc::bound(o, |o| calc::modes(items(o, "/status/accessModes")))
        })),
        string("StorageClass", Calc(calc::storage_class)),
        string("VolumeAttributesClass", Or("/spec/volumeAttributesClassName", UNSET)),
        AGE,
        wide("VolumeMode", Or("/spec/volumeMode", UNSET)),
    ];
    "" "persistentvolumes": [
        NAME,
        string("Capacity", Or("/spec/capacity/storage", "0")),
        string("Access Modes", Calc(|o| calc::modes(items(o, "/spec/accessModes")))),
        string("Reclaim Policy", Text("/spec/persistentVolumeReclaimPolicy")),
        string("Status", Calc(calc::volume_phase)),
        string("Claim", Calc(|o| {
            calc::pair_in(o, "/spec/claimRef", ["/namespace", "/name"], "")
        })),
        string("StorageClass", Calc(calc::storage_class)),
        string("VolumeAttributesClass", Or("/spec/volumeAttributesClassName", UNSET)),
        string("Reason", Text("/status/reason")),
        AGE,
        wide("VolumeMode", Or("/spec/volumeMode", UNSET)),
    ];
    "" "pods": [
        NAME,
        string("Ready", Calc(|o| Pod::new(o).ready())),
        string("Status", Calc(|o| Pod::new(o).status)),
        string("Restarts", Now(|o, now| Pod::new(o).restarts(now))),
        AGE,
        wide("IP", Filled("/status/podIPs/0/ip", NONE)),
        wide("Node", Filled("/spec/nodeName", NONE)),
        wide("Nominated Node", Filled("/status/nominatedNodeName", NONE)),
        wide("Readiness Gates", Calc(pods::readiness_gates)),
    ];
    "" "podtemplates": [
        NAME,
        string("Containers", Each("/template/spec/containers", "/name")),
        string("Images", Each("/template/spec/containers", "/image")),
        string("Pod Labels", Labels("/template/metadata/labels")),
    ];
    "" "replicationcontrollers": [
        NAME,
        DESIRED,
        CURRENT,
        READY,
        AGE,
        CONTAINERS,
        IMAGES,
        wide("Selector", Labels("/spec/selector")),
    ];
    "" "resourcequotas": [
        NAME,
        string("Request", Calc(|o| calc::quota(o, false))),
        string("Limit", Calc(|o| calc::quota(o, true))),
        AGE,
    ];
    "" "secrets": [NAME, string("Type", Text("/type")), string("Data", Count("/data")), AGE];
    "" "serviceaccounts": [NAME, string("Secrets", Count("/secrets")), AGE];
    "" "services": [
        NAME,
        string("Type", Text("/spec/type")),
        string("Cluster-IP", Or("/spec/clusterIPs/0", NONE)),
        string("External-IP", Calc(network::external_ip)),
        string("Port(s)", Calc(network::service_ports)),
        AGE,
        wide("Selector", Labels("/spec/selector")),
    ];
    "admissionregistration.k8s.io" "mutatingadmissionpolicies": [
        NAME,
        integer("Mutations", Count("/spec/mutations")),
        PARAM_KIND,
        AGE,
    ];
    "admissionregistration.k8s.io" "validatingadmissionpolicies": [
        NAME,
        integer("Validations", Count("/spec/validations")),
        PARAM_KIND,
        AGE,
    ];
    "admissionregistration.k8s.io" "mutatingadmissionpolicybindings",
    "admissionregistration.k8s.io" "validatingadmissionpolicybindings": [
        NAME,
        string("PolicyName", Text("/spec/policyName")),
        string("ParamRef", Calc(calc::param_ref)),
        AGE,
    ];
    "admissionregistration.k8s.io" "mutatingwebhookconfigurations",
    "admissionregistration.k8s.io" "validatingwebhookconfigurations": [NAME, integer("Webhooks", Count("/webhooks")), AGE];
    "apiregistration.k8s.io" "apiservices": [
        NAME,
        string("Service", Calc(|o| {
            calc::pair_in(o, "/spec/service", ["/namespace", "/name"], "Local")
        })),
        string("Available", Calc(calc::api_available)),
        AGE,
    ];
    "apps" "controllerrevisions": [
        NAME,
        string("Controller", Calc(calc::controller)),
        string("Revision", Int("/revision")),
        AGE,
    ];
    "apps" "daemonsets": [
        NAME,
        integer("Desired", Int("/status/desiredNumberScheduled")),
        integer("Current", Int("/status/currentNumberScheduled")),
        integer("Ready", Int("/status/numberReady")),
        integer("Up-to-date", Int("/status/updatedNumberScheduled")),
        integer("Available", Int("/status/numberAvailable")),
        string("Node Selector", Labels("/spec/template/spec/nodeSelector")),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ];
    "apps" "deployments": [
        NAME,
        READY_OF_ALL,
        string("Up-to-date", Int("/status/updatedReplicas")),
        string("Available", Int("/status/availableReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide("Selector", Calc(|o| calc::selector(o, "/spec/selector", "", "<invalid>"))),
    ];
    "apps" "replicasets": [
        NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR,
    ];
    "apps" "statefulsets": [
        NAME,
        READY_OF_ALL,
        AGE,
        CONTAINERS,
        IMAGES,
    ];
    "autoscaling" "horizontalpodautoscalers": [
        NAME,
        string("Reference", Calc(|o| {
            calc::pair_in(o, "/spec/scaleTargetRef", ["/kind", "/name"], "/")
        })),
        string("Targets", Calc(calc::metrics)),
        string("MinPods", Or("/spec/minReplicas", UNSET)),
        string("MaxPods", Int("/spec/maxReplicas")),
        string("Replicas", Int("/status/currentReplicas")),
        AGE,
    ];
    "autoscaling" "scales": [
        string("Name", Text("/metadata/name")),
        integer("Desired", Int("/spec/replicas")),
        integer("Available", Int("/status/replicas")),
        AGE,
    ];
    "batch" "cronjobs": [
        NAME,
        string("Schedule", Text("/spec/schedule")),
        string("Timezone", Or("/spec/timeZone", NONE)),
        boolean("Suspend", Calc(calc::suspend)),
        integer("Active", Count("/status/active")),
        string("Last Schedule", Now(|o, now| {
            calc::age_or(o, "/status/lastScheduleTime", NONE, now)
        })),
        AGE,
        wide("Containers", Each("/spec/jobTemplate/spec/template/spec/containers", "/name")),
        wide("Images", Each("/spec/jobTemplate/spec/template/spec/containers", "/image")),
        wide("Selector", Selector("/spec/jobTemplate/spec/selector")),
    ];
    "batch" "jobs": [
        NAME,
        string("Status", Calc(calc::job_status)),
        string("Completions", Calc(calc::completions)),
        string("Duration", Now(calc::job_duration)),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ];
    "certificates.k8s.io" "certificatesigningrequests": [
        NAME,
        AGE,
        string("SignerName", Filled("/spec/signerName", NONE)),
        string("Requestor", Text("/spec/username")),
        string("RequestedDuration", Calc(calc::requested_duration)),
        string("Condition", Calc(calc::csr_condition)),
    ];
    "certificates.k8s.io" "clustertrustbundles": [
        NAME,
        string("SignerName", Filled("/spec/signerName", NONE)),
    ];
    "coordination.k8s.io" "leases": [NAME, string("Holder", Text("/spec/holderIdentity")), AGE];
    "coordination.k8s.io" "leasecandidates": [
        NAME,
        string("LeaseName", Text("/spec/leaseName")),
        string("BinaryVersion", Text("/spec/binaryVersion")),
        string("EmulationVersion", Text("/spec/emulationVersion")),
        AGE,
    ];
    "discovery.k8s.io" "endpointslices": [
        NAME,
        string("AddressType", Text("/addressType")),
        string("Ports", Calc(network::slice_ports)),
        string("Endpoints", Calc(network::slice_endpoints)),
        AGE,
    ];
    "flowcontrol.apiserver.k8s.io" "flowschemas": [
        NAME,
        string("PriorityLevel", Text("/spec/priorityLevelConfiguration/name")),
        string("MatchingPrecedence", Int("/spec/matchingPrecedence")),
        string("DistinguisherMethod", Or("/spec/distinguisherMethod/type", NONE)),
        AGE,
        string("MissingPL", Calc(calc::dangling)),
    ];
    "flowcontrol.apiserver.k8s.io" "prioritylevelconfigurations": [
        NAME,
        string("Type", Text("/spec/type")),
        string("NominalConcurrencyShares", Json(|o| {
            calc::number_in(o, "/spec/limited", "nominalConcurrencyShares")
        })),
        string("Queues", Json(|o| calc::number_in(o, calc::QUEUING, "queues"))),
        string("HandSize", Json(|o| calc::number_in(o, calc::QUEUING, "handSize"))),
        string("QueueLengthLimit", Json(|o| calc::number_in(o, calc::QUEUING, "queueLengthLimit"))),
        AGE,
    ];
    "networking.k8s.io" "ingressclasses": [
        NAME,
        string("Controller", Text("/spec/controller")),
        string("Parameters", Calc(network::class_parameters)),
        AGE,
    ];
    "networking.k8s.io" "ingresses": [
        NAME,
        string("Class", Or("/spec/ingressClassName", NONE)),
        string("Hosts", Calc(network::ingress_hosts)),
        string("Address", Calc(|o| network::load_balancer(o).join(","))),
        string("Ports", Calc(network::ingress_ports)),
        AGE,
    ];
    "networking.k8s.io" "ipaddresses": [
        NAME,
        string("ParentRef", Calc(network::parent_ref)),
        // The real server sends an age here without a column for it.
        string("", Since("/metadata/creationTimestamp")),
    ];
    "networking.k8s.io" "networkpolicies": [
        NAME,
        string("Pod-Selector", Selector("/spec/podSelector")),
        AGE,
    ];
    "networking.k8s.io" "servicecidrs": [NAME, string("CIDRs", Each("/spec/cidrs", "")), AGE];
    "node.k8s.io" "runtimeclasses": [NAME, string("Handler", Text("/handler")), AGE];
    "policy" "poddisruptionbudgets": [
        NAME,
        string("Min Available", Or("/spec/minAvailable", "N/A")),
        string("Max Unavailable", Or("/spec/maxUnavailable", "N/A")),
        integer("Allowed Disruptions", Int("/status/disruptionsAllowed")),
        AGE,
    ];
    "rbac.authorization.k8s.io" "clusterrolebindings",
    "rbac.authorization.k8s.io" "rolebindings": [
        NAME,
        string("Role", Calc(|o| calc::pair_in(o, "/roleRef", ["/kind", "/name"], "/"))),
        AGE,
        wide("Users", Calc(|o| calc::subjects(o, "User"))),
        wide("Groups", Calc(|o| calc::subjects(o, "Group"))),
        wide("ServiceAccounts", Calc(|o| calc::subjects(o, "ServiceAccount"))),
    ];
    "resource.k8s.io" "deviceclasses": [NAME, AGE];
    "resource.k8s.io" "devicetaintrules": [
        NAME,
        string("Key", Text("/spec/taint/key")),
        string("Value", Text("/spec/taint/value")),
        string("Effect", Text("/spec/taint/effect")),
        string("TimeAdded", Now(|o, now| calc::age_or(o, "/spec/taint/timeAdded", "", now))),
        AGE,
    ];
    "resource.k8s.io" "resourceclaims": [NAME, string("State", Calc(calc::claim_state)), AGE];
    "resource.k8s.io" "resourceclaimtemplates": [NAME, AGE];
    "resource.k8s.io" "resourceslices": [
        NAME,
        string("Node", Text("/spec/nodeName")),
        string("Driver", Text("/spec/driver")),
        string("Pool", Text("/spec/pool/name")),
        AGE,
    ];
    "scheduling.k8s.io" "priorityclasses": [
        NAME,
        integer("Value", Int("/value")),
        boolean("Global-Default", Bool("/globalDefault", false)),
        AGE,
        string("PreemptionPolicy", Text("/preemptionPolicy")),
    ];
    "storage.k8s.io" "csidrivers": [
        NAME,
        boolean("AttachRequired", Bool("/spec/attachRequired", true)),
        boolean("PodInfoOnMount", Bool("/spec/podInfoOnMount", false)),
        boolean("StorageCapacity", Bool("/spec/storageCapacity", false)),
        string("TokenRequests", Calc(calc::token_requests)),
        boolean("RequiresRepublish", Bool("/spec/requiresRepublish", false)),
        string("Modes", Calc(calc::lifecycle_modes)),
        AGE,
    ];
    "storage.k8s.io" "csinodes": [NAME, integer("Drivers", Count("/spec/drivers")), AGE];
    "storage.k8s.io" "storageclasses": [
        field("Name", "string", "name", 0, Calc(calc::storage_class_name)),
        string("Provisioner", Text("/provisioner")),
        string("ReclaimPolicy", Or("/reclaimPolicy", "Delete")),
        string("VolumeBindingMode", Or("/volumeBindingMode", "Immediate")),
        string("AllowVolumeExpansion", Bool("/allowVolumeExpansion", false)),
        AGE,
    ];
    "storage.k8s.io" "volumeattachments": [
        NAME,
        field("Attacher", "string", "name", 0, Text("/spec/attacher")),
        string("PV", Text("/spec/source/persistentVolumeName")),
        string("Node", Text("/spec/nodeName")),
        boolean("Attached", Bool("/status/attached", false)),
        AGE,
    ];
    "storage.k8s.io" "volumeattributesclasses": [
        NAME,
        string("DriverName", Text("/driverName")),
        AGE,
    ];
}
