package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	usualSize = 1 << 30
	// Nothing is set aside for a volume, but no test wants more.
	mostSize = 1 << 40
)

type controller struct {
	csi.UnimplementedControllerServer
	store *store
}

func (controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	var all []*csi.ControllerServiceCapability
	for _, call := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	} {
		all = append(all, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: call},
		}})
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: all}, nil
}

func (c controller) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if request.Name == "" {
		return nil, status.Error(codes.InvalidArgument, "a volume needs a name")
	}
	block, err := isBlock(request.VolumeCapabilities)
	if err != nil {
		return nil, err
	}
	c.store.Lock()
	defer c.store.Unlock()
	from, err := c.source(request.VolumeContentSource)
	if err != nil {
		return nil, err
	}
	size, err := sizeOf(request.CapacityRange, from.size)
	if err != nil {
		return nil, err
	}
	about := volume{
		Handle: handle("vol", request.Name),
		Name:   request.Name,
		Size:   size,
		Block:  block,
		Memory: !block && request.Parameters["in"] == "memory",
		Source: from.handle,
	}
	var old volume
	if found, err := c.store.read("volumes", about.Handle, &old); err != nil {
		return nil, err
	} else if found {
		if !fits(old.Size, request.CapacityRange) || old.Block != block || old.Source != about.Source {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s is another one", request.Name)
		}
		return created(old, request), nil
	}
	if from.data != "" && from.block != block {
		return nil, status.Error(codes.InvalidArgument, "files and blocks cannot be made of each other")
	}
	err = c.store.add("volumes", about.Handle, about, func(folder string) error {
		return fill(filepath.Join(folder, "data"), about, from.data)
	})
	if err != nil {
		return nil, err
	}
	return created(about, request), nil
}

func created(about volume, request *csi.CreateVolumeRequest) *csi.CreateVolumeResponse {
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:      about.Handle,
		CapacityBytes: about.Size,
		ContentSource: request.VolumeContentSource,
	}}
}

// fill makes the data of a new volume, empty or as a copy.
func fill(data string, about volume, from string) error {
	if from != "" {
		if err := copied(from, data); err != nil {
			return err
		}
	}
	if !about.Block {
		return os.MkdirAll(data, 0o777)
	}
	file, err := os.OpenFile(data, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Truncate(about.Size)
}

// origin is what a volume is to be made of, if of anything.
type origin struct {
	handle string
	data   string
	size   int64
	block  bool
}

func (c controller) source(content *csi.VolumeContentSource) (origin, error) {
	switch {
	case content.GetSnapshot() != nil:
		var from snapshot
		found, err := c.store.read("snapshots", content.GetSnapshot().SnapshotId, &from)
		if err != nil {
			return origin{}, err
		}
		if !found {
			return origin{}, status.Errorf(codes.NotFound, "no snapshot %s", content.GetSnapshot().SnapshotId)
		}
		if !from.isReady() {
			return origin{}, status.Errorf(codes.Unavailable, "snapshot %s is not ready", from.Handle)
		}
		return origin{from.Handle, c.store.path("snapshots", from.Handle, "data"), from.Size, from.Block}, nil
	case content.GetVolume() != nil:
		var from volume
		found, err := c.store.read("volumes", content.GetVolume().VolumeId, &from)
		if err != nil {
			return origin{}, err
		}
		if !found {
			return origin{}, status.Errorf(codes.NotFound, "no volume %s", content.GetVolume().VolumeId)
		}
		return origin{from.Handle, c.store.path("volumes", from.Handle, "data"), from.Size, from.Block}, nil
	}
	return origin{}, nil
}

// sizeOf is how large a volume gets, which is at least what is copied into it.
func sizeOf(wanted *csi.CapacityRange, least int64) (int64, error) {
	size := max(wanted.GetRequiredBytes(), least)
	if size == 0 {
		size = usualSize
		if limit := wanted.GetLimitBytes(); limit > 0 {
			size = min(size, limit)
		}
	}
	if size > mostSize || !fits(size, wanted) {
		return 0, status.Errorf(codes.OutOfRange, "%d bytes are out of range", size)
	}
	return size, nil
}

func fits(size int64, wanted *csi.CapacityRange) bool {
	limit := wanted.GetLimitBytes()
	return size >= wanted.GetRequiredBytes() && (limit == 0 || size <= limit)
}

// isBlock says which of the two kinds of volumes is asked for.
func isBlock(wanted []*csi.VolumeCapability) (bool, error) {
	blocks := 0
	for _, one := range wanted {
		switch {
		case one.GetBlock() != nil:
			blocks++
		case one.GetMount() == nil:
			return false, status.Error(codes.InvalidArgument, "a volume has files or blocks")
		}
	}
	if len(wanted) == 0 || blocks != 0 && blocks != len(wanted) {
		return false, status.Error(codes.InvalidArgument, "a volume has files or blocks")
	}
	return blocks > 0, nil
}

func (c controller) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if request.VolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "which volume?")
	}
	c.store.Lock()
	defer c.store.Unlock()
	if err := c.store.remove("volumes", request.VolumeId); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c controller) ValidateVolumeCapabilities(_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if request.VolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "which volume?")
	}
	block, err := isBlock(request.VolumeCapabilities)
	if err != nil {
		return nil, err
	}
	c.store.Lock()
	defer c.store.Unlock()
	var about volume
	found, err := c.store.read("volumes", request.VolumeId, &about)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, status.Errorf(codes.NotFound, "no volume %s", request.VolumeId)
	}
	if about.Block != block {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: "it is of the other kind"}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeCapabilities: request.VolumeCapabilities,
		},
	}, nil
}
