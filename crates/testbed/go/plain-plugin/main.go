// A plugin for tests, made with Velero's own framework as people make theirs: it knows of nothing
// that Bowline adds but for the objects in which a plugin may say how far it is, which one of its two
// snapshotters writes. Its actions want labelled objects only, the one that does nothing apart.
package main

import (
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
)

func main() {
	framework.NewServer().
		BindFlags(pflag.CommandLine).
		RegisterVolumeSnapshotter("example.com/plain", made(&snapshotter{})).
		RegisterVolumeSnapshotter(tellingName, made(&telling{})).
		RegisterBackupItemAction("example.com/nothing", made(nothing{})).
		RegisterBackupItemActionV2("example.com/slow", made(slow{})).
		RegisterRestoreItemActionV2("example.com/slow-restore", made(slowRestore{})).
		RegisterDeleteItemAction("example.com/noted", made(noted{})).
		RegisterItemBlockAction("example.com/together", made(together{})).
		Serve()
}

// made is how the framework asks for a handler.
func made(handler any) func(logrus.FieldLogger) (any, error) {
	return func(logrus.FieldLogger) (any, error) { return handler, nil }
}
