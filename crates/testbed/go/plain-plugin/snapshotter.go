package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// snapshotter copies the folders of hostPath volumes. Its config's `folder` holds the copies, and the
// volumes that are made of them.
type snapshotter struct {
	folder string
}

func (s *snapshotter) Init(config map[string]string) error {
	s.folder = config["folder"]
	if s.folder == "" {
		return errors.New("the location's config has no folder")
	}
	return nil
}

func (s *snapshotter) GetVolumeID(pv runtime.Unstructured) (string, error) {
	path, _, err := unstructured.NestedString(pv.UnstructuredContent(), "spec", "hostPath", "path")
	return path, err
}

func (s *snapshotter) SetVolumeID(pv runtime.Unstructured, volume string) (runtime.Unstructured, error) {
	content := pv.UnstructuredContent()
	if err := unstructured.SetNestedField(content, volume, "spec", "hostPath", "path"); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func (s *snapshotter) GetVolumeInfo(volume, zone string) (string, *int64, error) {
	return "folder", nil, nil
}

func (s *snapshotter) CreateSnapshot(volume, zone string, tags map[string]string) (string, error) {
	id := fresh()
	return id, copied(volume, filepath.Join(s.folder, "snapshots", id))
}

func (s *snapshotter) CreateVolumeFromSnapshot(snapshot, kind, zone string, iops *int64) (string, error) {
	from, err := s.snapshot(snapshot)
	if err != nil {
		return "", err
	}
	volume := filepath.Join(s.folder, "volumes", fresh())
	return volume, copied(from, volume)
}

func (s *snapshotter) DeleteSnapshot(snapshot string) error {
	path, err := s.snapshot(snapshot)
	if err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// snapshot is where one is kept.
func (s *snapshotter) snapshot(id string) (string, error) {
	if id != filepath.Base(id) || id == "." || id == ".." {
		return "", fmt.Errorf("%q is no snapshot of this plugin", id)
	}
	return filepath.Join(s.folder, "snapshots", id), nil
}

// fresh is a name that was never used.
func fresh() string {
	return fmt.Sprintf("plain-%d", time.Now().UnixNano())
}

// copied copies a folder; the copy is there as a whole or not at all.
func copied(from, to string) error {
	unfinished := to + ".new"
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(unfinished, os.DirFS(from)); err != nil {
		return errors.Join(err, os.RemoveAll(unfinished))
	}
	return os.Rename(unfinished, to)
}
