package main

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (c controller) CreateSnapshot(_ context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if request.Name == "" || request.SourceVolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "a snapshot needs a name and a volume")
	}
	c.store.Lock()
	defer c.store.Unlock()
	made, err := c.store.snap(request.Name, request.SourceVolumeId, "")
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: made.message()}, nil
}

// snap copies a volume, unless it did so under this name before.
func (s *store) snap(name, of, group string) (snapshot, error) {
	var old snapshot
	if found, err := s.read("snapshots", handle("snap", name), &old); err != nil {
		return snapshot{}, err
	} else if found {
		if old.Volume != of {
			return snapshot{}, status.Errorf(codes.AlreadyExists, "snapshot %s is of another volume", name)
		}
		return old, nil
	}
	var from volume
	if found, err := s.read("volumes", of, &from); err != nil {
		return snapshot{}, err
	} else if !found {
		return snapshot{}, status.Errorf(codes.NotFound, "no volume %s", of)
	}
	failure, takes, err := s.wanted()
	if err != nil {
		return snapshot{}, err
	}
	if failure != "" {
		return snapshot{}, status.Error(codes.Internal, failure)
	}
	now := time.Now()
	about := snapshot{
		Handle: handle("snap", name),
		Name:   name,
		Volume: of,
		Size:   from.Size,
		Block:  from.Block,
		Group:  group,
		Made:   now,
		Ready:  now.Add(takes),
	}
	return about, s.add("snapshots", about.Handle, about, func(folder string) error {
		return copied(s.path("volumes", of, "data"), filepath.Join(folder, "data"))
	})
}

func (s snapshot) message() *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId:      s.Handle,
		SourceVolumeId:  s.Volume,
		SizeBytes:       s.Size,
		CreationTime:    timestamppb.New(s.Made),
		ReadyToUse:      s.isReady(),
		GroupSnapshotId: s.Group,
	}
}

func (c controller) DeleteSnapshot(_ context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if request.SnapshotId == "" {
		return nil, status.Error(codes.InvalidArgument, "which snapshot?")
	}
	c.store.Lock()
	defer c.store.Unlock()
	var about snapshot
	if found, err := c.store.read("snapshots", request.SnapshotId, &about); err != nil {
		return nil, err
	} else if !found {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if err := c.store.remove("snapshots", about.Handle); err != nil {
		return nil, err
	}
	if err := c.store.removeEmpty(about.Group); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

func (c controller) ListSnapshots(_ context.Context, request *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	c.store.Lock()
	defer c.store.Unlock()
	all, err := c.store.snapshots()
	if err != nil {
		return nil, err
	}
	var found []*csi.ListSnapshotsResponse_Entry
	for _, one := range all {
		if (request.SnapshotId == "" || request.SnapshotId == one.Handle) &&
			(request.SourceVolumeId == "" || request.SourceVolumeId == one.Volume) {
			found = append(found, &csi.ListSnapshotsResponse_Entry{Snapshot: one.message()})
		}
	}
	return page(found, request.StartingToken, int(request.MaxEntries))
}

// page is a part of a list; a token is the number of those before.
func page(all []*csi.ListSnapshotsResponse_Entry, token string, most int) (*csi.ListSnapshotsResponse, error) {
	from := 0
	if token != "" {
		var err error
		from, err = strconv.Atoi(token)
		if err != nil || from < 0 || from > len(all) {
			return nil, status.Errorf(codes.Aborted, "no page starts with %q", token)
		}
	}
	to := len(all)
	next := ""
	if most > 0 && from+most < to {
		to = from + most
		next = strconv.Itoa(to)
	}
	return &csi.ListSnapshotsResponse{Entries: all[from:to], NextToken: next}, nil
}
