package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	tellingName = "example.com/telling"
	// What it says that there is to do, and how long each part of it takes.
	parts     = 8
	partBytes = 1000
	partTime  = 500 * time.Millisecond
)

var (
	backups  = schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "volumepluginbackups"}
	restores = schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "volumepluginrestores"}
)

// telling is a snapshotter that says in the cluster how far it is, in objects of its own. What it does
// after CreateSnapshot goes wrong when the volume has a file `unlucky`.
type telling struct {
	snapshotter
	client    dynamic.Interface
	namespace string
}

func (t *telling) Init(config map[string]string) error {
	if err := t.snapshotter.Init(config); err != nil {
		return err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rest, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return err
	}
	t.namespace = os.Getenv("VELERO_NAMESPACE")
	if t.namespace == "" {
		return errors.New("VELERO_NAMESPACE is not set")
	}
	t.client, err = dynamic.NewForConfig(rest)
	return err
}

func (t *telling) CreateSnapshot(volume, zone string, tags map[string]string) (string, error) {
	id, err := t.snapshotter.CreateSnapshot(volume, zone, tags)
	if err != nil {
		return "", err
	}
	spec := map[string]any{"volume": volume, "backup": tags["velero.io/backup"], "plugin": tellingName}
	name, err := t.begin(backups, metav1.ObjectMeta{Name: id}, spec, map[string]any{"snapshotID": id})
	if err != nil {
		return "", errors.Join(err, t.DeleteSnapshot(id))
	}
	_, err = os.Stat(filepath.Join(volume, "unlucky"))
	go t.work(backups, name, err == nil)
	return id, nil
}

func (t *telling) CreateVolumeFromSnapshot(snapshot, kind, zone string, iops *int64) (string, error) {
	// Nobody says of which backup the snapshot is; the object does, on any cluster.
	of, err := t.client.Resource(backups).Namespace(t.namespace).Get(context.Background(), snapshot, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	backup, _, err := unstructured.NestedString(of.Object, "spec", "backup")
	if err != nil {
		return "", err
	}
	spec := map[string]any{"snapshotID": snapshot, "backup": backup, "plugin": tellingName}
	name, err := t.begin(restores, metav1.ObjectMeta{GenerateName: "telling-"}, spec, map[string]any{})
	if err != nil {
		return "", err
	}
	t.work(restores, name, false)
	return t.snapshotter.CreateVolumeFromSnapshot(snapshot, kind, zone, iops)
}

// begin makes an object that says that something has begun, and gives its name.
func (t *telling) begin(kind schema.GroupVersionResource, meta metav1.ObjectMeta, spec, status map[string]any) (string, error) {
	status["phase"] = "InProgress"
	status["startTimestamp"] = now()
	status["progress"] = figures(0)
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec, "status": status}}
	object.SetAPIVersion(kind.GroupVersion().String())
	object.SetKind(map[string]string{backups.Resource: "VolumePluginBackup", restores.Resource: "VolumePluginRestore"}[kind.Resource])
	object.SetName(meta.Name)
	object.SetGenerateName(meta.GenerateName)
	made, err := t.client.Resource(kind).Namespace(t.namespace).Create(context.Background(), object, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.GetName(), nil
}

// work takes its time, and says so.
func (t *telling) work(kind schema.GroupVersionResource, name string, unlucky bool) {
	for part := 1; part < parts; part++ {
		time.Sleep(partTime)
		t.tell(kind, name, map[string]any{"progress": figures(part)})
	}
	time.Sleep(partTime)
	if unlucky {
		t.tell(kind, name, map[string]any{
			"phase": "Failed", "message": "the other site is full", "completionTimestamp": now(),
		})
		return
	}
	t.tell(kind, name, map[string]any{
		"phase": "Completed", "progress": figures(parts), "completionTimestamp": now(),
	})
}

func (t *telling) tell(kind schema.GroupVersionResource, name string, status map[string]any) {
	body, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		objects := t.client.Resource(kind).Namespace(t.namespace)
		_, err = objects.Patch(context.Background(), name, types.MergePatchType, body, metav1.PatchOptions{})
	}
	if err != nil {
		panic(err)
	}
}

func figures(part int) map[string]any {
	return map[string]any{"bytesDone": int64(part * partBytes), "totalBytes": int64(parts * partBytes)}
}

func now() string {
	return time.Now().UTC().Format(time.RFC3339)
}
