package main

import (
	"fmt"
	"os"
	"time"

	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
)

// begin starts an operation that takes so long. Its id says when it began and how long it takes, so
// that any process can tell how far it is.
func begin(length string) (string, error) {
	takes, err := time.ParseDuration(length)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d-%d", time.Now().UnixNano(), takes.Milliseconds()), nil
}

func progress(operation string) (velero.OperationProgress, error) {
	var began, total int64
	if _, err := fmt.Sscanf(operation, "%d-%d", &began, &total); err != nil {
		return velero.OperationProgress{}, fmt.Errorf("operation %q: %w", operation, err)
	}
	started := time.Unix(0, began)
	done := min(time.Since(started).Milliseconds(), total)
	told := velero.OperationProgress{
		Completed:      done == total,
		NCompleted:     done,
		NTotal:         total,
		OperationUnits: "Milliseconds",
		Description:    "taking its time",
		Started:        started,
		Updated:        time.Now(),
	}
	if isCancelled(operation) {
		told.Completed = true
		told.Err = "cancelled"
	}
	return told, nil
}

// cancel ends an operation, for other processes too.
func cancel(operation string) error {
	path, err := note("cancelled-" + operation)
	if err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

func isCancelled(operation string) bool {
	path, err := note("cancelled-" + operation)
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}
