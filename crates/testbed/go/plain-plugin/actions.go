package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	api "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// configMaps are those with a label, or all of them.
func configMaps(label string) velero.ResourceSelector {
	return velero.ResourceSelector{
		IncludedResources: []string{"configmaps"},
		LabelSelector:     label,
	}
}

// nothing is called for every ConfigMap, and that is all.
type nothing struct{}

func (nothing) AppliesTo() (velero.ResourceSelector, error) {
	return configMaps(""), nil
}

func (nothing) Execute(item runtime.Unstructured, _ *api.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
	return item, nil, nil
}

// slow has operations that take as long as the object's label says. When one is over, the object that
// belongs together with it is to be read again.
type slow struct{}

const slowLabel = "example.com/slow"

func (slow) Name() string { return "example.com/slow" }

func (slow) AppliesTo() (velero.ResourceSelector, error) {
	return configMaps(slowLabel), nil
}

func (slow) Execute(item runtime.Unstructured, _ *api.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error) {
	object, err := meta.Accessor(item)
	if err != nil {
		return nil, nil, "", nil, err
	}
	operation, err := begin(object.GetLabels()[slowLabel])
	return item, nil, operation, companions(object), err
}

func (slow) Progress(operation string, _ *api.Backup) (velero.OperationProgress, error) {
	return progress(operation)
}

func (slow) Cancel(operation string, _ *api.Backup) error {
	return cancel(operation)
}

// slowRestore is the same for objects that are restored.
type slowRestore struct{}

const slowRestoreLabel = "example.com/slow-restore"

func (slowRestore) Name() string { return "example.com/slow-restore" }

func (slowRestore) AppliesTo() (velero.ResourceSelector, error) {
	return configMaps(slowRestoreLabel), nil
}

func (slowRestore) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	object, err := meta.Accessor(input.Item)
	if err != nil {
		return nil, err
	}
	operation, err := begin(object.GetLabels()[slowRestoreLabel])
	return velero.NewRestoreItemActionExecuteOutput(input.Item).WithOperationID(operation), err
}

func (slowRestore) Progress(operation string, _ *api.Restore) (velero.OperationProgress, error) {
	return progress(operation)
}

func (slowRestore) Cancel(operation string, _ *api.Restore) error {
	return cancel(operation)
}

func (slowRestore) AreAdditionalItemsReady([]velero.ResourceIdentifier, *api.Restore) (bool, error) {
	return true, nil
}

// noted writes down the names it sees when a backup is deleted.
type noted struct{}

func (noted) AppliesTo() (velero.ResourceSelector, error) {
	return configMaps("example.com/noted"), nil
}

func (noted) Execute(input *velero.DeleteItemActionExecuteInput) error {
	object, err := meta.Accessor(input.Item)
	if err != nil {
		return err
	}
	path, err := note("deleted")
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s %s/%s\n", input.Backup.Name, object.GetNamespace(), object.GetName())
	return errors.Join(err, file.Close())
}

// together puts a ConfigMap into a block with the one that its label names.
type together struct{}

const togetherLabel = "example.com/together"

func (together) Name() string { return "example.com/together" }

func (together) AppliesTo() (velero.ResourceSelector, error) {
	return configMaps(togetherLabel), nil
}

func (together) GetRelatedItems(item runtime.Unstructured, _ *api.Backup) ([]velero.ResourceIdentifier, error) {
	object, err := meta.Accessor(item)
	if err != nil {
		return nil, err
	}
	return companions(object), nil
}

// companions are what the object's label names, if it has one.
func companions(object metav1.Object) []velero.ResourceIdentifier {
	name := object.GetLabels()[togetherLabel]
	if name == "" {
		return nil
	}
	return []velero.ResourceIdentifier{{
		GroupResource: schema.GroupResource{Resource: "configmaps"},
		Namespace:     object.GetNamespace(),
		Name:          name,
	}}
}

// note is a file where this plugin writes down what nobody would see otherwise.
func note(name string) (string, error) {
	folder := os.Getenv("PLAIN_PLUGIN_NOTES")
	if folder == "" {
		return "", errors.New("PLAIN_PLUGIN_NOTES names no folder")
	}
	return filepath.Join(folder, name), nil
}
