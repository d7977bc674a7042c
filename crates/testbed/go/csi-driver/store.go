package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"
)

// store is the folder. What is to be in it is made beside it and moved in when it is whole; calls take
// turns.
type store struct {
	sync.Mutex
	folder string
}

// volume is what is known of a volume beside its data.
type volume struct {
	Handle string
	Name   string
	Size   int64
	Block  bool
	// Its files are in memory while a pod has them, and no more than fit into its size.
	Memory bool
	// The handle of the snapshot or the volume that it was made of.
	Source string
}

// snapshot is what is known of a snapshot beside its data.
type snapshot struct {
	Handle string
	Name   string
	Volume string
	Size   int64
	Block  bool
	Group  string
	Made   time.Time
	Ready  time.Time
}

func (s snapshot) isReady() bool { return !time.Now().Before(s.Ready) }

// group is what is known of snapshots that were taken together.
type group struct {
	Handle    string
	Name      string
	Volumes   []string
	Snapshots []string
	Made      time.Time
}

func open(folder string) (*store, error) {
	if folder == "" {
		return nil, errors.New("no --folder")
	}
	s := &store{folder: folder}
	// What was not whole when an earlier one was killed.
	if err := os.RemoveAll(s.path("new")); err != nil {
		return nil, err
	}
	for _, kind := range []string{"new", "volumes", "snapshots", "groups"} {
		if err := os.MkdirAll(s.path(kind), 0o755); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *store) path(parts ...string) string {
	return filepath.Join(append([]string{s.folder}, parts...)...)
}

// handle is the same for the same name, so that a call that is made again finds what it made.
func handle(prefix, name string) string {
	return fmt.Sprintf("%s-%x", prefix, sha256.Sum256([]byte(name)))[:len(prefix)+17]
}

// read fills what is known of an entry, and says whether there is one.
func (s *store) read(kind, handle string, into any) (bool, error) {
	// A handle comes from outside; it is a name and no path.
	if handle == "" || handle != filepath.Base(handle) {
		return false, nil
	}
	text, err := os.ReadFile(s.path(kind, handle, "about.json"))
	if errors.Is(err, fs.ErrNotExist) || err != nil && strings.Contains(err.Error(), "name too long") {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(text, into)
}

// add makes an entry; fill puts its data in.
func (s *store) add(kind, handle string, about any, fill func(folder string) error) error {
	new := s.path("new", handle)
	if err := os.RemoveAll(new); err != nil {
		return err
	}
	if err := os.Mkdir(new, 0o755); err != nil {
		return err
	}
	if err := fill(new); err != nil {
		return err
	}
	text, err := json.Marshal(about)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(new, "about.json"), text, 0o644); err != nil {
		return err
	}
	return os.Rename(new, s.path(kind, handle))
}

// remove takes an entry out at once, however long its data takes.
func (s *store) remove(kind, handle string) error {
	if handle != filepath.Base(handle) {
		return nil
	}
	old := s.path("new", handle)
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	err := os.Rename(s.path(kind, handle), old)
	if errors.Is(err, fs.ErrNotExist) || err != nil && strings.Contains(err.Error(), "name too long") {
		return nil
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// snapshots are all of them, the oldest first.
func (s *store) snapshots() ([]snapshot, error) {
	entries, err := os.ReadDir(s.path("snapshots"))
	if err != nil {
		return nil, err
	}
	var all []snapshot
	for _, entry := range entries {
		var one snapshot
		if found, err := s.read("snapshots", entry.Name(), &one); err != nil {
			return nil, err
		} else if found {
			all = append(all, one)
		}
	}
	sort.SliceStable(all, func(a, b int) bool { return all[a].Made.Before(all[b].Made) })
	return all, nil
}

// wanted is what tests ask for: that snapshots fail, and how long they take.
func (s *store) wanted() (failure string, takes time.Duration, err error) {
	read := func(file string) string {
		text, _ := os.ReadFile(s.path(file))
		return strings.TrimSpace(string(text))
	}
	failure = read("fail-snapshots")
	if text := read("snapshot-ready-after"); text != "" {
		takes, err = time.ParseDuration(text)
	}
	return failure, takes, err
}

// copied makes a copy of a folder or a file as it is now: owners, times, links, holes and all.
func copied(from, to string) error {
	output, err := exec.Command("cp", "--archive", "--reflink=auto", "--sparse=always", "--no-target-directory", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy: %w: %s", err, output)
	}
	return nil
}
